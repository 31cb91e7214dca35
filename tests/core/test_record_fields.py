from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from tables import every_row

from cxrlab.core import record_fields as fields
from cxrlab.core import records
from cxrlab.core.errors import DataError, VocabularyError
from cxrlab.core.record_fields import Check, Record
from cxrlab.core.records import Example
from cxrlab.core.vocabulary import Side

RECORDS = [Example, *(item for item in vars(records).values() if isinstance(item, type) and issubclass(item, Record))]


@every_row("record", [record for record in RECORDS if record is not Record])
def test_every_field_has_a_check_in_its_place(record: type[Any]) -> None:
    """A field without one could neither be read nor written; their order is the order of the file."""
    assert [f.name for f in dataclasses.fields(record) if f.name != "extra"] == list(record.checks)


@every_row(
    ("check", "good"),
    [
        (fields.text, ["", "a"]),
        (fields.non_empty_text, ["a"]),
        (fields.path, ["a/b.png", "ä b"]),
        (fields.integer(), [0, 10**30]),
        (fields.number(), [0, -1.5, 1e308]),
        (fields.number(0, 1), [0, 0.0, 1]),
        (fields.one_of("a", "b"), ["b"]),
        (fields.mapping_of(fields.integer()), [{}, {"a": 0}]),
    ],
)
def test_good_values_come_back_as_they_are(check: Check, good: list[Any]) -> None:
    for value in good:
        found = check(value, "k")
        assert found == value and type(found) is type(value)


def test_lists_become_tuples_and_words_members() -> None:
    assert fields.list_of(fields.text)(["a", ""], "k") == ("a", "") and fields.list_of(fields.text)([], "k") == ()
    assert fields.span([0, 0], "k") == (0, 0) and fields.span((3, 9), "k") == (3, 9)
    assert fields.Word(Side)("left", "k") is Side.LEFT


@every_row(
    ("check", "bad", "wanted"),
    [
        (fields.text, [None, 5, True, ["a"], {}], "text"),
        (fields.non_empty_text, ["", None, 5], "text that is not empty"),
        (fields.path, ["", "a\0b", 5, ["a"]], "a path"),
        (fields.integer(1), [0, 1.0, True, "1", math.nan], "a whole number of at least 1"),
        (fields.number(), [True, "1", math.nan, math.inf, -math.inf, 10**400, None, [1]], "a number"),
        (fields.number(low=0), [-4, -0.1], "a number of at least 0"),
        (fields.number(0, 1), [1.01, -1], "a number from 0 to 1"),
        (fields.one_of("a", "b"), ["c", "", 5, ["a"], True], "one of a, b"),
        (fields.Word(Side), ["up", "", 5, ["left"], True], "one of left, right, bilateral"),
        (fields.span, [[1], [1, 2, 3], [True, False], [2, 1], [-1, 2], [0.0, 1.0], "ab", 5, {}], "two whole numbers"),
        (fields.list_of(fields.text), ["ab", {"a": "b"}, 5], "a list"),
        (fields.mapping_of(fields.text), ["ab", [["a", "b"]], 5], "an object"),
    ],
)
def test_bad_values_are_refused_by_key_value_and_what_is_wanted(check: Check, bad: list[Any], wanted: str) -> None:
    for value in bad:
        with pytest.raises(DataError, match="'the_key' is ") as caught:
            check(value, "the_key")
        assert f"; it must be {wanted}" in str(caught.value)


def test_a_place_inside_is_named_with_its_whole_key() -> None:
    with pytest.raises(DataError, match=r"^'k\[1\]\.b' is 5; it must be text\.$"):
        fields.list_of(fields.mapping_of(fields.text))([{}, {"a": "", "b": 5}], "k")
    with pytest.raises(DataError, match="^'a key of k' is 3"):
        fields.mapping_of(fields.text)({3: "a"}, "k")


def test_a_misspelt_word_is_of_the_vocabulary_and_another_type_is_not() -> None:
    with pytest.raises(VocabularyError, match="Did you mean 'left'"):
        fields.Word(Side)("lefft", "side")
    with pytest.raises(DataError) as caught:
        fields.Word(Side)(5, "side")
    assert not isinstance(caught.value, VocabularyError)


def test_undefined_is_null_in_json_and_not_a_number_here() -> None:
    check = fields.number(or_undefined=True)
    assert math.isnan(check(None, "k")) and math.isnan(check(math.nan, "k")) and check(0, "k") == 0
    with pytest.raises(DataError):
        check(math.inf, "k")


@pytest.mark.parametrize("source", ["edema", 5, None, ["a"], True])
def test_what_is_no_object_is_no_record(source: Any) -> None:
    with pytest.raises(DataError, match="the text of a report must be an object such as"):
        records.Report.from_json(source)


def test_everything_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(DataError, match="^a preference pair needs 'chosen' and 'judge'; add what is missing.$"):
        records.PreferencePair.from_json({"id": "s", "rejected": ""})

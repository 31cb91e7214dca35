from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.core.json_values import InvalidJson, dumps, loads, plain
from cxrlab.core.records import Query
from cxrlab.core.vocabulary import Side


@dataclass(frozen=True)
class Box:
    side: Side
    corners: tuple[float, ...]


def test_everything_that_rooms_write_becomes_plain() -> None:
    value = {
        "box": Box(Side.LEFT, (1.0, 2.0)),
        "query": Query("q", "00", tokens=2),
        "path": Path("a") / "b",
        "numpy": np.float32(0.5),
        "array": np.array([[1, 2]]),
        "set": {"b", "a"},
        3: None,
    }
    assert plain(value) == {
        "box": {"side": "left", "corners": [1.0, 2.0]},
        "query": {"id": "q", "image_sha256": "00", "tokens": 2, "round": 0},
        "path": "a/b",
        "numpy": 0.5,
        "array": [[1, 2]],
        "set": ["a", "b"],
        "3": None,
    }


def test_the_types_are_the_plain_ones() -> None:
    """A StrEnum is a str to isinstance; the file must not depend on how json treats subclasses."""
    assert type(plain(Side.LEFT)) is str and type(plain(np.int64(3))) is int and type(plain(np.bool_(True))) is bool


def test_undefined_is_null() -> None:
    """JSON has no NaN: a file with one cannot be read by other programs."""
    assert json.loads(dumps({"tau": math.nan})) == {"tau": None}
    assert plain(np.float64("nan")) is None


def test_an_infinity_is_refused_with_its_place() -> None:
    with pytest.raises(DataError, match=r"value\.scores\[1\]"):
        dumps({"scores": [0.0, math.inf]})


@pytest.mark.parametrize("value", [object(), {"f": len}, {(1, 2): 3}, {None: 1}, {True: 1}])
def test_what_has_no_json_form_is_refused(value: object) -> None:
    with pytest.raises(DataError):
        dumps(value)


def test_letters_stay_readable() -> None:
    assert dumps({"word": "œdème"}) == '{"word": "œdème"}'


@every_row(
    ("text", "reason"),
    [
        ('{"a": NaN}', "NaN is not valid in JSON"),
        ("[-Infinity]", "-Infinity is not valid in JSON"),
        ('{"a": 1e999}', "the number 1e999 is too large"),
        ('{"a": ' + "9" * 5000 + "}", "a whole number of thousands of digits"),
        ('{"a": "\\ud800"}', r"a lone surrogate, such as \ud800"),
        ('{"\\uDFFFx": 1}', r"a lone surrogate, such as \uDFFF"),
        ('{"a": 1, "a": 2}', "the key 'a' twice in one object"),
        ("[" * 10**5, "nested too deeply"),
        ("[1, }", "expecting value at column 5"),
        ('["a', "unterminated string starting at column 2"),
    ],
)
def test_what_would_be_lost_or_fail_later_is_refused_at_reading(text: str, reason: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        loads(text)
    assert str(caught.value).startswith(reason)


def test_a_whole_character_written_as_two_halves_is_read() -> None:
    """Two halves in the right order are how JSON in ASCII writes 𝛼; a backslash before the u is no escape at all."""
    assert loads(r'["\ud835\udefc", "\\ud800", 1e308, 5]') == ["𝛼", r"\ud800", 1e308, 5]


def test_not_a_number_is_read_only_where_others_files_are() -> None:
    """Python's own writer gives NaN for a missing value; infinities stay refused."""
    found = loads('[NaN, {"a": NaN}, 1]', undefined=True)
    assert math.isnan(found[0]) and math.isnan(found[1]["a"]) and found[2] == 1
    for text in ("Infinity", "-Infinity"):
        with pytest.raises(InvalidJson, match="not valid in JSON"):
            loads(text, undefined=True)
    with pytest.raises(InvalidJson, match="NaN"):
        loads("NaN")

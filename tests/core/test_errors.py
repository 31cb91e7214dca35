from __future__ import annotations

import pytest

from cxrlab.core import errors
from cxrlab.core.errors import CxrlabError, did_you_mean, short_repr


def test_nearest_finds_a_slip_whatever_the_case() -> None:
    """One wrong letter, and capitals, are what people get wrong."""
    assert did_you_mean("sise", ["size", "depth"]) == " Did you mean 'size'?"
    assert did_you_mean("EDEMA", ["Edema", "Fracture"]) == " Did you mean 'Edema'?"


def test_nearest_is_silent_when_nothing_is_close() -> None:
    """A wild guess would send the user the wrong way."""
    assert did_you_mean("zzzz", ["size", "seed"]) == ""


def test_nearest_wants_more_than_half_of_the_letters() -> None:
    """'abcxyz' shares half of its letters with 'abcdef' (ratio 0.5): too far; two thirds is near enough."""
    assert did_you_mean("abcxyz", ["abcdef"]) == ""
    assert did_you_mean("abcdxy", ["abcdef"]) == " Did you mean 'abcdef'?"


def test_nearest_names_at_most_three() -> None:
    assert did_you_mean("ab1", ["ab2", "ab3", "ab4", "ab5"]).count("'") == 6


@pytest.mark.parametrize(
    "name", ["ConfigError", "DataError", "VocabularyError", "UnknownName", "MissingExtra", "RunError"]
)
def test_every_error_is_of_the_family(name: str) -> None:
    """The command line catches the root alone."""
    assert issubclass(getattr(errors, name), CxrlabError)


def test_a_message_never_quotes_a_report() -> None:
    """Text of more than four words may be one, wherever it stands in a value."""
    report = "Large left effusion, no pneumothorax."
    assert short_repr(report) == "text of 5 words" and short_repr("12 rue de Lyon") == "'12 rue de Lyon'"
    assert short_repr({"findings": [report], "n": 1}) == "{'findings': [text of 5 words], 'n': 1}"


def test_a_value_is_shown_short_and_in_the_words_of_json() -> None:
    assert short_repr(None) == "null" and short_repr("a") == "'a'" and short_repr([1, "b"]) == "[1, 'b']"
    assert len(short_repr("x" * 10**6)) < 100 and len(short_repr(list(range(10**6)))) < 100
    assert short_repr(10**5000) == "a number of thousands of digits"

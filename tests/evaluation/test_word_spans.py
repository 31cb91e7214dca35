"""Words of a report."""

from __future__ import annotations

import pytest

from cxrlab.core.errors import DataError
from cxrlab.evaluation.explain import find_occurrences, find_words

TEXT = "Left effusion. No right-sided effusion; Effusions gone, 3.5 cm."


def said(spans: list[tuple[int, int]]) -> list[str]:
    return [TEXT[start:end] for start, end in spans]


def test_words_without_punctuation() -> None:
    assert said(find_words(TEXT)) == "Left effusion No right-sided effusion Effusions gone 3 5 cm".split()
    assert find_words(" ._- ") == []


def test_all_occurrences_in_any_case_but_never_inside_a_word() -> None:
    """`effusion` is not found in `Effusions`."""
    assert find_occurrences(TEXT, "EFFUSION") == [(5, 13), (30, 38)]
    assert said(find_occurrences(TEXT, " left   effusion ")) == ["Left effusion"]
    assert said(find_occurrences(TEXT, "3.5")) == ["3.5"]
    assert said(find_occurrences(TEXT, "right-sided effusion;")) == ["right-sided effusion;"]


@pytest.mark.parametrize("part", ["right", "sided"])
def test_half_of_a_joined_word_is_not_a_word(part: str) -> None:
    """The same as `every_word` has it."""
    with pytest.raises(DataError, match="right-sided"):
        find_occurrences(TEXT, part)


def test_a_word_that_is_not_there_gets_the_nearest() -> None:
    with pytest.raises(DataError, match="'efusion'. Did you mean 'effusion'"):
        find_occurrences(TEXT, "efusion")
    with pytest.raises(DataError, match="empty"):
        find_occurrences(TEXT, " ")

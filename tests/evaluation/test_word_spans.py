"""Words of a report."""

from __future__ import annotations

import pytest

from cxrlab.core.errors import DataError
from cxrlab.evaluation.explain import every_word, occurrences

TEXT = "Left effusion. No right-sided effusion; Effusions gone, 3.5 cm."


def said(spans: list[tuple[int, int]]) -> list[str]:
    return [TEXT[start:end] for start, end in spans]


def test_words_without_punctuation() -> None:
    assert said(every_word(TEXT)) == "Left effusion No right-sided effusion Effusions gone 3 5 cm".split()
    assert every_word(" ._- ") == []


def test_all_occurrences_in_any_case_but_never_inside_a_word() -> None:
    """`effusion` is not found in `Effusions`."""
    assert occurrences(TEXT, "EFFUSION") == [(5, 13), (30, 38)]
    assert said(occurrences(TEXT, " left   effusion ")) == ["Left effusion"]
    assert said(occurrences(TEXT, "3.5")) == ["3.5"]
    assert said(occurrences(TEXT, "right-sided effusion;")) == ["right-sided effusion;"]


@pytest.mark.parametrize("part", ["right", "sided"])
def test_half_of_a_joined_word_is_not_a_word(part: str) -> None:
    """The same as `every_word` has it."""
    with pytest.raises(DataError, match="right-sided"):
        occurrences(TEXT, part)


def test_a_word_that_is_not_there_gets_the_nearest() -> None:
    with pytest.raises(DataError, match="does not hold 'efusion'. Did you mean 'effusion'"):
        occurrences(TEXT, "efusion")
    with pytest.raises(DataError, match="empty"):
        occurrences(TEXT, " ")

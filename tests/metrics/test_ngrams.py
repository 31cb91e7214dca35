"""Counting runs of words, against a plain counter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrlab.metrics import ngrams
from cxrlab.metrics.ngrams import NgramCache, NgramIndex

TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=8), min_size=1, max_size=6)


def runs(words: list[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + length]) for at in range(len(words) - length + 1))


@given(TEXTS, TEXTS)
def test_shared_runs_are_those_of_a_plain_counter(first: list[list[str]], second: list[list[str]]) -> None:
    """Every text against every other, texts of the second call counted after those of the first."""
    index = NgramIndex(3)
    assert [*index.add(first), *index.add(second)] == list(range(len(first) + len(second)))
    texts = first + second
    left, right = (side.ravel() for side in np.indices((len(texts), len(texts))))
    for length, count in enumerate(index.counts, start=1):
        counted = [runs(words, length) for words in texts]
        matches = count.shared(left, right).matches(len(left))
        assert matches.tolist() == [(counted[a] & counted[b]).total() for a, b in zip(left, right, strict=True)]
        assert count.totals.tolist() == [counter.total() for counter in counted]
        assert count.runs == len({run for counter in counted for run in counter})


def test_no_text_and_no_word() -> None:
    """Nothing to count is not an error."""
    index = NgramIndex(2)
    assert index.add([]).tolist() == []
    numbers = index.add([[], []])
    assert index.counts[1].shared(numbers, numbers).matches(2).tolist() == [0.0, 0.0]


def test_the_shelf_splits_a_text_once_while_the_references_stay() -> None:
    """Floors share their references; other references start afresh."""
    seen: list[str] = []

    def split(text: str) -> list[str]:
        seen.append(text)
        return text.split()

    shelf = NgramCache(split, 1)
    references = ("a b", "c")
    reported, said = shelf.numbers(references, ("a", "a"))
    assert shelf.counts[0].shared(reported, said).matches(2).tolist() == [1.0, 0.0]
    shelf.numbers(references, ("c", "d"))
    assert sorted(seen) == ["a", "a b", "c", "d"]
    shelf.numbers(("c",), ("c",))
    assert seen[-1] == "c" and shelf.counts[0].texts == 1


def test_a_shelf_that_holds_too_much_starts_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many candidates for the same references do not fill the memory."""
    monkeypatch.setattr(ngrams, "_KEPT_WORDS", 10)
    shelf = NgramCache(str.split, 1)
    for number in range(20):
        reported, said = shelf.numbers(("a b c",), (f"a x{number} y{number}",))
        assert shelf.counts[0].shared(reported, said).matches(1).tolist() == [1.0]
        assert shelf.counts[0].texts <= 6

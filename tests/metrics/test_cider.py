"""CIDEr against the formula written out with dictionaries, and numbers a person can check."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrlab.metrics.coco_caption import cider
from cxrlab.metrics.ngrams import NgramIndex

TEXT = st.lists(st.sampled_from("abcde"), max_size=9)
Run = tuple[str, ...]


def ours(references: list[list[str]], candidates: list[list[str]]) -> list[float]:
    index = NgramIndex(4)
    reported, said = index.add(references), index.add(candidates)
    return cider(index.counts, [count.shared(said, reported) for count in index.counts], reported, said).tolist()


def written_out(references: list[list[str]], candidates: list[list[str]]) -> list[float]:
    """The formula, one pair and one run at a time."""

    def runs(words: list[str], n: int) -> Counter[Run]:
        return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))

    values = []
    for reported, said in zip(references, candidates, strict=True):
        total = 0.0
        for n in (1, 2, 3, 4):
            holders = Counter(run for words in references for run in set(runs(words, n)))
            weigh = {run: math.log(len(references) / max(1, holders[run])) for run in runs(reported, n) | runs(said, n)}
            t = {run: times * weigh[run] for run, times in runs(reported, n).items()}
            s = {run: times * weigh[run] for run, times in runs(said, n).items()}
            norm = math.hypot(*t.values()) * math.hypot(*s.values())
            product = sum(min(s[run], t[run]) * t[run] for run in t.keys() & s.keys())
            total += product / norm if norm else 0.0
        gap = max(len(said) - 1, 0) - max(len(reported) - 1, 0)
        values.append(10 * total / 4 * math.exp(-gap * gap / 72))
    return values


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
def test_equals_the_formula_written_out(pairs: list[tuple[list[str], list[str]]]) -> None:
    """References that repeat, empty texts, texts shorter than a run: all in five letters."""
    references, candidates = [reported for reported, _ in pairs], [said for _, said in pairs]
    assert ours(references, candidates) == pytest.approx(written_out(references, candidates), abs=1e-9)


def test_identical_text_scores_ten_where_its_words_are_its_own() -> None:
    """Cosine 1 at each of four lengths, no difference in length, times ten."""
    references = [list("abcd"), list("efgh")]
    assert ours(references, references) == pytest.approx([10.0, 10.0])


def test_what_every_reference_has_weighs_nothing() -> None:
    """log(2/2) = 0: a candidate of common words alone scores 0."""
    assert ours([["x", "a"], ["x", "b"]], [["x"], ["x"]]) == [0.0, 0.0]


def test_a_single_reference_has_no_weights() -> None:
    """log(1/1) = 0, also against itself: the published oddity."""
    assert ours([list("abcd")], [list("abcd")]) == [0.0]


def test_six_words_more_cost_a_factor_of_exp_half() -> None:
    """The candidate says the same and six words that no reference has; only the penalty is looked at."""
    references, longer = [list("abcd"), list("efgh")], list("abcd") + [f"n{k}" for k in range(6)]
    squares = [4, 3, 2, 1]  # runs of 1..4 words in the reference, all of weight log 2
    cosine = sum(math.sqrt(n / (n + 6)) for n in squares) / 4
    assert ours(references, [longer, list("efgh")])[0] == pytest.approx(10 * cosine * math.exp(-0.5))
    assert np.isfinite(ours(references, [[], []])).all()

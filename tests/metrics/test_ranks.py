"""Places of right candidates, against tables small enough to read off."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from cxrlab.metrics import retrieval
from cxrlab.metrics.retrieval import UNKNOWN, chance, first_match_rank, fixed_order, match_counts, recall


def unit(rows: list[list[float]]) -> np.ndarray:
    vectors = np.asarray(rows, np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def keys(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_the_place_is_counted_from_one() -> None:
    """A query along x, candidates at growing angles; the right one is third."""
    gallery = unit([[1, 0.5], [1, 0.1], [1, 0.3], [1, 0.9]])
    assert first_match_rank(unit([[1, 0]]), keys(7), gallery, keys(7, 1, 2, 3)).tolist() == [3]


def test_any_candidate_with_the_same_key_counts() -> None:
    """The image's own report is last, but the nearest one has the same words."""
    gallery = unit([[0, 1], [1, 0.1], [1, 0.3]])
    assert first_match_rank(unit([[1, 0]]), keys(5), gallery, keys(5, 5, 1)).tolist() == [1]


def test_a_tie_counts_against() -> None:
    """An encoder that gives everything one vector has found nothing."""
    same = unit([[1, 1]] * 4)
    assert first_match_rank(same, keys(0, 1, 2, 3), same, keys(0, 1, 2, 3)).tolist() == [4, 4, 4, 4]


def test_unknown_keys_are_never_right() -> None:
    vectors = unit([[1, 0], [0, 1]])
    assert first_match_rank(vectors, keys(UNKNOWN, 9), vectors, keys(UNKNOWN, 3)).tolist() == [0, 0]
    assert match_counts(keys(UNKNOWN, 9), keys(UNKNOWN, 3)).tolist() == [0, 0]
    assert match_counts(keys(1), keys(UNKNOWN)).tolist() == [0]


def test_blocks_give_what_the_whole_matrix_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that 200,000 × 200,000 cosines never stand in memory at once."""
    rng = np.random.default_rng(3)
    queries, gallery = (unit(rng.normal(size=(23, 5)).tolist()) for _ in range(2))
    wanted, have = rng.integers(0, 6, 23), rng.integers(0, 6, 23)
    whole = first_match_rank(queries, wanted, gallery, have)
    monkeypatch.setattr(retrieval, "BLOCK", 50)  # two queries at a time
    assert np.array_equal(first_match_rank(queries, wanted, gallery, have), whole)
    cosines = queries @ gallery.T
    for row in range(23):  # by sorting, wrong ones first among equals
        order = sorted(range(23), key=lambda k: (-cosines[row, k], have[k] == wanted[row]))
        places = [place for place, k in enumerate(order, 1) if have[k] == wanted[row]]
        assert whole[row] == (places[0] if places else 0)


def test_recall_counts_queries_that_have_an_answer() -> None:
    """Places 1, 3, 7 and none: recall@1 is 1/3, @5 is 2/3, over three queries."""
    places = keys(1, 3, 7, 0)
    one, five = recall("image_to_text", places, 1), recall("image_to_text", places, 5)
    assert one.value == pytest.approx(1 / 3) and five.value == pytest.approx(2 / 3)
    assert one.n == 3 and one.undefined == 1 and one.metric.name == "image_to_text.recall@1"


def test_chance_by_counting_every_order() -> None:
    """Five candidates, two of them right: the share of all 120 orders with a right one among the first k."""
    for k in (1, 2, 4, 5):
        hits = [any(candidate < 2 for candidate in order[:k]) for order in permutations(range(5))]
        assert chance(keys(2), 5, k) == pytest.approx(np.mean(hits))


def test_chance_is_a_mean_over_queries_with_an_answer() -> None:
    """1 of 4 and 2 of 4 at k = 1: (1/4 + 2/4) / 2; a query without an answer does not enter."""
    assert chance(keys(1, 2, 0), 4, 1) == pytest.approx(0.375)
    assert math.isnan(chance(keys(0), 4, 1))
    assert chance(keys(1), 3, 10) == 1.0  # looking at more than there are


@pytest.mark.parametrize("place", ["queries", "gallery"])
def test_vectors_that_are_no_numbers_find_nothing(place: str) -> None:
    """A cosine that is not a number compares with nothing: without the check every query would stand first."""
    good, bad = unit([[1, 0], [0, 1]]), np.full((2, 2), np.nan, np.float32)
    queries, gallery = (bad, good) if place == "queries" else (good, bad)
    with pytest.raises(ValueError, match="not a number"):
        first_match_rank(queries, keys(0, 1), gallery, keys(0, 1))


def test_places_equal_those_of_counting_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small whole numbers as vectors, so that ties abound; repeated and unknown keys; blocks of a few queries."""
    rng = np.random.default_rng(3)
    monkeypatch.setattr(retrieval, "BLOCK", 40)
    queries, gallery = (rng.integers(-2, 3, (count, 3)).astype(np.float32) for count in (60, 17))
    wanted, held = rng.integers(-1, 8, 60), rng.integers(-1, 6, 17)
    expected = []
    for query, key in zip(queries, wanted, strict=True):
        cosines, right = gallery @ query, (held == key) & (key != UNKNOWN)
        best = cosines[right].max() if right.any() else None
        expected.append(0 if best is None else 1 + int(((cosines >= best) & ~right).sum()))
    assert first_match_rank(queries, wanted, gallery, held).tolist() == expected


def test_an_order_that_never_looks_finds_what_is_common() -> None:
    """Three of five reports are the same: who always shows that one finds three of five, with a second place four."""
    held = keys(4, 4, 4, 1, 2)
    assert [fixed_order(held, held, k) for k in (1, 2, 9)] == pytest.approx([0.6, 0.8, 1.0])
    assert (
        fixed_order(keys(4, UNKNOWN, 7), held, 1) == 1.0
    )  # neither the unknown nor the one without an answer is asked
    assert math.isnan(fixed_order(keys(7), held, 1))


def test_an_encoder_that_gives_every_image_one_vector_cannot_beat_it() -> None:
    """All queries see the same order, whichever it is."""
    rng = np.random.default_rng(5)
    held = rng.integers(0, 4, 30)
    gallery, query = unit(rng.normal(size=(30, 3)).tolist()), unit(rng.normal(size=(1, 3)).tolist())
    places = first_match_rank(np.repeat(query, 30, axis=0), held, gallery, held)
    for k in (1, 2, 5):
        assert np.mean(places <= k) <= fixed_order(held, held, k)

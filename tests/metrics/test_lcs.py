"""The longest common subsequence against the textbook table."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from cxrlab.metrics.ngrams import common_length


def table(left: list[int], right: list[int]) -> int:
    """The textbook recursion, row by row."""
    row = [0] * (len(right) + 1)
    for a in left:
        above = row[:]
        for place, b in enumerate(right, start=1):
            row[place] = above[place - 1] + 1 if a == b else max(above[place], row[place - 1])
    return row[-1]


def test_hand_worked() -> None:
    """`no … effusion` survives of both sentences."""
    assert common_length("there is no large effusion".split(), "no pleural effusion".split()) == 2
    assert common_length(["a", "b"], ["b", "a"]) == 1
    assert common_length([], ["a"]) == common_length(["a"], []) == common_length([], []) == 0


@given(st.lists(st.integers(0, 4), max_size=90), st.lists(st.integers(0, 4), max_size=90))
def test_equals_the_table_both_ways_round(left: list[int], right: list[int]) -> None:
    """Few kinds of words and more than 64 of them: many carries across a machine word."""
    assert common_length(left, right) == common_length(right, left) == table(left, right)


def test_long_texts_need_neither_time_nor_memory() -> None:
    """The table of two texts of 20,000 words would have 400 million cells."""
    words = [str(number % 977) for number in range(20_000)]
    start = time.perf_counter()
    assert common_length(words, words) == 20_000
    assert time.perf_counter() - start < 5.0

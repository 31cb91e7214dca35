"""Longest common subsequence of two lists of words, many words at a time.

The usual table costs one step for each pair of words. Here a whole row of it is one integer, a bit a
word, and a row follows from the one above by an addition that carries (Crochemore et al. 2001;
Hyyrö 2004): the steps are as many as the shorter list has words, and memory is one row.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def common_length(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """Length of the longest common subsequence, 0..min(len(left), len(right)); 0 where one is empty."""
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    if not shorter:
        return 0
    places: dict[Hashable, int] = {}
    places_of = places.get
    bit = 1
    for word in longer:
        places[word] = places_of(word, 0) | bit
        bit <<= 1
    everywhere = row = bit - 1
    for word in shorter:
        if here := places_of(word):
            kept = row & here
            # Bits carried beyond the last word never come back down; they are cut off at the end.
            row = (row + kept) | (row - kept)
    return len(longer) - (row & everywhere).bit_count()

"""A text as 128 bytes by which the share of its phrases that another text has can be estimated.

The phrases are runs of three words. Each of 128 hash functions keeps the phrase with the least value;
the share of functions that agree on two texts estimates the share of phrases they have in common (the
size of the intersection over that of the union), with a standard error of at most 0.045.
"""

from __future__ import annotations

import re
import zlib
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.randomness import generator

HASHES = 128
PHRASE = 3
# Texts that share at least this part of their phrases count as near-duplicates: one word changed in thirty.
NEAR_SHARE = 0.8

_WORD = re.compile(r"[^\W_]+")
# Odd constants of the golden ratio and of the square roots of 2 and 3: they spread equal words apart by their place.
_PLACES = np.array([0x9E3779B97F4A7C15, 0x6A09E667F3BCC909, 0xBB67AE8584CAA73B], np.uint64)


def words(text: str) -> list[str]:
    """Its words and numbers in lower case; punctuation, spacing and `___` masks are passed over."""
    return _WORD.findall(text.casefold())


def signature(found: list[str]) -> NDArray[np.uint8]:
    """The 128 bytes, [128], of a text of at least one word; a text of one or two words is one phrase."""
    values = np.array([_word_value(word) for word in found] + [0] * (PHRASE - len(found)), np.uint64)
    count = len(values) - PHRASE + 1
    phrases = sum((values[place : place + count] * _PLACES[place] for place in range(PHRASE)), np.uint64(0))
    factors, shifts = _functions()
    # Wraps around at 2^64, as is meant; the upper half of a product depends on every bit of the phrase.
    hashed = (np.asarray(phrases, np.uint64)[:, None] >> np.uint64(20)) * factors + shifts
    least: NDArray[np.uint64] = (hashed >> np.uint64(24)).min(axis=0)
    # One byte is enough: two different phrases agree on it once in 256 times.
    return (least & np.uint64(255)).astype(np.uint8)


def share(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Estimated share of common phrases for pairs of signatures, [N, 128] each → [N] in [0, 1]."""
    return np.asarray((one == other).mean(axis=1))


@lru_cache(maxsize=100_000)
def _word_value(word: str) -> int:
    return zlib.crc32(word.encode()) + 1


@cache
def _functions() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Factors (odd) and shifts of the hash functions, the same in every run."""
    random = generator(7, "minhash")
    factors = random.integers(0, 1 << 63, HASHES, np.uint64) * np.uint64(2) + np.uint64(1)
    return factors, random.integers(0, 1 << 63, HASHES, np.uint64)

"""Find exact and near duplicates among the reports and images of a corpus, by MinHash and perceptual hash."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.randomness import generator
from cxrlab.core.records import Study
from cxrlab.data.images import ImageArray

# Six bytes of a signature make one key: texts that share 0.8 of their phrases miss all 32 keys once in 17,000 times.
_BANDS, _BAND = 32, 6
# Twenty bits of a hash make one key: images 22 bits apart miss all 60 keys once in 50,000 times, images 30 bits apart
# six times in 1,000.
_TABLES, _SAMPLED = 60, 20
_ONES = np.array([value.bit_count() for value in range(256)], np.uint8)


@dataclass(frozen=True)
class Groups:
    """Things that are there more than once."""

    seen: int
    # Names of things that are the same, two or more in a group, in the order of the corpus.
    exact: tuple[tuple[str, ...], ...]
    # Names of different things that are alike, directly or through others; one name for each different thing.
    near: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Duplicates:
    """What is there more than once in a corpus: reports by the id of their study, images as `id#k`."""

    reports: Groups
    images: Groups


def report_groups(texts: Iterable[tuple[str, str]]) -> Groups:
    """Texts that are the same, or share at least 0.8 of their three-word phrases by MinHash; about 250 bytes per text."""
    grouper = _Grouper()
    rows: list[bytes] = []
    for name, text in texts:
        if (found := words(text)) and grouper.take(name, hashlib.blake2b(" ".join(found).encode(), digest_size=16)):
            rows.append(signature(found).tobytes())
    signatures = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), HASHES)

    return grouper.groups(
        _sampled_bytes(signatures), lambda one, other: share(signatures[one], signatures[other]) >= NEAR_SHARE
    )


def image_groups(pictures: Iterable[tuple[str, bytes, int]]) -> Groups:
    """Images of the same pixels, and images whose perceptual hashes differ in at most 30 of 256 bits."""
    grouper = _Grouper()
    hashes: list[int] = []
    for name, digest, value in pictures:
        if grouper.take(name, digest):
            hashes.append(value)
    rows = hash_rows(hashes)

    def close(one: Rows, other: Rows) -> NDArray[np.bool_]:
        return np.asarray(_ONES[rows[one] ^ rows[other]].sum(axis=1, dtype=np.int64) <= NEAR_BITS)

    return grouper.groups(_sampled_bits(rows), close)


def study_text(study: Study) -> str | None:
    """The source's own text of a study: findings and impression, else the whole report; None when there is none."""
    if study.sections is not None:
        parts = [text for text in (study.sections.findings, study.sections.impression) if text and text.strip()]
        if parts:
            return "\n".join(parts)
    return study.report if study.report and study.report.strip() else None


def closest(texts: Sequence[str], library: Iterable[str]) -> NDArray[np.float64]:
    """For each text its largest estimated share of phrases in common with a text of a library [N].

    1 where the words are the same, in a library of one text as of a million; at most 0.99 for other words.
    """
    known = {" ".join(found): found for text in library if (found := words(text))}
    rows = np.array([signature(found) for found in known.values()], np.uint8).reshape(len(known), HASHES)
    shares: dict[str, float] = {}
    for text in texts:
        key = " ".join(found := words(text))
        if key not in shares:
            alike = 1.0 if key in known else 0.0
            if found and known and not alike:
                alike = min(0.99, float((rows == signature(found)).mean(axis=1).max()))
            shares[key] = alike
    return np.array([shares[" ".join(words(text))] for text in texts])


class Phrases:
    """The words of a text and its three-word phrases."""

    def __init__(self, text: str) -> None:
        self.words = words(text)
        self.phrases = frozenset(zip(*(self.words[k:] for k in range(PHRASE)), strict=False))

    def share(self, other: Phrases) -> float:
        """The share of the phrases of the shorter text that are in the longer; 1 for the same words, 0 for a few words."""
        if not self.words or not other.words:
            return 0.0
        if self.words == other.words:
            return 1.0
        least = min(len(self.phrases), len(other.phrases))
        return len(self.phrases & other.phrases) / least if least >= LEAST_PHRASES else 0.0


class _Grouper:
    """Groups names by digest: the first of each different thing, and those that repeat it."""

    def __init__(self) -> None:
        self.seen = 0
        self.rows: dict[bytes, int] = {}
        self.firsts: list[str] = []
        self.repeats: dict[int, list[str]] = {}

    def take(self, name: str, digest: Any) -> bool:
        self.seen += 1
        key = digest if isinstance(digest, bytes) else digest.digest()
        row = self.rows.setdefault(key, len(self.firsts))
        if row < len(self.firsts):
            self.repeats.setdefault(row, [self.firsts[row]]).append(name)
            return False
        self.firsts.append(name)
        return True

    def groups(self, keys: Iterable[NDArray[Any]], close: Callable[..., NDArray[np.bool_]]) -> Groups:
        near = linked(keys, close, len(self.firsts)) if len(self.firsts) > 1 else []
        return Groups(
            self.seen,
            tuple(tuple(names) for names in self.repeats.values()),
            tuple(tuple(self.firsts[row] for row in rows) for rows in near),
        )


def _sampled_bytes(rows: NDArray[np.uint8]) -> Iterator[NDArray[np.uint64]]:
    """Six bytes of every signature as one number, repeated with other bytes; the same in every run."""
    random = generator(7, "sampled bytes")
    for _ in range(_BANDS):
        key = np.zeros(len(rows), np.uint64)
        for place in random.permutation(HASHES)[:_BAND].tolist():
            key = key << np.uint64(8) | rows[:, place]
        yield key


def _sampled_bits(rows: NDArray[np.uint8]) -> Iterator[NDArray[np.uint32]]:
    """Twenty bits of every hash as one number, repeated with other bits; the same in every run."""
    random = generator(7, "sampled bits")
    for _ in range(_TABLES):
        key = np.zeros(len(rows), np.uint32)
        for bit in random.permutation(BITS)[:_SAMPLED].tolist():
            key = key << np.uint32(1) | rows[:, bit // 8] >> np.uint8(7 - bit % 8) & np.uint8(1)
        yield key


Rows = NDArray[np.intp]
Close = Callable[[Rows, Rows], NDArray[np.bool_]]

# Things that share a key are each compared with this many that follow.
MOST_NEIGHBOURS = 64


def linked(keys: Iterable[NDArray[Any]], close: Close, count: int) -> list[list[int]]:
    """Groups of two or more things that are alike, directly or through others; rows in order."""
    roots = np.arange(count)
    for column in keys:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        for step in range(1, min(count, MOST_NEIGHBOURS + 1)):
            same = np.flatnonzero(ordered[step:] == ordered[:-step])
            if not len(same):
                break
            one, other = order[same], order[same + step]
            apart = roots[one] != roots[other]  # those that are linked already need no look
            one, other = one[apart], other[apart]
            alike = close(one, other)
            for a, b in zip(one[alike].tolist(), other[alike].tolist(), strict=True):
                # Let the later of two groups belong to the earlier.
                first, second = sorted((_root(roots, a), _root(roots, b)))
                roots[second] = first
            if alike.any():
                while not np.array_equal(roots, settled := roots[roots]):  # every row leads to the first of its group
                    roots = settled
    order = np.argsort(roots, kind="stable")
    starts = np.flatnonzero(np.diff(roots[order], prepend=-1))
    return [part.tolist() for part in np.split(order, starts[1:]) if len(part) > 1]


def _root(roots: Rows, row: int) -> int:
    while roots[row] != row:
        roots[row] = roots[roots[row]]
        row = int(roots[row])
    return row


HASHES = 128
PHRASE = 3
# Texts that share at least this part of their phrases count as near-duplicates: one word changed in thirty.
NEAR_SHARE = 0.8
# Phrases of the shorter of two texts before one can be found inside the other.
LEAST_PHRASES = 8

_WORD = re.compile(r"[^\W_]+")
# Odd constants of the golden ratio and of the square roots of 2 and 3: they spread equal words apart by their place.
_PLACES = np.array([0x9E3779B97F4A7C15, 0x6A09E667F3BCC909, 0xBB67AE8584CAA73B], np.uint64)


def words(text: str) -> list[str]:
    """The words and numbers of a text in lower case, without punctuation, spacing and `___` masks."""
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


BITS = 256
# Two images whose hashes differ in at most this many bits count as near-duplicates; see above.
NEAR_BITS = 30
_SIDE, _WAVES = 64, 16


def perceptual_hash(image: ImageArray) -> int:
    """256 bits of an image [H, W] in [0, 1] of any size; 0 for an image of one single grey.

    Each bit is the sign of one of the 16 × 16 slowest waves of the squared image, by a cosine transform without the
    constant row and column, so that neither size nor brightness counts.
    """
    small = Image.fromarray(np.ascontiguousarray(image, np.float32)).resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
    waves = _cosines()
    strengths = waves @ np.asarray(small, np.float64) @ waves.T
    # A flat image has strengths of rounding noise alone, whose signs would be random.
    bits = strengths > 1e-6 * _SIDE
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def distance(one: int, other: int) -> int:
    """Bits in which two hashes differ, 0 to 256."""
    return (one ^ other).bit_count()


def hash_rows(hashes: list[int]) -> NDArray[np.uint8]:
    """Hashes as rows of bytes, [N, 32]."""
    data = b"".join(value.to_bytes(BITS // 8, "big") for value in hashes)
    return np.frombuffer(data, np.uint8).reshape(len(hashes), BITS // 8)


@cache
def _cosines() -> NDArray[np.float64]:
    """Waves 1 to 16 at the middles of 64 pixels, [16, 64]."""
    middles = (2 * np.arange(_SIDE) + 1) / (2 * _SIDE)
    return np.cos(np.pi * np.outer(np.arange(1, _WAVES + 1), middles))

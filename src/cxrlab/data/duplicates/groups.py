"""Reports and images that stand in a corpus more than once, word for word or nearly so.

Repeats are no defect as such: normal reports are dictated from templates. They matter across splits,
where a test study has its twin in training, and in counts, where the same image comes from two sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.randomness import generator
from cxrlab.core.records import Study
from cxrlab.data.duplicates.minhash import HASHES, NEAR_SHARE, share, signature, words
from cxrlab.data.duplicates.near_pairs import linked
from cxrlab.data.duplicates.perceptual_hash import BITS, NEAR_BITS, hash_rows

# Six bytes of a signature make one key: texts that share 0.8 of their phrases miss all 32 keys once in 17,000 times.
_BANDS, _BAND = 32, 6
# Twenty bits of a hash make one key: images 22 bits apart miss all 60 keys once in 50,000 times, images 30 bits apart
# six times in 1,000.
_TABLES, _SAMPLED = 60, 20
_ONES = np.array([value.bit_count() for value in range(256)], np.uint8)


@dataclass(frozen=True)
class Groups:
    """Things that are there more than once.

    Args:
        seen: Things looked at.
        exact: Names of things that are the same, two or more in a group, in the order of the corpus.
        near: Names of different things that are alike, directly or through others; one name for each different thing.
    """

    seen: int
    exact: tuple[tuple[str, ...], ...]
    near: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Duplicates:
    """What is there more than once in a corpus: reports by the id of their study, images as `id#k`."""

    reports: Groups
    images: Groups


def report_groups(texts: Iterable[tuple[str, str]]) -> Groups:
    """Texts that are the same, or share at least 0.8 of their three-word phrases (see `minhash.py`).

    Args:
        texts: Name and text; case, punctuation and spacing do not count, and a text without a word is passed over.

    Reads once; keeps about 250 bytes for each different text, and the names.
    """
    desk = _Desk()
    rows: list[bytes] = []
    for name, text in texts:
        if (found := words(text)) and desk.take(name, hashlib.blake2b(" ".join(found).encode(), digest_size=16)):
            rows.append(signature(found).tobytes())
    signatures = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), HASHES)

    return desk.groups(
        _sampled_bytes(signatures), lambda one, other: share(signatures[one], signatures[other]) >= NEAR_SHARE
    )


def image_groups(pictures: Iterable[tuple[str, bytes, int]]) -> Groups:
    """Images of the same pixels, and images whose perceptual hashes differ in at most 30 of 256 bits.

    Args:
        pictures: Name, digest of the pixels and perceptual hash.

    Reads once; keeps about 250 bytes for each different picture, and the names.
    """
    desk = _Desk()
    hashes: list[int] = []
    for name, digest, value in pictures:
        if desk.take(name, digest):
            hashes.append(value)
    rows = hash_rows(hashes)
    return desk.groups(_sampled_bits(rows), partial(_few_bits, rows))


def study_text(study: Study) -> str | None:
    """The source's own text of a study: findings and impression, else the whole report; None when there is none."""
    if study.sections is not None:
        parts = [text for text in (study.sections.findings, study.sections.impression) if text and text.strip()]
        if parts:
            return "\n".join(parts)
    return study.report if study.report and study.report.strip() else None


class _Desk:
    """Sorts names by what they stand for: the first of each different thing, and those that repeat it."""

    def __init__(self) -> None:
        self.seen = 0
        self.rows: dict[bytes, int] = {}
        self.firsts: list[str] = []
        self.repeats: dict[int, list[str]] = {}

    def take(self, name: str, digest: Any) -> bool:
        """Whether this is a thing that was not there before."""
        self.seen += 1
        key = digest if isinstance(digest, bytes) else digest.digest()
        row = self.rows.setdefault(key, len(self.firsts))
        if row < len(self.firsts):
            self.repeats.setdefault(row, [self.firsts[row]]).append(name)
            return False
        self.firsts.append(name)
        return True

    def groups(self, keys: Iterable[NDArray[Any]], close: Callable[..., NDArray[np.bool_]]) -> Groups:
        """What was the same, and what is alike by the keys."""
        near = linked(keys, close, len(self.firsts)) if len(self.firsts) > 1 else []
        return Groups(
            self.seen,
            tuple(tuple(names) for names in self.repeats.values()),
            tuple(tuple(self.firsts[row] for row in rows) for rows in near),
        )


def _sampled_bytes(rows: NDArray[np.uint8]) -> Iterator[NDArray[np.uint64]]:
    """Six bytes of every signature as one number, again and again with other bytes, the same in every run."""
    random = generator(7, "sampled bytes")
    for _ in range(_BANDS):
        key = np.zeros(len(rows), np.uint64)
        for place in random.permutation(HASHES)[:_BAND].tolist():
            key = key << np.uint64(8) | rows[:, place]
        yield key


def _sampled_bits(rows: NDArray[np.uint8]) -> Iterator[NDArray[np.uint32]]:
    """Twenty bits of every hash as one number, again and again with other bits, the same in every run."""
    random = generator(7, "sampled bits")
    for _ in range(_TABLES):
        key = np.zeros(len(rows), np.uint32)
        for bit in random.permutation(BITS)[:_SAMPLED].tolist():
            key = key << np.uint32(1) | rows[:, bit // 8] >> np.uint8(7 - bit % 8) & np.uint8(1)
        yield key


def _few_bits(rows: NDArray[np.uint8], one: NDArray[np.intp], other: NDArray[np.intp]) -> NDArray[np.bool_]:
    return np.asarray(_ONES[rows[one] ^ rows[other]].sum(axis=1, dtype=np.int64) <= NEAR_BITS)

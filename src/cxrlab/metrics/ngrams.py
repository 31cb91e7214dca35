"""N-grams (runs of n words), counted for all texts of a batch at once.

Every distinct word and run has a number, in a sparse table of (text, run, times). How many runs two texts share, or in
how many references one occurs, are then sums over columns. Texts may be added later: the references of a batch are
counted once, for all systems and floors that are scored against them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from cxrlab.metrics.base import Matrix

Numbers = NDArray[np.int64]
Words = Sequence[Hashable]

_SHIFT = 32  # two numbers share one integer of 64 bits
_LOW = (1 << _SHIFT) - 1
_NOTHING = np.zeros(0, dtype=np.int64)
_TEXTS = 4096  # counted at once, where only sums over all texts are kept
_KEPT_WORDS = 2_000_000  # a cache of more words is emptied before the next batch


@dataclass(frozen=True, eq=False)
class Shared:
    """Runs that occur on both sides of a pair, one entry for each pair and run, with their counts on both sides."""

    pair: Numbers
    run: Numbers
    left: Numbers
    right: Numbers

    def matches(self, pairs: int) -> Matrix:
        """Shared runs of each pair, counted as often as both texts have them [pairs]."""
        return summed(self.pair, np.minimum(self.left, self.right), pairs)


@dataclass(frozen=True, eq=False)
class NgramCounts:
    """How often each text has each run of one length."""

    texts: int
    runs: int
    cell: Numbers  # text in the upper, run in the lower half of each number [E], ascending
    times: Numbers  # occurrences [E], at least 1

    @cached_property
    def text(self) -> Numbers:
        """The text of each entry [E]."""
        return self.cell >> _SHIFT

    @cached_property
    def run(self) -> Numbers:
        """The run of each entry [E]."""
        return self.cell & _LOW

    @cached_property
    def totals(self) -> Matrix:
        """Runs in each text, repeats counted [texts]."""
        return summed(self.text, self.times, self.texts)

    def shared(self, left: Numbers, right: Numbers) -> Shared:
        """The runs common to `left[i]` and `right[i]`, both numbers of texts [N]."""
        starts = np.searchsorted(self.text, np.arange(self.texts + 1))
        sizes = (starts[1:] - starts[:-1])[left]
        pair = np.repeat(np.arange(len(left)), sizes)
        entry = np.arange(sizes.sum()) + np.repeat(starts[left] - (np.cumsum(sizes) - sizes), sizes)
        wanted = (right[pair] << _SHIFT) | self.run[entry]
        place = np.searchsorted(self.cell, wanted)
        found = _at(self.cell, place) == wanted
        entry, place = entry[found], place[found]
        return Shared(pair[found], self.run[entry], self.times[entry], self.times[place])


class NgramIndex:
    """Lists of words and their runs of 1, 2, … `longest` words, numbered in the order in which they are added."""

    def __init__(self, longest: int) -> None:
        self._word_numbers: defaultdict[Hashable, int] = defaultdict()
        self._word_numbers.default_factory = self._word_numbers.__len__
        # Of each length: (run before, last word) sorted, and its number
        self._known = [(_NOTHING, _NOTHING)] * longest
        self.forget_texts()

    def forget_texts(self) -> None:
        """Start again without texts; words and runs keep their numbers."""
        self.counts = [NgramCounts(0, 0, _NOTHING, _NOTHING)] * len(self._known)

    def add(self, texts: Sequence[Words]) -> Numbers:
        """Count more texts and return their numbers; a text shorter than a run has none of it."""
        word = np.fromiter(map(self._word_numbers.__getitem__, chain.from_iterable(texts)), dtype=np.int64)
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        added = self.counts[0].texts + np.arange(len(texts))
        text = np.repeat(added, lengths)
        left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(word))  # words from here to the text's end
        run = np.zeros_like(word)  # number of the run that starts here
        for order, before in enumerate(self.counts):
            start = np.flatnonzero(left > order)
            # A run of one word is that word; a longer one is a run and one word more.
            run[start] = self._number(order, (run[start] << _SHIFT) | word[start + order]) if order else word
            cell, _, times = _distinct((text[start] << _SHIFT) | run[start])
            self.counts[order] = NgramCounts(
                texts=before.texts + len(texts),
                runs=len(self._known[order][0]) if order else len(self._word_numbers),
                cell=np.concatenate([before.cell, cell]),
                times=np.concatenate([before.times, times]),
            )
        return added

    def _number(self, order: int, keys: Numbers) -> Numbers:
        """The number of each run; a new run gets the next one."""
        known, numbers = self._known[order]
        distinct, back, _ = _distinct(keys)
        place = np.searchsorted(known, distinct)
        fresh = _at(known, place) != distinct
        found = _at(numbers, place)
        found[fresh] = len(known) + np.arange(fresh.sum())
        self._known[order] = (
            np.insert(known, place[fresh], distinct[fresh]),
            np.insert(numbers, place[fresh], found[fresh]),
        )
        return found[back]


class NgramCache:
    """Texts whose runs were counted, each once as long as the references stay the same."""

    def __init__(self, split: Callable[[str], Sequence[str]], longest: int) -> None:
        self._split = split
        self._longest = longest
        self._counted: Sequence[str] = ()  # texts whose runs are in `_often`
        self._often: list[Matrix] = []
        self._index = NgramIndex(longest)
        self._empty(())

    def _empty(self, references: Sequence[str]) -> None:
        self._references = references
        self._numbers: dict[str, int] = {}
        if self._often:
            self._index.forget_texts()
        else:
            self._index = NgramIndex(self._longest)

    def texts_with(self, texts: Sequence[str]) -> list[Matrix]:
        """In how many of these texts, repeats counted, each run of 1, 2, … words occurs [runs].

        Runs keep their numbers until this is asked of other texts, so that a batch can be counted part by part.
        """
        if self._counted is not texts:
            times = Counter(texts)
            self._counted, self._often = texts, [np.zeros(0)] * self._longest
            self._index, self._numbers = NgramIndex(self._longest), {}
            different = list(times)
            for start in range(0, len(different), _TEXTS):
                part = different[start : start + _TEXTS]
                self._index.forget_texts()
                self._index.add([self._split(text) for text in part])
                often = np.array([times[text] for text in part])
                self._often = [
                    _longer(before, count.runs) + summed(count.run, often[count.text], count.runs)
                    for before, count in zip(self._often, self.counts, strict=True)
                ]
            self._empty(())
        return self._often

    @property
    def counts(self) -> list[NgramCounts]:
        """Runs of 1, 2, … words of the texts so far."""
        return self._index.counts

    def numbers(self, references: Sequence[str], candidates: Sequence[str]) -> tuple[Numbers, Numbers]:
        """The number of each reference and of each candidate, good for `counts` until the next call."""
        if references != self._references or self.counts[0].times.sum() > _KEPT_WORDS:
            self._empty(references)
        new = [text for text in dict.fromkeys((*references, *candidates)) if text not in self._numbers]
        added = self._index.add([self._split(text) for text in new])
        self._numbers.update(zip(new, added.tolist(), strict=True))
        left, right = (
            np.array([self._numbers[text] for text in side], dtype=np.int64) for side in (references, candidates)
        )
        return left, right


def summed(group: Numbers, values: Matrix | Numbers, groups: int) -> Matrix:
    """The sum of the values of each group [groups]; 0 for a group without one."""
    sums: Matrix = np.bincount(group, weights=np.asarray(values, dtype=np.float64), minlength=groups).astype(np.float64)
    return sums


def _longer(values: Matrix, size: int) -> Matrix:
    """With zeros behind."""
    return np.concatenate([values, np.zeros(size - len(values))])


def _distinct(keys: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Distinct keys (none negative), ascending; the index of each key among them; and how often each occurs.

    As `numpy.unique`, but by sixteen bits at a time, which numpy sorts by counting: four times as fast.
    """
    digits = [(keys >> shift).astype(np.uint16) for shift in (0, 16, 32, 48)]
    order = np.lexsort([digit for digit in digits if digit.any()] or digits[:1])
    ascending = keys[order]
    first = np.ones(len(keys), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    back = np.empty_like(keys)
    back[order] = np.cumsum(first) - 1
    return ascending[first], back, np.diff(np.flatnonzero(first), append=len(keys))


def _at(values: Numbers, places: Numbers) -> Numbers:
    """`values[places]`; -1, which is never a number, for a place past the end."""
    return np.append(values, -1)[places]


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

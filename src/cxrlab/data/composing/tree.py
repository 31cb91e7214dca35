"""Corpora, filters, subsets and merges as a tree that gives studies one by one and can be printed.

A node holds no studies: it asks those below it when it is walked, so that the largest composition
costs no memory. What passes each node is told to a tally, from which the printed tree gets its counts.
"""

from __future__ import annotations

import dataclasses
import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from cxrlab.core.randomness import stream_key
from cxrlab.core.records import ImageFile, Study
from cxrlab.data.corpus import Corpus

# On every study of a composition: the member that it comes from.
MEMBER = "corpus"


class Tally:
    """Counts the studies that each node gives."""

    def __init__(self) -> None:
        self.counts: Counter[Node] = Counter()

    def see(self, node: Node, study: Study) -> None:
        """Called for every study that `node` gives, before it goes on."""
        self.counts[node] += 1


class Node(ABC):
    """A part of the tree: what it does in a few words, what stands below it, and the studies it gives."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What it does, for the printed tree."""

    @property
    @abstractmethod
    def children(self) -> Mapping[str, Node]:
        """Nodes below, by name; a lone one has the empty name."""

    @abstractmethod
    def _given(self, tally: Tally) -> Iterator[Study]: ...

    @final
    def studies(self, tally: Tally | None = None) -> Iterator[Study]:
        """The studies in order; each is told to the tally first."""
        tally = tally or Tally()
        for study in self._given(tally):
            tally.see(self, study)
            yield study


@dataclass(frozen=True, eq=False)
class Source(Node):
    """A corpus folder, whole."""

    corpus: Corpus

    @property
    def words(self) -> str:
        """The folder."""
        return f"corpus {self.corpus.path}"

    @property
    def children(self) -> Mapping[str, Node]:
        """None: it is a leaf."""
        return {}

    def _given(self, tally: Tally) -> Iterator[Study]:
        return self.corpus.studies()


@dataclass(frozen=True, eq=False)
class Filter(Node):
    """Studies as `change` leaves them; those for which it gives None are left out.

    Args:
        below: Where the studies come from.
        what: Its words in the printed tree.
        change: Study → the study, a part of it, or None.
    """

    below: Node
    what: str
    change: Callable[[Study], Study | None]

    @property
    def words(self) -> str:
        """What passes."""
        return self.what

    @property
    def children(self) -> Mapping[str, Node]:
        """The one below."""
        return {"": self.below}

    def _given(self, tally: Tally) -> Iterator[Study]:
        return (left for study in self.below.studies(tally) if (left := self.change(study)) is not None)


@dataclass(frozen=True, eq=False)
class Subset(Node):
    """At most `n` studies, drawn by their ids and the seed; their order stays.

    Whether a study is drawn before another depends on the two ids alone, so a larger subset holds the smaller one.
    """

    below: Node
    n: int
    seed: int

    @property
    def words(self) -> str:
        """Size and seed."""
        return f"subset of {self.n:,} (seed {self.seed})"

    @property
    def children(self) -> Mapping[str, Node]:
        """The one below."""
        return {"": self.below}

    @cached_property
    def _drawn(self) -> frozenset[str]:
        ranked = ((stream_key(self.seed, "subset", study.id), study.id) for study in self.below.studies())
        return frozenset(name for _, name in heapq.nsmallest(self.n, ranked))

    def _given(self, tally: Tally) -> Iterator[Study]:
        return (study for study in self.below.studies(tally) if study.id in self._drawn)


@dataclass(frozen=True, eq=False)
class Merge(Node):
    """One after another; ids, patients and paths are led by the name of their member, so that none clash."""

    below: Mapping[str, Node]

    @property
    def words(self) -> str:
        """It merges."""
        return "merge"

    @property
    def children(self) -> Mapping[str, Node]:
        """The members."""
        return self.below

    def _given(self, tally: Tally) -> Iterator[Study]:
        for name, node in self.below.items():
            for study in node.studies(tally):
                yield renamed(study, name)


def renamed(study: Study, member: str) -> Study:
    """The study as one of a member: `id` becomes `member/id`, as do patient, prior and every path."""

    def led(text: str) -> str:
        return f"{member}/{text}"

    def moved(image: ImageFile) -> ImageFile:
        return dataclasses.replace(image, path=led(image.path))

    extra: dict[str, Any] = {**study.extra, MEMBER: member}
    return dataclasses.replace(
        study,
        id=led(study.id),
        patient=led(study.patient),
        prior=None if study.prior is None else led(study.prior),
        images=tuple(map(moved, study.images)),
        absent_images=None if study.absent_images is None else tuple(map(moved, study.absent_images)),
        masks={key: led(path) for key, path in study.masks.items()},
        extra=extra,
    )


def printed(root: Node, tally: Tally) -> list[str]:
    """The tree as lines, each with the number of studies that its node gives."""
    rows = list(_rows(root, tally, "", "", ""))
    width = max(len(words) for words, _ in rows)
    digits = max(len(count) for _, count in rows)
    return [f"{words:<{width}}  {count:>{digits}} studies" for words, count in rows]


def _rows(node: Node, tally: Tally, name: str, first: str, rest: str) -> Iterator[tuple[str, str]]:
    yield f"{first}{name}{': ' if name else ''}{node.words}", f"{tally.counts[node]:,}"
    children = list(node.children.items())
    for number, (child_name, child) in enumerate(children, 1):
        corner, bar = ("└─ ", "   ") if number == len(children) else ("├─ ", "│  ")
        yield from _rows(child, tally, child_name, rest + corner, rest + bar)

"""Corpora, filters, subsets and merges as a tree that gives studies one by one and can be printed.

A node holds no studies: it asks those below it when it is walked, so that the largest composition
costs no memory. What passes each node is told to a tally, from which the printed tree gets its counts.
"""

from __future__ import annotations

import dataclasses
import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

from cxrlab.core.randomness import stream_key
from cxrlab.core.records import ImageFile, Study
from cxrlab.data.config import Member
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


# On every study of a composition: whose texts make its pairs.
TEXTS_KEY = "texts"


def member_branch(corpus: Corpus, member: Member) -> Node:
    """The corpus, then what the member asks for, each as a node."""
    node: Node = Source(corpus)
    node = Filter(node, f"filter: split {', '.join(member.splits)}", partial(_of_splits, member))
    if member.views:
        node = Filter(node, f"filter: images {', '.join(member.views)}", partial(_of_views, member))
    else:
        node = Filter(node, "filter: any image", _with_images)
    wanted = f"{' then ' if member.pair == 'first' else ' and '}".join(member.texts)
    need = "filter: text" if member.needs_text else "text, if any:"
    node = Filter(node, f"{need} {wanted} ({member.section})", partial(_with_texts, member))
    if member.n is not None:
        node = Subset(node, member.n, member.seed)
    if member.as_split is not None:
        node = Filter(node, f"into split {member.as_split}", partial(_into_split, member.as_split))
    return node


def with_images(study: Study, kept: list[int]) -> Study:
    """The study with only these of its images; boxes follow, and masks, which lie on the first, go when it goes."""
    if len(kept) == len(study.images):
        return study
    places = {old: new for new, old in enumerate(kept)}
    boxes = study.boxes
    if boxes is not None:
        boxes = tuple(dataclasses.replace(box, image=places[box.image]) for box in boxes if box.image in places)
    return dataclasses.replace(
        study,
        images=tuple(study.images[old] for old in kept),
        boxes=boxes,
        masks=study.masks if kept[:1] == [0] else {},
    )


def _of_splits(member: Member, study: Study) -> Study | None:
    return study if (study.split or "none") in member.splits else None


def _of_views(member: Member, study: Study) -> Study | None:
    kept = [number for number, image in enumerate(study.images) if image.view and image.view.value in member.views]
    return with_images(study, kept) if kept else None


def _with_images(study: Study) -> Study | None:
    return study if study.images else None


def _with_texts(member: Member, study: Study) -> Study | None:
    kinds = [one.kind for one in pair_texts(study, member)]
    if member.needs_text and not kinds:
        return None
    return dataclasses.replace(study, extra={**study.extra, TEXTS_KEY: kinds})


def _into_split(split: str, study: Study) -> Study:
    # Text that is not the source's is an error in a test split.
    return dataclasses.replace(study, split=split, structured={} if split == "test" else study.structured)


@dataclass(frozen=True)
class PairText:
    """A text that is paired with the images of its study.

    Args:
        kind: Whose text: `sections`, `report` or `structured:NAME`.
        text: Its words.
    """

    kind: str
    text: str


def pair_texts(study: Study, member: Member) -> list[PairText]:
    """The texts of a study that a member pairs with its images, in the order of `member.texts`; blank ones are none."""
    found: dict[str, PairText] = {}
    for choice in member.texts:
        for one in _texts(study, choice, member.section):
            if one.text.strip():
                found.setdefault(one.kind, one)
    texts = list(found.values())
    return texts[:1] if member.pair == "first" else texts


def _texts(study: Study, choice: str, section: str) -> Sequence[PairText]:
    if choice == "sections":
        text = study.sections.section(section) if study.sections is not None else None
        return [PairText(choice, text)] if text is not None else []
    if choice == "report":
        return [PairText(choice, study.report)] if study.report is not None else []
    maker = choice.partition(":")[2]
    return [
        PairText(f"structured:{name}", sections[section])
        for name, sections in study.structured.items()
        if maker in ("", name) and section in sections
    ]

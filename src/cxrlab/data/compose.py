"""Compose one corpus from several: filter and sample each member, check patients and splits, write the merged corpus."""

from __future__ import annotations

import dataclasses
import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, final

from cxrlab.core.config import flatten, to_dict
from cxrlab.core.errors import DataError
from cxrlab.core.files import sha256_of
from cxrlab.core.json_values import plain
from cxrlab.core.randomness import stream_key
from cxrlab.core.records import SPLITS, ImageFile, Study
from cxrlab.core.terminal import track
from cxrlab.data.card import CARD, MAKERS, UNKNOWN, Card, check_external, known_collections
from cxrlab.data.config import ComposeConfig, Member, Paper
from cxrlab.data.corpus import Corpus, assign_fold, load_corpus
from cxrlab.data.corpus_writer import NewStudy, Recipe, build_corpus
from cxrlab.data.importing import IMPORTERS
from cxrlab.data.pairs import FINDINGS, MEMBER, SECTION_KEY, TEXTS_KEY, pair_texts, view_name

ABSENT_PRIOR = "absent_prior"
PRIOR_LEFT_OUT = "the prior study is not in the composition"
NOT_THERE = "its corpus is not there"
# Increase it when the same members yield a different corpus than before, so that an older one is not continued.
COMPOSE_VERSION = 3
# Settings of a member that do not change the studies; the content of its corpus does.
_WITHOUT_EFFECT = ("corpus", "data_set", "made_by", "stages", "paper")


@dataclass(frozen=True)
class Composition:
    """A planned composition: its tree, members and counts."""

    config: ComposeConfig
    corpora: Mapping[str, Corpus]
    tree: Merge
    seen: Survey
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        return printed(self.tree, self.seen.tally)


def plan(config: ComposeConfig) -> Composition:
    """Open the members, refuse what must not be merged, and count; nothing is written."""
    members = config.chosen()
    missing = {name: member for name, member in members.items() if not (member.corpus / CARD).is_file()}
    if missing and (not config.allow_missing or len(missing) == len(members)):
        commands = "".join(f"\n  {name}: {_how_to_get(name, member)}" for name, member in missing.items())
        hint = "" if len(missing) == len(members) else ", or compose the others with --allow-missing"
        raise DataError(f"{len(missing)} of {len(members)} members have no complete corpus; make them{hint}:{commands}")
    corpora = {name: load_corpus(member.corpus) for name, member in members.items() if name not in missing}
    notes: list[str] = []
    for path in config.external_to:
        if config.allow_missing and not (path / CARD).is_file():
            notes.append(f"not checked whether this is external to {path}: no complete corpus there")
            continue
        for name, corpus in corpora.items():
            check_external(load_corpus(path).card, dataclasses.replace(corpus.card, name=name))
    notes += [
        f"not checked whether patients of '{name}' are in other members too: its card names no collection"
        for name, corpus in corpora.items()
        if len(corpora) > 1 and UNKNOWN in known_collections(corpus.card)
    ]
    tree = Merge({name: member_branch(corpus, members[name]) for name, corpus in corpora.items()})
    seen = survey(tree, {name: members[name] for name in corpora}, _collection_keys(corpora))
    rows: list[Row] = []
    for name, member in members.items():
        if name not in corpora:
            rows.append(Row(name, paper=member.paper, note=f"{NOT_THERE} ({_how_to_get(name, member)})"))
            continue
        taken, counts = seen.taken[name], corpora[name].card.counts
        row = Row(name, counts.get("patients"), counts.get("images"), taken.studies, taken.patients, taken.images)
        row = dataclasses.replace(row, pairs=taken.pairs, texts=taken.texts, views=taken.views)
        rows.append(dataclasses.replace(row, words=taken.words, paper=member.paper))
    return Composition(config, corpora, tree, seen, tuple(rows), tuple(notes))


def compose_corpus(composition: Composition, out: str | Path) -> Corpus:
    """Write a composition, or continue an interrupted one; the same members give the same bytes."""
    for name, corpus in composition.corpora.items():
        # Neither in the corpus nor in a folder of images that it links to.
        homes = [home.resolve() for home in (corpus.path, *filter(Path.is_symlink, corpus.path.iterdir()))]
        folder = Path(out).resolve()
        if any(folder.is_relative_to(home) and folder != home for home in homes):
            raise DataError(
                f"--out {out} is in the member '{name}' ({corpus.path}) or its images; choose another --out."
            )
    for name, taken in composition.seen.taken.items():
        if not taken.studies:
            raise DataError(
                f"nothing is taken of the member '{name}' ({composition.corpora[name].path}); --dry-run shows where "
                "its studies are lost. A text that is lacking can be made with 'cxrlab data structure'."
            )
    recipe: Recipe[Study] = Recipe(
        items=composition.tree.studies(),
        ids=lambda study: (study.id,),
        make_studies=partial(_drawn, composition.seen.ids),
        label=f"composing {composition.config.name}",
        total=len(composition.seen.ids),
        links={name: corpus.path for name, corpus in composition.corpora.items()},
    )
    # One process: renaming a study is cheaper than passing it to a worker.
    return build_corpus(out, _card(composition), recipe, workers=1)


def _how_to_get(name: str, member: Member) -> str:
    if member.made_by is not None:
        return member.made_by
    data_set = member.data_set or name
    if data_set in IMPORTERS:
        return f"cxrlab data import {data_set} --root DIR --out {member.corpus}"
    if data_set in MAKERS:
        return f"cxrlab data make {data_set} --out {member.corpus}"
    return f"there is no corpus in {member.corpus}"


def _collection_keys(corpora: Mapping[str, Corpus]) -> dict[str, str]:
    """Member → a text that is the same for members of one collection; one without a collection is its own."""
    keys: dict[str, tuple[str, ...]] = {}
    for name, corpus in corpora.items():
        given = tuple(sorted(corpus.card.collections)) or (f"{corpus.path.resolve()}",)
        for other, theirs in keys.items():
            common = set(given) & set(theirs)
            if not common:
                continue
            # Patients keep their ids except in a composition, which marks its studies.
            pair = (corpus, corpora[other])
            composed = any(MEMBER in study.extra for one in pair for study in islice(one.studies(), 1))
            same_ids = not composed or pair[0].path.resolve() == pair[1].path.resolve()
            if given != theirs or not same_ids:
                raise DataError(
                    f"the members '{other}' and '{name}' share the collection {min(common)}, and a composition renames "
                    "patients, so that the same patient cannot be recognised; use the corpora that it was composed of."
                )
        keys[name] = given
    return {name: ", ".join(given) for name, given in keys.items()}


def _drawn(ids: frozenset[str], study: Study) -> Sequence[NewStudy]:
    if study.prior is None or study.prior in ids:
        return [NewStudy(study)]
    extra = {**study.extra, ABSENT_PRIOR: study.prior}
    return [NewStudy(dataclasses.replace(study, prior=None, extra=extra), remarks=(PRIOR_LEFT_OUT,))]


def _card(composition: Composition) -> Card:
    cards = {name: corpus.card for name, corpus in composition.corpora.items()}
    members = composition.config.chosen()

    def gathered(field: str) -> str:
        given = {name: getattr(card, field) for name, card in cards.items()}
        return "; ".join(f"{name}: {value.rstrip('.')}" for name, value in given.items() if value)

    settings: dict[str, Any] = {"compose_version": COMPOSE_VERSION, "stage": composition.config.stage}
    for name, corpus in composition.corpora.items():
        own = {key: value for key, value in to_dict(members[name]).items() if key not in _WITHOUT_EFFECT}
        settings[name] = {"studies_sha256": sha256_of(corpus.file), **own}
    found = [name for card in cards.values() for name in known_collections(card)]
    table: list[Any] = []
    for row in composition.rows:  # without what depends on the machine, and without unknown counts
        values = {**to_dict(row), "note": NOT_THERE if row.note else None}
        values["paper"] = {key: value for key, value in values.pop("paper").items() if value is not None}
        table.append(plain({key: value for key, value in values.items() if value not in (None, {})}))
    return Card(
        name=composition.config.name,
        source=gathered("source"),
        licence=gathered("licence"),
        citation=gathered("citation"),
        settings=flatten(settings),
        synthetic=all(card.synthetic for card in cards.values()),
        collections=tuple(dict.fromkeys(found)),
        absent=None if all(card.absent is None for card in cards.values()) else {},
        extra={"table": table},
    )


class Tally:
    """Counts the studies that each node yields; a subclass may look at them."""

    def __init__(self) -> None:
        self.counts: Counter[Node] = Counter()

    def see(self, node: Node, study: Study) -> None:
        self.counts[node] += 1


class Node(ABC):
    """A part of the tree: its description, and its children by name; a single child has the empty name."""

    def __init__(self, words: str, children: Mapping[str, Node]) -> None:
        self.words, self.children = words, children

    @abstractmethod
    def _given(self, tally: Tally) -> Iterator[Study]: ...

    @final
    def studies(self, tally: Tally | None = None) -> Iterator[Study]:
        """The studies in order, each counted by the tally."""
        tally = tally or Tally()
        for study in self._given(tally):
            tally.see(self, study)
            yield study


class Source(Node):
    """A whole corpus."""

    def __init__(self, corpus: Corpus) -> None:
        super().__init__(f"corpus {corpus.path}", {})
        self.corpus = corpus

    def _given(self, tally: Tally) -> Iterator[Study]:
        return self.corpus.studies()


class Filter(Node):
    """Studies as `change` returns them; None leaves a study out."""

    def __init__(self, child: Node, words: str, change: Callable[[Study], Study | None]) -> None:
        super().__init__(words, {"": child})
        self.child, self.change = child, change

    def _given(self, tally: Tally) -> Iterator[Study]:
        return (left for study in self.child.studies(tally) if (left := self.change(study)) is not None)


class Subset(Node):
    """At most `n` studies, drawn by their ids and the seed, in their order; a larger subset holds the smaller one."""

    def __init__(self, child: Node, n: int, seed: int) -> None:
        super().__init__(f"subset of {n:,} (seed {seed})", {"": child})
        self.child, self.n, self.seed = child, n, seed

    @cached_property
    def _drawn(self) -> frozenset[str]:
        ranked = ((stream_key(self.seed, "subset", study.id), study.id) for study in self.child.studies())
        return frozenset(name for _, name in heapq.nsmallest(self.n, ranked))

    def _given(self, tally: Tally) -> Iterator[Study]:
        return (study for study in self.child.studies(tally) if study.id in self._drawn)


class Merge(Node):
    """All members in order; ids, patients and paths get the name of their member as a prefix."""

    def __init__(self, members: Mapping[str, Node]) -> None:
        super().__init__("merge", members)

    def _given(self, tally: Tally) -> Iterator[Study]:
        for name, node in self.children.items():
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
    rows = list(_tree_rows(root, tally, "", "", ""))
    width = max(len(words) for words, _ in rows)
    digits = max(len(count) for _, count in rows)
    return [f"{words:<{width}}  {count:>{digits}} studies" for words, count in rows]


def _tree_rows(node: Node, tally: Tally, name: str, first: str, rest: str) -> Iterator[tuple[str, str]]:
    yield f"{first}{name}{': ' if name else ''}{node.words}", f"{tally.counts[node]:,}"
    children = list(node.children.items())
    for number, (child_name, child) in enumerate(children, 1):
        corner, bar = ("└─ ", "   ") if number == len(children) else ("├─ ", "│  ")
        yield from _tree_rows(child, tally, child_name, rest + corner, rest + bar)


def member_branch(corpus: Corpus, member: Member) -> Node:
    """The corpus, then each setting of the member as a node."""

    def of_splits(study: Study) -> Study | None:
        return study if (study.split or "none") in member.splits else None

    def of_views(study: Study) -> Study | None:
        kept = [number for number, image in enumerate(study.images) if not member.views or image.view in member.views]
        return with_images(study, kept) if kept else None

    def with_texts(study: Study) -> Study | None:
        found = [one.source for one in pair_texts(study, member.texts, member.section)]
        if not found and member.needs_text:
            return None
        extra = {**study.extra, TEXTS_KEY: found[:1] if member.pair == "first" else found}
        section = {} if member.section == FINDINGS else {SECTION_KEY: member.section}
        return dataclasses.replace(study, extra={**extra, **section})

    def into_split(study: Study) -> Study:
        # Text that is not the source's is an error in a test split.
        split = member.as_split
        if member.folds is not None:
            behind = (assign_fold(study.patient, member.seed, member.folds) - member.fold) % member.folds
            split = ("test", "val")[behind] if behind < 2 else "train"
        structured = {} if split == "test" else study.structured
        return dataclasses.replace(study, split=split, structured=structured)

    node: Node = Source(corpus)
    node = Filter(node, f"filter: split {', '.join(member.splits)}", of_splits)
    node = Filter(node, f"filter: images {', '.join(member.views)}" if member.views else "filter: any image", of_views)
    wanted = f"{' then ' if member.pair == 'first' else ' and '}".join(member.texts)
    need = "filter: text" if member.needs_text else "text, if any:"
    node = Filter(node, f"{need} {wanted} ({member.section})", with_texts)
    if member.n is not None:
        node = Subset(node, member.n, member.seed)
    if member.folds is not None:
        node = Filter(node, f"fold {member.fold} of {member.folds} into test, the next into val", into_split)
    elif member.as_split is not None:
        node = Filter(node, f"into split {member.as_split}", into_split)
    return node


def with_images(study: Study, kept: list[int]) -> Study:
    """The study with only these images and their boxes; masks belong to the first image."""
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


_BITS: dict[str | None, int] = {split: 1 << number for number, split in enumerate((*SPLITS, None))}


@dataclass(frozen=True)
class Taken:
    """Counts of the part that is taken of one member.

    Args:
        views: Image-text pairs by source of the text and view.
        words: Least, most and mean words per text, each pair counted; None without a pair.
    """

    studies: int
    patients: int
    images: int
    views: Mapping[str, Mapping[str, int]]
    words: tuple[float, float, float] | None

    @property
    def texts(self) -> dict[str, int]:
        return {source: sum(views.values()) for source, views in self.views.items()}

    @property
    def pairs(self) -> int:
        return sum(self.texts.values())


@dataclass(frozen=True)
class Survey:
    """Counts and study ids of a composition."""

    tally: Tally
    taken: Mapping[str, Taken]
    ids: frozenset[str]


def survey(tree: Merge, members: Mapping[str, Member], collections: Mapping[str, str]) -> Survey:
    """Read the tree once and count.

    A patient in two splits, of the new corpus or of a corpus of which a part is taken, and a study that is taken twice
    are a `DataError`. `collections` gives members of one collection the same text.
    """
    tally = _SplitTally(tree, members, collections)
    ids = frozenset(study.id for study in track(tree.studies(tally), "counting studies"))
    tally.refuse_leaks()
    return Survey(tally, {name: branch.taken() for name, branch in tally.branches.items()}, ids)


@dataclass
class _Branch:
    """The counts of one member; `splits_of` has every patient of its corpus, taken or not."""

    member: Member
    collection: str
    studies: int = 0
    images: int = 0
    patients: dict[str, int] = field(default_factory=dict)
    splits_of: dict[str, int] = field(default_factory=dict)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)  # (source of the text, view) → pairs
    words: Counter[int] = field(default_factory=Counter)  # words of the text → pairs

    def take(self, study: Study, patient: str) -> None:
        self.studies += 1
        self.images += len(study.images)
        self.patients[patient] = self.patients.get(patient, 0) | _BITS[study.split]
        self.pairs.update((source, view_name(image)) for source in study.extra[TEXTS_KEY] for image in study.images)
        if study.images:
            for one in pair_texts(study, study.extra[TEXTS_KEY], study.extra.get(SECTION_KEY, FINDINGS)):
                self.words[len(one.text.split())] += len(study.images)

    def taken(self) -> Taken:
        views: dict[str, dict[str, int]] = {}
        for (source, view), count in sorted(self.pairs.items()):
            views.setdefault(source, {})[view] = count
        words = None
        if self.words:
            mean = sum(length * count for length, count in self.words.items()) / self.words.total()
            words = (min(self.words), max(self.words), round(mean, 1))
        return Taken(self.studies, len(self.patients), self.images, views, words)

    def leaking(self) -> dict[str, int]:
        """Patients of a split that is taken who are also in a split of the same corpus that is not taken."""
        chosen = sum(_BITS[split] for split in SPLITS if split in self.member.splits)
        rest = sum(_BITS[split] for split in SPLITS) & ~chosen
        # Studies without a split are in one once as_split gives it to them.
        chosen |= _BITS[None] if "none" in self.member.splits and self.member.as_split else 0
        masks = {patient: self.splits_of[patient] for patient in self.patients}
        return {patient: mask for patient, mask in masks.items() if mask & chosen and mask & rest}


class _SplitTally(Tally):
    """Counts the studies of each node and records the splits of every patient."""

    def __init__(self, tree: Merge, members: Mapping[str, Member], collections: Mapping[str, str]) -> None:
        super().__init__()
        self.tree = tree
        self.branches = {name: _Branch(member, collections[name]) for name, member in members.items()}
        self._sources: dict[Node, _Branch] = {}
        for name, node in tree.children.items():
            while not isinstance(node, Source):
                node = next(iter(node.children.values()))
            self._sources[node] = self.branches[name]
        counts = Counter(collections[name] for name in members)
        self._shared = {collection for collection, count in counts.items() if count > 1}
        self._entered: dict[tuple[str, str], str] = {}

    def see(self, node: Node, study: Study) -> None:
        super().see(node, study)
        if isinstance(node, Source):
            splits = self._sources[node].splits_of
            splits[study.patient] = splits.get(study.patient, 0) | _BITS[study.split]
        elif node is self.tree:
            name, _, own_id = study.id.partition("/")
            branch = self.branches[name]
            key = (branch.collection, own_id)
            if branch.collection in self._shared and (other := self._entered.setdefault(key, name)) != name:
                raise DataError(
                    f"study '{own_id}' is in two members, '{other}' and '{name}'; take it from one of them, or choose "
                    "the members of one stage with --stage."
                )
            if study.split == "test" and study.structured:
                maker = next(iter(study.structured))
                raise DataError(
                    f"study '{own_id}' of '{name}' is in the test split and has text by {maker}; a test split holds "
                    "the source's text alone: make that corpus again, or give as_split."
                )
            branch.take(study, study.patient.partition("/")[2])

    def refuse_leaks(self) -> None:
        for name, branch in self.branches.items():
            if leaking := branch.leaking():
                raise _leak(leaking, f"'{name}' and the rest of its corpus")
        splits: dict[tuple[str, str], int] = {}  # (collection, patient) → splits
        for branch in self.branches.values():
            for patient, mask in branch.patients.items():
                key = (branch.collection, patient)
                splits[key] = splits.get(key, 0) | mask & ~_BITS[None]
        across = {key: mask for key, mask in splits.items() if mask & (mask - 1)}
        if across:
            collection, patient = next(iter(across))
            branches = {name: one for name, one in self.branches.items() if one.collection == collection}
            where = " and ".join(f"'{name}'" for name, branch in branches.items() if patient in branch.patients)
            raise _leak({patient: mask for (_, patient), mask in across.items()}, where)


def _leak(patients: Mapping[str, int], where: str) -> DataError:
    patient, mask = next(iter(patients.items()))
    splits = " and ".join(split or "no split" for split, bit in _BITS.items() if mask & bit)
    many = f"{len(patients):,} patients are" if len(patients) > 1 else "a patient is"
    return DataError(
        f"{many} in two splits of {where} (for example '{patient}', in {splits}); keep each patient in one split: "
        "import with --split patient, take the splits into one with as_split, or leave one out."
    )


# Column → its head in the printed table; a column named after a field of `Paper` follows where a member gives it.
_COLUMNS = {
    "patients": "patients",
    "images": "images",
    "taken_studies": "studies taken",
    "taken_patients": "patients taken",
    "taken_images": "images taken",
    "pairs": "pairs",
}


@dataclass(frozen=True)
class Row:
    """One member, or the total; None is unknown. `texts` are pairs by source of the text, `views` also by view."""

    member: str
    patients: int | None = None
    images: int | None = None
    taken_studies: int | None = None
    taken_patients: int | None = None
    taken_images: int | None = None
    pairs: int | None = None
    texts: Mapping[str, int] = field(default_factory=dict)
    views: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    words: tuple[float, float, float] | None = None
    paper: Paper = field(default_factory=Paper)
    note: str = ""


def total(rows: Sequence[Row]) -> Row:
    """All members together; unknown counts are left out, and missing members still have a paper."""

    def summed(values: Sequence[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    texts: dict[str, int] = {}
    for row in rows:
        for kind, count in row.texts.items():
            texts[kind] = texts.get(kind, 0) + count
    counted = [name for name in _COLUMNS if name in Paper.__dataclass_fields__]
    paper = Paper(**{name: summed([getattr(row.paper, name) for row in rows]) for name in counted})  # type: ignore[arg-type]
    counts = {name: summed([getattr(row, name) for row in rows]) for name in _COLUMNS}
    return dataclasses.replace(Row("total", texts=texts, paper=paper), **counts)  # type: ignore[arg-type]


def as_text(rows: Sequence[Row]) -> str:
    """The table for people: numbers to the right, the paper's behind ours where it has any, then lengths and notes."""
    rows = [*rows, total(rows)]
    heads, cells = ["member"], [[row.member] for row in rows]
    for name, head in _COLUMNS.items():
        heads.append(head)
        papers = [getattr(row.paper, name, None) for row in rows]
        for row, line, paper in zip(rows, cells, papers, strict=True):
            line.append(_number(getattr(row, name)))
            if any(value is not None for value in papers):
                line.append(_number(paper))
        if any(value is not None for value in papers):
            heads.append("paper")
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if not number else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [heads, *cells]
    ]
    lengths = [
        f"words per text, {row.member}: {_words(row.words)}" + (f"; paper {_words(paper)}" if paper else "")
        for row in rows
        if (paper := row.paper.words) or row.words
    ]
    notes = [f"{row.member}: {row.note}" for row in rows if row.note]
    return "\n".join([*lines, *lengths, *notes])


def _words(lengths: tuple[float, float, float] | None) -> str:
    return "–" if lengths is None else "{:,.0f} to {:,.0f}, mean {:,.1f}".format(*lengths)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"

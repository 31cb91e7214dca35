"""One walk through a composition before anything is written: what it holds, and whether a patient leaks.

A person is told by the collection and the patient's id: the same id in two corpora of one collection is
the same person, in two collections it is chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cxrlab.core.errors import DataError
from cxrlab.core.progress import track
from cxrlab.core.records import SPLITS, Study
from cxrlab.data.composing.config import Member
from cxrlab.data.composing.members import TEXTS_KEY
from cxrlab.data.composing.tree import Merge, Node, Source, Tally

_BITS: dict[str | None, int] = {split: 1 << number for number, split in enumerate((*SPLITS, None))}


@dataclass(frozen=True)
class Taken:
    """What is taken of one member.

    Args:
        studies: Studies.
        patients: Different patients.
        images: Images.
        texts: Pairs of image and text by whose text it is.
    """

    studies: int
    patients: int
    images: int
    texts: Mapping[str, int]

    @property
    def pairs(self) -> int:
        """Each image with each of its texts."""
        return sum(self.texts.values())


@dataclass(frozen=True)
class Survey:
    """What a composition holds.

    Args:
        tally: Studies at each node.
        taken: Member → what is taken of it.
        ids: Ids of all studies, as they will be written.
    """

    tally: Tally
    taken: Mapping[str, Taken]
    ids: frozenset[str]


def survey(tree: Merge, members: Mapping[str, Member], collections: Mapping[str, str]) -> Survey:
    """Walk the tree once; memory grows with the ids of studies and patients alone.

    Args:
        tree: The merge of all members.
        members: Their settings.
        collections: Member → a text that is equal for members of one collection.

    A patient in two splits, of the new corpus or of one that a part is taken of, and a study that enters twice
    are a `DataError`.
    """
    watch = _Watch(tree, members, collections)
    ids = frozenset(study.id for study in track(tree.studies(watch), "counting studies"))
    watch.refuse_leaks()
    return Survey(watch, {name: branch.taken() for name, branch in watch.branches.items()}, ids)


@dataclass
class _Branch:
    """One member while it is walked through; `splits_of` has every patient of its corpus, taken or not."""

    member: Member
    collection: str
    studies: int = 0
    images: int = 0
    patients: dict[str, int] = field(default_factory=dict)
    splits_of: dict[str, int] = field(default_factory=dict)
    texts: Counter[str] = field(default_factory=Counter)

    def take(self, study: Study, patient: str) -> None:
        self.studies += 1
        self.images += len(study.images)
        self.patients[patient] = self.patients.get(patient, 0) | _BITS[study.split]
        for kind in study.extra[TEXTS_KEY]:
            self.texts[kind] += len(study.images)

    def taken(self) -> Taken:
        return Taken(self.studies, len(self.patients), self.images, dict(sorted(self.texts.items())))

    def met_again(self) -> dict[str, int]:
        """Patients who are taken into a split and are also in a split of the same corpus that is not taken."""
        chosen = sum(_BITS[split] for split in SPLITS if split in self.member.splits)
        rest = sum(_BITS[split] for split in SPLITS) & ~chosen
        # Studies without a split are in one once as_split gives it to them.
        chosen |= _BITS[None] if "none" in self.member.splits and self.member.as_split else 0
        masks = {patient: self.splits_of[patient] for patient in self.patients}
        return {patient: mask for patient, mask in masks.items() if mask & chosen and mask & rest}


class _Watch(Tally):
    """Counts what passes each node, and remembers where every patient stands."""

    def __init__(self, tree: Merge, members: Mapping[str, Member], collections: Mapping[str, str]) -> None:
        super().__init__()
        self.tree = tree
        self.branches = {name: _Branch(member, collections[name]) for name, member in members.items()}
        self._sources = {_leaf(node): self.branches[name] for name, node in tree.children.items()}
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
            self._enter(name, own_id)
            if study.split == "test" and study.structured:
                maker = next(iter(study.structured))
                raise DataError(
                    f"study '{own_id}' of '{name}' is in the test split and has text by {maker}; a test split holds "
                    "the source's text alone: make that corpus again, or give as_split."
                )
            self.branches[name].take(study, study.patient.partition("/")[2])

    def refuse_leaks(self) -> None:
        """Raise for patients in two splits."""
        for name, branch in self.branches.items():
            if again := branch.met_again():
                raise _leak(again, f"'{name}' and the rest of its corpus")
        people: dict[tuple[str, str], int] = {}
        for branch in self.branches.values():
            for patient, mask in branch.patients.items():
                person = (branch.collection, patient)
                people[person] = people.get(person, 0) | mask & ~_BITS[None]
        leaking = {person: mask for person, mask in people.items() if mask & (mask - 1)}
        if leaking:
            collection, patient = next(iter(leaking))
            names = [
                name
                for name, branch in self.branches.items()
                if branch.collection == collection and patient in branch.patients
            ]
            where = " and ".join(f"'{name}'" for name in names)
            raise _leak({patient: mask for (_, patient), mask in leaking.items()}, where)

    def _enter(self, name: str, own_id: str) -> None:
        collection = self.branches[name].collection
        if collection in self._shared and (other := self._entered.setdefault((collection, own_id), name)) != name:
            raise DataError(
                f"study '{own_id}' enters twice, through the members '{other}' and '{name}'; take it from one of them, "
                "or choose the members of one stage with --stage."
            )


def _leaf(node: Node) -> Source:
    while not isinstance(node, Source):
        node = next(iter(node.children.values()))
    return node


def _leak(patients: Mapping[str, int], where: str) -> DataError:
    patient, mask = next(iter(patients.items()))
    splits = " and ".join(split or "no split" for split, bit in _BITS.items() if mask & bit)
    many = f"{len(patients):,} patients are" if len(patients) > 1 else "a patient is"
    return DataError(
        f"{many} in two splits of {where} (for example '{patient}', in {splits}); keep each patient in one split: "
        "import with --split patient, take the splits into one with as_split, or leave one out."
    )

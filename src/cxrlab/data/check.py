"""Check a corpus: count every problem, with examples, and compute the statistics in the same pass; nothing is repaired."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cxrlab.core.errors import CxrlabError, DataError, VocabularyError
from cxrlab.core.files import unreadable
from cxrlab.core.jsonl import parse_line, read_line
from cxrlab.core.records import Study
from cxrlab.core.runs import Run
from cxrlab.core.terminal import track
from cxrlab.data.card import CARD, LACKS, Card, read_card
from cxrlab.data.config import CheckConfig, SheetConfig
from cxrlab.data.contact_sheet import contact_sheet
from cxrlab.data.corpus import STUDIES, corpus_folder, leakage, load_corpus, parse_study
from cxrlab.data.corpus_writer import PARTIAL, missing_parts
from cxrlab.data.duplicates import Duplicates, image_groups, perceptual_hash, report_groups, study_text
from cxrlab.data.images import Picture, grey_image, read_picture
from cxrlab.data.parallel import ordered_map
from cxrlab.data.statistics import ImageFacts, Repeats, Statistics, Tally, image_facts

EXAMPLES_PER_KIND = 10
BY_DESIGN = "the card states it, or this is a corpus of labels; training and scores leave these out"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: its kind, and a sentence that names the place."""

    kind: str
    message: str


@dataclass(frozen=True)
class CheckReport:
    """What a check found."""

    path: Path
    studies: int
    patients: int
    images: int
    splits: Mapping[str, int]  # studies by split; the key "none" counts those without one
    counts: Mapping[str, int]  # kind of problem → how often
    statistics: Statistics
    examples: tuple[Problem, ...] = ()
    duplicates: Duplicates | None = None  # reports and images that are there more than once; None if not requested
    # What studies lack without a problem → how often: the card states it, or the corpus has labels alone.
    stated: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.counts

    def to_json(self) -> dict[str, Any]:
        """Plain values, without statistics and duplicates."""
        numbers = {"studies": self.studies, "patients": self.patients, "images": self.images}
        tallies = {"splits": dict(self.splits), "problems": dict(self.counts), "stated": dict(self.stated)}
        examples = [{"kind": problem.kind, "message": problem.message} for problem in self.examples]
        return {"ok": self.ok, **numbers, **tallies, "examples": examples}

    def table(self) -> str:
        splits = ", ".join(f"{name} {count:,}" for name, count in self.splits.items())
        size = f"{self.studies:,} studies, {self.patients:,} patients, {self.images:,} images"
        lines = [f"{self.path}: {size} ({splits or 'no study'})"]
        width = max((len(kind) for kind in {**self.counts, **self.stated}), default=0)
        if self.ok:
            lines.append("no problems")
        for kind, count in self.counts.items():
            example = next(problem.message for problem in self.examples if problem.kind == kind)
            lines.append(f"  {count:>7,}  {kind:<{width}}  e.g. {' '.join(example.split())}")  # an id may hold lines
        lines += [f"  {count:>7,}  {kind:<{width}}  no problem: {BY_DESIGN}" for kind, count in self.stated.items()]
        return "\n".join(lines)


def check_corpus(path: str | Path, workers: int = 0, *, duplicates: bool = False) -> CheckReport:
    """Read every line and image of a corpus folder; with `duplicates`, look for near duplicates too."""
    folder = corpus_folder(path)
    file = folder / STUDIES
    tally = _CorpusCheck(folder, duplicates=duplicates)
    inspect = partial(_inspect, folder, duplicates)
    total = sum(1 for _ in _lines(file))
    for line in track(ordered_map(inspect, _lines(file), workers), f"checking {folder.name}", total=total):
        tally.take(line)
    return tally.report()


@dataclass(frozen=True)
class _Inspected:
    """One line of the corpus: its study (None if malformed), its images (None if unreadable) and its problems."""

    place: str
    study: Study | None
    images: tuple[ImageFacts | None, ...]
    problems: tuple[Problem, ...]


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with file.open("rb") as stream:
            for number, (line, _) in enumerate(iter(partial(read_line, stream), (b"", 0)), 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise unreadable(error, file) from error


def _inspect(folder: Path, hashed: bool, numbered: tuple[int, bytes]) -> _Inspected:
    number, line = numbered
    place = f"{folder / STUDIES}:{number}"
    try:
        study = parse_study(parse_line(line, place, cut=not line.endswith(b"\n")), place)
    except VocabularyError as error:
        return _Inspected(place, None, (), (Problem("word outside the vocabulary", str(error)),))
    except DataError as error:
        return _Inspected(place, None, (), (Problem("malformed line", str(error)),))
    problems: list[Problem] = []
    images: list[ImageFacts | None] = []
    for k, image in enumerate(study.images):
        picture = _read(folder / image.path, f"{place}, image {k}", "image", problems)
        if picture is None:
            images.append(None)
            continue
        facts = image_facts(picture, image.view)
        images.append(replace(facts, perceptual_hash=perceptual_hash(grey_image(picture))) if hashed else facts)
    if not study.images and not study.absent_images:
        problems.append(Problem("study without images", f"{place}: study '{study.id}' lists no image."))
    shape = (images[0].height, images[0].width) if images and images[0] is not None else None
    known = {str(index) for index in range(len(study.findings or ()))}
    for key, path in study.masks.items():
        if key not in known:
            problems.append(Problem("mask without a finding", f"{place}: mask '{key}' has no finding of that index."))
        mask = _read(folder / path, f"{place}, mask {key}", "mask", problems)
        if mask is not None and shape is not None and mask.shape[:2] != shape:
            sizes = f"{mask.shape[1]} x {mask.shape[0]}, its image {shape[1]} x {shape[0]}"
            problems.append(Problem("mask of another size", f"{place}: mask {key} is {sizes} pixels."))
    if study.split == "test" and study.structured:
        models = ", ".join(study.structured)
        problems.append(Problem("model text in a test split", f"{place}: 'structured' text by {models}; remove it."))
    return _Inspected(place, study, tuple(images), tuple(problems))


def _read(path: Path, place: str, what: str, problems: list[Problem]) -> Picture | None:
    """The pixels of a picture; where they cannot be read, a problem is noted and None returned."""
    try:
        return read_picture(path)
    except Exception as error:  # also what no decoder should raise: one file must never stop the check
        kind = f"unreadable {what}" if os.path.exists(path) else f"missing {what}"
        why = str(error) if isinstance(error, CxrlabError) else f"{path} cannot be decoded ({error!r})."
        problems.append(Problem(kind, f"{place}: {why}"))
        return None


@dataclass
class _CorpusCheck:
    """State of the checks that need all studies."""

    folder: Path
    duplicates: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[Problem] = field(default_factory=list)
    places: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    priors: list[tuple[str, str, str]] = field(default_factory=list)
    pictures: dict[bytes, tuple[str | None, str]] = field(default_factory=dict)
    hashes: list[tuple[str, bytes, int]] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    absent: Counter[str] = field(default_factory=Counter)
    lacking: dict[str, list[str]] = field(default_factory=dict)
    unlabelled: int = 0
    stated: dict[str, int] = field(default_factory=dict)

    def note(self, problem: Problem) -> None:
        self.counts[problem.kind] += 1
        if self.counts[problem.kind] <= EXAMPLES_PER_KIND:
            self.examples.append(problem)

    def take(self, line: _Inspected) -> None:
        for problem in line.problems:
            self.note(problem)
        study = line.study
        if study is None:
            return
        if study.id in self.places:
            self.note(Problem("duplicate id", f"{line.place}: the id '{study.id}' was used on an earlier line."))
            return
        self.places[study.id] = (study.patient, study.split)
        self.unlabelled += not (study.labels or study.own_labels or study.findings is not None)
        for lack, count in missing_parts(study).items():
            self.absent[lack] += count
            examples = self.lacking.setdefault(lack, [])
            if count and len(examples) < EXAMPLES_PER_KIND:
                examples.append(f"{line.place}: study '{study.id}'")
        self.tally.take(study, [image for image in line.images if image is not None])
        if study.prior is not None:
            self.priors.append((line.place, study.id, study.prior))
        for k, image in ((k, image) for k, image in enumerate(line.images) if image is not None):
            if image.perceptual_hash is not None:
                self.hashes.append((f"{study.id}#{k}", image.digest, image.perceptual_hash))
            if study.split is not None:
                split, first = self.pictures.setdefault(image.digest, (study.split, line.place))
                if split != study.split:
                    message = f"{line.place} ({study.split}) and {first} ({split}) show the same picture."
                    self.note(Problem("same picture in two splits", message))

    def look_for_absent(self, card: Card | None) -> None:
        """Missing text, splits and views are problems unless the card states as many, or all studies have labels alone."""
        stated = (card.absent if card is not None else None) or {}
        labels_alone = not self.unlabelled and self.absent["text"] == len(self.places)
        for lack, (kind, what) in LACKS.items():
            count = self.absent[lack]
            if count and (count <= stated.get(lack, 0) or (lack == "text" and labels_alone)):
                self.stated[kind] = count
            elif count:
                self.counts[kind] = count
                state = f"or state it in {CARD} (absent: {{{lack}: {count}}})"
                self.examples += [Problem(kind, f"{where} {what}, {state}.") for where in self.lacking[lack]]

    def look_across(self) -> None:
        for patient, splits in leakage(self.places.values()).items():
            message = f"patient '{patient}' is in {' and '.join(splits)}; keep each patient in one split."
            self.note(Problem("patient in two splits", message))
        for place, study_id, prior in self.priors:
            if prior not in self.places:
                self.note(Problem("prior that does not exist", f"{place}: prior '{prior}' is not in the corpus."))
            elif prior == study_id or self.places[prior][0] != self.places[study_id][0]:
                message = f"{place}: prior '{prior}' is the study itself or of another patient."
                self.note(Problem("prior of another patient", message))
        # A model would receive the report of a later study, which refers to that of the study itself.
        before = {study_id: prior for _, study_id, prior in self.priors if prior != study_id}
        followed: set[str] = set()
        for study_id in before:
            chain: dict[str, None] = {}
            at = study_id
            while at in before and at not in followed:
                followed.add(at)
                chain[at] = None
                at = before[at]
            if at in chain:
                names = list(chain)
                circle = " → ".join(f"'{name}'" for name in (*names[names.index(at) :], at))
                self.note(Problem("priors in a circle", f"the priors {circle} lead back to where they began."))

    def card(self) -> Card | None:
        """The card, compared with what was counted; None where it is missing or cannot be read, which is noted."""
        path = self.folder / CARD
        if not path.is_file():
            unfinished = (self.folder / PARTIAL).exists()
            remedy = "run the command that imports it once more" if unfinished else "'cxrlab data card' writes it"
            self.note(Problem("unfinished" if unfinished else "no card", f"{self.folder} has no {CARD}; {remedy}."))
            return None
        try:
            card = read_card(path)
        except CxrlabError as error:
            self.note(Problem("malformed card", str(error)))
            return None
        if card.counts.get("studies", len(self.places)) != len(self.places):
            counts = f"{card.counts['studies']} studies, {STUDIES} holds {len(self.places)} readable ones"
            self.note(Problem("card with another count", f"{path} counts {counts}."))
        return card

    def report(self) -> CheckReport:
        if not self.places and not self.counts:
            self.note(Problem("no study", f"{self.folder / STUDIES} holds no study; write or import the corpus again."))
        self.look_across()
        card = self.card()
        self.look_for_absent(card)
        found = Duplicates(report_groups(self._texts()), image_groups(self.hashes)) if self.duplicates else None
        near = near_repeats(found, lambda study_id: self.places[study_id][1]) if found is not None else {}
        dropped, remarks = (card.dropped, card.remarks) if card is not None else ({}, {})
        statistics = self.tally.statistics(dropped, remarks, near)
        return CheckReport(
            path=self.folder,
            studies=len(self.places),
            patients=len({patient for patient, _ in self.places.values()}),
            images=statistics.images.read,
            splits=statistics.splits,
            counts=dict(self.counts),
            statistics=statistics,
            examples=tuple(self.examples),
            duplicates=found,
            stated=self.stated,
        )

    def _texts(self) -> Iterator[tuple[str, str]]:
        """Id and source text of every readable study, from the file once more: texts are too many to keep."""
        seen: set[str] = set()
        for _, line in _lines(self.folder / STUDIES):
            try:
                study = parse_study(parse_line(line, STUDIES), STUDIES)
            except DataError:
                continue  # counted as a malformed line before
            if study.id not in seen:
                seen.add(study.id)
                yield study.id, study_text(study) or ""


def near_repeats(found: Duplicates, split_of: Callable[[str], str | None]) -> dict[str, Repeats]:
    """How many texts and images are alike without being the same."""
    return {
        "similar report": _counted(found.reports.near, split_of),
        "similar image": _counted(found.images.near, lambda name: split_of(name.rpartition("#")[0])),
    }


def _counted(groups: Sequence[Sequence[str]], split_of: Callable[[str], str | None]) -> Repeats:
    across = sum(len({split_of(name) for name in group}) > 1 for group in groups)
    return Repeats(len(groups), sum(map(len, groups)), across)


CHECK, STATISTICS, SHEET, SUMMARY = "check.json", "statistics.json", "sheet.png", "summary.json"
DUPLICATES = "duplicates.json"


def write_data_card(corpus: Path, config: CheckConfig, out: Path) -> CheckReport:
    """Check a corpus and write the results and a sheet of images into a run folder."""
    settings = {"corpus": str(corpus), "duplicates": config.duplicates, "images": config.images}
    with Run.open(out, {**settings, "workers": config.workers}, seed=config.seed, operational=("workers",)) as run:
        found = check_corpus(corpus, config.workers, duplicates=config.duplicates)
        run.write(CHECK, found.to_json())
        run.write(STATISTICS, found.statistics)
        if found.duplicates is not None:
            run.write(DUPLICATES, found.duplicates)
        if found.images:
            sheet = SheetConfig(n=config.images, columns=6, seed=config.seed, size=200)
            with suppress(DataError):  # a corpus that cannot be opened has no sheet; the check reports why
                contact_sheet(load_corpus(corpus), sheet, run.path(SHEET))
        # The head of the page: the card and the counts.
        counts = {"studies": found.studies, "patients": found.patients, "images": found.images}
        try:
            card = read_card(corpus / CARD)
        except CxrlabError:  # a missing or malformed card is among the defects
            about = {"name": corpus.resolve().name}
        else:
            about = {name: getattr(card, name) for name in ("name", "source", "licence", "citation")}
            about["collections"] = ", ".join(card.collections)
        run.write(SUMMARY, {"corpus": {**about, "counts": {**counts, **found.splits}}, "check": found.to_json()})
    return found

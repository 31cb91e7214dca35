"""Corpus folders for reading (`studies.jsonl`, `images/`, `card.yaml`), and the assignment of patients to splits.

Opening a corpus reads the card alone. Studies stream from the disk; lookup by id builds an index of line offsets on
first use, so that a corpus larger than memory can be used.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.egress import EgressData
from cxrlab.core.errors import ConfigError, DataError, did_you_mean, short_repr
from cxrlab.core.files import unreadable
from cxrlab.core.image_codec import decode
from cxrlab.core.jsonl import parse_line, read_jsonl, read_line, scan_jsonl
from cxrlab.core.randomness import uniform
from cxrlab.core.records import SPLITS, Study
from cxrlab.data.bounded_reading import read_bounded
from cxrlab.data.card import CARD, Card, read_card
from cxrlab.data.images import ImageArray, load_image, load_rgb

STUDIES = "studies.jsonl"
_PLAIN = re.compile(r"[\w.-][\w./-]*", re.ASCII)


@dataclass(frozen=True)
class _Entry:
    """The place of one study in the file."""

    offset: int
    line: int
    split: str | None


class Corpus:
    """A complete corpus folder, opened for reading."""

    def __init__(self, path: Path, card: Card) -> None:
        self.path = path
        self.card = card
        self._entries: dict[str, _Entry] | None = None

    @property
    def file(self) -> Path:
        """The JSONL file with one study per line."""
        return self.path / STUDIES

    @property
    def egress_data(self) -> EgressData:
        """The description of this data that `core.egress` checks before any of it is sent to another machine."""
        return EgressData(str(self.path), self.card.synthetic)

    def studies(self, split: str | None = None, without: frozenset[str] = frozenset()) -> Iterator[Study]:
        """Stream the studies in file order, of `split` alone if given; fields in `without` are skipped, to save time.

        A malformed line, a word outside the vocabulary or a repeated id is a `DataError` with file and line.
        """
        _check_split(split)
        seen: set[str] = set()
        for number, values in read_jsonl(self.file):
            wanted = {key: value for key, value in values.items() if key not in without} if without else values
            study = parse_study(wanted, f"{self.file}:{number}")
            if study.id in seen:
                raise repeated_id(self.file, number, study.id)
            seen.add(study.id)
            if split is None or study.split == split:
                yield study

    def __iter__(self) -> Iterator[Study]:
        return self.studies()

    def __len__(self) -> int:
        return len(self._index())

    def __contains__(self, study_id: object) -> bool:
        return study_id in self._index()

    def __getitem__(self, study_id: str) -> Study:
        """The study of this id, read from its place in the file."""
        entry = self._index().get(study_id)
        if entry is None:
            raise DataError(f"{self.path} has no study '{study_id}'.{did_you_mean(study_id, self._index())}")
        try:
            with self.file.open("rb") as stream:
                stream.seek(entry.offset)
                line, _ = read_line(stream)
        except OSError as error:
            raise unreadable(error, self.file) from error
        place = f"{self.file}:{entry.line}"
        return parse_study(parse_line(line, place), place)

    def ids(self, split: str | None = None) -> tuple[str, ...]:
        _check_split(split)
        return tuple(key for key, entry in self._index().items() if split is None or entry.split == split)

    def no_study_error(self, *splits: str) -> DataError:
        """The error for splits without a study."""
        held = sorted({entry.split or "none" for entry in self._index().values()})
        if not held:
            return DataError(f"{self.path} holds no study at all.")
        advice = (
            " No study has a split: import the data set into a new folder with --split patient, or write train, val or "
            f"test as 'split' of each study into {STUDIES}."
        )
        return DataError(
            f"{self.path} has no study in its {' or '.join(splits)} split (splits there: {', '.join(held)})."
            f"{advice if held == ['none'] else ''}"
        )

    def image(self, study: Study, k: int = 0, size: int | None = None) -> ImageArray:
        """The k-th image of a study, [H, W] in [0, 1]; fitted into size × size where a size is given."""
        return self._load(study, k, size, rgb=False)

    def rgb(self, study: Study, k: int = 0, size: int | None = None) -> ImageArray:
        return self._load(study, k, size, rgb=True)

    def mask(self, study: Study, finding: int) -> NDArray[np.bool_] | None:
        """The mask of a finding on the first image, [H, W]; None if it has none."""
        path = study.masks.get(str(finding))
        if path is None:
            return None
        try:
            file = inside(self.path, path)
            return np.asarray(decode(read_bounded(file), str(file)) > 0)
        except DataError as error:
            raise DataError(f"{self._place(study)}, mask {finding}: {error}") from None

    def _load(self, study: Study, k: int, size: int | None, *, rgb: bool) -> ImageArray:
        if not 0 <= k < len(study.images):
            raise DataError(f"{self._place(study)} has {len(study.images)} images, so there is no image {k}.")
        try:
            return (load_rgb if rgb else load_image)(inside(self.path, study.images[k].path), size)
        except DataError as error:
            raise DataError(f"{self._place(study)}, image {k}: {error}") from None

    def _place(self, study: Study) -> str:
        entry = self._index().get(study.id)
        return f"{self.file}:{entry.line}" if entry else f"{self.file}, study '{study.id}'"

    def _index(self) -> dict[str, _Entry]:
        if self._entries is None:
            entries: dict[str, _Entry] = {}
            for offset, number, values in scan_jsonl(self.file):
                study_id = values.get("id")
                if not isinstance(study_id, str):
                    raise DataError(f"{self.file}:{number}: a study needs a text 'id', found {study_id!r}.")
                if study_id in entries:
                    raise repeated_id(self.file, number, study_id)
                entries[study_id] = _Entry(offset, number, values.get("split"))
            self._entries = entries
        return self._entries


def load_corpus(path: str | Path) -> Corpus:
    """Open a complete corpus folder; a folder without a card is incomplete."""
    folder = corpus_folder(path)
    if not (folder / CARD).is_file():
        raise DataError(
            f"{folder} has no {CARD}, so it is unfinished; run the command that makes it once more to complete it. A "
            f"{STUDIES} that was written by hand gets its card from 'cxrlab data card {folder}'."
        )
    return Corpus(folder, read_card(folder / CARD))


def corpus_folder(path: str | Path) -> Path:
    """The path, if it is a corpus folder, finished or not."""
    folder = Path(path)
    if not os.path.isdir(folder):
        what = "is a file, not a corpus folder" if os.path.exists(folder) else "does not exist"
        raise DataError(f"{folder} {what}; name a folder with {STUDIES} and {CARD}.")
    if not (folder / STUDIES).is_file():
        if any(folder.glob("data/*.parquet")):
            raise DataError(
                f"{folder} holds Parquet shards; make a corpus of them: cxrlab data import parquet --root {folder} --out "
                "FOLDER (of shards from elsewhere: cxrlab data import table)."
            )
        raise DataError(f"{folder} is not a corpus: it has no {STUDIES}.")
    return folder


def parse_study(values: dict[str, Any], place: str) -> Study:
    """The study of one parsed line; errors begin with `place` (file and line)."""
    try:
        study = Study.from_json(values)
        for path in study_files(study):
            check_inside(path)
    except DataError as error:
        raise type(error)(f"{place}: {error}") from None
    return study


def study_files(study: Study) -> tuple[str, ...]:
    """Every path that a study lists: its images, then its masks."""
    return (*(image.path for image in study.images), *study.masks.values())


def inside(folder: Path, path: str) -> Path:
    """A path of a study inside its folder (see `check_inside`)."""
    check_inside(path)
    return folder / path


def check_inside(path: str) -> None:
    """Refuse a path that is empty or absolute or climbs out of the corpus folder with `..`.

    Links inside the folder may lead anywhere. Both kinds of separator and of absolute path count, since a corpus made
    on one system is read on another.
    """
    if _PLAIN.fullmatch(path) and ".." not in path:
        return  # the usual case, without parsing the path
    parts = PureWindowsPath(path)
    if not path or parts.anchor or "\0" in path:
        raise DataError(f"the path {short_repr(path)} is absolute or empty; write it relative to the corpus folder.")
    if ".." in parts.parts:
        raise DataError(f"the path {short_repr(path)} is outside the corpus folder; put the file, or a link, inside.")


def repeated_id(file: Path, line: int, study_id: str) -> DataError:
    """The error for an id on two lines."""
    return DataError(f"{file}:{line}: the id '{study_id}' was used on an earlier line; ids must be unique.")


def _check_split(split: str | None) -> None:
    if split is not None and split not in SPLITS:
        raise ConfigError(f"'{split}' is not a split.{did_you_mean(split, SPLITS)} Splits: {', '.join(SPLITS)}.")


FRACTIONS: Mapping[str, float] = MappingProxyType({"train": 0.8, "val": 0.1, "test": 0.1})


def assign_split(patient: str, seed: int, fractions: Mapping[str, float] = FRACTIONS) -> str:
    """The split of one patient, by the patient's id and the seed alone; `fractions` must sum to 1."""
    check_fractions(fractions)
    draw, reached = uniform(seed, "split", patient), 0.0
    for name in SPLITS:
        reached += fractions.get(name, 0.0)
        if draw < reached:
            return name
    # The shares may add up to slightly less than 1.
    return next(name for name in reversed(SPLITS) if fractions.get(name, 0.0) > 0)


def assign_fold(patient: str, seed: int, folds: int) -> int:
    """The fold of one patient, from 0, by the patient's id and the seed alone."""
    return int(uniform(seed, "fold", patient) * folds)


def with_splits(studies: Iterable[Study], seed: int, fractions: Mapping[str, float] = FRACTIONS) -> Iterator[Study]:
    """The same studies, each with the split of its patient."""
    for study in studies:
        yield dataclasses.replace(study, split=assign_split(study.patient, seed, fractions))


def leakage(places: Iterable[tuple[str, str | None]]) -> dict[str, tuple[str, ...]]:
    """Patients in more than one split, with those splits in order; studies without a split (None) do not count."""
    seen: dict[str, set[str]] = {}
    for patient, split in places:
        if split is not None:
            seen.setdefault(patient, set()).add(split)
    return {patient: tuple(s for s in SPLITS if s in splits) for patient, splits in seen.items() if len(splits) > 1}


def check_fractions(fractions: Mapping[str, float]) -> None:
    """Refuse unknown splits, negative shares and shares that do not sum to 1."""
    for name, share in fractions.items():
        if name not in SPLITS:
            raise ConfigError(f"'{name}' is not a split.{did_you_mean(name, SPLITS)} Splits: {', '.join(SPLITS)}.")
        if not 0.0 <= share <= 1.0:
            raise ConfigError(f"the share of split '{name}' is {share}; give a number from 0 to 1.")
    total = sum(fractions.values())
    if not math.isclose(total, 1.0, abs_tol=1e-9):
        raise ConfigError(f"the shares of the splits sum to {total:g}; make them sum to 1.")

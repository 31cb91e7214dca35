"""Which of several layouts a data set has, and where in the folder a film lies."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import Generic, NamedTuple, TypeVar

from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus import check_inside
from cxrlab.data.images import DicomInfo, dicom_info, is_dicom
from cxrlab.data.sources.tables import AGE_OUT_OF_RANGE, OLDEST


def chosen_layout(config: ImportConfig, known: Sequence[str]) -> str | None:
    """The layout that the settings name, or None when they leave it to the importer; an unknown one is refused."""
    if config.layout is not None and config.layout not in known:
        choice = f"Choose one of {', '.join(known)}, or leave it out." if known else "It has one only; leave it out."
        raise ConfigError(f"layout={config.layout!r} is unknown here.{did_you_mean(config.layout, known)} {choice}")
    return config.layout


def image_path(root: Path, candidates: Iterable[str]) -> str:
    """The first of these paths that is a file under the root; the first of all where none is.

    A path that leaves the root comes back as it is, for the engine to refuse.
    """
    several = tuple(candidates)
    return next((path for path in several if is_image(root, path)), several[0])


def is_image(root: Path, path: str) -> bool:
    """Whether a path that a table names is a file under the root; one that leaves the root is never looked at."""
    try:
        check_inside(path)
        return stat.S_ISREG(os.stat(root / path).st_mode)
    except (DataError, OSError):  # the system refuses names that are too long and links that lead in circles
        return False


def portable(path: str) -> str:
    """A path of a table with `/` between its parts, without `./` in front, however the table writes it."""
    return PureWindowsPath(path).as_posix() if "\\" in path else path.removeprefix("./")


SourceImage = TypeVar("SourceImage")

_DATE = re.compile(r"(\d{4})([-/]?)(\d{2})\2(\d{2})(?:\.0|[ T].*)?")


class Visit(NamedTuple):
    """When a study was made, as far as the source tells.

    Args:
        study: Its id.
        patient: Whose it is.
        moment: A date or a number, written so that text sorts in time; empty when unknown.
    """

    study: str
    patient: str
    moment: str


@dataclass(frozen=True, slots=True)
class Visited(Generic[SourceImage]):
    """One study: its images in the order of the table, and the id of the study before."""

    id: str
    images: tuple[SourceImage, ...]
    prior: str | None

    @staticmethod
    def id_of(visited: Visited[SourceImage]) -> str:
        """The id, for `Plan.study_id`."""
        return visited.id


def studies_with_priors(
    studies: Mapping[str, Sequence[SourceImage]], visit: Callable[[str, Sequence[SourceImage]], Visit | None]
) -> list[Visited[SourceImage]]:
    """The studies of a table in its order, each with its prior.

    Args:
        studies: Study → its images.
        visit: When a study was made; None for one that will be left out and so is nobody's prior.
    """
    before = prior_studies(filter(None, (visit(key, images) for key, images in studies.items())))
    return [Visited(key, tuple(images), before.get(key)) for key, images in studies.items()]


def prior_studies(visits: Iterable[Visit]) -> dict[str, str]:
    """Study → the latest study of the same patient at an earlier moment.

    Studies of one moment are not each other's prior, since nobody knows which came first; of several at the
    latest earlier moment the last one listed is taken. A study without a moment has no prior and is none.
    """
    moments: dict[str, dict[str, list[str]]] = {}
    for study, patient, moment in visits:
        if moment:
            moments.setdefault(patient, {}).setdefault(moment, []).append(study)
    found: dict[str, str] = {}
    for by_moment in moments.values():
        before: str | None = None
        for moment in sorted(by_moment):
            studies = by_moment[moment]
            if before is not None:
                found.update(dict.fromkeys(studies, before))
            before = studies[-1]
    return found


def parse_date(cell: str) -> str:
    """A date of a table ("20140915", "20140915.0", "2014-09-15 10:00") as yyyymmdd; empty for anything else."""
    match = _DATE.fullmatch(cell)
    return match[1] + match[3] + match[4] if match else ""


HEADER_UNREADABLE = "DICOM header not readable; age, sex and view left out"
# Headers of radiographs take a few kilobytes; reading whole images would take hours for a corpus.
_HEADER_BYTES = 1 << 18


def read_dicom_header(root: Path, image: str) -> tuple[DicomInfo | None, str | None]:
    """What the header tells, and a remark where a DICOM file could not be read or gives an age that nobody has.

    Args:
        root: The source folder.
        image: Path of the image in it.

    Neither for an image that is absent, lies outside or is no DICOM file. Whole years come out as whole numbers.
    """
    if not is_image(root, image):
        return None, None  # the engine tells of it
    try:
        with (root / image).open("rb") as stream:
            data = stream.read(_HEADER_BYTES)
    except OSError:
        return None, HEADER_UNREADABLE
    if not is_dicom(data):
        return None, None
    try:
        info = dicom_info(data, image)
    except DataError:
        return None, HEADER_UNREADABLE
    if info.age is None:
        return info, None
    if info.age > OLDEST:
        return replace(info, age=None), AGE_OUT_OF_RANGE
    return replace(info, age=int(info.age) if info.age == int(info.age) else round(info.age, 3)), None

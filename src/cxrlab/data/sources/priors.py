"""Films gathered to studies, and the previous study of the same patient."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

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


def visited_studies(
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


def moment_of(cell: str) -> str:
    """A date of a table ("20140915", "20140915.0", "2014-09-15 10:00") as yyyymmdd; empty for anything else."""
    match = _DATE.fullmatch(cell)
    return match[1] + match[3] + match[4] if match else ""

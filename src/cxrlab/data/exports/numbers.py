"""Names in the form of another data set: whole numbers for patients and studies, stable for a corpus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cxrlab.core.records import Study


@dataclass(frozen=True)
class Numbered:
    """A study with the number of its patient and of itself, and which visit of the patient it is; all from 0."""

    study: Study
    patient: int
    number: int
    visit: int


def numbered(studies: Iterable[Study]) -> list[Numbered]:
    """The studies in file order; patients are numbered as they appear, visits by the chain of priors.

    A study without a prior in the corpus comes after those of its patient that stand before it in the file.
    """
    patients: dict[str, int] = {}
    visits: dict[str, int] = {}
    seen: dict[str, int] = {}
    found: list[Numbered] = []
    for number, study in enumerate(studies):
        patient = patients.setdefault(study.patient, len(patients))
        visit = max(seen.get(study.patient, -1), visits.get(study.prior or "", -1)) + 1
        seen[study.patient] = visits[study.id] = visit
        found.append(Numbered(study, patient, number, visit))
    return found

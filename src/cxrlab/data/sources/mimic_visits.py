"""The studies of MIMIC-CXR, joined from its tables: films, split, labels, patient, prior."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cxrlab.core.errors import DataError
from cxrlab.data.config import ImportConfig
from cxrlab.data.sources import mimic_tables as tables
from cxrlab.data.sources import priors
from cxrlab.data.sources.csv_file import find_file, find_optional
from cxrlab.data.sources.fourteen import Fourteen
from cxrlab.data.sources.mimic_views import ImageView

LISTED_TWICE = "image listed twice; the first row counts"
LABELS_WITHOUT_STUDY = "row of labels for a study without images"
SPLIT_WITHOUT_IMAGE = "row of the table of splits for an image that is not listed"


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One image: its path in the source, its view (None where only the header can tell) and its split."""

    path: str
    view: ImageView | None
    split: str | None


@dataclass(slots=True)
class Visit:
    """One study as the tables of images list it, filled row by row; one of the list of studies alone has no images."""

    subject: str
    images: list[SourceImage] = field(default_factory=list)
    moment: tables.Moment | None = None
    procedure: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """One study with everything that the tables tell of it; what a worker receives."""

    number: str
    visit: Visit
    chexpert: Fourteen | None
    negbio: Fourteen | None
    radiologists: Fourteen | None
    person: tables.Person | None
    prior: str | None

    @property
    def id(self) -> str:
        """The name of the study's folder."""
        return f"s{self.number}"

    @property
    def patient(self) -> str:
        """The name of the patient's folder."""
        return f"p{self.visit.subject}"


@dataclass(frozen=True)
class Archive:
    """All tables of the source, joined.

    Args:
        visits: Study → its images, in the order in which the table of images first names it.
        chexpert: Study → labels of the CheXpert labeller.
        negbio: Study → labels of NegBio.
        radiologists: Study → labels of the radiologists (2.1.0).
        people: Subject → age and sex, where MIMIC-IV's table is there.
        remarks: What is odd about the tables → how often.
    """

    visits: Mapping[str, Visit]
    chexpert: Mapping[str, Fourteen]
    negbio: Mapping[str, Fourteen]
    radiologists: Mapping[str, Fourteen]
    people: Mapping[str, tables.Person]
    remarks: Mapping[str, int]

    def studies(self) -> Iterator[Taken]:
        """Each study with what is known of it."""
        before = self._priors()
        for number, visit in self.visits.items():
            yield Taken(
                number,
                visit,
                self.chexpert.get(number),
                self.negbio.get(number),
                self.radiologists.get(number),
                self.people.get(visit.subject),
                before.get(number),
            )

    def _priors(self) -> dict[str, str]:
        return priors.prior_studies(
            priors.Visit(number, visit.subject, visit.moment.sortable if visit.moment else "")
            for number, visit in self.visits.items()
            if visit.images
        )


def packed(name: str) -> tuple[str, str]:
    """A table's name as it is and as gzip leaves it."""
    return name, f"{name}.gz"


def read_archive(config: ImportConfig, layout: str) -> Archive:
    """Read every table that is there; only the one of images must be."""
    root, remarks = config.root, Counter[str]()
    split_table = find_optional(root, *packed("mimic-cxr-*-split.csv"))
    splits = tables.splits_of(split_table, remarks) if split_table else {}
    visits = _visits(root, layout, splits, remarks)

    def labels(name: str) -> dict[str, Fourteen]:
        table = find_optional(root, *packed(name))
        return tables.labels_of(table, remarks) if table else {}

    chexpert, radiologists = labels("mimic-cxr-*-chexpert.csv"), labels("mimic-cxr-*-test-set-labeled.csv")
    remarks[LABELS_WITHOUT_STUDY] += len((chexpert.keys() | radiologists.keys()) - visits.keys())
    return Archive(
        visits=visits,
        chexpert=chexpert,
        negbio=labels("mimic-cxr-*-negbio.csv"),
        radiologists=radiologists,
        people=_people(config),
        remarks={remark: count for remark, count in remarks.items() if count},
    )


def _visits(root: Path, layout: str, splits: dict[str, str], remarks: Counter[str]) -> dict[str, Visit]:
    visits: dict[str, Visit] = {}
    split_rows = 0
    for row in _image_rows(root, layout):
        visit = visits.setdefault(row.study, Visit(row.subject))
        if visit.subject != row.subject:
            raise DataError(
                f"{root}: study {row.study} is listed under the subjects {visit.subject} and {row.subject}; "
                "fetch the table of images again."
            )
        if any(image.path == row.path for image in visit.images):
            remarks[LISTED_TWICE] += 1
            continue
        split = splits.get(row.dicom)
        split_rows += split is not None
        visit.images.append(SourceImage(row.path, row.view, split))
        visit.procedure = visit.procedure or row.procedure
        if row.moment is not None:
            visit.moment = min(visit.moment or row.moment, row.moment)
    remarks[SPLIT_WITHOUT_IMAGE] += len(splits) - split_rows
    if layout == "dicom" and (studies := find_optional(root, *packed("cxr-study-list.csv"))):
        for subject, study in tables.listed_studies(studies):
            visits.setdefault(study, Visit(subject))
    return visits


def _image_rows(root: Path, layout: str) -> Iterator[tables.ImageRow]:
    names = packed("mimic-cxr-*-metadata.csv")
    if layout == "dicom":
        records = find_file(root, *packed("cxr-record-list.csv"), what="the list of DICOM images of MIMIC-CXR")
        return tables.dicom_images(records, find_optional(root, *names))
    metadata = find_file(root, *names, what="the table of images of MIMIC-CXR-JPG")
    # Some keep the folders p10 to p19 in the root itself.
    apart = not (root / "files").is_dir() and next(root.glob("p1[0-9]"), None) is not None
    return tables.jpg_images(metadata, "" if apart else "files/")


def _people(config: ImportConfig) -> dict[str, tables.Person]:
    beside = () if config.reports is None else (config.reports, config.reports.parent)
    for folder in (config.root, config.root / "hosp", *beside):
        if folder.is_dir() and (table := find_optional(folder, *packed("patients.csv"))):
            return tables.people_of(table)
    return {}

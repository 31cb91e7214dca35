"""CheXpert: chest films of one American hospital with fourteen labels; CheXpert Plus adds the reports.

Counts: v1 224,316 films of 65,240 patients: train 223,414 films, valid 234 films of 200 studies, test 668 films of 500
    studies (released apart). Plus: 223,462 films of 187,711 studies of 64,725 patients, each study with its report.
Views: PA, AP and lateral; frontal where a frontal film is neither.
Labels: fourteen. Train: by the CheXpert labeller from reports (1, 0, -1 uncertain, blank unknown; the tables of other
    labellers, train_cheXbert.csv and its like, are not read). Valid and test: 0 or 1, by radiologists. Plus: by
    CheXbert from the whole report (report_fixed.json; those from findings or impression alone are not read), valid too.
Language: English; v1 has no reports, so that its text is made from labels; Plus has them, cut into sections.
Licence: Stanford University School of Medicine research use agreement: non-commercial, no sharing.
Citation: Irvin et al., CheXpert, a large chest radiograph dataset with uncertainty labels and expert comparison, AAAI
    2019; Chambon et al., CheXpert Plus, arXiv:2405.19538.
Obtain: Stanford AIMI's shared data sets, after registration. Layouts 'v1' and 'small': root is the folder that holds
    train.csv and valid.csv (and test.csv or test_labels.csv), or the one above it; batches unpacked side by side are
    found. Layout 'plus': root holds df_chexpert_plus_240401.csv, report_fixed.json (or chexbert_labels/) and the films
    as trees of JPEG, PNG or DICOM files; where there are several, the first of these.
Defects: the paths of the tables begin with a folder that the disk may not have, and end in .jpg for PNG files too;
    age 0 and sex 'Unknown' stand for unknown, and ages above 90 are given as 90; v1 does not say that the numbers of a
    patient's studies follow time, though the prior is taken by them (Plus gives the order of reports). Race, ethnicity,
    insurance and the like, which Plus tells, are kept under 'demographics'; leave them out of what you train on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cxrlab.core.errors import DataError
from cxrlab.core.records import Study
from cxrlab.data.config import ImportConfig
from cxrlab.data.sources import chexpert_plus, priors
from cxrlab.data.sources.chexpert_images import (
    LISTED_TWICE,
    SourceImage,
    Trees,
    find_trees,
    folders_in,
    image_of,
    known_age,
    parsed_path,
)
from cxrlab.data.sources.csv_file import find_optional, read_rows
from cxrlab.data.sources.fourteen import NEEDED, Fourteen, fourteen, our_names, stated, stronger
from cxrlab.data.sources.layouts import chosen_layout
from cxrlab.data.sources.source import Imported, Plan
from cxrlab.data.sources.values import remarks_of, sex_of

LAYOUTS = ("v1", "small", "plus")
LABELS_DIFFER = "images of one study with different labels; the strongest kept"

# The tables of each split, of which one is enough, those that tell more first.
_TABLES = {
    "train": ("train.csv",),
    "val": ("valid.csv", "val.csv", "val_labels.csv"),
    "test": ("test.csv", "test_labels.csv", "groundtruth.csv"),
}
# The layout of a folder with the labels of the test images alone, which were released once for both.
_EITHER = "either"
_ABOUT_IMAGES = ("Sex", "Age", "Frontal/Lateral", "AP/PA")


@dataclass(slots=True)
class Visit:
    """One study, filled row by row; age and sex as its first row has them."""

    split: str
    age: str
    sex: str
    labels: Fourteen
    images: list[SourceImage] = field(default_factory=list)
    labels_differ: bool = False
    prior: str | None = None


def plan(config: ImportConfig) -> Plan[Visit] | Plan[chexpert_plus.Reported]:
    """The studies in the order of the tables: train, valid, test."""
    layout, folders = _found(config)
    if layout == "plus":
        return chexpert_plus.plan_plus(config, folders[0])
    remarks = Counter[str]()
    visits = _visits(folders, remarks)
    # The batches of the full release stand beside the one that holds the tables, the test images in a folder of theirs.
    apart = len(folders) > 1 or "batch" in folders[0].name
    trees = find_trees(config.root, config.root if apart else folders[0])
    return Plan(
        items=visits.values(),
        study_id=_study_id,
        read=partial(read, trees),
        total=len(visits),
        layout=layout,
        collections=("stanford",),
        remarks=dict(remarks),
        label_style="chexpert",
    )


def read(trees: Trees, visit: Visit) -> Imported:
    """One study of v1."""
    first = visit.images[0].path
    age, sex = known_age(visit.age), sex_of(visit.sex)
    study = Study(
        id=first.study_id,
        patient=first.patient,
        images=tuple(image.image(trees) for image in visit.images),
        split=visit.split,
        age=age.years,
        sex=sex.letter,
        prior=visit.prior,
        labels=stated(visit.labels),
    )
    return Imported(study, remarks_of(age.remark, sex.remark, LABELS_DIFFER if visit.labels_differ else None))


def _found(config: ImportConfig) -> tuple[str, list[Path]]:
    """The layout and the folders that hold its tables: the root, folders in it, or both."""
    asked = chosen_layout(config, LAYOUTS)
    there: dict[str, list[Path]] = {}
    find_optional(config.root)  # refuses what is no folder
    for folder in (config.root, *(folders_in(config.root) or ())):
        for layout in _layouts_in(folder):
            there.setdefault(layout, []).append(folder)
    test_alone = there.pop(_EITHER, [])
    for layout in [name for name in ("v1", "small") if name in there] or ["v1"] * bool(test_alone):
        there.setdefault(layout, []).extend(test_alone)
    if asked is None and len(there) == 1:
        return next(iter(there.items()))
    if asked is None and there:
        raise DataError(f"{config.root} holds CheXpert as {' and '.join(there)}; say which with --layout.")
    if asked not in there:
        what = chexpert_plus.TABLE if asked == "plus" else "train.csv, valid.csv or test.csv"
        kind = f" of the layout '{asked}'" if asked else ""
        raise DataError(
            f"{config.root} does not hold CheXpert's tables{kind}: looked for {what} there and one folder below; "
            "give the folder that holds them."
        )
    return asked, there[asked]


def _layouts_in(folder: Path) -> Iterator[str]:
    if find_optional(folder, *chexpert_plus.TABLES):
        yield "plus"
    table = next(filter(None, (find_optional(folder, *names) for names in _TABLES.values())), None)
    if table is not None and table.name in _TABLES["test"]:
        yield _EITHER
    elif table is not None:
        first = next(read_rows(table, ("Path",)), None)
        told = first[1]["Path"].rpartition("/patient")[0] if first else ""
        yield "small" if "small" in told or (not told and "small" in folder.name) else "v1"


def _visits(folders: Sequence[Path], remarks: Counter[str]) -> dict[str, Visit]:
    visits: dict[str, Visit] = {}
    for split, names in _TABLES.items():
        places = (find_optional(folder, name) for name in names for folder in folders)
        table = next(filter(None, places), None)
        if table is not None:
            _read_table(table, split, visits, remarks)
    before = priors.prior_studies(
        priors.Visit(study, visit.images[0].path.patient, f"{visit.images[0].path.study_number:09d}")
        for study, visit in visits.items()
    )
    for study, visit in visits.items():
        visit.prior = before.get(study)
    return visits


def _read_table(table: Path, split: str, visits: dict[str, Visit], remarks: Counter[str]) -> None:
    same: dict[Fourteen, Fourteen] = {}  # most vectors repeat
    # The labels of the test images were released without the columns on patients and views.
    needed = ("Path", *NEEDED, *(_ABOUT_IMAGES if split == "train" else ()))
    for line, row in read_rows(table, needed, rename=our_names):
        place = f"{table}:{line}"
        path = parsed_path(row["Path"], f"{place}: 'Path'")
        study = path.study_id
        labels = fourteen(row, place)
        labels = same.setdefault(labels, labels)
        visit = visits.setdefault(study, Visit(split, row.get("Age", ""), row.get("Sex", ""), labels))
        if visit.split != split:
            raise DataError(
                f"{place} lists {study}, which the table of another split lists too; a study belongs to one split."
            )
        if any(path == image.path for image in visit.images):
            remarks[LISTED_TWICE] += 1
            continue
        if visit.labels != labels:
            visit.labels, visit.labels_differ = stronger(visit.labels, labels), True
        visit.images.append(image_of(path, row.get("Frontal/Lateral", ""), row.get("AP/PA", "")))


def _study_id(visit: Visit) -> str:
    return visit.images[0].path.study_id

"""IU X-ray: the Indiana University collection in the form in which report generation is measured (R2Gen).

Counts: 2,955 studies with two images each: train 2,069, val 296, test 590; copies without test exist.
Views: frontal and lateral, which the annotation does not state: from indiana_projections.csv in the root or given with
    --projections, else classified from the pixels, with the confidence of each image. File 0 is lateral in one of nine.
Labels: none; those of the reports' indexers come with openi.
Language: English, XXXX where words were masked.
Licence: CC BY-NC-ND 4.0.
Citation: Demner-Fushman et al., Preparing a collection of radiology examinations for distribution and retrieval,
    JAMIA 2016; split by Chen et al., Generating radiology reports via memory-driven transformer, EMNLP 2020.
Obtain: the archive of R2Gen; root holds annotation.json and images/<study>/<k>.png or .jpg.
Defects: the text is the findings section alone, so that only sections.findings is filled; some studies show two
    frontal images or two lateral ones; two second images are blank or noise; the split is by study, of which each
    patient has one. Its test studies stay in test whatever --split says. The same images and patients as openi: neither
    is external to the other.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.files import read_json
from cxrlab.core.records import SPLITS, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import Imported, ImportPlan
from cxrlab.data.source_tables import chosen_layout, find_file, image_path, posix_path
from cxrlab.data.sources.openi import (
    COLLECTION,
    Projections,
    image_name,
    listed_views,
    read_projections,
    with_views,
)

NOT_IN_TABLE = "image that the table of views does not list"
NO_TEXT = "report without text"
_ENDINGS = (".png", ".jpg", ".jpeg")


class Entry(NamedTuple):
    """One study of the annotation, with the table's view of each image; None where the table has none."""

    id: str
    patient: str
    split: str
    report: str
    paths: tuple[str, ...]
    views: tuple[View | None, ...]


def plan(config: ImportConfig) -> ImportPlan[Entry]:
    """The studies of the annotation: train, then val, then test, each in the order of the file."""
    chosen_layout(config, ())
    table = find_file(config.root, "annotation.json", what="the annotation of R2Gen")
    projections = read_projections(config)
    entries = _entries(table, projections)
    return ImportPlan(
        items=entries,
        study_id=attrgetter("id"),
        read=partial(read, config.root, projections is not None),
        total=len(entries),
        layout="r2gen" if projections is None else "r2gen with projections",
        collections=(COLLECTION,),
        used_settings=("projections",),
        keeps_test=True,
    )


def read(root: Path, table: bool, entry: Entry) -> Imported:
    """One study; `table` is whether there is a table of views."""
    paths: list[str] = []
    for path in entry.paths:
        # In images/ with the annotation's or another ending, or beside the annotation.
        file = PurePosixPath(path)
        named = [path, *(str(file.with_suffix(ending)) for ending in _ENDINGS if file.name and ending != file.suffix)]
        paths.append(image_path(root, [*(f"images/{name}" for name in named), *named]))
    images, remarks = with_views(root, paths, entry.views)
    if table and None in entry.views:
        remarks.append(NOT_IN_TABLE)
    text = entry.report.strip()
    if not text:
        remarks.append(NO_TEXT)
    study = Study(
        id=entry.id,
        patient=entry.patient,
        images=images,
        sections=Report(findings=text) if text else None,
        split=entry.split,
    )
    return Imported(study, tuple(remarks))


def _entries(table: Path, projections: Projections | None) -> list[Entry]:
    splits = read_json(table)
    if not isinstance(splits, dict) or not splits or not set(splits) <= set(SPLITS):
        raise DataError(f"{table} is not an annotation of R2Gen: it must hold lists under {', '.join(SPLITS)}.")
    entries: dict[str, Entry] = {}
    for split in SPLITS:
        rows = splits.get(split, [])
        if not isinstance(rows, list):
            raise DataError(f"{table}: '{split}' is {short_repr(rows)}, not a list of studies.")
        for number, row in enumerate(rows, 1):
            place = f"{table}: study {number} of {split}"
            if not isinstance(row, dict):
                raise DataError(f"{place} is {short_repr(row)}, not a record.")
            name, report, paths = row.get("id"), row.get("report"), row.get("image_path")
            if not isinstance(name, str) or not name:
                raise DataError(f"{place} has no 'id'.")
            if not isinstance(report, str):
                raise DataError(f"{place} has no text 'report'.")
            if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
                raise DataError(f"{place} has no list of files 'image_path'.")
            if row.get("split", split) != split:
                raise DataError(f"{place} has the split {short_repr(row['split'])}; fetch the file again.")
            if name in entries:
                raise DataError(f"{table} lists '{name}' twice, in {entries[name].split} and {split}.")
            image = image_name(name)
            files = tuple(posix_path(path) for path in paths)
            views = listed_views(projections, image.number, files) if image and projections else (None,) * len(files)
            entries[name] = Entry(name, f"CXR{image.number}" if image else name, split, report, files, views)
    if not entries:
        raise DataError(f"{table} lists no study; fetch it again.")
    return list(entries.values())

"""Write a corpus in the folder layout of a public data set: images first, tables last; or as Parquet shards."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.atomic_folders import lock_folder
from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import make_folder, write_bytes, write_text
from cxrlab.core.image_codec import encode_jpeg, encode_png, to_uint8
from cxrlab.core.label_maps import NIH_CXR14
from cxrlab.core.records import SECTIONS, Report, Study
from cxrlab.core.registry import Registry
from cxrlab.core.tables import safe_cell
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import CHEXPERT_14, View
from cxrlab.data.corpus import Corpus
from cxrlab.data.parallel import ordered_map

EXPORTERS = Registry(
    "layout to export to",
    {
        "mimic-cxr": "cxrlab.data.export:mimic_cxr_layout",
        "nih-cxr14": "cxrlab.data.export:nih_cxr14_layout",
        "parquet": "cxrlab.data.parquet_shards:parquet_layout",
    },
)
# Present in a folder from the first moment to the last of an export that is not whole yet.
UNFINISHED = ".export"
# Every layout with names of its own has this table: those, and the corpus's.
IDS = "ids.csv"


@dataclass(frozen=True)
class ImageCopy:
    """An image of the corpus and its path in the layout; the ending decides the format."""

    study: Study
    image: int
    path: str


@dataclass(frozen=True)
class Layout:
    """A corpus in the layout of another data set."""

    images: Sequence[ImageCopy]
    texts: Mapping[str, str]  # small files by path: reports, lists
    tables: Mapping[str, Iterable[Sequence[Any]]]  # CSV files by path, header first; a path that ends in .gz is packed
    # Subfolders by name, each filled by a function of the folder and the number of processes, which keeps what an earlier
    # run has finished; a subfolder gets its name when it is whole.
    folders: Mapping[str, Callable[[Path, int], None]] = field(default_factory=dict)


def export_corpus(name: str, corpus: Corpus, out: str | Path, workers: int = 0, **options: Any) -> Path:
    """Write a corpus in the layout of a public data set, or as Parquet shards; `options` are those of the layout."""
    make: Callable[..., Layout] = EXPORTERS.load(name)
    layout = make(corpus, **options)
    if not (layout.images or layout.folders):
        raise DataError(
            f"no study of {corpus.path} can be written as {name}: each needs an image and what that layout states of it "
            "(labels or a report)."
        )
    folder = make_folder(out)
    lock = lock_folder(folder)
    try:
        there = sorted(entry.name for entry in os.scandir(folder) if entry.name != ".lock")
        if there and UNFINISHED not in there:
            raise RunError(f"{folder} holds other files ({', '.join(there[:3])}); choose an empty or new folder.")
        write_text(folder / UNFINISHED, "")
        for path, text in layout.texts.items():
            write_text(folder / path, text, durable=False)
        for path, fill in layout.folders.items():
            hidden = folder / f".{path}"
            if (folder / path).exists():  # whole, but the export was stopped after it
                os.replace(folder / path, hidden)
            fill(make_folder(hidden), workers)
            os.replace(hidden, folder / path)
        with closing(ordered_map(partial(_copy, corpus, folder), layout.images, workers)) as copied:
            for _ in track(copied, f"exporting to {name}", total=len(layout.images)):
                pass
        for path, rows in layout.tables.items():
            text_stream = io.StringIO(newline="")
            csv.writer(text_stream, lineterminator="\n").writerows(map(safe_cell, row) for row in rows)
            data = text_stream.getvalue().encode()
            # Without the time of packing, which would make equal tables differ.
            write_bytes(folder / path, gzip.compress(data, mtime=0) if path.endswith(".gz") else data)
        for leftover in folder.rglob(".*.tmp"):  # of a write that was killed
            leftover.unlink()
        (folder / UNFINISHED).unlink()
    finally:
        lock.release()
    return folder


def is_exported(folder: Path) -> bool:
    """Whether the folder is a complete export."""
    return (folder / IDS).is_file() and not (folder / UNFINISHED).exists()


def _copy(corpus: Corpus, folder: Path, image: ImageCopy) -> None:
    pixels = to_uint8(corpus.image(image.study, image.image))
    if image.path.endswith(".jpg"):
        data = encode_jpeg(pixels)
    elif image.path.endswith(".png"):
        data = encode_png(pixels)
    else:
        raise DataError(f"an image cannot be written as {image.path}; use .png or .jpg.")
    write_bytes(folder / image.path, data, durable=False)


@dataclass(frozen=True)
class Numbered:
    """A study with the number of its patient and of itself, and which visit of the patient it is; all from 0."""

    study: Study
    patient: int
    number: int
    visit: int


def numbered(studies: Iterable[Study]) -> list[Numbered]:
    """The studies in file order, numbered by patient and by visit, which follows the chain of priors."""
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


_METADATA = (
    "dicom_id", "subject_id", "study_id", "PerformedProcedureStepDescription", "ViewPosition", "Rows", "Columns",
    "StudyDate", "StudyTime", "ProcedureCodeSequence_CodeMeaning", "ViewCodeSequence_CodeMeaning",
    "PatientOrientationCodeSequence_CodeMeaning",
)  # fmt: skip
_PATIENTS = ("subject_id", "gender", "anchor_age", "anchor_year", "anchor_year_group", "dod")
_FIRST_PATIENT, _FIRST_STUDY, _FIRST_YEAR = 10_000_000, 50_000_000, 2110
_SPLITS = {"train": "train", "val": "validate", "test": "test"}
_POSITIONS = {View.PA: "PA", View.AP: "AP", View.LATERAL: "LATERAL"}
_MEANINGS = {View.PA: "postero-anterior", View.AP: "antero-posterior", View.LATERAL: "lateral"}
_WIDTH = 78
_LABELS = tuple(sorted(CHEXPERT_14))


def mimic_cxr_layout(corpus: Corpus) -> Layout:
    """Every study with an image; reports where there are sections."""
    chosen = [one for one in numbered(corpus.studies()) if one.study.images]
    firsts = [one for one in chosen if one.visit == 0]
    ages = {one.patient: one.study.age for one in firsts}
    images: list[tuple[Numbered, int, str]] = []
    for one in chosen:
        for k in range(len(one.study.images)):
            # Forty hexadecimal digits in five groups, as the data set names its images.
            digits = hashlib.sha1(f"{one.study.id}#{k}".encode(), usedforsecurity=False).hexdigest()
            images.append((one, k, "-".join(digits[at : at + 8] for at in range(0, 40, 8))))
    patients: list[Sequence[Any]] = [_PATIENTS]
    for one in firsts:
        age = "" if one.study.age is None else int(one.study.age)
        patients.append((_subject(one), one.study.sex or "", age, _FIRST_YEAR, "", ""))
    labels: list[Sequence[Any]] = [("subject_id", "study_id", *_LABELS)]
    for one in chosen:
        given = one.study.labels
        cells = (f"{given[name]:.1f}" if name in given else "" for name in _LABELS)
        labels.append((_subject(one), _study(one), *cells))
    splits: list[Sequence[Any]] = [("dicom_id", "study_id", "subject_id", "split")]
    for one, _, name in images:  # an image of a study without a split is not listed
        if split := _SPLITS.get(one.study.split or ""):
            splits.append((name, _study(one), _subject(one), split))
    metadata: list[Sequence[Any]] = [_METADATA]
    for one, k, name in images:
        view = one.study.images[k].view or View.OTHER  # the table has no word for either
        before, now = ages.get(one.patient), one.study.age
        years = one.visit if before is None or now is None else int(now) - int(before)
        date = f"{_FIRST_YEAR + years}{1 + one.visit // 28:02d}{1 + one.visit % 28:02d}"
        meaning, position = _MEANINGS.get(view, ""), _POSITIONS.get(view, "")
        procedure = "CHEST (PA AND LAT)" if view is View.PA else "CHEST (PORTABLE AP)" if view is View.AP else ""
        row = (procedure, position, "", "", date, "120000.000", procedure, meaning, "Erect")
        metadata.append((name, _subject(one), _study(one), *row))
    texts = {f"{_folder(one)}.txt": printed(one.study.sections) for one in chosen if one.study.sections}
    return Layout(
        images=[ImageCopy(one.study, k, f"{_folder(one)}/{name}.jpg") for one, k, name in images],
        texts=texts,
        tables={
            "mimic-cxr-2.0.0-chexpert.csv.gz": labels,
            "patients.csv.gz": patients,
            "mimic-cxr-2.0.0-split.csv.gz": splits,
            IDS: [("study_id", "id"), *((_study(one), one.study.id) for one in chosen)],
            "mimic-cxr-2.0.0-metadata.csv.gz": metadata,
        },
    )


def printed(report: Report) -> str:
    """A report as the hospital's system prints it; a section that is not there has no header."""
    parts = [f"{'FINAL REPORT':>45}"]
    for name in SECTIONS:
        text = report.section(name)
        if text is not None:
            lines = textwrap.wrap(f"{name.upper()}:  {text}", _WIDTH, break_long_words=False, break_on_hyphens=False)
            parts.append("\n".join(f" {line}" for line in lines))
    return "\n \n".join(parts) + "\n"


def _folder(one: Numbered) -> str:
    return f"files/p{str(_subject(one))[:2]}/p{_subject(one)}/s{_study(one)}"


def _subject(one: Numbered) -> int:
    return _FIRST_PATIENT + one.patient


def _study(one: Numbered) -> int:
    return _FIRST_STUDY + one.number


_TABLE = (
    "Image Index", "Finding Labels", "Follow-up #", "Patient ID", "Patient Age", "Patient Sex", "View Position",
    "OriginalImage[Width", "Height]", "OriginalImagePixelSpacing[x", "y]",
)  # fmt: skip
_BOXES = ("Image Index", "Finding Label", "Bbox [x", "y", "w", "h]", "", "", "")
_NO_FINDING = "No Finding"


def nih_cxr14_layout(corpus: Corpus) -> Layout:
    """Every study with an image and known labels, one image each."""
    chosen = [one for one in numbered(corpus.studies()) if one.study.images and own_labels(one.study) is not None]
    names = {one.study.id: f"{one.patient + 1:08d}_{one.visit:03d}.png" for one in chosen}
    train = [names[one.study.id] for one in chosen if one.study.split in ("train", "val")]
    test = [names[one.study.id] for one in chosen if one.study.split == "test"]
    entries: list[Sequence[Any]] = [_TABLE]
    for one in chosen:
        study, labels = one.study, "|".join(own_labels(one.study) or [_NO_FINDING])
        age = "" if study.age is None else int(study.age)
        # The images' own size and pixel spacing are unknown here; the real table has them.
        about = (one.visit, one.patient + 1, age, study.sex or "", study.images[0].view or "", "", "", "", "")
        entries.append((names[study.id], labels, *about))
    return Layout(
        images=[ImageCopy(one.study, 0, f"images/{names[one.study.id]}") for one in chosen],
        texts={"train_val_list.txt": "".join(f"{name}\n" for name in train),
               "test_list.txt": "".join(f"{name}\n" for name in test)},
        tables={
            "BBox_List_2017.csv": [_BOXES, *_boxes(corpus, chosen, names)],
            IDS: [("Image Index", "id"), *((names[one.study.id], one.study.id) for one in chosen)],
            "Data_Entry_2017_v2020.csv": entries,
        },
    )  # fmt: skip


def own_labels(study: Study) -> list[str] | None:
    """The NIH labels that are positive for a study; None without findings and labels."""
    if study.findings is not None:
        there = {finding.observation for finding in study.findings if finding.present}
        return [name for name, row in NIH_CXR14.items() if there & set(row.observations)]
    known = {name: value for name, value in study.own_labels.items() if name in NIH_CXR14}
    return [name for name, value in known.items() if value == 1] if known else None


def _boxes(corpus: Corpus, chosen: Sequence[Numbered], names: dict[str, str]) -> Iterator[Sequence[Any]]:
    for one in chosen:
        for index, finding in enumerate(one.study.findings or ()):
            mask = corpus.mask(one.study, index)
            label = next((name for name, row in NIH_CXR14.items() if finding.observation in row.observations), None)
            if mask is None or label is None or not mask.any():
                continue
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            left, top = int(columns[0]), int(rows[0])
            width, height = int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top
            yield (names[one.study.id], label, left, top, width, height, "", "", "")

"""Writing a corpus in another data set's layout: images first, tables last.

The tables are what makes the folder whole: a stopped export has none and is written again, image by
image, over what is there. A folder with other files in it is refused.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import make_folder, write_bytes, write_text
from cxrlab.core.folders import lock_folder
from cxrlab.core.image_codec import encode_jpeg, encode_png, to_uint8
from cxrlab.core.records import Study
from cxrlab.core.tables import Table
from cxrlab.core.terminal import track
from cxrlab.data.corpus import Corpus
from cxrlab.data.parallel import ordered_map

EXPORTERS = Table(
    "layout to export to",
    {
        "mimic-cxr": "cxrlab.data.export_layouts:mimic_cxr_layout",
        "nih-cxr14": "cxrlab.data.export_layouts:nih_cxr14_layout",
    },
)
# Present in a folder from the first moment to the last of an export that is not whole yet.
_UNFINISHED = ".export"
# Every layout has this table: its own names, and the corpus's.
IDS = "ids.csv"


@dataclass(frozen=True)
class ImageCopy:
    """An image of the corpus and where the layout wants it; the ending says in which format."""

    study: Study
    image: int
    path: str


@dataclass(frozen=True)
class Layout:
    """A corpus in the words of another data set.

    Args:
        images: Every image with its place.
        texts: Small files by path: reports, lists.
        tables: CSV files by path, header first; a path that ends in .gz is packed.
    """

    images: Sequence[ImageCopy]
    texts: Mapping[str, str]
    tables: Mapping[str, Iterable[Sequence[Any]]]


def export_corpus(name: str, corpus: Corpus, out: str | Path, workers: int = 0) -> Path:
    """Write a corpus in the layout of a public data set, and return the folder.

    Args:
        name: A row of `EXPORTERS`.
        corpus: What to write.
        out: The folder; new, empty, or left by a stopped export.
        workers: Processes; 0 means one per core, the most there can be.

    The same corpus gives the same bytes. `ids.csv` leads from the layout's names to the corpus's.
    """
    make: Callable[[Corpus], Layout] = EXPORTERS.load(name)
    layout = make(corpus)
    if not layout.images:
        raise DataError(
            f"no study of {corpus.path} can be written as {name}: each needs an image, and what that layout tells of it "
            "(labels or a report)."
        )
    folder = make_folder(out)
    lock = lock_folder(folder)
    try:
        _begin(folder)
        for path, text in layout.texts.items():
            write_text(folder / path, text, durable=False)
        with closing(ordered_map(partial(_copy, corpus, folder), layout.images, workers)) as copied:
            for _ in track(copied, f"exporting to {name}", total=len(layout.images)):
                pass
        for path, rows in layout.tables.items():
            write_bytes(folder / path, _csv(rows, packed=path.endswith(".gz")))
        (folder / _UNFINISHED).unlink()
    finally:
        lock.release()
    return folder


def is_exported(folder: Path) -> bool:
    """Whether an export stands there whole."""
    return (folder / IDS).is_file() and not (folder / _UNFINISHED).exists()


def _begin(folder: Path) -> None:
    there = sorted(entry.name for entry in os.scandir(folder) if entry.name != ".lock")
    if there and _UNFINISHED not in there:
        raise RunError(f"{folder} holds other files ({', '.join(there[:3])}); choose an empty or new folder.")
    write_text(folder / _UNFINISHED, "")


def _copy(corpus: Corpus, folder: Path, image: ImageCopy) -> None:
    pixels = to_uint8(corpus.image(image.study, image.image))
    if image.path.endswith(".jpg"):
        data = encode_jpeg(pixels)
    elif image.path.endswith(".png"):
        data = encode_png(pixels)
    else:
        raise DataError(f"an image cannot be written as {image.path}; use .png or .jpg.")
    write_bytes(folder / image.path, data, durable=False)


def _csv(rows: Iterable[Sequence[Any]], *, packed: bool) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(map(safe_cell, row) for row in rows)
    data = text.getvalue().encode()
    # Without the time of packing, which would make equal tables differ.
    return gzip.compress(data, mtime=0) if packed else data


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def safe_cell(cell: Any) -> Any:
    """A cell that no spreadsheet runs as a formula: text that begins like one gets an apostrophe, a number stays.

    >>> safe_cell("=1+2"), safe_cell("-0.12"), safe_cell(-1), safe_cell("- none")
    ("'=1+2", '-0.12', -1, "'- none")
    """
    if cell is None:
        return ""
    formula = isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell


def plain_cell(cell: str) -> str:
    """The text that `safe_cell` was given, from the cell as it stands in the file."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


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

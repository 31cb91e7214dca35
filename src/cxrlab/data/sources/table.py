"""Import a table of image paths and reports as a corpus: what its columns mean, what is wrong with it, its studies."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, short_repr
from cxrlab.core.files import read_bytes, sha256_of
from cxrlab.core.records import SECTIONS, ImageFile, Report, Study
from cxrlab.core.table_rows import SPREADSHEET_ERRORS, Table, TableRow, cell_text
from cxrlab.core.vocabulary import View
from cxrlab.data.bounded_reading import read_bounded
from cxrlab.data.card import Card
from cxrlab.data.config import CardConfig, OwnDataConfig, TableConfig
from cxrlab.data.corpus import Corpus, assign_split, check_inside
from cxrlab.data.corpus_writer import NewStudy, Recipe, build_corpus
from cxrlab.data.deidentify_image import is_image
from cxrlab.data.images import ImageArray, decode_picture, grey_image
from cxrlab.data.importing import IMAGES, NOT_IN_FOLDER
from cxrlab.data.sections import parse
from cxrlab.data.source_tables import parse_age, parse_sex, read_dicom_header
from cxrlab.data.sources.openi import FROM_PICTURE, SHOWS_NOTHING, UNDECODABLE
from cxrlab.data.study_rows import EMPTY_STUDY, MISSING, FileIndex, MergedStudy, Problems, RowImage, StudyRows
from cxrlab.data.table_columns import (
    AUTO,
    IMAGE_ENDINGS,
    NONE,
    ROLES,
    TEXTS,
    UNKNOWN_VIEW,
    Columns,
    date_order,
    guess_columns,
    image_references,
    listed_columns,
    parse_columns,
    parse_moment,
    parse_split_names,
    parse_view,
)
from cxrlab.data.table_files import open_import_table
from cxrlab.data.views import classify_views
from cxrlab.data.write_card import NOT_STATED

NO_PATIENT = "study without a patient id, taken as a patient of its own"
ALIKE_PATIENTS = "patients whose ids differ only in case or blanks, taken as several"
VIEW_UNKNOWN = "view in other words, kept as other"
# Increase it when the same table yields a different corpus.
FORM = 1
BATCH = 16
_SAMPLED = 500  # rows from which the meaning of the columns is guessed
_MOST_SAMPLED = 1 << 25  # bytes of images in these
_LONGEST_NAME = 200  # characters of a column's name
_SHOWN = 10  # studies shown before the import

SPREADSHEET_ERROR = ("cells with a spreadsheet's error", "Correct their formulas and save the table again.")
BAD_DATE = ("unreadable dates", "Write yyyy-mm-dd, or state the order of day and month with --date-order dmy or mdy.")
BAD_SPLIT = ("splits of unknown names", "Translate them, for example --split-names dev=val,holdout=test.")
NOT_VALUE = (
    "cells that hold a list or object",
    "Write their values into columns of their own, or leave the column out of --columns.",
)
BAD_LABEL = ("unreadable labels", "A label is 1, 0, -1 or empty; or give --columns labels=none.")
AMBIGUOUS = ("image names of several files", "Write their paths into the table.")
NOT_IMAGE = ("files that are no PNG, JPEG or DICOM image", "Correct their names, or give --allow-missing-images.")
CELL_NOT_IMAGE = ("cells that hold no PNG, JPEG or DICOM image", "Write the table again.")
UNPRINTABLE = ("ids with characters that cannot be seen", "Export the ids again without control characters.")
DIGITS_LOST = ("ids whose digits a spreadsheet has rounded", "Export the ids as text.")

_LABELS = {
    "1": 1, "yes": 1, "true": 1, "present": 1, "positive": 1, "0": 0, "no": 0, "false": 0, "absent": 0, "negative": 0,
    "-1": -1, "uncertain": -1,
}  # fmt: skip


@dataclass(frozen=True)
class Understanding:
    """What was understood of a table, before anything is written."""

    kind: str
    rows: int
    studies: int
    columns: tuple[str, ...]  # of the table
    meaning: Columns
    missing: tuple[str, ...]  # what the corpus will lack, and what follows from it
    problems: tuple[str, ...]
    first: tuple[Study, ...]  # the first studies as they would be written
    command: str | None  # the command line that imports the table with this meaning
    skipped: Mapping[str, int] = field(default_factory=dict)  # why files of a folder are left out → how many

    @property
    def unused(self) -> tuple[str, ...]:
        """Columns without a role."""
        return tuple(name for name in self.columns if name not in self.meaning.used)


def import_table(
    table: Path, config: TableConfig, out: Path | None = None, dry_run: bool = False
) -> tuple[Understanding, Corpus | None]:
    """Understand a table, and import it where `config.columns` says what its columns mean and `dry_run` is False.

    Every problem of the table is counted before anything is written.
    """
    target = None if dry_run or not config.columns else required_folder(out)
    opened = open_import_table(table, config.sheet)
    root = config.images or (table if table.is_dir() else table.parent)
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; give the folder of the images with --images.")
    files = FileIndex(root, IMAGE_ENDINGS, () if out is None else (out,))
    reader, rows = understand_columns(opened, config, files)
    problems = Problems()
    with StudyRows() as studies:
        for row in rows:
            study, values = reader.id(row, "study", problems), reader.values(row, problems)
            images = reader.images(row, len(studies) + 1, problems)
            if "study" in reader.meaning and study is None:
                problems.add(EMPTY_STUDY, row.place)
            else:
                studies.add(row.place, study, values, images)
        if not len(studies) and not problems.counts:
            raise DataError(f"{table} holds no row under its header; check that it is the right file.")
        studies.merge(problems, named="study" in reader.meaning, patients="patient" in reader.meaning)
        maker = StudyMaker.of(config, studies, has_splits="split" in reader.meaning)
        first = tuple(new.study for item in islice(studies, _SHOWN) for new in make_study(maker, item))
        given = {"columns": reader.meaning.spelled(opened.columns), "out": out or f"corpora/{table.stem}"}
        if reader.suggested_order:
            given["date_order"] = reader.suggested_order
        understanding = Understanding(
            kind=opened.kind,
            rows=len(studies),
            studies=studies.studies,
            columns=opened.columns,
            meaning=reader.meaning,
            missing=_missing(reader.meaning),
            problems=tuple(problems.sentences()),
            first=first,
            command=command_line(["data", "import", "table", str(table)], config, given),
        )
        if target is None:
            return understanding, None
        problems.raise_if_any(str(table))
        settings = {
            "layout": opened.kind,
            "columns": reader.meaning.spelled(opened.columns),
            **shared_settings(config, split="split" in reader.meaning),
            "made_from": digests(opened.files, table),
        }
        remarks = {ALIKE_PATIENTS: studies.alike} if studies.alike else {}
        if "patient" not in reader.meaning:
            remarks = {NO_PATIENT: studies.studies}
        card = own_card(config, table.stem, settings, remarks)
        return understanding, write_corpus(target, card, maker, studies, config)


def required_folder(out: Path | None) -> Path:
    """The folder to write; a `ConfigError` without one."""
    if out is None:
        raise ConfigError("--out is missing; name the folder of the new corpus, or give --dry-run to write nothing.")
    return out


def understand_columns(
    opened: Table, config: OwnDataConfig, files: FileIndex, *, images: bool = True
) -> tuple[RowReader, Iterator[TableRow]]:
    """How the rows of a table are read, and the rows; the first of them were looked at for the guess.

    Args:
        images: Whether columns may hold images.
    """
    for number, heading in enumerate(opened.columns, 1):
        if heading.lower().endswith(IMAGE_ENDINGS) or len(heading) > _LONGEST_NAME:
            raise DataError(
                f"the first row of {opened.files[0]} holds values, not the names of columns: cell {number} is a path or "
                "text. Add a row of names."
            )
    sample: list[TableRow] = []
    held = 0  # bytes of images in the sample
    while len(sample) < _SAMPLED and held < _MOST_SAMPLED and (row := next(opened.rows, None)):
        sample.append(row)
        held += sum(len(data) for value in row.values.values() for data, _ in _embedded(value))
    guessed = guess_columns(opened.columns, sample, lambda path: images and bool(files.find(path)))
    meaning = parse_columns(config.columns or (AUTO,), opened.columns, guessed)
    if not {"image", *TEXTS} & set(meaning.roles):
        raise DataError(
            f"no column was recognised as images or reports; name them, for example --columns image=NAME,report=NAME. "
            f"The columns are {listed_columns(opened.columns)}."
        )
    dates = [cell_text(row.values.get(name)) for row in sample if (name := meaning.one("date"))]
    suggested = None if config.date_order else date_order(dates)
    reader = RowReader(meaning, files, parse_split_names(config.split_names), config, suggested)
    return reader, chain(sample, opened.rows)


@dataclass(frozen=True)
class RowReader:
    """Reads the cells of one row by their roles; what cannot be read becomes a problem."""

    meaning: Columns
    files: FileIndex
    split_names: Mapping[str, str]
    config: OwnDataConfig
    suggested_order: str | None = None

    def id(self, row: TableRow, role: str, problems: Problems) -> str | None:
        """An id as text: 123 for a spreadsheet's 123.0; None for an empty cell."""
        column = self.meaning.one(role)
        if column is None or not (text := self._text(row, column, problems)):
            return None
        if re.fullmatch(r"\d+(\.\d+)?[eE]\+\d+", text):
            problems.add(DIGITS_LOST, f"{short_repr(text)} at {row.place}")
        if not text.isprintable():
            problems.add(UNPRINTABLE, f"{short_repr(text)} at {row.place}")
        return re.sub(r"^(\d+)\.0+$", r"\1", text)

    def values(self, row: TableRow, problems: Problems) -> dict[str, Any]:
        """The values of a row by role, all but study and image; empty ones left out."""
        found: dict[str, Any] = {"patient": self.id(row, "patient", problems), "prior": self.id(row, "prior", problems)}
        remarks: list[str] = []
        for role in [role for role in ROLES if role not in ("image", "study", "patient", "prior", "view")]:
            column = self.meaning.one(role)
            text = self._text(row, column, problems) if column else ""
            if not text:
                continue
            if role == "split":
                found[role] = self.split_names.get(text.lower())
                if found[role] is None:
                    problems.add(BAD_SPLIT, f"{short_repr(text)} at {row.place}")
            elif role == "date":
                found[role] = parse_moment(text, self.config.date_order)
                if not found[role]:
                    problems.add(BAD_DATE, f"{short_repr(text)} at {row.place}")
            elif role == "age":
                found[role], remark = parse_age(text)
                remarks += [remark] if remark else []
            elif role == "sex":
                found[role], remark = parse_sex(text)
                remarks += [remark] if remark else []
            elif role in TEXTS:
                found[role] = text
            else:
                raise ValueError(f"the role {role} is not read")
        labels = {}
        for name, column in self.meaning.labels.items():
            if text := self._text(row, column, problems):
                labels[name] = _LABELS.get(text.lower().removesuffix(".0"), text)
                if isinstance(labels[name], str):
                    problems.add(BAD_LABEL, f"'{name}' is {short_repr(text)} at {row.place}")
        kept = {role: value for role, value in found.items() if value not in (None, "")}
        return kept | ({"labels": labels} if labels else {}) | ({"remarks": remarks} if remarks else {})

    def images(self, row: TableRow, number: int, problems: Problems) -> list[RowImage]:
        """The images of a row, each with its view where the row or the name of its column states one."""
        found: list[RowImage] = []
        columns = self.meaning.roles.get("image", ())
        stated = self._view(row, problems)
        for column in columns:
            named = parse_view(re.sub(r"[_\d]", " ", column)) if len(columns) > 1 else None
            view = named if isinstance(named, View) else stated
            held = _embedded(row.values.get(column))
            for data, name in held:
                ending = os.path.splitext(name)[1].lower()
                path = f"row{number}_{len(found)}{ending if ending in IMAGE_ENDINGS else ''}"
                found.append(RowImage(path, view, is_image(data[:1024]), data))
                if not found[-1].present:
                    problems.add(CELL_NOT_IMAGE, row.place)
            for path in [] if held else image_references(row.values.get(column)):
                found.append(self._file(path, view, row.place, problems))
        return found

    def _file(self, written: str, view: str | None, place: str, problems: Problems) -> RowImage:
        paths = self.files.find(written)
        if len(paths) > 1:
            problems.add(AMBIGUOUS, f"{short_repr(written)} at {place}: {paths[0]}, {paths[1]}")
        start = _file_start(paths[0]) if len(paths) == 1 else b""
        if is_image(start):
            return RowImage(paths[0], view)
        if not self.config.allow_missing_images and len(paths) < 2:
            problems.add(NOT_IMAGE if start else MISSING, f"{short_repr(written)} at {place}")
        path = written.replace("\\", "/").replace("\0", "")
        name = path.rpartition("/")[2]
        if path[:1] in ("", "/") or ":" in path or "/" not in path or ".." in path:  # its place is unknown
            return RowImage(name if name.strip(".") else "unnamed", view, present=False)
        return RowImage(os.path.normpath(os.path.join(self.files.root, path)), view, present=False)

    def _view(self, row: TableRow, problems: Problems) -> str | None:
        column = self.meaning.one("view")
        return parse_view(self._text(row, column, problems)) if column else None

    def _text(self, row: TableRow, column: str, problems: Problems) -> str:
        value = row.values.get(column)
        if isinstance(value, (list, tuple)) and len(value) == 1:  # some tools store several reports per study
            value = value[0]
        if isinstance(value, (list, tuple, dict)):
            if value:
                problems.add(NOT_VALUE, f"'{column}' at {row.place}")
            return ""
        text = cell_text(value)
        if text in SPREADSHEET_ERRORS:
            problems.add(SPREADSHEET_ERROR, f"{text} in '{column}' at {row.place}")
            return ""
        return text


def _embedded(value: Any) -> list[tuple[bytes, str]]:
    """The images whose bytes a cell holds, with their names: bytes, Hugging Face's {bytes, path}, or lists of these."""
    if isinstance(value, bytes):
        return [(value, "")]
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        return [(value["bytes"], str(value.get("path") or ""))]
    return [held for one in value for held in _embedded(one)] if isinstance(value, list) else []


def _file_start(path: str) -> bytes:
    """The beginning of a file, by which its kind is known; nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(1024)
    except OSError:
        return b""


def _missing(meaning: Columns) -> tuple[str, ...]:
    """What the columns do not give, and what follows from it."""
    found = []
    if "image" not in meaning:
        found.append("image: the corpus will hold reports alone")
    if not set(TEXTS) & set(meaning.roles):
        found.append("report: the corpus will hold images without text")
    if "study" not in meaning:
        found.append("study: every row becomes a study, named after its image or the number of its row")
    if "patient" not in meaning:
        found.append("patient: every study counts as a patient of its own, so one patient may be in two splits")
    if "split" not in meaning:
        found.append("split: drawn by patient with --seed, 80 % train, 10 % val, 10 % test")
    if "image" in meaning and "view" not in meaning and len(meaning.roles["image"]) == 1:
        found.append(
            "view: taken from DICOM headers, else unknown, and training leaves out studies without a frontal view; "
            "--views-from-pixels decides frontal or lateral"
        )
    return tuple(found)


def command_line(first: Sequence[str], config: OwnDataConfig, given: Mapping[str, Any]) -> str:
    """The command line with the settings that differ from their defaults, and those given instead."""
    words, unset = ["cxrlab", *first], vars(OwnDataConfig())
    for name, value in {**vars(config), **given}.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value not in (None, (), "", False) and value != unset.get(name):
            words += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return shlex.join(words)


def shared_settings(config: OwnDataConfig, *, split: bool) -> dict[str, Any]:
    """The settings that change the bytes of a corpus, for its card."""
    settings: dict[str, Any] = {"form": FORM, "images": "copied" if config.copy else "linked"}
    settings["split"] = "given" if split else "patient"
    if not split:
        settings["split_seed"] = config.seed
    for name in ("split_names", "date_order", "allow_missing_images", "views_from_pixels"):
        if value := getattr(config, name):
            settings[name] = list(value) if isinstance(value, tuple) else value
    return settings


def digests(files: Sequence[Path], source: Path) -> dict[str, str]:
    """Name of each file, relative to the source folder → beginning of its SHA-256."""
    names = {file: os.path.relpath(file, source) if source.is_dir() else file.name for file in files}
    return {names[file]: sha256_of(file)[:16] for file in files}


def own_card(config: CardConfig, name: str, settings: Mapping[str, Any], remarks: Mapping[str, int]) -> Card:
    """The card of a corpus that a user imports; what the flags leave out is "not stated"."""
    return Card(
        name=config.name or name,
        source=config.source or NOT_STATED,
        licence=config.licence or NOT_STATED,
        citation=config.citation or NOT_STATED,
        settings=settings,
        synthetic=config.synthetic,
        collections=config.collections,
        remarks=remarks,
        absent={},
    )


@dataclass(frozen=True)
class StudyMaker:
    """What every study of an import shares."""

    root: str | None  # the folder that is linked, and that paths in the corpus are relative to
    split_seed: int | None  # draws splits by patient, where the source has none
    copy: bool
    views_from_pixels: bool
    own_names: bool = True  # whether images keep their paths; otherwise they are named after their study

    @classmethod
    def of(cls, config: OwnDataConfig, studies: StudyRows, *, has_splits: bool) -> StudyMaker:
        seed = None if has_splits else config.seed
        return cls(studies.folder, seed, config.copy, config.views_from_pixels)


def write_corpus(out: Path, card: Card, maker: StudyMaker, studies: StudyRows, config: OwnDataConfig) -> Corpus:
    """Write the studies, or continue an interrupted import; their folder is linked unless images are copied."""
    root = maker.root
    if root is not None and not maker.copy:
        if root == os.path.sep:
            raise ConfigError("the images have no folder in common that could be linked; give --copy to copy them.")
        if Path(os.path.realpath(out)).is_relative_to(os.path.realpath(root)):
            raise ConfigError(
                f"--out {out} lies in the folder of the images, {root}; choose a folder outside of it, or give --copy."
            )
    recipe: Recipe[MergedStudy] = Recipe(
        items=studies,
        ids=_id_of,
        make_studies=partial(make_study, maker),
        label=f"importing {card.name}",
        total=studies.studies,
        links={} if root is None or maker.copy or not studies.present else {IMAGES: Path(root)},
        batch=BATCH,
    )
    return build_corpus(out, card, recipe, config.workers)


def _id_of(item: MergedStudy) -> tuple[str]:
    return (item.id,)


def make_study(maker: StudyMaker, item: MergedStudy) -> list[NewStudy]:
    """One study with its sections, split and views, and the bytes of images to write. Runs in a worker."""
    values, remarks = item.values, [*item.values.get("remarks", ()), *item.remarks]
    whole = values.get("report")
    sections = parse(whole).report if whole else Report()
    given = {name: values[name] for name in SECTIONS if name in values}
    sections = Report(**{name: given.get(name, sections.section(name)) for name in SECTIONS})
    header_age, header_sex = None, None
    present: list[ImageFile] = []
    absent: list[ImageFile] = []
    files: dict[str, bytes] = {}
    unseen: dict[int, ImageArray] = {}  # images whose view must be decided from their pixels
    for number, image in enumerate(item.images):
        path = f"{IMAGES}/{_path_in_corpus(maker, image, item.id, number)}"
        view, extra = image.view, dict(image.extra)
        if view == UNKNOWN_VIEW:
            view = View.OTHER
            remarks.append(VIEW_UNKNOWN)
        if not image.present:
            absent.append(ImageFile(path, View(view) if view else None, extra))
            continue
        if image.data is not None:
            files[path] = image.data
        elif maker.copy:
            files[path] = read_bytes(image.path)
        plain = image.path.lower().endswith((".png", ".jpg", ".jpeg"))
        if image.data is None and not plain and (view is None or "age" not in values or "sex" not in values):
            header, remark = read_dicom_header(Path(os.path.dirname(image.path)), os.path.basename(image.path))
            remarks += [remark] if remark else []
            if header is not None:
                header_age, header_sex = header_age or header.age, header_sex or header.sex
                if view is None and header.view is not None:
                    view, extra["view_from"] = header.view, "header"
        if view is None and maker.views_from_pixels:
            try:
                data = read_bounded(image.path) if image.data is None else image.data
                unseen[len(present)] = grey_image(decode_picture(data, image.path))
            except DataError:  # 'data check' names it
                remarks.append(UNDECODABLE)
        present.append(ImageFile(path, View(view) if view else None, extra))
    for at, guess in zip(unseen, classify_views(list(unseen.values())), strict=True):
        remarks.append(SHOWS_NOTHING if guess.view is View.OTHER else FROM_PICTURE)
        extra = {**present[at].extra, "view_from": "image", "view_confidence": guess.confidence}
        present[at] = ImageFile(present[at].path, guess.view, extra)
    split = values.get("split")
    if maker.split_seed is not None:
        split = assign_split(item.patient, maker.split_seed)
    study = Study(
        id=item.id,
        patient=item.patient,
        images=tuple(present),
        absent_images=tuple(absent) or None,
        sections=None if sections == Report() else sections,
        report=whole,
        split=None if split == NONE else split,
        age=values.get("age", header_age),
        sex=values.get("sex", header_sex),
        prior=item.prior,
        labels=values.get("labels", {}),
        extra={"date": values["date"]} if "date" in values else {},
    )
    remarks += [NOT_IN_FOLDER] if absent else []
    return [NewStudy(study, files, tuple(dict.fromkeys(remarks)))]


def _path_in_corpus(maker: StudyMaker, image: RowImage, study: str, number: int) -> str:
    if not maker.own_names:
        return f"{study}/{number}.dcm"
    path = os.path.relpath(image.path, maker.root) if os.path.isabs(image.path) else image.path
    check_inside(path)
    return path

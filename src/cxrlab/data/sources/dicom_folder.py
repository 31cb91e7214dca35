"""Import a folder of DICOM images as a corpus, with reports from a table or from the structured reports among them."""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import write_text
from cxrlab.core.json_values import dumps, loads
from cxrlab.core.records import SECTIONS
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import View
from cxrlab.data.bounded_reading import MAX_REPORT_BYTES, read_bounded
from cxrlab.data.config import DicomFolderConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.deidentify_image import KEY, Pseudonyms, pseudonyms_in
from cxrlab.data.images import DicomInfo, header_info, is_dicom, parse_dicom, report_damaged_header
from cxrlab.data.parallel import ordered_map
from cxrlab.data.sources.table import (
    RowReader,
    StudyMaker,
    Understanding,
    command_line,
    digests,
    make_study,
    own_card,
    required_folder,
    shared_settings,
    understand_columns,
    write_corpus,
)
from cxrlab.data.study_rows import FileIndex, Problems, RowImage, StudyRows
from cxrlab.data.table_columns import TEXTS, Columns, listed_columns, parse_moment, parse_view
from cxrlab.data.table_files import open_import_table

if TYPE_CHECKING:
    from pydicom import Dataset

NOT_DICOM = "files that are no DICOM"
NO_STUDY = "DICOM files without StudyInstanceUID"
DAMAGED = "DICOM files that cannot be read"
SEVERAL_FRAMES = "DICOM files of several frames"
NO_IMAGE = "DICOM files without an image"
UNMATCHED = "reports of studies that the folder does not hold"
SEVERAL_REPORTS = "study with several structured reports, the last one taken"
NO_REPORT_STUDY = (
    "rows without a study id that could be matched",
    "Name the column of StudyInstanceUID or AccessionNumber.",
)
# Modalities of radiographs, and of scanned or exported ones.
RADIOGRAPHS = ("CR", "DX", "DR", "RG", "OT", "SC", "XC", "")
_HEADER_BYTES = 1 << 18  # headers of radiographs take a few kilobytes
_SHOWN = 10
# Names of the concepts under which structured reports keep their sections.
_CONCEPTS: Mapping[str, str] = {
    "finding": "findings", "findings": "findings", "impression": "impression", "impressions": "impression",
    "conclusion": "impression", "conclusions": "impression", "summary": "impression", "indication": "indication",
    "indications for procedure": "indication", "history": "indication", "clinical history": "indication",
    "clinical information": "indication", "reason for procedure": "indication", "request": "indication",
    "comparison": "comparison", "prior procedure descriptions": "comparison", "procedure description": "examination",
    "procedure": "examination", "current procedure descriptions": "examination", "examination": "examination",
}  # fmt: skip


@dataclass(frozen=True)
class DicomFile:
    """What one file of the folder gives: an image or a report of a study, or why it is skipped."""

    path: str
    skipped: str | None = None
    study: str = ""
    patient: str = ""
    accession: str = ""
    moment: str = ""
    info: DicomInfo | None = None  # of an image
    extra: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)  # of a structured report, by role
    rank: str = ""  # of a structured report: sorts verified ones and later ones last


def import_dicom(
    config: DicomFolderConfig, out: Path | None = None, dry_run: bool = False
) -> tuple[Understanding, Corpus | None]:
    """Read every header of a folder, match the reports, and import the studies unless `dry_run` is True."""
    if not config.root.is_dir():
        raise DataError(f"{config.root} is not a folder; give the folder of the DICOM files with --root.")
    if config.columns and config.reports is None:
        raise ConfigError("columns has no effect without a table of reports; name it with --reports.")
    asks = config.reports is not None and not config.columns  # what is understood must be confirmed first
    target = None if dry_run or asks else required_folder(out)
    problems, skipped = Problems(), Counter[str]()
    beside = None if out is None else out.with_name(out.name + ".pseudonyms")
    names = _pseudonyms(beside) if config.pseudonyms else None
    with StudyRows() as studies, Matches() as matches:
        header = partial(read_file, os.path.abspath(config.root))
        for one in track(ordered_map(header, _files(config.root), config.workers), f"reading {config.root.name}"):
            if one.skipped is not None:
                skipped[one.skipped] += 1
            elif one.info is None:
                matches.add_report(one)
            else:
                study = names.uid(one.study) if names else one.study
                patient = names.patient(one.patient) if names and one.patient else one.patient
                matches.add_study(one, study)
                studies.add(one.path, study, _values(one, patient), [_image(one)])
        if not len(studies):
            found = "; ".join(f"{count:,} {what}" for what, count in skipped.items())
            raise DataError(f"{config.root} holds no DICOM image ({found or 'it is empty'}); check the path.")
        meaning, files, columns, remarks = Columns({}), tuple[Path, ...](), tuple[str, ...](), {}
        if config.reports is not None:
            opened = open_import_table(config.reports, config.sheet)
            files, columns = opened.files, opened.columns
            reader, rows = understand_columns(opened, config, FileIndex(config.root, ()), images=False)
            meaning = reader.meaning
            if "study" not in meaning:
                raise DataError(
                    f"no column of {config.reports} was recognised as study; name it: --columns auto,study=NAME. The "
                    f"columns are {listed_columns(columns)}."
                )
            for row in rows:
                skipped.update(_add_report(studies, matches, reader, row, problems))
        else:
            for study, place, texts in matches.reports():
                studies.add(place, study, texts, [])
            if matches.several:
                remarks[SEVERAL_REPORTS] = matches.several
            if matches.unmatched:
                skipped[UNMATCHED] = matches.unmatched
        studies.merge(problems, named=True, patients=False)
        maker = StudyMaker.of(config, studies, has_splits="split" in meaning)
        if names is not None:
            maker = replace(maker, copy=True, own_names=False)
        given = {"columns": meaning.spelled(columns), "out": out or f"corpora/{config.root.resolve().name}"}
        understanding = Understanding(
            kind="DICOM folder",
            rows=len(studies),
            studies=studies.studies,
            columns=columns,
            meaning=meaning,
            missing=(),
            problems=tuple(problems.sentences()),
            first=tuple(new.study for item in islice(studies, _SHOWN) for new in make_study(maker, item)),
            command=command_line(["data", "import", "dicom"], config, given),
            skipped=skipped,
        )
        if target is None:
            return understanding, None
        problems.raise_if_any(str(config.root))
        made_from = matches.digest() if config.reports is None else digests(files, config.reports)
        settings = {
            "layout": "DICOM folder",
            **({"columns": meaning.spelled(columns)} if columns else {}),
            **shared_settings(config, split="split" in meaning),
            "identifiers": "keyed hashes, key " + hashlib.sha256(names.key).hexdigest()[:8]
            if names
            else "those of the headers",
            **({"made_from": made_from} if made_from else {}),
        }
        if names is not None:
            settings["images"] = "copied"
            if beside is not None and not (beside / KEY).is_file():
                write_text(beside / KEY, names.key.hex() + "\n")
        card = own_card(config, config.root.resolve().name, settings, {**skipped, **remarks})
        card = replace(card, extra={"identifying": IDENTIFYING[names is not None]})
        return understanding, write_corpus(target, card, maker, studies, config)


# What the card says, without and with pseudonyms.
IDENTIFYING = (
    "Ids of studies and patients are those of the DICOM headers, and the images keep their headers; "
    "'cxrlab data scrub' writes copies without identifying headers.",
    "Ids of studies and patients are keyed hashes, but the images keep their headers; "
    "'cxrlab data scrub' writes copies without identifying headers.",
)


def _files(root: Path) -> Iterator[str]:
    """Every file below the root, hidden ones aside, in an order that does not change."""
    for folder, folders, names in os.walk(os.path.abspath(root)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(folder, name) for name in sorted(names) if not name.startswith("."))


def read_file(root: str, path: str) -> DicomFile:
    """The header of one file. Runs in a worker."""
    name = os.path.relpath(path, root)
    try:
        if not os.path.isfile(path):  # reading a named pipe would wait forever
            return DicomFile(path, NOT_DICOM)
        with open(path, "rb") as stream:
            data = stream.read(_HEADER_BYTES)
        if not is_dicom(data) or os.path.basename(path).upper() == "DICOMDIR":
            return DicomFile(path, NOT_DICOM)
        try:
            header = parse_dicom(data, name, pixels=False)
        except DataError:  # a header longer than usual
            header = parse_dicom(read_bounded(path), name, pixels=False)
        if header.get("Modality") == "SR" or "ContentSequence" in header:
            if os.path.getsize(path) > len(data):
                header = parse_dicom(read_bounded(path, MAX_REPORT_BYTES), name)
        with report_damaged_header(name):
            return _understood(header, path, name)
    except (DataError, OSError):
        return DicomFile(path, DAMAGED)


def _understood(header: Dataset, path: str, name: str) -> DicomFile:
    def text(keyword: str) -> str:
        return str(header.get(keyword) or "").strip().strip("\0")

    study = text("StudyInstanceUID")
    if not study:
        return DicomFile(path, NO_STUDY)
    moment = parse_moment(f"{text('StudyDate')} {text('StudyTime')}".strip()) or parse_moment(text("StudyDate"))
    shared = DicomFile(path, study=study, patient=text("PatientID"), accession=text("AccessionNumber"), moment=moment)
    if "ContentSequence" in header:
        rank = f"{text('VerificationFlag') == 'VERIFIED':d}{text('ContentDate')}{text('ContentTime')}"
        return replace(shared, texts=structured_text(header), rank=rank)
    if not header.get("Rows") or not header.get("Columns"):
        return DicomFile(path, NO_IMAGE)
    if text("Modality") not in RADIOGRAPHS:
        return DicomFile(path, f"DICOM images that are no radiographs ({text('Modality')})")
    if int(header.get("NumberOfFrames") or 1) > 1:
        return DicomFile(path, SEVERAL_FRAMES)
    info, extra = header_info(header, name), dict[str, str]()
    if laterality := text("ImageLaterality") or text("Laterality"):
        extra["laterality"] = laterality
    if info.view in (None, View.OTHER):
        found = parse_view(text("SeriesDescription"))
        orientation = [str(value)[:1] for value in header.get("PatientOrientation") or ()]
        if isinstance(found, View):
            info, extra = replace(info, view=found), {**extra, "view_from": "series description"}
        elif info.view is None and len(orientation) == 2 and orientation[0] in "LRAP":
            view = View.FRONTAL if orientation[0] in "LR" else View.LATERAL
            info, extra = replace(info, view=view), {**extra, "view_from": "patient orientation"}
    return replace(shared, info=info, extra=extra)


def structured_text(header: Dataset) -> dict[str, str]:
    """The text of a structured report: by section where its concepts are known, else the whole as `report`."""
    texts: dict[str, list[str]] = {}
    whole: list[tuple[str, str]] = []  # concept and text

    def read(items: Any, above: str) -> None:
        for item in items or ():
            codes = item.get("ConceptNameCodeSequence")
            concept = str(codes[0].get("CodeMeaning") or "").strip() if codes else ""
            section = _CONCEPTS.get(concept.casefold(), above)
            if item.get("ValueType") == "TEXT" and (value := str(item.get("TextValue") or "").strip()):
                whole.append((concept, value))
                if section:
                    texts.setdefault(section, []).append(value)
            read(item.get("ContentSequence"), section)

    read(header.get("ContentSequence"), "")
    if "findings" in texts or "impression" in texts:
        return {name: "\n".join(texts[name]) for name in SECTIONS if name in texts}
    named = len(whole) > 1  # a single text is the report itself
    lines = [f"{concept}: {value}" if concept and named else value for concept, value in whole]
    return {"report": "\n".join(lines)} if lines else {}


def _values(one: DicomFile, patient: str) -> dict[str, Any]:
    age, sex = (one.info.age, one.info.sex) if one.info is not None else (None, None)
    if age is not None:
        age = int(age) if age.is_integer() else round(age, 3)
    values = {"patient": patient, "date": one.moment, "age": age, "sex": sex}
    return {role: value for role, value in values.items() if value not in (None, "")}


def _image(one: DicomFile) -> RowImage:
    return RowImage(one.path, one.info.view if one.info is not None else None, extra=one.extra)


def _add_report(studies: StudyRows, matches: Matches, reader: RowReader, row: Any, problems: Problems) -> Counter[str]:
    """Add the texts of a row to its study; a row of a study that the folder does not hold is counted."""
    written = reader.id(row, "study", problems)
    if written is None:
        problems.add(NO_REPORT_STUDY, row.place)
        return Counter()
    study = matches.study(written)
    if study is None:
        return Counter({UNMATCHED: 1})
    values = reader.values(row, problems)
    kept = {role: values[role] for role in (*TEXTS, "split", "labels", "prior") if role in values}
    studies.add(row.place, study, kept, [])
    return Counter()


class Matches:
    """Finds the study of a report by StudyInstanceUID or AccessionNumber, in a temporary database."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE studies (name TEXT, study TEXT, PRIMARY KEY (name, study)) WITHOUT ROWID")
        self._db.execute("CREATE TABLE reports (study TEXT, accession TEXT, rank TEXT, path TEXT, texts TEXT)")
        self._db.execute("BEGIN")
        self.several = self.unmatched = 0

    def __enter__(self) -> Matches:
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()

    def add_study(self, one: DicomFile, study: str) -> None:
        """The study of an image, under the id that it has in the corpus."""
        for name in filter(None, (one.study, one.accession)):
            self._db.execute("INSERT OR IGNORE INTO studies VALUES (?, ?)", (name, study))

    def add_report(self, one: DicomFile) -> None:
        """A structured report; one without text is passed over."""
        if one.texts:
            row = (one.study, one.accession, one.rank, one.path, dumps(dict(one.texts)))
            self._db.execute("INSERT INTO reports VALUES (?, ?, ?, ?, ?)", row)

    def study(self, written: str) -> str | None:
        """The study of this UID or accession number, where there is exactly one."""
        found = self._db.execute("SELECT study FROM studies WHERE name = ? LIMIT 2", (written,)).fetchall()
        return found[0][0] if len(found) == 1 else None

    def reports(self) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Study in the corpus, place and texts of each structured report of a study with images, the best of several."""
        rows = self._db.execute("SELECT study, accession, path, texts FROM reports ORDER BY study, rank DESC, path")
        for _, same in groupby(rows, key=lambda row: row[0]):
            (uid, accession, path, texts), *others = same
            self.several += bool(others)
            study = self.study(uid) or (self.study(accession) if accession else None)
            if study is None:
                self.unmatched += 1
            else:
                yield study, path, loads(texts)

    def digest(self) -> dict[str, str]:
        """Of the texts of all structured reports, as `made_from` of the card; empty without any."""
        found = hashlib.sha256()
        count = 0
        for row in self._db.execute("SELECT study, rank, texts FROM reports ORDER BY study, rank, texts"):
            found.update(dumps(list(row)).encode())
            count += 1
        return {"structured reports": found.hexdigest()[:16]} if count else {}


def _pseudonyms(folder: Path | None) -> Pseudonyms:
    """With the key in a folder beside the corpus, else with a new one, which is saved when the import begins."""
    if folder is not None and (folder / KEY).is_file():
        return pseudonyms_in(folder)
    return Pseudonyms(secrets.token_bytes(32))

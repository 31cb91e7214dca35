"""Open-I: the chest radiographs of Indiana University with their reports in sections and codes by indexers.

Counts: 3,955 reports (XML), of which 3,851 have images, 7,470 in all; the CSV form holds those 3,851 and 7,466 images.
Views: frontal and lateral by indiana_projections.csv in the root or given with --projections, else classified from the
    pixels, with the confidence of each image; an image without either has the view other.
Labels: none in CheXpert's words; the MeSH codes of the indexers in extra.mesh, those of a program in
    extra.mesh_automatic (XML) and the headings alone in extra.problems (CSV).
Language: English, XXXX where words were masked.
Licence: CC BY-NC-ND 4.0.
Citation: Demner-Fushman et al., Preparing a collection of radiology examinations for distribution and retrieval,
    JAMIA 2016.
Obtain: Open-I's download page, NLMCXR_reports.tgz (or ecgen-radiology/*.xml out of it) and NLMCXR_png.tgz or the DICOM
    archive unpacked beside it: layout xml; or the CSV form with indiana_reports.csv, indiana_projections.csv and
    images/images_normalized/: layout csv. Where both are there the XML is read, unless --layout csv.
Defects: 104 reports have no image; 530 have no findings; 95 were not indexed; a spreadsheet turned three indications of
    the CSV form into #NAME?; its examination holds HTML escapes; the table of views leaves out four images.
    The split is R2Gen's (train 2,069, val 296, test 590); the 1,000 reports that it leaves out have none. Its test
    studies stay in test whatever --split says, and extra.aliases holds R2Gen's ids. The same images and patients as
    iu-xray: neither is external to the other.
"""

from __future__ import annotations

import gzip
import html
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers.expat import ExpatError, ParserCreate

from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.files import read_json, unreadable
from cxrlab.core.records import ALIASES, ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data import source_tables
from cxrlab.data.bounded_reading import MAX_REPORT_BYTES, Unpacked, max_unpacked_bytes, read_bounded
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus_writer import Dropped
from cxrlab.data.images import ImageArray, load_image
from cxrlab.data.importing import Imported, ImportPlan
from cxrlab.data.views import classify_views

LAYOUTS = ("xml", "csv")
BROKEN = "XML that is not well-formed, declares entities or holds no report"
OTHER_ID = "report whose own id is not that of its file"
NO_IMAGES = "report without images"
UNKNOWN_IMAGE = "image whose name is not one of Open-I's, left out"
SPREADSHEET_ERROR = "text that a spreadsheet turned into #NAME?, left out"
# Folders deeper than this below the root are not searched for images.
_DEEPEST = 3
# The order in which formats of the same image are preferred.
_ENDINGS = (".png", ".jpg", ".jpeg", ".dcm")
_TABLE = ("indiana_reports.csv", "indiana_reports.csv.gz")
_COLUMNS = {"examination": "image", **{name: name for name in ("indication", "comparison", "findings", "impression")}}
_NOTHING = ("", "Not Available.")


class ImageName(NamedTuple):
    """An image of the collection: the number of its report and its own name ("IM-0001-3001")."""

    number: str
    name: str


class Source(NamedTuple):
    """What both layouts need to turn a report into a study; `paths` are relative to the root."""

    root: Path
    paths: Mapping[ImageName, str]
    projections: Projections | None


def plan(config: ImportConfig) -> ImportPlan[Any]:
    """The reports in the order of their numbers (XML) or of the table (CSV)."""
    layout = source_tables.chosen_layout(config, LAYOUTS)
    table = source_tables.find_optional(config.root, *_TABLE)
    files = find_files(config.root)
    # Every image in the folder and up to three folders below, whatever it is called after, by its name.
    found: dict[ImageName, tuple[int, str]] = {}
    for folder, folders, names in os.walk(config.root):
        below = Path(folder).relative_to(config.root)
        if len(below.parts) >= _DEEPEST:
            folders.clear()
        for name in names:
            ending = os.path.splitext(name)[1].lower()
            image = image_name(name) if ending in _ENDINGS else None
            if image is not None:
                path = (_ENDINGS.index(ending), (below / name).as_posix())
                found[image] = min(path, found.get(image, path))
    paths = {image: path for image, (_, path) in found.items()}
    source = Source(config.root, paths, read_projections(config))
    views = "" if source.projections is None else " with projections"
    if files is not None and layout != "csv":
        reports, total = open_files(files)
        return ImportPlan(
            items=reports,
            study_id=_xml_id,
            read=partial(read_xml, source),
            total=total,
            layout=f"xml{views}",
            collections=(COLLECTION,),
            used_settings=("projections",),
            keeps_test=True,
        )
    if table is not None and layout != "xml":
        rows, seen = [], set()
        for line, row in source_tables.read_rows(table, ("uid", "MeSH", "Problems", *_COLUMNS.values())):
            row["uid"] = str(int(source_tables.parse_digits(row["uid"], f"{table}:{line}: 'uid'")))
            if row["uid"] in seen:
                raise DataError(f"{table}:{line}: uid {row['uid']} is listed twice; fetch the table again.")
            seen.add(row["uid"])
            rows.append(row)
        if not rows:
            raise DataError(f"{table} lists no report; fetch it again.")
        # The images of each report: by the table of views, or those in the folder where there is no table.
        images: dict[str, list[ImageName]] = {}
        listed = (ImageName(number, name) for number, views in (source.projections or {}).items() for name in views)
        for image in sorted(paths) if source.projections is None else listed:
            images.setdefault(image.number, []).append(image)
        return ImportPlan(
            items=rows,
            study_id=_csv_id,
            read=partial(read_csv, source, images),
            total=len(rows),
            layout=f"csv{views}",
            collections=(COLLECTION,),
            used_settings=("projections",),
            keeps_test=True,
        )
    wanted = {"xml": f"ecgen-radiology/*.xml or {ARCHIVES[0]}", "csv": _TABLE[0]}
    looked = wanted[layout] if layout else ", ".join(wanted.values())
    raise DataError(f"{config.root} does not hold the reports of Open-I: looked for {looked}; give the folder with it.")


def read_xml(source: Source, file: XmlFile) -> Imported | Dropped:
    """One XML report as a study."""
    try:
        document = parse_document(file.data)
    except BadXml:
        return Dropped(_xml_id(file), BROKEN)
    extra = {"mesh": list(document.mesh), "mesh_automatic": list(document.mesh_automatic)}
    known = {name: image for name in document.images if (image := image_name(name))}
    remarks = [OTHER_ID] if document.number != file.number else []
    remarks += [UNKNOWN_IMAGE] if len(known) < len(document.images) else []
    listed = {image: f"NLMCXR_png/{name}.png" for name, image in known.items()}
    return _study(source, _xml_id(file), document.report, listed, extra, remarks)


def read_csv(source: Source, images: Mapping[str, list[ImageName]], row: source_tables.Row) -> Imported:
    """One row of the CSV form as a study; `images` gives those of each number."""
    texts, remarks = {}, []
    for section, column in _COLUMNS.items():
        text = html.unescape(row[column]) if column == "image" else row[column]
        if text == "#NAME?":
            remarks.append(SPREADSHEET_ERROR)
        elif text not in _NOTHING:
            texts[section] = text
    extra = {
        name: [code.strip() for code in row[column].split(";") if code.strip()]
        for name, column in (("mesh", "MeSH"), ("problems", "Problems"))
    }
    listed = {
        image: f"images/images_normalized/{image.number}_{image.name}.dcm.png" for image in images.get(row["uid"], [])
    }
    return _study(source, _csv_id(row), Report(**texts), listed, extra, remarks)


def _study(
    source: Source,
    name: str,
    report: Report,
    listed: Mapping[ImageName, str],
    extra: Mapping[str, list[str]],
    remarks: list[str],
) -> Imported:
    """The study of a report; `listed` gives the expected path of each image that is not in the folder."""
    paths = [source.paths.get(image, expected) for image, expected in listed.items()]
    table = source.projections or {}
    views = [table.get(image.number, {}).get(image.name) for image in listed]
    images, view_remarks = with_views(source.root, paths, views)
    split = r2gen_split().get(name)
    aliases = [r2gen_id(listed)] if split and listed else []
    study = Study(
        id=name,
        patient=name,
        images=images,
        sections=report,
        split=split,
        extra={key: codes for key, codes in {**extra, ALIASES: aliases}.items() if codes},
    )
    return Imported(study, (*remarks, *view_remarks, *(() if images else (NO_IMAGES,))))


@cache
def r2gen_split() -> Mapping[str, str]:
    """Study → split, of the 2,955 studies of IU X-ray in R2Gen's annotation."""
    numbers = read_json(Path(__file__).with_name("r2gen_split.json"))
    return {f"CXR{number}": split for split, found in numbers.items() for number in found}


def r2gen_id(images: Iterable[ImageName]) -> str:
    """R2Gen's id of a study: its first image by name without the last number (`CXR1_IM-0001`)."""
    first = min(images)
    return f"CXR{first.number}_{first.name.rpartition('-')[0]}"


def _xml_id(file: XmlFile) -> str:
    return f"CXR{int(file.number)}" if file.number.isdecimal() else file.number


def _csv_id(row: source_tables.Row) -> str:
    return f"CXR{row['uid']}"


ARCHIVES = ("NLMCXR_reports.tgz", "NLMCXR_reports.tar.gz", "NLMCXR_reports.tar")
FOLDERS = ("ecgen-radiology", "NLMCXR_reports/ecgen-radiology", "NLMCXR_reports", "")
_SECTIONS = {"COMPARISON": "comparison", "INDICATION": "indication", "FINDINGS": "findings", "IMPRESSION": "impression"}


class XmlFile(NamedTuple):
    """A file of the collection: the number in its name, and its bytes."""

    number: str
    data: bytes


class Document(NamedTuple):
    """One XML report; `mesh` holds the codes of the indexers, ("normal",) for a normal report."""

    number: str | None
    report: Report
    mesh: tuple[str, ...]
    mesh_automatic: tuple[str, ...]
    images: tuple[str, ...]


class BadXml(Exception):
    """A file that is not a report; the message never quotes its text."""


def parse_document(data: bytes) -> Document:
    """The report in the bytes of a file; `BadXml` where they are not well-formed, hold entities or no report."""

    def refuse(*_: object) -> None:
        raise BadXml("declares entities")

    def texts_of(tag: str) -> tuple[str, ...]:
        return tuple(text for part in root.iter(tag) if (text := (part.text or "").strip()))

    builder, parser = TreeBuilder(), ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
        root: Element = builder.close()
    except (ExpatError, ValueError, LookupError):  # the latter two: an unknown encoding
        raise BadXml("not well-formed") from None
    uid = root.find(".//uId")
    texts: dict[str, str] = {}
    for part in root.iter("AbstractText"):
        section = _SECTIONS.get((part.get("Label") or "").strip().upper())
        text = "".join(part.itertext()).strip()
        if section and text:
            texts[section] = f"{texts[section]} {text}" if section in texts else text
    if uid is None and not texts:
        raise BadXml("neither an id nor a section")
    images = list(root.iter("parentImage"))
    captions = [caption for image in images if (caption := (image.findtext("caption") or "").strip())]
    number = re.search(r"\d+", (uid.get("id") or "") if uid is not None else "")
    return Document(
        number=number[0] if number else None,
        report=Report(examination=captions[0] if captions else None, **texts),
        mesh=texts_of("major"),
        mesh_automatic=texts_of("automatic"),
        images=tuple(name for image in images if (name := (image.get("id") or "").strip())),
    )


def find_files(root: Path) -> Path | None:
    """The folder or archive that holds the reports, or None; a folder is preferred."""
    for name in FOLDERS:
        if any((root / name).glob("*.xml")):
            return root / name
    return next((root / name for name in ARCHIVES if (root / name).is_file()), None)


def open_files(place: Path) -> tuple[Iterable[XmlFile], int]:
    """The reports of a folder or archive in the order of their numbers, and how many; an archive is read at once."""

    def order(name: str) -> tuple[int, str]:
        return (int(name), name) if name.isdecimal() else (1 << 62, name)

    if place.is_dir():
        paths = sorted(place.glob("*.xml"), key=lambda path: order(path.stem))
        return (
            XmlFile(
                path.stem, b"" if path.is_file() and not path.stat().st_size else read_bounded(path, MAX_REPORT_BYTES)
            )
            for path in paths
        ), len(paths)
    archive, files = source_tables.record_source_file(place), dict[str, bytes]()
    try:
        with archive.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"  # by content: both kinds are called .tgz somewhere
        whole = cast(IO[bytes], gzip.open(archive) if packed else archive.open("rb"))
        unpacked = Unpacked(whole, archive, max_unpacked_bytes(archive), MAX_REPORT_BYTES)
        with unpacked as stream, tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as members:
            for member in members:
                name = PurePosixPath(member.name)
                if not member.isreg() or name.suffix.lower() != ".xml" or name.name.startswith("."):
                    continue
                if member.size > MAX_REPORT_BYTES:
                    raise DataError(f"{archive} holds {name.name} of {member.size:,} bytes, which is not a report.")
                if name.stem in files:
                    raise DataError(f"{archive} holds {name.name} twice; fetch it again.")
                content = members.extractfile(member)
                files[name.stem] = content.read() if content else b""
            while stream.read(1 << 20):  # to the end, where a packed archive has its checksum
                pass
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{archive} is damaged ({error}); fetch it again.") from None
    except OSError as error:
        raise unreadable(error, archive) from error
    if not files:
        raise DataError(f"{archive} holds no report (*.xml); fetch it again.")
    return [XmlFile(name, files[name]) for name in sorted(files, key=order)], len(files)


COLLECTION = "indiana"
PROJECTIONS = "indiana_projections.csv"
FROM_PICTURE = "view decided from the image itself"
UNDECODABLE = "image cannot be decoded, view unknown"
SHOWS_NOTHING = "image shows no chest (blank or noise), view unknown"
_VIEWS = {"frontal": View.FRONTAL, "lateral": View.LATERAL}
_IMAGE = re.compile(r"(?:CXR)?(?P<number>\d+)_(?:\d+_)?(?P<name>IM-\d+(?:-\d+)*)", re.IGNORECASE)
# Images, blank or noise most of them, that the collection holds and the table of views leaves out: they count where
# images are numbered.
_UNLISTED = {
    "2084": ("IM-0715-1001-0002", "IM-0715-2001-0001"),
    "2560": ("IM-1064-4001",),
    "3809": ("IM-1919-1003002",),
}


# Views by the number of the report and the name of the image.
Projections = Mapping[str, Mapping[str, View]]


def image_name(text: str) -> ImageName | None:
    """The image that a file or entry is named after, in any of the forms above; None for other names."""
    match = _IMAGE.match(text)
    return ImageName(match["number"].lstrip("0") or "0", match["name"].upper()) if match else None


def read_projections(config: ImportConfig) -> Projections | None:
    """The table of views: the one that the settings name, else that of the root; None where there is none."""
    given = config.projections and source_tables.record_source_file(config.projections)
    found = given or source_tables.find_optional(config.root, PROJECTIONS, f"{PROJECTIONS}.gz")
    if found is None:
        return None
    views: dict[str, dict[str, View]] = {}
    for line, row in source_tables.read_rows(found, ("uid", "filename", "projection")):
        image, view = image_name(row["filename"]), _VIEWS.get(row["projection"].lower())
        if image is None:
            raise DataError(
                f"{found}:{line}: {short_repr(row['filename'])} is not an image of Open-I (1_IM-0001-3001.dcm.png)."
            )
        if view is None:
            raise DataError(
                f"{found}:{line}: the projection is {short_repr(row['projection'])}, not Frontal or Lateral."
            )
        if views.setdefault(image.number, {}).setdefault(image.name, view) is not view:
            raise DataError(f"{found}:{line}: {row['filename']} has two projections; fetch the table again.")
    if not views:
        raise DataError(f"{found} lists no image; fetch the table again.")
    return views


def listed_views(projections: Projections, number: str, paths: Sequence[str]) -> tuple[View | None, ...]:
    """The views of one report's files; `<study>/<k>.png` is its k-th image by name, as R2Gen numbers them."""
    listed = projections.get(number, {})
    numbered = sorted({*listed, *_UNLISTED.get(number, ())}) if listed else []
    by_stem = {str(k): listed.get(name) for k, name in enumerate(numbered)}
    views: list[View | None] = []
    for stem in (PurePosixPath(path).stem for path in paths):
        own = image_name(stem)
        views.append(projections.get(own.number, {}).get(own.name) if own else by_stem.get(stem))
    return tuple(views)


def with_views(
    root: Path, paths: Sequence[str], known: Sequence[View | None]
) -> tuple[tuple[ImageFile, ...], list[str]]:
    """The images of one study with their views, and remarks.

    The view is the known one (from the table), else that of a DICOM header, else classified from the pixels. An image
    that is not in the folder, cannot be decoded or shows nothing has the view `other`.
    """
    images = [ImageFile(path, View.OTHER) for path in paths]
    pixels: dict[int, ImageArray] = {}  # images whose view must be classified
    remarks: set[str] = set()
    for k, (path, view) in enumerate(zip(paths, known, strict=True)):
        if view is not None:
            images[k] = ImageFile(path, view, {"view_from": "projections"})
        elif source_tables.is_image(root, path):
            header, _ = source_tables.read_dicom_header(root, path)
            if header is not None and header.view is not None:
                images[k] = ImageFile(path, header.view, {"view_from": "header"})
                continue
            try:
                pixels[k] = load_image(root / path)
            except DataError:  # 'data check' names it; here it costs the view, not the study
                remarks.add(UNDECODABLE)
    for k, guess in zip(pixels, classify_views(list(pixels.values())), strict=True):
        remarks.add(SHOWS_NOTHING if guess.view is View.OTHER else FROM_PICTURE)
        images[k] = ImageFile(paths[k], guess.view, {"view_from": "image", "view_confidence": guess.confidence})
    return tuple(images), sorted(remarks)

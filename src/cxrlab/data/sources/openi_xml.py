"""One report of Open-I from its XML: sections, codes and films; and the files themselves, in a folder or an archive.

Whoever made the file is not trusted: entities are refused, since a few lines of them can fill any memory.
"""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers.expat import ExpatError, ParserCreate

from cxrlab.core.errors import DataError
from cxrlab.core.files import unreadable
from cxrlab.core.records import Report
from cxrlab.data.bounded import MOST_OF_A_REPORT, Unpacked, most_unpacked, read_bounded
from cxrlab.data.sources.csv_file import noted

ARCHIVES = ("NLMCXR_reports.tgz", "NLMCXR_reports.tar.gz", "NLMCXR_reports.tar")
FOLDERS = ("ecgen-radiology", "NLMCXR_reports/ecgen-radiology", "NLMCXR_reports", "")
_SECTIONS = {"COMPARISON": "comparison", "INDICATION": "indication", "FINDINGS": "findings", "IMPRESSION": "impression"}


class XmlFile(NamedTuple):
    """A file of the collection: the number in its name, and its bytes."""

    number: str
    data: bytes


class Document(NamedTuple):
    """What one file says.

    Args:
        number: Of its own id ("1" of CXR1); None where it has none.
        report: Its sections; `examination` is the caption of its images.
        mesh: Codes that people gave it; ("normal",) for a normal report.
        mesh_automatic: Codes that a program gave it.
        images: Names of its images as the file writes them.
    """

    number: str | None
    report: Report
    mesh: tuple[str, ...]
    mesh_automatic: tuple[str, ...]
    images: tuple[str, ...]


class BadXml(Exception):
    """A file that is no report; its text never stands in the message."""


def parse_document(data: bytes) -> Document:
    """The report in the bytes of a file; `BadXml` where they are not well-formed, hold entities or no report."""
    root = _tree(data)
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
        mesh=_texts(root, "major"),
        mesh_automatic=_texts(root, "automatic"),
        images=tuple(name for image in images if (name := (image.get("id") or "").strip())),
    )


def find_files(root: Path) -> Path | None:
    """The folder or archive that holds the reports, or None; a folder is preferred."""
    for name in FOLDERS:
        if any((root / name).glob("*.xml")):
            return root / name
    return next((root / name for name in ARCHIVES if (root / name).is_file()), None)


def open_files(place: Path) -> tuple[Iterable[XmlFile], int]:
    """The reports of a folder or archive in the order of their numbers, and how many there are.

    Those of a folder are read one by one. An archive is read through once, without unpacking it, and kept in
    memory, 25 MB of text for the whole collection, since its members come in the order of their names.
    """
    if place.is_dir():
        paths = sorted(place.glob("*.xml"), key=lambda path: _order(path.stem))
        return (XmlFile(path.stem, _content(path)) for path in paths), len(paths)
    files = sorted(_members(noted(place)), key=lambda file: _order(file.number))
    return files, len(files)


def _content(path: Path) -> bytes:
    """The bytes of a file; an empty one is left out later, as any that is no XML, and does not stop the rest."""
    return b"" if path.is_file() and not path.stat().st_size else read_bounded(path, MOST_OF_A_REPORT)


def _members(archive: Path) -> list[XmlFile]:
    files: dict[str, bytes] = {}
    try:
        with _unpacked(archive) as stream, tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as members:
            for member in members:
                name = PurePosixPath(member.name)
                if not member.isreg() or name.suffix.lower() != ".xml" or name.name.startswith("."):
                    continue
                if member.size > MOST_OF_A_REPORT:
                    raise DataError(f"{archive} holds {name.name} of {member.size:,} bytes, which is no report.")
                if name.stem in files:
                    raise DataError(f"{archive} holds {name.name} twice; fetch it again.")
                content = members.extractfile(member)
                files[name.stem] = content.read() if content else b""
            while stream.read(1 << 20):  # to the end, where the checksum of a packed archive stands
                pass
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{archive} is damaged ({error}); fetch it again.") from None
    except OSError as error:
        raise unreadable(error, archive) from error
    if not files:
        raise DataError(f"{archive} holds no report (*.xml); fetch it again.")
    return [XmlFile(name, data) for name, data in files.items()]


def _unpacked(archive: Path) -> Unpacked:
    """The archive as it is, or what gzip packed: asked by content, since both are called .tgz somewhere."""
    with archive.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    unpacked = cast(IO[bytes], gzip.open(archive) if packed else archive.open("rb"))
    return Unpacked(unpacked, archive, most_unpacked(archive), MOST_OF_A_REPORT)


def _tree(data: bytes) -> Element:
    builder, parser = TreeBuilder(), ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(data, True)
        root: Element = builder.close()
    except (ExpatError, ValueError, LookupError):  # the latter two: an encoding that nobody knows
        raise BadXml("not well-formed") from None
    return root


def _refuse(*_: object) -> None:
    raise BadXml("declares entities")


def _texts(root: Element, tag: str) -> tuple[str, ...]:
    return tuple(text for part in root.iter(tag) if (text := (part.text or "").strip()))


def _order(name: str) -> tuple[int, str]:
    return (int(name), name) if name.isdecimal() else (1 << 62, name)

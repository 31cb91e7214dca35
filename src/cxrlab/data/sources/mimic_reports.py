"""The reports of MIMIC-CXR: one text file a study, in a tree of folders or in the zip file that the host ships."""

from __future__ import annotations

import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cxrlab.core.errors import DataError
from cxrlab.core.files import unreadable
from cxrlab.data.bounded import MOST_OF_A_REPORT, read_bounded, read_member
from cxrlab.data.sources.csv_file import noted

ZIP = "mimic-cxr-reports.zip"
NOT_UTF8 = "report is not UTF-8 text, read as Latin-1"

_MEMBER = re.compile(r"(?P<before>(?:.*/)?)p\d\d/p\d+/s\d+\.txt")
# Where the tree of patients may begin; one of reports alone goes before one of images that may hold reports too.
_TREES = ("mimic-cxr-reports/files", "mimic-cxr-reports", "files", ".")


@dataclass(frozen=True)
class Text:
    """A report as it was delivered, and the remark where its bytes were odd."""

    text: str
    remark: str | None = None


@dataclass(frozen=True)
class Reports:
    """Where the reports lie.

    Args:
        place: The folder that holds p10 to p19, or a zip file.
        before: What stands before `p10/…` in the names of a zip file's members; None for a folder.
    """

    place: Path
    before: str | None = None

    def read(self, patient: str, study: str) -> Text | None:
        """The report of a study ("p10000032", "s50414267"), or None where there is none or it is blank."""
        name = f"{patient[:3]}/{patient}/{study}.txt"
        data = self._file(name) if self.before is None else self._member(self.before + name)
        if data is None or not data.strip():
            return None
        try:
            return Text(data.decode("utf-8-sig"))
        except UnicodeDecodeError:
            return Text(data.decode("latin-1"), NOT_UTF8)

    def _file(self, name: str) -> bytes | None:
        file = self.place / name
        try:
            size = file.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise unreadable(error, file) from error
        return read_bounded(file, MOST_OF_A_REPORT) if size else None

    def _member(self, name: str) -> bytes | None:
        try:
            return read_member(_archive(self.place), name, MOST_OF_A_REPORT)
        except KeyError:
            return None


def find_reports(root: Path, given: Path | None) -> Reports:
    """The reports that were named, or those that lie with the images.

    Args:
        root: Folder of the data set.
        given: A folder or zip file; a place without any report is an error.

    Without a place of their own, reports are looked for in the root: its zip file, its own tree of them, or between the
    folders of the images. There may be none.
    """
    if given is None:
        return _in_zip(root / ZIP) if (root / ZIP).is_file() else Reports(_tree(root) or root)
    if given.is_file():
        return _in_zip(given)
    if not given.is_dir():
        raise DataError(f"{given} does not exist; give the folder or the zip file of the reports.")
    if (given / ZIP).is_file():
        return _in_zip(given / ZIP)
    tree = _tree(given)
    if tree is None:
        raise DataError(
            f"{given} holds neither {ZIP} nor folders p10 to p19 (nor files/p10); give the folder or the zip file of "
            "the reports."
        )
    return Reports(tree)


def _tree(folder: Path) -> Path | None:
    """The folder below which patients stand as p10/p10000032."""
    trees = (folder / name for name in _TREES)
    return next((tree for tree in trees if next(tree.glob("p[0-9][0-9]"), None) is not None), None)


def _in_zip(path: Path) -> Reports:
    archive = _opened(noted(path))
    first = next(filter(None, map(_MEMBER.fullmatch, archive.namelist())), None)
    if first is None:
        archive.close()
        raise DataError(f"{path} holds no report (files/p10/p10000032/s50414267.txt); give {ZIP} of MIMIC-CXR.")
    _archives[path] = _Archive(archive, os.getpid())
    return Reports(path, first["before"])


class _Archive(NamedTuple):
    """An open zip file and the process that reads it."""

    archive: zipfile.ZipFile
    process: int


# One handle a process. Reading the list of 227,835 members takes seconds and a hundred megabytes, so that it is done
# once: workers inherit it by fork.
_archives: dict[Path, _Archive] = {}


def _archive(path: Path) -> zipfile.ZipFile:
    held = _archives.get(path)
    if held is None:
        held = _Archive(_opened(path), os.getpid())
    elif held.process != os.getpid():
        # A handle that came with the fork shares its place in the file with the parent and all other workers.
        held.archive.fp = path.open("rb")
        held = _Archive(held.archive, os.getpid())
    _archives[path] = held
    return held.archive


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise DataError(f"{path} is not a whole zip file; fetch it again.") from None
    except OSError as error:
        raise unreadable(error, path) from error

"""Rows of images and reports, merged into studies in a temporary database, and every contradiction between them.

The database is SQLite's own kind of temporary file: it has no name, so that nothing of it is left after a kill. SQLite
puts it into the folder that SQLITE_TMPDIR or TMPDIR names, else into /var/tmp.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from cxrlab.core.errors import DataError, short_repr
from cxrlab.data.source_tables import StudyDate, prior_studies
from cxrlab.data.table_columns import TEXTS

EXAMPLES = 3
UNKNOWN_PRIOR = "prior study that is not another one of the same patient in the table, left out"

# A kind of problem: what there are (counted), and what to do.
MISSING = (
    "missing or empty image files",
    "Give --images FOLDER, or --allow-missing-images to keep their studies without them.",
)
IMAGE_TWICE = ("images that are listed twice", "List each image once; studies of the same image need one study id.")
TWO_REPORTS = ("studies with two different reports", "Keep one report, or give each its own study id.")
DISAGREE = ("studies whose rows disagree", "Correct them; of a table, --columns can leave the column out.")
TWO_SPLITS = ("patients in two splits", "Put each patient into one split, or leave the split out of --columns.")
NOTHING = ("studies without image and report", "Give them one, or delete their rows.")
EMPTY_STUDY = ("rows with an empty study id", "Fill in the ids, or leave the study out of --columns.")
EMPTY_PATIENT = ("studies with an empty patient id", "Fill in the ids, or leave the patient out of --columns.")


class Problems:
    """What is wrong with a table: how often each kind occurs, with a few examples."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], list[str]] = {}

    def add(self, kind: tuple[str, str], example: str) -> None:
        self.counts[kind] += 1
        shown = self._examples.setdefault(kind, [])
        if len(shown) < EXAMPLES:
            shown.append(example)

    def sentences(self) -> list[str]:
        """For each kind its count, examples and the remedy."""
        found = []
        for kind, count in self.counts.items():
            shown = self._examples[kind]
            more = ", …" if count > len(shown) else ""
            found.append(f"{kind[0]}: {count:,} ({'; '.join(shown)}{more}). {kind[1]}")
        return found

    def raise_if_any(self, what: str) -> None:
        """Raise one `DataError` with every sentence."""
        if found := self.sentences():
            raise DataError(f"{what} was not imported:\n  " + "\n  ".join(found))


@dataclass(frozen=True)
class RowImage:
    """One image of a row: where its file is, or its bytes."""

    path: str  # absolute; relative to the images of the corpus where it has no file, or `data` holds its bytes
    view: str | None = None
    present: bool = True
    data: bytes | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MergedStudy:
    """All rows of one study as one: the values by role, and its images."""

    id: str
    patient: str
    values: Mapping[str, Any]
    images: tuple[RowImage, ...]
    prior: str | None
    remarks: tuple[str, ...] = ()


class StudyRows:
    """Add rows, `merge` them, then read the studies in the order of their first rows; memory stays bounded."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for statement in (
            "PRAGMA journal_mode=OFF",
            "PRAGMA temp_store=FILE",
            "PRAGMA cache_size=-16000",
            "CREATE TABLE lines (n INTEGER PRIMARY KEY, study TEXT, place TEXT, content TEXT)",
            "CREATE TABLE images (n INTEGER, study TEXT, path TEXT, content TEXT, data BLOB)",
            "CREATE TABLE studies (n INTEGER PRIMARY KEY, id TEXT, patient TEXT, moment TEXT, split TEXT, prior TEXT,"
            " content TEXT)",
            "BEGIN",
        ):
            self._db.execute(statement)
        self._count = 0
        self.folder: str | None = None  # the deepest folder that holds every image file
        self.present = 0  # image files that are there
        self.studies = 0
        self.alike = 0  # patients whose ids differ only in case or blanks from another's

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> StudyRows:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):
            raise DataError(
                f"the temporary database of the import failed ({error}); free some space, or set SQLITE_TMPDIR to a folder "
                "with as much as the table takes."
            ) from error

    def __len__(self) -> int:
        return self._count

    def add(self, place: str, study: str | None, values: Mapping[str, Any], images: Sequence[RowImage]) -> None:
        """One row; without a study id it becomes a study of its own. `values` are by role, empty ones left out."""
        self._count += 1
        key = study if study is not None else f"{self._count}"
        row = (self._count, key, place, json.dumps(values))
        self._db.execute("INSERT INTO lines VALUES (?, ?, ?, ?)", row)
        for image in images:
            self.present += image.present and image.data is None
            if os.path.isabs(image.path):
                folder = os.path.dirname(image.path)
                self.folder = folder if self.folder is None else os.path.commonpath([self.folder, folder])
            rest = json.dumps([image.view, image.present, dict(image.extra)])
            self._db.execute(
                "INSERT INTO images VALUES (?, ?, ?, ?, ?)", (self._count, key, image.path, rest, image.data)
            )

    def below(self, path: str) -> str:
        """The path of an image relative to the folder that holds every image file."""
        return os.path.relpath(path, self.folder) if self.folder and os.path.isabs(path) else path

    def merge(self, problems: Problems, *, named: bool, patients: bool) -> None:
        """Make studies of the rows and note every contradiction.

        Args:
            named: Whether the rows have study ids; otherwise a study is named after its image, or its row.
            patients: Whether a study without a patient is a problem; otherwise it is its own patient.
        """
        if not named:
            self._name_by_image()
        self._db.execute("CREATE INDEX images_by_study ON images (study)")
        order = "SELECT study, n, place, content FROM lines ORDER BY study, n"
        for study, rows in groupby(self._db.execute(order), key=lambda row: row[0]):
            self._merge_one(study, list(rows), problems, patients)
        self.studies = self._one("SELECT COUNT(*) FROM studies")
        self._db.execute("CREATE INDEX images_by_path ON images (path)")
        twice = "SELECT path FROM images WHERE data IS NULL GROUP BY path HAVING COUNT(*) > 1"
        where = "SELECT place FROM lines, images WHERE lines.n = images.n AND path = ? ORDER BY lines.n LIMIT 2"
        for (path,) in self._db.execute(twice):
            places = " and ".join(row[0] for row in self._db.execute(where, (path,)))
            problems.add(IMAGE_TWICE, f"{short_repr(PurePath(path).name)} at {places}")
        splits = (
            "SELECT patient, GROUP_CONCAT(DISTINCT split) FROM studies WHERE split IS NOT NULL AND split != 'none' "
            "GROUP BY patient HAVING COUNT(DISTINCT split) > 1"
        )
        for patient, several in self._db.execute(splits):
            problems.add(TWO_SPLITS, f"{short_repr(patient)} in {several.replace(',', ' and ')}")
        alike = "SELECT COUNT(DISTINCT patient) AS several FROM studies GROUP BY LOWER(REPLACE(patient, ' ', ''))"
        self.alike = self._one(f"SELECT COALESCE(SUM(several), 0) FROM ({alike}) WHERE several > 1")
        self._find_priors()

    def _one(self, query: str) -> int:
        return int(self._db.execute(query).fetchone()[0])

    def _name_by_image(self) -> None:
        """Ids from the names of first images: the shortest form in which they all differ; else the number of the row."""
        self._db.execute("CREATE INDEX images_by_row ON images (n)")
        first = "SELECT path FROM images WHERE images.n = lines.n AND data IS NULL ORDER BY rowid LIMIT 1"
        self._db.execute(f"CREATE TABLE names AS SELECT n, ({first}) AS path, NULL AS name FROM lines")
        forms: tuple[Callable[[str], str], ...] = (
            lambda path: PurePath(path).stem,
            lambda path: os.path.splitext(self.below(path))[0],
            self.below,
        )
        for number, form in enumerate(forms):
            self._db.create_function(f"form{number}", 1, form)
            self._db.execute(f"UPDATE names SET name = form{number}(path) WHERE path IS NOT NULL")
            if self._one("SELECT COUNT(*) - COUNT(DISTINCT name) FROM names WHERE name IS NOT NULL") == 0:
                break
        self._db.execute("UPDATE names SET name = 'row' || n WHERE name IS NULL")
        self._db.execute("CREATE INDEX names_by_row ON names (n)")
        for table in ("lines", "images"):
            self._db.execute(f"UPDATE {table} SET study = (SELECT name FROM names WHERE names.n = {table}.n)")

    def _merge_one(self, study: str, rows: list[tuple[str, int, str, str]], problems: Problems, patients: bool) -> None:
        merged: dict[str, Any] = {}
        stated_at: dict[str, str] = {}  # role → place of its value
        for _, _, place, text in rows:
            for role, value in json.loads(text).items():
                if role not in merged:
                    merged[role], stated_at[role] = value, place
                elif not _agree(role, merged[role], value):
                    kind = TWO_REPORTS if role in TEXTS else DISAGREE
                    problems.add(kind, f"{short_repr(study)} in '{role}' at {stated_at[role]} and {place}")
        first, place = rows[0][1], rows[0][2]
        patient, prior = merged.pop("patient", None), merged.pop("prior", None)
        if patient is None and patients:
            problems.add(EMPTY_PATIENT, f"{short_repr(study)} at {place}")
        has_image = self._db.execute("SELECT 1 FROM images WHERE study = ? LIMIT 1", (study,)).fetchone()
        if has_image is None and not any(merged.get(role) for role in TEXTS):
            problems.add(NOTHING, f"{short_repr(study)} at {place}")
        self._db.execute(
            "INSERT INTO studies VALUES (?, ?, ?, ?, ?, ?, ?)",
            (first, study, patient or study, merged.get("date"), merged.get("split"), prior, json.dumps(merged)),
        )

    def _find_priors(self) -> None:
        """Where the table states none: the latest study of the same patient at an earlier moment."""
        self._db.execute("CREATE INDEX studies_by_id ON studies (id)")
        dated = "SELECT patient, id, moment FROM studies WHERE moment IS NOT NULL ORDER BY patient, n"
        found: list[tuple[str, str]] = []
        for _, visits in groupby(self._db.execute(dated), key=lambda row: row[0]):
            several = [StudyDate(study, patient, moment) for patient, study, moment in visits]
            if len(several) > 1:
                found += [(prior, study) for study, prior in prior_studies(several).items()]
        self._db.executemany("UPDATE studies SET prior = ? WHERE id = ? AND prior IS NULL", found)

    def ids(self) -> Iterator[str]:
        """The ids of the studies, in order."""
        return (row[0] for row in self._db.execute("SELECT id FROM studies ORDER BY n"))

    def __iter__(self) -> Iterator[MergedStudy]:
        query = "SELECT id, patient, prior, content FROM studies ORDER BY n"
        for study, patient, prior, text in self._db.execute(query):
            remarks: tuple[str, ...] = ()
            if prior is not None and not self._has_prior(study, patient, prior):
                prior, remarks = None, (UNKNOWN_PRIOR,)
            yield MergedStudy(study, patient, json.loads(text), tuple(self._images(study)), prior, remarks)

    def _has_prior(self, study: str, patient: str, prior: str) -> bool:
        found = self._db.execute("SELECT patient FROM studies WHERE id = ?", (prior,)).fetchone()
        return prior != study and found is not None and found[0] == patient

    def _images(self, study: str) -> Iterator[RowImage]:
        query = "SELECT path, content, data FROM images WHERE study = ? ORDER BY n, rowid"
        for path, rest, data in self._db.execute(query, (study,)):
            view, present, extra = json.loads(rest)
            yield RowImage(path, view, present, data, extra)


def _agree(role: str, one: Any, other: Any) -> bool:
    """Whether two rows state the same; of dates only the day counts, of texts not how their lines are wrapped."""
    if role == "date":
        return bool(one[:8] == other[:8])
    if role in TEXTS:
        return bool(one.split() == other.split())
    return bool(one == other)


class FileIndex:
    """Finds image files of a folder by what a table writes: a path, with or without ending, or a bare name.

    The folder is walked once, when a bare name is looked for first; folders in `without` are not entered.
    """

    def __init__(self, root: Path, endings: Sequence[str], without: Sequence[Path] = ()) -> None:
        self.root = Path(os.path.abspath(root))
        self._endings = ("", *endings, *(ending.upper() for ending in endings))
        self._known = {*endings, ""}
        self._without = {os.path.abspath(folder) for folder in without}
        self._db: sqlite3.Connection | None = None

    def find(self, written: str) -> list[str]:
        """The absolute paths of the files that may be meant; none, one, or several of the same name."""
        path = written.replace("\\", "/").removeprefix("file://")
        whole = os.path.normpath(os.path.join(self.root, path))
        try:
            for ending in self._endings:
                if os.path.isfile(whole + ending):
                    return [whole + ending]
        except ValueError:  # a NUL in the path
            return []
        return self._by_name(path.rstrip("/").rpartition("/")[2])

    def _by_name(self, name: str) -> list[str]:
        if self._db is None:
            self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._db.execute("CREATE TABLE files (name TEXT, stem TEXT, path TEXT)")
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO files VALUES (?, ?, ?)", self._walk())
            self._db.execute("CREATE INDEX by_name ON files (name)")
            self._db.execute("CREATE INDEX by_stem ON files (stem)")
        for column in ("name", "stem"):
            query = f"SELECT path FROM files WHERE {column} = ? ORDER BY path LIMIT 3"
            if found := [row[0] for row in self._db.execute(query, (name,))]:
                return found
        return []

    def _walk(self) -> Iterator[tuple[str, str, str]]:
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(
                name for name in folders
                if not name.startswith(".") and os.path.join(folder, name) not in self._without
            )  # fmt: skip
            for name in sorted(names):
                stem, ending = os.path.splitext(name)
                path = os.path.join(folder, name)
                if not name.startswith(".") and ending.lower() in self._known and path.isprintable():
                    if os.path.isfile(path):  # reading a named pipe would wait forever
                        yield name, stem, path

"""Write a corpus folder: worker processes make studies from a recipe, one writer appends them, resumably."""

from __future__ import annotations

import dataclasses
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from cxrlab.core.atomic_folders import Lock, lock_folder
from cxrlab.core.errors import RunError
from cxrlab.core.files import make_folder, os_error, write_bytes, write_text
from cxrlab.core.jsonl import JsonlAppender, line_of, read_jsonl
from cxrlab.core.plan import Plan, Work, from_two_sizes, scratch_folder
from cxrlab.core.records import SPLITS, Study
from cxrlab.core.terminal import track
from cxrlab.data.card import CARD, Card, read_card
from cxrlab.data.corpus import STUDIES, Corpus, inside, load_corpus, parse_study, repeated_id, study_files
from cxrlab.data.duplicates import study_text
from cxrlab.data.parallel import ordered_map

Item = TypeVar("Item")
_DRAWN = 8, 40  # studies that are drawn for a plan


@dataclass(frozen=True)
class NewStudy:
    """One study with the bytes of its files, by path inside the corpus folder, and remarks on its source."""

    study: Study
    files: Mapping[str, bytes] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe(Generic[Item]):
    """How items become studies."""

    items: Iterable[Item]  # one for each unit of work (a patient, a picture), in the order of the file; read lazily
    # The ids of the studies that an item gives or leaves out, known before they are made.
    ids: Callable[[Item], Sequence[str]]
    # The studies of an item with their files, or why one is left out; importable by name, since workers run it.
    make_studies: Callable[[Item], Sequence[NewStudy | Dropped]]
    label: str
    total: int | None = None  # studies that all items give together, for the progress bar; None if unknown
    links: Mapping[str, Path] = field(default_factory=dict)  # folders that the corpus links to, by the name of the link
    batch: int = 1  # items per task of a worker; several if one takes less time than passing it on


def build_corpus(out: str | Path, card: Card, recipe: Recipe[Item], workers: int = 0) -> Corpus:
    """Make a corpus, or continue an interrupted one; the bytes do not depend on the number of processes.

    Each worker writes the files of its studies and returns the lines of the studies, which are written here, in
    order. A complete corpus is not changed.
    """
    with CorpusWriter(out, card) as writer:
        for name, folder in recipe.links.items():
            writer.link(name, folder)
        if not writer.complete:
            left = (item for item in recipe.items if not all(name in writer for name in recipe.ids(item)))
            batches = iter(lambda: list(islice(left, recipe.batch)), [])
            total = None if recipe.total is None else recipe.total - len(writer)
            make = partial(_make_and_write, recipe.make_studies, writer.path)
            # Closed before the writer is: no worker may still write when the lock of the folder is released.
            with closing(ordered_map(make, batches, workers)) as made:
                for one in track((one for several in made for one in several), recipe.label, total=total):
                    if isinstance(one, Dropped):
                        writer.drop(one)
                    else:
                        writer.append(one)
    return load_corpus(out)


def plan_drawing(command: str, count: int, make: Callable[[int, Path], Corpus], out: Path | None = None) -> Plan:
    """The plan of a drawn corpus: two small ones are drawn in a scratch folder.

    Args:
        count: Studies of the whole corpus.
        make: Draws so many studies into a folder.
        out: Folder of a corpus that may be begun.
    """
    disk = 0.0
    done = sum(1 for _ in load_corpus(out).ids()) if out is not None and (out / CARD).is_file() else 0
    with scratch_folder() as folder:

        def seconds(number: int) -> float:
            nonlocal disk
            start = time.perf_counter()
            made = make(number, folder / str(number)).path
            spent = time.perf_counter() - start
            disk = sum(file.stat().st_size for file in made.rglob("*") if file.is_file()) / number
            return spent

        each, once, measured = from_two_sizes(seconds, *_DRAWN, count)
    work = Work("studies drawn", "study", count, each, done, once, measured)
    facts = {"studies_per_second": 1 / each if each else None}
    return Plan(command, (work,), disk_gb=disk * count / 1e9, facts=facts)


def _make_and_write(
    make_studies: Callable[[Item], Sequence[NewStudy | Dropped]], folder: Path, items: Sequence[Item]
) -> list[Line | Dropped]:
    """Make the studies of some items and write their files, in a worker."""
    results: list[Line | Dropped] = []
    for one in (one for item in items for one in make_studies(item)):
        if isinstance(one, NewStudy):
            results.append(Line.of(one.study, one.remarks))
            write_files(folder, one.files)
        else:
            results.append(one)
    return results


PARTIAL = "card.partial.yaml"
NOTES = "notes.jsonl"


@dataclass(frozen=True)
class Line:
    """A study as its line in the file, with what the card counts; a worker makes it, the writer appends it."""

    id: str
    patient: str
    images: int
    split: str | None
    text: bytes
    remarks: tuple[str, ...] = ()
    absent: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, study: Study, remarks: Sequence[str] = ()) -> Line:
        """The line of a study, after a test that it can be read back."""
        values = study.to_json()
        Study.from_json(values)
        text = line_of(values, STUDIES)
        return cls(study.id, study.patient, len(study.images), study.split, text, tuple(remarks), missing_parts(study))


def missing_parts(study: Study) -> dict[str, int]:
    """What a study lacks, as `Card.absent` counts it: report text of the source, a split, views of images."""
    no_text = study.caption is None and study_text(study) is None
    no_view = sum(image.view is None for image in study.images)
    return {"text": int(no_text), "split": int(study.split is None), "view": no_view}


@dataclass(frozen=True)
class Dropped:
    """A study of the source that the corpus leaves out, and why; the reason names a kind, never the study."""

    id: str
    reason: str


class CorpusWriter:
    """Append studies to a corpus folder and finish it with its card.

    Use it as a context manager: an exit without an error completes the corpus, an exit with one keeps everything so
    far for the next run. A folder with another card, with other files or with another writer at work is refused. A
    folder that is complete with the same card is not changed (`complete` is True).

    Remarks on a study, or why it was left out, are written to `notes.jsonl` before the study itself; the card counts
    them. A study of an unfinished folder whose files are missing or empty is made again and keeps its line.
    """

    def __init__(self, path: str | Path, card: Card) -> None:
        self.path = Path(path)
        self.card = dataclasses.replace(card, counts={})
        self._ids: set[str] = set()
        self._patients: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._incomplete: dict[str, Study] = {}
        self._noted: set[str] = set()
        self._left_out: set[str] = set()
        self._dropped: Counter[str] = Counter()
        self._remarks: Counter[str] = Counter()
        self._absent: Counter[str] = Counter()
        self._notes: JsonlAppender | None = None
        self._lines: JsonlAppender | None = None
        self._lock: Lock | None = None
        make_folder(self.path)
        # Checked before the lock, so that a finished corpus may be on a read-only disk.
        self.complete = self._finished()
        if not self.complete:
            self._lock = lock_folder(self.path)
            try:
                self._open()
            except BaseException:
                self.close()
                raise

    def __contains__(self, study_id: object) -> bool:
        if self.complete or study_id in self._left_out:
            return True
        return study_id in self._ids and study_id not in self._incomplete

    def __len__(self) -> int:
        """Studies that need no more work, of an unfinished corpus."""
        return len(self._ids) + len(self._left_out) - len(self._incomplete)

    def drop(self, dropped: Dropped) -> None:
        """Record why a study is left out; a study that is done is skipped."""
        if dropped.id not in self:
            self._note({"id": dropped.id, "dropped": dropped.reason})

    def add(self, study: Study, files: Mapping[str, bytes] | None = None, remarks: Sequence[str] = ()) -> None:
        """Write a study's files, its remarks, then its line; a study that is done is skipped."""
        if study.id not in self:
            line = Line.of(study, remarks)  # before its files: what is refused leaves nothing behind
            write_files(self.path, files or {})
            self.append(line)

    def append(self, line: Line) -> None:
        """Write the remarks and the line of a study whose files are written; a study that is done is skipped."""
        if line.id in self:
            return
        if self._lines is None:
            raise ValueError(f"{self.path} is closed")
        if line.remarks:
            self._note({"id": line.id, "remarks": list(line.remarks)})
        listed = self._incomplete.get(line.id)
        if listed is None:
            self._lines.append_line(line.text)
            self._count(line)
        elif Line.of(listed).text != line.text:
            raise RunError(
                f"{self.path / STUDIES} lists '{line.id}' with other content than it has now, and its files are "
                "missing; delete the folder and make the corpus again."
            )
        else:
            del self._incomplete[line.id]

    def link(self, name: str, folder: Path) -> None:
        """Link a folder into the corpus; an existing link to another folder is refused."""
        place, target = self.path / name, os.path.abspath(folder)
        try:
            if place.is_symlink() and os.readlink(place) == target:
                return
            place.symlink_to(target, target_is_directory=True)
        except FileExistsError:
            raise RunError(
                f"{place} exists and does not lead to {target}; the images were elsewhere when this corpus was begun. "
                "Choose another folder or delete that one."
            ) from None
        except OSError as error:
            raise os_error(error, place) from error

    def finish(self) -> Corpus:
        try:
            if not self.complete:
                self._write_card()
        finally:
            self.close()
        return load_corpus(self.path)

    def close(self) -> None:
        """Close the files and release the lock, finished or not; closing twice is allowed."""
        for file in (self._notes, self._lines):
            if file is not None:
                file.close()
        if self._lock is not None:
            self._lock.release()
        self._notes = self._lines = self._lock = None

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.finish()
            return
        try:
            if self._lock is not None:
                self._remove_temporary_files()
        finally:
            self.close()

    def _finished(self) -> bool:
        """Whether this corpus is complete."""
        if not self._agrees(CARD, "the finished corpus"):
            return False
        if (self.path / PARTIAL).exists():  # a kill came between the card and the removal of this one
            with suppress(OSError):
                (self.path / PARTIAL).unlink(missing_ok=True)
        return True

    def _agrees(self, name: str, state: str) -> bool:
        """Whether a card of this name is there; a card of another corpus is refused."""
        if not (self.path / name).exists():
            return False
        there = read_card(self.path / name)
        difference = self.card.difference(there)
        if difference:
            raise RunError(
                f"{self.path} holds {state} '{there.name}' made with other settings ({difference}); "
                "choose another folder or delete that one."
            )
        return True

    def _open(self) -> None:
        """Begin in an empty folder, or find out which studies are there; the lock is held."""
        self.complete = self._finished()  # another writer may have ended between the question and the lock
        if self.complete:
            self.close()
            return
        if not self._agrees(PARTIAL, "an unfinished corpus"):
            foreign = sorted(entry.name for entry in os.scandir(self.path) if not entry.name.startswith("."))
            if foreign:
                raise RunError(
                    f"{self.path} holds other files ({', '.join(foreign[:3])}{', …' if len(foreign) > 3 else ''}); "
                    "choose an empty or new folder."
                )
            write_text(self.path / PARTIAL, self.card.to_yaml())
        self._lines = JsonlAppender(self.path / STUDIES)  # cuts off an incomplete last line
        self._remove_temporary_files()
        if (self.path / NOTES).exists():
            self._notes = JsonlAppender(self.path / NOTES)
            for number, note in read_jsonl(self.path / NOTES):
                self._count_note(note, f"{self.path / NOTES}:{number}")
        for number, values in read_jsonl(self.path / STUDIES):
            study = parse_study(values, f"{self.path / STUDIES}:{number}")
            if study.id in self._ids:
                raise repeated_id(self.path / STUDIES, number, study.id)
            self._count(Line.of(study))
            if not all(is_nonempty_file(self.path / path) for path in study_files(study)):
                self._incomplete[study.id] = study

    def _remove_temporary_files(self) -> None:
        """Remove the temporary files of writes that were cut short."""
        for folder, _, names in os.walk(self.path):
            for name in names:
                if name.startswith(".") and name.endswith(".tmp"):
                    with suppress(OSError):  # no result, so no reason to stop
                        (Path(folder) / name).unlink()

    def _write_card(self) -> None:
        for study in self._incomplete.values():
            missing = next(path for path in study_files(study) if not is_nonempty_file(self.path / path))
            raise RunError(
                f"{self.path} lists {missing}, which is missing, and study '{study.id}' was not made again; "
                "delete the folder and make the corpus again."
            )
        for lines in (self._notes, self._lines):
            if lines is not None:
                lines.close()  # on the disk before the card
        splits = {name: self._counts[name] for name in SPLITS if self._counts[name]}
        totals = {"studies": len(self._ids), "patients": len(self._patients), "images": self._counts["images"]}
        card = dataclasses.replace(
            self.card,
            counts={**totals, **splits},
            dropped=_ordered(self._dropped),
            remarks=_ordered(self._remarks + Counter(self.card.remarks)),
            absent=None if self.card.absent is None else _ordered(+self._absent),
        )
        write_text(self.path / CARD, card.to_yaml())
        (self.path / PARTIAL).unlink(missing_ok=True)
        self.complete = True

    def _note(self, note: dict[str, Any]) -> None:
        """Write one line on a study, unless an earlier run wrote it and was killed before the study's own line."""
        if note["id"] in self._noted:
            return
        if self._notes is None:
            self._notes = JsonlAppender(self.path / NOTES)
        self._notes.append(note)
        self._count_note(note, str(self.path / NOTES))

    def _count_note(self, note: dict[str, Any], place: str) -> None:
        study_id, reason, remarks = note.get("id"), note.get("dropped"), note.get("remarks", [])
        if not isinstance(study_id, str) or not isinstance(remarks, list) or (reason is None) == (not remarks):
            raise RunError(f"{place} is not a note of an import; delete the folder and make the corpus again.")
        self._noted.add(study_id)
        self._remarks.update(map(str, remarks))
        if reason is not None:
            self._left_out.add(study_id)
            self._dropped[str(reason)] += 1

    def _count(self, line: Line) -> None:
        self._ids.add(line.id)
        self._patients.add(line.patient)
        self._counts["images"] += line.images
        self._absent.update(line.absent)
        if line.split is not None:
            self._counts[line.split] += 1


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a study's files, each whole or absent; a path that leaves the folder is refused."""
    for path, data in files.items():
        write_bytes(inside(folder, path), data, durable=False)


def is_nonempty_file(file: Path) -> bool:
    """Whether a file is there and not empty, as a power cut may leave it."""
    try:
        found = file.stat()
        return stat.S_ISREG(found.st_mode) and found.st_size > 0
    except OSError:
        return False


def _ordered(tally: Counter[str]) -> dict[str, int]:
    """Most frequent first."""
    return dict(sorted(tally.items(), key=lambda row: (-row[1], row[0])))

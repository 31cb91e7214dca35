"""Writing a corpus folder so that a kill costs nothing and a finished one is never spoilt.

Order is the whole trick: a study's files come before its line, and the card comes after every
line. While the work is under way the card stands as `card.partial.yaml`, which tells a later run
whether it may continue, and `.lock` keeps every other process out; neither is left in a finished
corpus.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from cxrlab.core.errors import RunError
from cxrlab.core.files import make_folder, write_bytes, write_text
from cxrlab.core.jsonl import JsonlAppender, read_jsonl
from cxrlab.core.locks import Lock, take_lock
from cxrlab.core.progress import track
from cxrlab.core.records import SPLITS, Study
from cxrlab.data.card import CARD, Card, read_card
from cxrlab.data.corpus import STUDIES, Corpus, inside, load_corpus, repeated_id, study_files, study_of_line
from cxrlab.data.parallel import ordered_map

PARTIAL = "card.partial.yaml"

Item = TypeVar("Item")


@dataclass(frozen=True)
class Drawn:
    """One study with the bytes of its files, by path inside the corpus folder."""

    study: Study
    files: Mapping[str, bytes] = field(default_factory=dict)


class CorpusWriter:
    """Append studies to a corpus folder and finish it with its card.

    Use it as a context manager: leaving it without an error completes the corpus, leaving it with
    one keeps everything so far for the next run. A folder with another card, with foreign files or
    with another writer at work is refused. A folder that is complete with the same card stays
    untouched (`complete` is True).

    A line found in an unfinished folder whose files are missing or empty counts as not there: its
    study is taken once more, gets its files and keeps its line.

    Args:
        path: The folder; made when absent.
        card: The card to be; its counts are filled in at the end.
    """

    def __init__(self, path: str | Path, card: Card) -> None:
        self.path = Path(path)
        self.card = dataclasses.replace(card, counts={})
        self._ids: set[str] = set()
        self._patients: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._incomplete: dict[str, Study] = {}
        self._lines: JsonlAppender | None = None
        self._lock: Lock | None = None
        make_folder(self.path)
        # Asked before the lock, so that a finished corpus may stand on a disk that nobody can write to.
        self.complete = self._finished()
        if not self.complete:
            self._lock = take_lock(self.path)
            try:
                self._open()
            except BaseException:
                self.close()
                raise

    def __contains__(self, study_id: object) -> bool:
        """Whether this study needs no more work."""
        return self.complete or (study_id in self._ids and study_id not in self._incomplete)

    def __len__(self) -> int:
        """Studies that need no more work, of an unfinished corpus."""
        return len(self._ids) - len(self._incomplete)

    def add(self, study: Study, files: Mapping[str, bytes] | None = None) -> None:
        """Write a study's files, then its line; a study that is already there is passed over."""
        if study.id in self:
            return
        if self._lines is None:
            raise ValueError(f"{self.path} is closed")
        Study.from_json(study.to_json())  # a study that could not be read back is refused before it is written
        write_files(self.path, files or {})
        listed = self._incomplete.get(study.id)
        if listed is None:
            self._lines.append(study)
            self._count(study)
        elif listed.to_json() != study.to_json():
            raise RunError(
                f"{self.path / STUDIES} lists '{study.id}' with other content than it has now, and its files are "
                "missing; delete the folder and make the corpus again."
            )
        else:
            del self._incomplete[study.id]

    def finish(self) -> Corpus:
        """Write the card last and return the corpus; nothing happens when it was complete."""
        try:
            if not self.complete:
                self._write_card()
        finally:
            self.close()
        return load_corpus(self.path)

    def close(self) -> None:
        """Keep what is there, finished or not, and let other writers in; closing twice is allowed."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
            return
        try:
            if self._lock is not None:
                self._drop_halves()
        finally:
            self.close()

    def _finished(self) -> bool:
        """Whether this very corpus stands there complete."""
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
        """Begin in an empty folder, or continue; the lock is held."""
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
        self._resume()

    def _resume(self) -> None:
        """Cut off a torn line, drop half-written files and learn which studies are there."""
        self._lines = JsonlAppender(self.path / STUDIES)
        self._drop_halves()
        for number, values in read_jsonl(self.path / STUDIES):
            study = study_of_line(values, f"{self.path / STUDIES}:{number}")
            if study.id in self._ids:
                raise repeated_id(self.path / STUDIES, number, study.id)
            self._count(study)
            if not all(_holds_something(self.path / path) for path in study_files(study)):
                self._incomplete[study.id] = study

    def _drop_halves(self) -> None:
        """Remove the temporary files of writes that were cut short."""
        for folder, _, names in os.walk(self.path):
            for name in names:
                if name.startswith(".") and name.endswith(".tmp"):
                    with suppress(OSError):  # no result, so no reason to stop
                        (Path(folder) / name).unlink()

    def _write_card(self) -> None:
        for study in self._incomplete.values():
            missing = next(path for path in study_files(study) if not _holds_something(self.path / path))
            raise RunError(
                f"{self.path} lists {missing}, which is missing, and study '{study.id}' was not made again; "
                "delete the folder and make the corpus again."
            )
        if self._lines is not None:
            self._lines.close()  # on the disk before the card says so
        card = dataclasses.replace(self.card, counts=self._totals())
        write_text(self.path / CARD, card.to_yaml())
        (self.path / PARTIAL).unlink(missing_ok=True)
        self.complete = True

    def _count(self, study: Study) -> None:
        self._ids.add(study.id)
        self._patients.add(study.patient)
        self._counts["images"] += len(study.images)
        if study.split is not None:
            self._counts[study.split] += 1

    def _totals(self) -> dict[str, int]:
        splits = {name: self._counts[name] for name in SPLITS if self._counts[name]}
        return {"studies": len(self._ids), "patients": len(self._patients), "images": self._counts["images"], **splits}


@dataclass(frozen=True)
class Recipe(Generic[Item]):
    """How a maker turns items into studies.

    Args:
        items: One for each unit of work (a patient, a picture), in the order of the file; read lazily.
        ids: The ids of the studies that an item gives, known without drawing them.
        draw: The studies of an item with their files; importable by name, since workers run it.
        label: What the progress bar says.
        total: Studies that all items give together, for the progress bar; None where nobody knows.
    """

    items: Iterable[Item]
    ids: Callable[[Item], Sequence[str]]
    draw: Callable[[Item], Sequence[Drawn]]
    label: str
    total: int | None = None


def build_corpus(out: str | Path, card: Card, recipe: Recipe[Item], workers: int = 0) -> Corpus:
    """Make a corpus with many processes; the bytes do not depend on how many.

    Each worker writes the files of what it draws and hands back the studies alone; lines are
    written here, in order. Run again after a kill, it continues; run again when complete, it
    changes nothing.
    """
    with CorpusWriter(out, card) as writer:
        if not writer.complete:
            left = (item for item in recipe.items if not all(name in writer for name in recipe.ids(item)))
            total = None if recipe.total is None else recipe.total - len(writer)
            make = partial(_draw_and_write, recipe.draw, writer.path)
            # Closed before the writer is: no worker may still write when the folder is given free.
            with closing(ordered_map(make, left, workers)) as drawn:
                studies = (study for several in drawn for study in several if study.id not in writer)
                for study in track(studies, recipe.label, total=total):
                    writer.add(study)
    return load_corpus(out)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a study's files, each whole or absent; a path that leaves the folder is refused."""
    for path, data in files.items():
        write_bytes(inside(folder, path), data, durable=False)


def _holds_something(file: Path) -> bool:
    """Whether a file is there and not empty, as a power cut may leave it."""
    try:
        return file.stat().st_size > 0
    except OSError:
        return False


def _draw_and_write(draw: Callable[[Item], Sequence[Drawn]], folder: Path, item: Item) -> list[Study]:
    drawn = draw(item)
    for one in drawn:
        write_files(folder, one.files)
    return [one.study for one in drawn]

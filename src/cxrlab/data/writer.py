"""Writing a corpus folder so that a kill costs nothing and a finished one is never spoilt.

Order is the whole trick: a study's files come before its line, and the card comes after every
line. While the work is under way the card stands as `card.partial.yaml`, which tells a later run
whether it may continue.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import make_folder, write_bytes, write_text
from cxrlab.core.jsonl import JsonlAppender, read_jsonl
from cxrlab.core.progress import track
from cxrlab.core.records import SPLITS, Study
from cxrlab.data.card import CARD, Card, read_card
from cxrlab.data.corpus import STUDIES, Corpus, load_corpus, study_of_line
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
    one keeps everything so far for the next run. A folder with another card or with foreign files
    is refused. A folder that is complete with the same card stays untouched (`complete` is True).

    Args:
        path: The folder; made when absent.
        card: The card to be; its counts are filled in at the end.
    """

    def __init__(self, path: str | Path, card: Card) -> None:
        self.path = Path(path)
        self.card = dataclasses.replace(card, counts={})
        self.complete = False
        self._ids: set[str] = set()
        self._patients: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._open()
        self._lines = None if self.complete else self._resume()

    def __contains__(self, study_id: object) -> bool:
        """Whether this study needs no more work."""
        return self.complete or study_id in self._ids

    def add(self, study: Study, files: Mapping[str, bytes] | None = None) -> None:
        """Write a study's files, then its line; a study that is already there is passed over."""
        if study.id in self:
            return
        if self._lines is None:
            raise ValueError(f"{self.path} is closed")
        write_files(self.path, files or {})
        self._lines.append(study)
        self._count(study)

    def finish(self) -> Corpus:
        """Write the card last and return the corpus; nothing happens when it was complete."""
        if not self.complete:
            self.close()
            card = dataclasses.replace(self.card, counts=self._totals())
            write_text(self.path / CARD, card.to_yaml())
            (self.path / PARTIAL).unlink(missing_ok=True)
            self.complete = True
        return load_corpus(self.path)

    def close(self) -> None:
        """Keep what is there, unfinished."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.close()

    def _open(self) -> None:
        """Claim an empty folder, or find out that this very corpus is begun or finished there."""
        make_folder(self.path)
        for name, state in ((CARD, "the finished corpus"), (PARTIAL, "an unfinished corpus")):
            if (self.path / name).exists():
                there = read_card(self.path / name)
                difference = self.card.difference(there)
                if difference:
                    raise RunError(
                        f"{self.path} holds {state} '{there.name}' made with other settings ({difference}); "
                        "choose another folder or delete that one."
                    )
                self.complete = name == CARD
                if self.complete:
                    (self.path / PARTIAL).unlink(missing_ok=True)
                return
        foreign = sorted(entry.name for entry in os.scandir(self.path) if not entry.name.startswith("."))
        if foreign:
            raise RunError(
                f"{self.path} holds other files ({', '.join(foreign[:3])}{', …' if len(foreign) > 3 else ''}); "
                "choose an empty or new folder."
            )
        write_text(self.path / PARTIAL, self.card.to_yaml())

    def _resume(self) -> JsonlAppender:
        """Cut off a torn line, drop half-written files and learn which studies are there."""
        lines = JsonlAppender(self.path / STUDIES)
        try:
            for folder, _, names in os.walk(self.path):
                for name in names:
                    if name.startswith(".") and name.endswith(".tmp"):
                        (Path(folder) / name).unlink(missing_ok=True)
            for number, values in read_jsonl(self.path / STUDIES):
                self._count(study_of_line(values, f"{self.path / STUDIES}:{number}"))
        except BaseException:
            lines.close()
            raise
        return lines

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
        items: One for each unit of work (a patient, a picture), in the order of the file.
        ids: The ids of the studies that an item gives, known without drawing them.
        draw: The studies of an item with their files; importable by name, since workers run it.
        label: What the progress bar says.
    """

    items: Sequence[Item]
    ids: Callable[[Item], Sequence[str]]
    draw: Callable[[Item], Sequence[Drawn]]
    label: str


def build_corpus(out: str | Path, card: Card, recipe: Recipe[Item], workers: int = 0) -> Corpus:
    """Make a corpus with many processes; the bytes do not depend on how many.

    Each worker writes the files of what it draws and hands back the studies alone; lines are
    written here, in order. Run again after a kill, it continues; run again when complete, it
    changes nothing.
    """
    with CorpusWriter(out, card) as writer:
        if not writer.complete:
            left = [item for item in recipe.items if not all(name in writer for name in recipe.ids(item))]
            make = partial(_draw_and_write, recipe.draw, writer.path)
            for studies in track(ordered_map(make, left, workers), recipe.label, total=len(left)):
                for study in studies:
                    writer.add(study)
    return load_corpus(out)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a study's files, each whole or absent; a path that leaves the folder is refused."""
    for path, data in files.items():
        if ".." in Path(path).parts or Path(path).is_absolute():
            raise DataError(f"'{path}' leaves the corpus folder; files of a study must stand inside it.")
        write_bytes(folder / path, data, durable=False)


def _draw_and_write(draw: Callable[[Item], Sequence[Drawn]], folder: Path, item: Item) -> list[Study]:
    drawn = draw(item)
    for one in drawn:
        write_files(folder, one.files)
    return [one.study for one in drawn]

"""Making a corpus with many processes: a recipe turns items into studies, workers draw, one writer writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from cxrlab.core.progress import track
from cxrlab.core.records import Study
from cxrlab.data.card import Card
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.parallel import ordered_map
from cxrlab.data.writer import CorpusWriter, Dropped, Line, write_files

Item = TypeVar("Item")


@dataclass(frozen=True)
class Drawn:
    """One study with the bytes of its files, by path inside the corpus folder, and what was odd about its source."""

    study: Study
    files: Mapping[str, bytes] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe(Generic[Item]):
    """How a maker turns items into studies.

    Args:
        items: One for each unit of work (a patient, a picture), in the order of the file; read lazily.
        ids: The ids of the studies that an item gives or leaves out, known without drawing them.
        draw: The studies of an item with their files, or why one is left out; importable by name, since workers run it.
        label: What the progress bar says.
        total: Studies that all items give together, for the progress bar; None where nobody knows.
        links: Folders that stay where they are, by the name under which the corpus reaches them.
        batch: How many items a worker takes at once; several where one takes less time than to hand it over.
    """

    items: Iterable[Item]
    ids: Callable[[Item], Sequence[str]]
    draw: Callable[[Item], Sequence[Drawn | Dropped]]
    label: str
    total: int | None = None
    links: Mapping[str, Path] = field(default_factory=dict)
    batch: int = 1


def build_corpus(out: str | Path, card: Card, recipe: Recipe[Item], workers: int = 0) -> Corpus:
    """Make a corpus with many processes; the bytes do not depend on how many.

    Each worker writes the files of what it draws and hands back the lines of the studies, which are
    written here, in order. Run again after a kill, it continues; run again when complete, it
    changes nothing.
    """
    with CorpusWriter(out, card) as writer:
        for name, folder in recipe.links.items():
            writer.link(name, folder)
        if not writer.complete:
            left = (item for item in recipe.items if not all(name in writer for name in recipe.ids(item)))
            total = None if recipe.total is None else recipe.total - len(writer)
            make = partial(_draw_and_write, recipe.draw, writer.path)
            # Closed before the writer is: no worker may still write when the folder is given free.
            with closing(ordered_map(make, _batches(left, recipe.batch), workers)) as drawn:
                for one in track((one for several in drawn for one in several), recipe.label, total=total):
                    if isinstance(one, Dropped):
                        writer.drop(one)
                    else:
                        writer.append(one)
    return load_corpus(out)


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


def _draw_and_write(
    draw: Callable[[Item], Sequence[Drawn | Dropped]], folder: Path, items: Sequence[Item]
) -> list[Line | Dropped]:
    """Draw some items and write their files; the bytes stay in the worker."""
    answers: list[Line | Dropped] = []
    for one in (one for item in items for one in draw(item)):
        if isinstance(one, Drawn):
            line = Line.of(one.study, one.remarks)
            write_files(folder, one.files)
            answers.append(line)
        else:
            answers.append(one)
    return answers

"""Making a corpus with many processes: order, bytes and a stop at any moment."""

from __future__ import annotations

import dataclasses
import errno
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from corpora import CARD, content, drawn, toy_corpus

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.records import Study
from cxrlab.data import corpus_writer
from cxrlab.data.corpus import load_corpus
from cxrlab.data.corpus_writer import PARTIAL, NewStudy, Recipe, build_corpus


def ids(number: int) -> tuple[str, ...]:
    return (f"s{number}",)


def draw(number: int) -> tuple[NewStudy, ...]:
    return (drawn(number),)


def draw_until(stop: int, number: int) -> tuple[NewStudy, ...]:
    if number == stop:
        raise DataError("stopped here.")
    return draw(number)


def recipe(count: int = 9) -> Recipe[int]:
    return Recipe(range(count), ids, draw, "drawing")


def build_beside_another(out: Path, reported: Path, start: Barrier) -> None:
    start.wait(30)
    try:
        build_corpus(
            out, CARD, dataclasses.replace(recipe(20), make_studies=partial(draw_once_refused, reported.parent)), 2
        )
    except RunError as error:
        reported.write_text(str(error))


def draw_once_refused(folder: Path, number: int) -> tuple[NewStudy, ...]:
    """Wait until the other process has been started, so that the two overlap on the slowest machine."""
    limit = time.monotonic() + 20
    while time.monotonic() < limit and not list(folder.glob("*.txt")):
        time.sleep(0.01)
    return draw(number)


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    """Started together, one makes the corpus and the other gets an error; twenty lines, not forty."""
    context = multiprocessing.get_context("fork")
    start = context.Barrier(2)
    both = [
        context.Process(target=build_beside_another, args=(tmp_path / "c", tmp_path / f"{k}.txt", start))
        for k in (0, 1)
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(30)
    reported = [path.read_text() for path in tmp_path.glob("*.txt")]
    assert len(reported) == 1 and "another process" in reported[0]
    assert (tmp_path / "c" / "studies.jsonl").read_bytes().count(b"\n") == 20 and len(load_corpus(tmp_path / "c")) == 20


@pytest.mark.parametrize("lost", ["images/s1.png", "masks/s1_0.png"])
@pytest.mark.parametrize("empty", [True, False])
def test_files_lost_before_a_resume_are_made_again(tmp_path: Path, lost: str, empty: bool) -> None:
    """Deleted, or emptied by a power cut: the study is drawn once more and its line keeps its place."""
    stopping = dataclasses.replace(recipe(), make_studies=partial(draw_until, 5))
    with pytest.raises(DataError, match="stopped here"):
        build_corpus(tmp_path / "c", CARD, stopping, 1)
    (tmp_path / "c" / lost).write_bytes(b"") if empty else (tmp_path / "c" / lost).unlink()
    build_corpus(tmp_path / "c", CARD, recipe(), 1)
    build_corpus(tmp_path / "whole", CARD, recipe(), 1)
    assert content(tmp_path / "c") == content(tmp_path / "whole")


def test_a_finished_corpus_needs_no_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a read-only disk every attempt to lock, remove or write would fail; a finished corpus attempts none."""
    toy_corpus(tmp_path / "c")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for call in ("open", "unlink", "replace", "write"):
        monkeypatch.setattr(os, call, read_only)
    assert len(build_corpus(tmp_path / "c", CARD, recipe(6), 1)) == 6


def test_items_are_read_one_by_one(tmp_path: Path) -> None:
    """The folder is opened first and the items are not gathered: a hundred million would never fit."""

    def items() -> Iterator[int]:
        for number in range(10**8):
            assert (tmp_path / "c" / PARTIAL).exists()
            if number == 3:
                raise DataError("stopped here.")
            yield number

    with pytest.raises(DataError, match="stopped here"):
        build_corpus(tmp_path / "c", CARD, dataclasses.replace(recipe(), items=items(), total=10**8), 1)
    assert content(tmp_path / "c")["studies.jsonl"].count(b"\n") == 3


def test_progress_counts_the_studies_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nine studies five are there: the second run has four before it."""
    seen = []

    def spy(items: Iterable[Study], label: str, total: int | None = None) -> Iterator[Study]:
        studies = list(items)
        seen.append((label, total, len(studies)))
        return iter(studies)

    stopping = dataclasses.replace(recipe(), make_studies=partial(draw_until, 5))
    with pytest.raises(DataError, match="stopped here"):
        build_corpus(tmp_path / "c", CARD, stopping, 1)
    monkeypatch.setattr(corpus_writer, "track", spy)
    build_corpus(tmp_path / "c", CARD, dataclasses.replace(recipe(), total=9), 1)
    assert seen == [("drawing", 4, 4)]


def half_written(folder: Path, number: int) -> tuple[NewStudy, ...]:
    if number == 2:
        (folder / "images" / ".s2.png.00000000.tmp").write_bytes(b"half")
        raise KeyboardInterrupt
    return draw(number)


def test_a_stop_leaves_no_temporary_file(tmp_path: Path) -> None:
    """A worker that is killed in the middle of a file cannot clean up behind itself."""
    broken = dataclasses.replace(recipe(), make_studies=partial(half_written, tmp_path / "c"))
    with pytest.raises(KeyboardInterrupt):
        build_corpus(tmp_path / "c", CARD, broken, 1)
    assert not [name for name in content(tmp_path / "c") if ".tmp" in name]


def test_the_bytes_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    """One process or three: the same folder."""
    for workers in (1, 3):
        assert len(build_corpus(tmp_path / str(workers), CARD, recipe(), workers)) == 9
    assert content(tmp_path / "1") == content(tmp_path / "3")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_build_that_stopped_goes_on_where_it_was(tmp_path: Path, workers: int) -> None:
    """The studies before the error are kept; the second run makes only the rest."""
    stopping = dataclasses.replace(recipe(), make_studies=partial(draw_until, 5))
    with pytest.raises(DataError, match="stopped here"):
        build_corpus(tmp_path / "c", CARD, stopping, workers)
    assert content(tmp_path / "c")["studies.jsonl"].count(b"\n") == 5
    kept = (tmp_path / "c" / "images" / "s0.png").stat().st_mtime_ns
    build_corpus(tmp_path / "c", CARD, recipe(), workers)
    build_corpus(tmp_path / "whole", CARD, recipe(), 1)
    assert content(tmp_path / "c") == content(tmp_path / "whole")
    assert (tmp_path / "c" / "images" / "s0.png").stat().st_mtime_ns == kept


def test_batches_keep_the_order_and_the_bytes(tmp_path: Path) -> None:
    """Four items at a time, nine in all, stopped in the middle of the second batch: what was whole is kept."""
    build_corpus(tmp_path / "whole", CARD, recipe(), 1)
    with pytest.raises(DataError, match="stopped here"):
        build_corpus(
            tmp_path / "c", CARD, dataclasses.replace(recipe(), make_studies=partial(draw_until, 6), batch=4), 2
        )
    assert content(tmp_path / "c")["studies.jsonl"].count(b"\n") == 4
    build_corpus(tmp_path / "c", CARD, dataclasses.replace(recipe(), batch=4), 2)
    assert content(tmp_path / "c") == content(tmp_path / "whole")

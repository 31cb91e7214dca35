"""Writing a corpus: resumed exactly, never spoilt, the same bytes every time."""

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
from cxrlab.data import writer as writer_module
from cxrlab.data.corpus import load_corpus
from cxrlab.data.writer import PARTIAL, CorpusWriter, Drawn, Recipe, build_corpus, write_files


def fill(writer: CorpusWriter, count: int) -> None:
    for number in range(count):
        one = drawn(number)
        writer.add(one.study, one.files)


def ids(number: int) -> tuple[str, ...]:
    return (f"s{number}",)


def draw(number: int) -> tuple[Drawn, ...]:
    return (drawn(number),)


def draw_until(stop: int, number: int) -> tuple[Drawn, ...]:
    if number == stop:
        raise DataError("stopped here.")
    return draw(number)


def recipe(count: int = 9) -> Recipe[int]:
    return Recipe(range(count), ids, draw, "drawing")


def test_the_card_comes_last(tmp_path: Path) -> None:
    """Its existence proves that everything else is there."""
    with CorpusWriter(tmp_path / "c", CARD) as writer:
        fill(writer, 2)
        assert not (tmp_path / "c" / "card.yaml").exists() and (tmp_path / "c" / PARTIAL).exists()
    assert (tmp_path / "c" / "card.yaml").exists() and not (tmp_path / "c" / PARTIAL).exists()


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    """Completing twice leaves identical bytes, and files are not even touched."""
    toy_corpus(tmp_path / "c")
    before = content(tmp_path / "c")
    touched = (tmp_path / "c" / "studies.jsonl").stat().st_mtime_ns
    corpus = toy_corpus(tmp_path / "c")
    assert content(tmp_path / "c") == before and len(corpus) == 6
    assert (tmp_path / "c" / "studies.jsonl").stat().st_mtime_ns == touched


@pytest.mark.parametrize("torn", [0, 1, 40, -1])
def test_a_killed_run_is_resumed_exactly(tmp_path: Path, torn: int) -> None:
    """A torn last line is cut off, whole ones are kept, left-over temporary files go, and the end is the same."""
    toy_corpus(tmp_path / "whole")
    writer = CorpusWriter(tmp_path / "c", CARD)
    fill(writer, 3)
    writer.close()
    line = (tmp_path / "whole" / "studies.jsonl").read_bytes().splitlines(keepends=True)[3]
    write_files(tmp_path / "c", drawn(3).files)
    with (tmp_path / "c" / "studies.jsonl").open("ab") as stream:
        stream.write(line[:torn])
    (tmp_path / "c" / "images" / ".s3.png.0a0b0c0d.tmp").write_bytes(b"half")
    with CorpusWriter(tmp_path / "c", CARD) as writer:
        assert "s2" in writer and "s4" not in writer
        fill(writer, 6)
    assert content(tmp_path / "c") == content(tmp_path / "whole")


def test_an_error_keeps_what_is_there_unfinished(tmp_path: Path) -> None:
    """Leaving with an exception, Ctrl-C included, writes no card."""
    with pytest.raises(KeyboardInterrupt), CorpusWriter(tmp_path / "c", CARD) as writer:
        fill(writer, 2)
        raise KeyboardInterrupt
    with pytest.raises(DataError, match="unfinished"):
        load_corpus(tmp_path / "c")
    assert content(tmp_path / "c")["studies.jsonl"].count(b"\n") == 2


@pytest.mark.parametrize("finished", [True, False])
def test_another_corpus_is_not_overwritten(tmp_path: Path, finished: bool) -> None:
    """The sentence says what differs."""
    writer = CorpusWriter(tmp_path / "c", CARD)
    writer.finish() if finished else writer.close()
    before = content(tmp_path / "c")
    other = dataclasses.replace(CARD, settings={"seed": 8})
    with pytest.raises(RunError, match="seed is 7 there and 8 here"):
        CorpusWriter(tmp_path / "c", other)
    assert content(tmp_path / "c") == before


def test_foreign_files_are_not_mixed_in(tmp_path: Path) -> None:
    """A home folder given by mistake stays as it is."""
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match=r"letter\.txt"):
        CorpusWriter(tmp_path, CARD)
    assert list(content(tmp_path)) == ["letter.txt"]


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    """The folder cannot be made where a file stands."""
    (tmp_path / "c").write_text("x")
    with pytest.raises(RunError, match="c"):
        CorpusWriter(tmp_path / "c", CARD)


@pytest.mark.parametrize("call", ["replace", "write"])
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The sentence names the disk; after room is made, the same command completes the corpus."""
    writer = CorpusWriter(tmp_path / "c", CARD)
    fill(writer, 2)
    one = drawn(2)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(RunError, match="disk is full"):
            writer.add(one.study, one.files)
    writer.close()
    names = content(tmp_path / "c")
    assert "images/s2.png" not in names and not [name for name in names if ".tmp" in name]
    assert names["studies.jsonl"].count(b"\n") == 2
    toy_corpus(tmp_path / "c")
    toy_corpus(tmp_path / "whole")
    assert content(tmp_path / "c") == content(tmp_path / "whole")


def test_files_stay_inside_the_folder(tmp_path: Path) -> None:
    """A maker must not write next to the corpus."""
    with pytest.raises(DataError, match="leaves the corpus folder"), CorpusWriter(tmp_path / "c", CARD) as writer:
        writer.add(drawn(0).study, {"../x.png": b""})
    assert not (tmp_path / "x.png").exists()


def test_adding_after_closing_is_a_defect(tmp_path: Path) -> None:
    """Silently dropping the study would be worse."""
    writer = CorpusWriter(tmp_path / "c", CARD)
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.add(drawn(0).study)


def test_a_damaged_line_in_the_middle_stops_the_resume(tmp_path: Path) -> None:
    """Only the last line can be torn by a kill; anything else is damage that a person should see."""
    writer = CorpusWriter(tmp_path / "c", CARD)
    fill(writer, 2)
    writer.close()
    file = tmp_path / "c" / "studies.jsonl"
    file.write_bytes(b"{broken\n" + file.read_bytes())
    with pytest.raises(DataError, match=r"studies\.jsonl:1"):
        CorpusWriter(tmp_path / "c", CARD)


def test_a_second_writer_is_kept_out(tmp_path: Path) -> None:
    """Two writers would write every line twice. The folder of the first is untouched, and free when it has ended."""
    with CorpusWriter(tmp_path / "c", CARD) as first:
        fill(first, 2)
        before = content(tmp_path / "c")
        with pytest.raises(RunError, match="c is being written by another process"):
            CorpusWriter(tmp_path / "c", CARD)
        assert content(tmp_path / "c") == before
    toy_corpus(tmp_path / "whole", count=2)
    assert content(tmp_path / "c") == content(tmp_path / "whole")  # no lock file stays behind


def test_the_lock_ends_with_every_kind_of_end(tmp_path: Path) -> None:
    """After an error, after closing, and after a refusal at the door the next writer may come in."""
    with pytest.raises(KeyboardInterrupt), CorpusWriter(tmp_path / "c", CARD):
        raise KeyboardInterrupt
    CorpusWriter(tmp_path / "c", CARD).close()
    with pytest.raises(RunError, match="other settings"):
        CorpusWriter(tmp_path / "c", dataclasses.replace(CARD, settings={"seed": 8}))
    assert not (tmp_path / "c" / ".lock").exists()
    assert len(toy_corpus(tmp_path / "c")) == 6


def build_beside_another(out: Path, told: Path, start: Barrier) -> None:
    start.wait(30)
    try:
        build_corpus(out, CARD, dataclasses.replace(recipe(20), draw=partial(draw_once_refused, told.parent)), 2)
    except RunError as error:
        told.write_text(str(error))


def draw_once_refused(folder: Path, number: int) -> tuple[Drawn, ...]:
    """Wait until the other process has been told, so that the two overlap on the slowest machine."""
    limit = time.monotonic() + 20
    while time.monotonic() < limit and not list(folder.glob("*.txt")):
        time.sleep(0.01)
    return draw(number)


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    """Started together, one makes the corpus and the other is told so; twenty lines, not forty."""
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
    told = [path.read_text() for path in tmp_path.glob("*.txt")]
    assert len(told) == 1 and "another process" in told[0]
    assert (tmp_path / "c" / "studies.jsonl").read_bytes().count(b"\n") == 20 and len(load_corpus(tmp_path / "c")) == 20


def test_lines_that_stand_twice_are_not_continued(tmp_path: Path) -> None:
    """Counting them as one would finish a corpus that cannot be read."""
    writer = CorpusWriter(tmp_path / "c", CARD)
    fill(writer, 2)
    writer.close()
    file = tmp_path / "c" / "studies.jsonl"
    file.write_bytes(file.read_bytes() * 2)
    with pytest.raises(DataError, match=r"studies\.jsonl:3: the id 's0'"):
        CorpusWriter(tmp_path / "c", CARD)


@pytest.mark.parametrize("lost", ["images/s1.png", "masks/s1_0.png"])
@pytest.mark.parametrize("empty", [True, False])
def test_files_lost_before_a_resume_are_made_again(tmp_path: Path, lost: str, empty: bool) -> None:
    """Deleted, or emptied by a power cut: the study is drawn once more and its line keeps its place."""
    stopping = dataclasses.replace(recipe(), draw=partial(draw_until, 5))
    with pytest.raises(DataError, match="stopped here"):
        build_corpus(tmp_path / "c", CARD, stopping, 1)
    (tmp_path / "c" / lost).write_bytes(b"") if empty else (tmp_path / "c" / lost).unlink()
    build_corpus(tmp_path / "c", CARD, recipe(), 1)
    build_corpus(tmp_path / "whole", CARD, recipe(), 1)
    assert content(tmp_path / "c") == content(tmp_path / "whole")


def test_lost_files_that_nobody_makes_again_leave_the_corpus_unfinished(tmp_path: Path) -> None:
    """No card without every file; a study that has become another one is no replacement."""
    writer = CorpusWriter(tmp_path / "c", CARD)
    fill(writer, 2)
    writer.close()
    (tmp_path / "c" / "images" / "s1.png").unlink()
    with pytest.raises(RunError, match=r"lists images/s1\.png, which is missing"), CorpusWriter(tmp_path / "c", CARD):
        pass
    with pytest.raises(RunError, match="'s1' with other content"), CorpusWriter(tmp_path / "c", CARD) as writer:
        assert "s0" in writer and "s1" not in writer and len(writer) == 1
        writer.add(drawn(1, age=5).study, drawn(1).files)
    assert not (tmp_path / "c" / "card.yaml").exists()
    assert len(toy_corpus(tmp_path / "c")) == 6


def test_a_finished_corpus_needs_no_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a read-only disk every attempt to lock, remove or write would fail; a finished corpus attempts none."""
    toy_corpus(tmp_path / "c")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for call in ("open", "unlink", "replace", "write"):
        monkeypatch.setattr(os, call, read_only)
    assert len(build_corpus(tmp_path / "c", CARD, recipe(6), 1)) == 6


def test_a_partial_card_beside_the_card_is_removed(tmp_path: Path) -> None:
    """A kill may come between the two; the folder then ends as every other one."""
    toy_corpus(tmp_path / "c")
    before = content(tmp_path / "c")
    (tmp_path / "c" / PARTIAL).write_text("name: toy")
    toy_corpus(tmp_path / "c")
    assert content(tmp_path / "c") == before


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

    stopping = dataclasses.replace(recipe(), draw=partial(draw_until, 5))
    with pytest.raises(DataError, match="stopped here"):
        build_corpus(tmp_path / "c", CARD, stopping, 1)
    monkeypatch.setattr(writer_module, "track", spy)
    build_corpus(tmp_path / "c", CARD, dataclasses.replace(recipe(), total=9), 1)
    assert seen == [("drawing", 4, 4)]


def half_written(folder: Path, number: int) -> tuple[Drawn, ...]:
    if number == 2:
        (folder / "images" / ".s2.png.00000000.tmp").write_bytes(b"half")
        raise KeyboardInterrupt
    return draw(number)


def test_a_stop_leaves_no_temporary_file(tmp_path: Path) -> None:
    """A worker that is killed in the middle of a file cannot clean up behind itself."""
    broken = dataclasses.replace(recipe(), draw=partial(half_written, tmp_path / "c"))
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
    stopping = dataclasses.replace(recipe(), draw=partial(draw_until, 5))
    with pytest.raises(DataError, match="stopped here"):
        build_corpus(tmp_path / "c", CARD, stopping, workers)
    assert content(tmp_path / "c")["studies.jsonl"].count(b"\n") == 5
    kept = (tmp_path / "c" / "images" / "s0.png").stat().st_mtime_ns
    build_corpus(tmp_path / "c", CARD, recipe(), workers)
    build_corpus(tmp_path / "whole", CARD, recipe(), 1)
    assert content(tmp_path / "c") == content(tmp_path / "whole")
    assert (tmp_path / "c" / "images" / "s0.png").stat().st_mtime_ns == kept

"""Writing a corpus: resumed exactly, never spoilt, the same bytes every time."""

from __future__ import annotations

import dataclasses
import errno
import os
from functools import partial
from pathlib import Path

import pytest
from corpora import CARD, content, drawn, toy_corpus

from cxrlab.core.errors import DataError, RunError
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

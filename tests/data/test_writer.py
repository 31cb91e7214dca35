"""Writing a corpus: resumed exactly, never spoilt, the same bytes every time."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest
from corpora import CARD, content, drawn, toy_corpus

from cxrlab.core.errors import DataError, RunError
from cxrlab.data.corpus import load_corpus
from cxrlab.data.corpus_writer import PARTIAL, CorpusWriter, write_files


def fill(writer: CorpusWriter, count: int) -> None:
    for number in range(count):
        one = drawn(number)
        writer.add(one.study, one.files)


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
    with pytest.raises(DataError, match="outside the corpus folder"), CorpusWriter(tmp_path / "c", CARD) as writer:
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


def test_lines_that_stand_twice_are_not_continued(tmp_path: Path) -> None:
    """Counting them as one would finish a corpus that cannot be read."""
    writer = CorpusWriter(tmp_path / "c", CARD)
    fill(writer, 2)
    writer.close()
    file = tmp_path / "c" / "studies.jsonl"
    file.write_bytes(file.read_bytes() * 2)
    with pytest.raises(DataError, match=r"studies\.jsonl:3: the id 's0'"):
        CorpusWriter(tmp_path / "c", CARD)


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


def test_a_partial_card_beside_the_card_is_removed(tmp_path: Path) -> None:
    """A kill may come between the two; the folder then ends as every other one."""
    toy_corpus(tmp_path / "c")
    before = content(tmp_path / "c")
    (tmp_path / "c" / PARTIAL).write_text("name: toy")
    toy_corpus(tmp_path / "c")
    assert content(tmp_path / "c") == before

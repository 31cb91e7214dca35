from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrlab.core import files, jsonl
from cxrlab.core.errors import DataError, RunError
from cxrlab.core.jsonl import JsonlAppender, read_jsonl, read_line, scan_jsonl


def records(path: Path) -> list[dict[str, object]]:
    return [record for _, record in read_jsonl(path)]


def test_lines_are_numbered_and_blank_ones_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n{"a": 2}')
    assert list(read_jsonl(tmp_path / "a")) == [(1, {"a": 1}), (3, {"a": 2})]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": 1} {"a": 2}', "extra data"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[1]", "a list"),
        (b'"x"', "a text"),
        (b"3", "a number"),
        (b"null", "a null"),
        (b"true", "a truth value"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "'c' twice"),
        (b'{"a":' * 10**5, "deep"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "thousands of digits"),
        (b'{"a": "\\ud800"}', "a lone surrogate"),
        (b'{"a": "b', "at column 7"),
        (b'{"a": 1,', "at column 9"),
    ],
)
def test_a_bad_line_is_named_with_its_fault(tmp_path: Path, line: bytes, said: str) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(b'{"ok": 1}\n' + line + b'\n{"ok": 2}\n')
    with pytest.raises(DataError, match=rf"s\.jsonl:2 .*{said}"):
        list(read_jsonl(file))


def test_a_cut_last_line_is_distinguished_from_a_bad_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"a": 1}\n{"a": ')
    with pytest.raises(DataError, match=r"a:2 .*resume the run"):
        list(read_jsonl(tmp_path / "a"))


def test_a_line_without_end_is_refused_and_never_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next line is still found at its place."""
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"n": "' + b"x" * 300_000 + b'"}\n{"n": 1}\n')
    assert [offset for offset, _, _ in scan_jsonl(file)] == [0, 300_010]
    monkeypatch.setattr(jsonl, "LONGEST_LINE", 1000)
    with pytest.raises(DataError, match=r"a\.jsonl:1 is longer than 1,000 bytes"):
        list(read_jsonl(file))
    with file.open("rb") as stream:
        assert [(len(line), length) for line, length in (read_line(stream), read_line(stream))] == [
            (1001, 300_010),
            (9, 9),
        ]


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        list(read_jsonl(tmp_path / "a"))
    with pytest.raises(DataError, match="folder"):
        list(read_jsonl(tmp_path))


def test_reading_needs_flat_memory(tmp_path: Path) -> None:
    """A file of 20 MB is walked in under 1 MB."""
    file = tmp_path / "big.jsonl"
    line = json.dumps({"text": "x" * 1000}) + "\n"
    file.write_text(line * 20_000)
    tracemalloc.start()
    count = sum(1 for _ in read_jsonl(file))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000 and peak < 1_000_000


@settings(max_examples=60, deadline=None)
@given(
    written=st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=5) | st.integers(), max_size=3), max_size=5),
    cut=st.integers(0, 400),
)
def test_after_a_cut_anywhere_the_file_continues_with_whole_records(
    tmp_path_factory: pytest.TempPathFactory, written: list[dict[str, object]], cut: int
) -> None:
    """Whatever byte a kill stops at, a prefix of the records stays and the next one is not glued to it."""
    file = tmp_path_factory.mktemp("j") / "a.jsonl"
    with JsonlAppender(file) as out:
        for record in written:
            out.append(record)
    os.truncate(file, min(cut, file.stat().st_size))
    with JsonlAppender(file) as out:
        out.append({"last": 1})
    found = records(file)
    assert found[-1] == {"last": 1} and found[:-1] == written[: len(found) - 1]
    assert len(found) - 1 >= file.read_bytes().count(b"\n") - 1


def test_a_complete_line_without_its_newline_is_kept(tmp_path: Path) -> None:
    """An editor may leave the newline off; that record is not torn."""
    (tmp_path / "a").write_bytes(b'{"a": 1}\n{"a": 2}')
    with JsonlAppender(tmp_path / "a") as out:
        out.append({"a": 3})
    assert [r["a"] for r in records(tmp_path / "a")] == [1, 2, 3]


@pytest.mark.parametrize("tail", [b"\0" * 10, b"123", b'{"a": "' + b"x" * 200_000])
def test_a_tail_that_is_no_record_is_cut(tmp_path: Path, tail: bytes) -> None:
    """Zeros of a power cut, a number, and a torn line longer than one block."""
    (tmp_path / "a").write_bytes(b'{"a": 1}\n' + tail)
    JsonlAppender(tmp_path / "a").close()
    assert (tmp_path / "a").read_bytes() == b'{"a": 1}\n'


def test_a_full_disk_takes_the_half_line_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.write, []

    def half_then_full(handle: int, data: memoryview) -> int:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, bytes(data[:4]))

    out = JsonlAppender(tmp_path / "a")
    out.append({"n": 1})
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "write", half_then_full)
        with pytest.raises(RunError, match="disk is full"):
            out.append({"n": 2})
    out.append({"n": 3})
    out.close()
    assert [r["n"] for r in records(tmp_path / "a")] == [1, 3]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_truly_full_device_is_one_sentence() -> None:
    with JsonlAppender("/dev/full") as out, pytest.raises(RunError, match="cannot write /dev/full: the disk is full"):
        out.append({})


def test_errors_of_the_disk_while_repairing_and_reading_are_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a").write_bytes(b'{"a": 1}')
    monkeypatch.setattr(jsonl.os, "pread", broken)
    with pytest.raises(RunError, match="input/output error"):
        JsonlAppender(tmp_path / "a")


def test_ctrl_c_in_the_middle_of_a_line_takes_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def half_then_stop(handle: int, data: memoryview) -> int:
        real(handle, bytes(data[:3]))
        raise KeyboardInterrupt

    with JsonlAppender(tmp_path / "a") as out, monkeypatch.context() as patch:
        patch.setattr(files.os, "write", half_then_stop)
        with pytest.raises(KeyboardInterrupt):
            out.append({"n": 1})
    assert (tmp_path / "a").read_bytes() == b""


def test_a_record_without_json_form_writes_nothing(tmp_path: Path) -> None:
    with JsonlAppender(tmp_path / "a") as out, pytest.raises(DataError):
        out.append({"f": len})
    assert (tmp_path / "a").read_bytes() == b""


def test_half_a_character_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with JsonlAppender(tmp_path / "a") as out:
        with pytest.raises(DataError, match="the lone surrogate"):
            out.append({"path": "x\udcff"})
        out.append({"n": 1})
    assert records(tmp_path / "a") == [{"n": 1}]


def test_a_disk_that_does_not_take_the_lines_is_reported_at_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems report a full disk or a lost server only when the lines are handed over."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(jsonl.os, "fsync", full)
    out = JsonlAppender(tmp_path / "a")
    out.append({"n": 1})
    with pytest.raises(RunError, match="cannot write .*a: the disk is full"):
        out.close()
    out.close()  # it is closed all the same
    with pytest.raises(KeyError, match="first"), JsonlAppender(tmp_path / "a"):
        raise KeyError("first")  # and an error that came before is the one raised


def test_closed_means_closed(tmp_path: Path) -> None:
    out = JsonlAppender(tmp_path / "a")
    out.close()
    out.close()
    with pytest.raises(ValueError, match="closed"):
        out.append({})
    with pytest.raises(RunError, match="folder"):
        JsonlAppender(tmp_path)


def test_a_killed_writer_leaves_whole_lines_only(tmp_path: Path) -> None:
    """SIGKILL in a busy loop: every line but possibly the last one is whole, and none is lost on resume."""
    file = tmp_path / "a.jsonl"
    code = (
        "import sys; from cxrlab.core.jsonl import JsonlAppender\n"
        "out = JsonlAppender(sys.argv[1]); n = 0\n"
        "while True:\n    out.append({'n': n, 'pad': 'x' * 500}); n += 1\n"
        "    if n == 50: print('go', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "go\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    JsonlAppender(file).close()
    numbers = [record["n"] for record in records(file)]
    assert numbers == list(range(len(numbers))) and len(numbers) >= 50

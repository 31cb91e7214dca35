from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cxrlab.core import files
from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import (
    make_folder,
    os_error,
    read_bytes,
    read_json,
    read_text,
    write_bytes,
    write_json,
    write_text,
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Folders on the way are made; nothing but the file is left."""
    target = write_json(tmp_path / "a" / "b.json", {"x": 1})
    assert read_json(target) == {"x": 1} and target.read_text().endswith("}\n")
    assert [entry.name for entry in target.parent.iterdir()] == ["b.json"]
    assert read_text(write_text(tmp_path / "t.txt", "é")) == "é"
    assert read_bytes(write_bytes(tmp_path / "t.bin", b"\0\1", durable=False)) == b"\0\1"


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    """A file that only its owner can read would surprise a shared lab folder."""
    old = os.umask(0o022)
    try:
        assert write_text(tmp_path / "a", "x").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(old)


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failing_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    target = write_text(tmp_path / "a.txt", "old")

    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, call, fail)
        with pytest.raises(RunError, match=r"cannot write .*a\.txt: .*(disk|quota)"):
            write_text(target, "new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_ctrl_c_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", stop)
        with pytest.raises(KeyboardInterrupt):
            write_text(tmp_path / "a.txt", "new")
    assert os.listdir(tmp_path) == []


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take one byte at a time; all must arrive."""
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "write", lambda handle, data: real(handle, bytes(data[:1])))
        write_bytes(tmp_path / "a", b"hello")
    assert (tmp_path / "a").read_bytes() == b"hello"


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(RunError, match=r"/d: .*folder"):
        write_text(tmp_path / "d", "x")
    assert os.listdir(tmp_path) == ["d"]


def test_a_file_as_a_parent_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(RunError, match="folder"):
        write_text(tmp_path / "f" / "x", "x")
    with pytest.raises(RunError, match="in the way"):
        make_folder(tmp_path / "f")


def test_a_long_name_is_explained(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="too long"):
        write_text(tmp_path / ("x" * 300), "x")


def test_an_error_without_a_known_remedy_keeps_its_own_words() -> None:
    assert str(os_error(OSError(errno.ENXIO, "No such device"), "f", "read")) == "cannot read f: no such device."


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "studies.jsonl").write_text("")
    with pytest.raises(DataError, match=r"study.jsonl does not exist. Did you mean 'studies.jsonl'"):
        read_bytes(tmp_path / "study.jsonl")
    with pytest.raises(DataError, match="Check the path"):
        read_bytes(tmp_path / "nowhere" / "x")
    with pytest.raises(DataError, match="folder where a file"):
        read_bytes(tmp_path)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ab\xff")
    with pytest.raises(DataError, match="byte 2"):
        read_text(tmp_path / "a")


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf{}")
    assert read_json(tmp_path / "a") == {}


@pytest.mark.parametrize(
    ("text", "named"), [('{\n"a": }', ":2 is not valid JSON"), ("", ":1"), ("[" * 10**5, "deep"), ("NaN", "NaN")]
)
def test_malformed_json_names_the_line(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(DataError, match=named):
        read_json(tmp_path / "a")


def test_half_a_character_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A file name that is not UTF-8 reaches Python as half a character, which no UTF-8 file can hold."""
    with pytest.raises(DataError, match=r"cannot write .*a\.txt: the text holds \\udcff, half a character; .*rename"):
        write_text(tmp_path / "a.txt", "x\udcff")
    assert list(tmp_path.iterdir()) == []

from __future__ import annotations

import errno
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cxrlab.core import files
from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import (
    make_file,
    make_folder,
    os_error,
    private_opener,
    read_bytes,
    read_json,
    read_text,
    write_bytes,
    write_json,
    write_text,
)
from cxrlab.core.jsonl import JsonlAppender


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Folders on the way are made; nothing but the file is left."""
    target = write_json(tmp_path / "a" / "b.json", {"x": 1})
    assert read_json(target) == {"x": 1} and target.read_text().endswith("}\n")
    assert [entry.name for entry in target.parent.iterdir()] == ["b.json"]
    assert read_text(write_text(tmp_path / "t.txt", "é")) == "é"
    assert read_bytes(write_bytes(tmp_path / "t.bin", b"\0\1", durable=False)) == b"\0\1"


@pytest.fixture
def usual_umask() -> Iterator[None]:
    old = os.umask(0o022)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_new_is_for_its_owner_alone(tmp_path: Path, usual_umask: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first byte: nobody can have opened the file before its mode was right."""
    modes = []
    real = os.write
    monkeypatch.setattr(
        files.os, "write", lambda handle, data: modes.append(os.fstat(handle).st_mode & 0o777) or real(handle, data)
    )
    written = write_text(tmp_path / "run" / "part" / "a", "x")
    with JsonlAppender(tmp_path / "run" / "a.jsonl") as lines:
        lines.append({"report": "x"})
    with open(tmp_path / "run" / "log", "a", opener=private_opener) as log:
        log.write("x")
    assert modes == [0o600, 0o600]
    assert {mode(file) for file in (written, tmp_path / "run" / "a.jsonl", tmp_path / "run" / "log")} == {0o600}
    assert mode(tmp_path / "run") == mode(tmp_path / "run" / "part") == 0o700


@pytest.mark.parametrize("chosen", [0o640, 0o664, 0o400])
def test_permissions_that_somebody_chose_stay(tmp_path: Path, usual_umask: None, chosen: int) -> None:
    file = write_text(tmp_path / "a", "x")
    file.chmod(chosen)
    assert mode(write_text(file, "y")) == chosen and file.read_text() == "y"
    tmp_path.chmod(0o750)
    make_folder(tmp_path)
    assert mode(tmp_path) == 0o750


def test_a_group_that_cannot_be_kept_loses_its_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the rights of the chosen group would go to another one."""
    file = write_text(tmp_path / "a", "x")
    file.chmod(0o660)
    real = os.fstat

    def of_another_group(handle: int) -> os.stat_result:
        found = list(real(handle))
        found[5] += 1
        return os.stat_result(found)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(files.os, "fstat", of_another_group)
    monkeypatch.setattr(files.os, "fchown", refuse)
    assert mode(write_text(file, "y")) == 0o600


def test_a_database_and_its_companions_are_for_the_owner_alone(tmp_path: Path, usual_umask: None) -> None:
    path = make_file(tmp_path / "run" / "a.sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
        connection.commit()
        found = {file.name: mode(file) for file in path.parent.iterdir()}
    connection.close()
    assert found == {name: 0o600 for name in ("a.sqlite", "a.sqlite-wal", "a.sqlite-shm")}
    path.chmod(0o640)
    size = path.stat().st_size
    make_file(path)
    assert mode(path) == 0o640 and path.stat().st_size == size


def test_no_module_makes_files_that_others_can_read() -> None:
    """Every descriptor and every SQLite file is opened by way of `core.files`, or says its mode.

    A database without a name is SQLite's own temporary file, which nobody else can open.
    """
    source = Path(files.__file__).parents[1]
    for file in source.rglob("*.py"):
        text = file.read_text()
        assert "0o666" not in text, file
        if re.search(r'sqlite3\.connect\((?!"")', text):
            assert "make_file(" in text, file
        for line in text.splitlines():
            if re.search(r"\bopen\(.*[\"'][wax]b?\+?b?[\"']", line):
                assert "private_opener" in line, f"{file}: {line}"


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
    with pytest.raises(RunError, match="a file of that name exists"):
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
    with pytest.raises(DataError, match=r"cannot write .*a\.txt: the text holds the lone surrogate \\udcff; .*rename"):
        write_text(tmp_path / "a.txt", "x\udcff")
    assert list(tmp_path.iterdir()) == []

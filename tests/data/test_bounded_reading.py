"""Only a regular file of a sane size is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cxrlab.core.errors import DataError
from cxrlab.data import bounded_reading
from cxrlab.data.bounded_reading import read_bounded
from cxrlab.data.images import load_image


def test_a_file_and_a_link_to_it(tmp_path: Path) -> None:
    """Exactly as large as allowed is allowed."""
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert read_bounded(tmp_path / "a", 5) == read_bounded(tmp_path / "b", 5) == b"12345"
    with pytest.raises(DataError, match="a is larger than 4 bytes"):
        read_bounded(tmp_path / "a", 4)


def test_a_pipe_and_a_device_are_refused_at_once(tmp_path: Path) -> None:
    """Opening a pipe would wait for a writer that never comes; /dev/zero never ends."""
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    for name in ("pipe.png", "zero.png"):
        with pytest.raises(DataError, match=f"{name} is a pipe or a device"):
            load_image(tmp_path / name)


def test_a_file_that_gives_more_than_it_claims_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that grows while it is read, or a system's file of size 0, must not fill the memory."""
    (tmp_path / "a").write_bytes(b"x" * 100)
    real = os.fstat

    def claims_nothing(handle: int) -> os.stat_result:
        return os.stat_result((real(handle).st_mode, *[0] * 9))

    monkeypatch.setattr(bounded_reading.os, "fstat", claims_nothing)
    with pytest.raises(DataError, match="larger than 10 bytes"):
        read_bounded(tmp_path / "a", 10)


def test_the_limit_holds_for_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One GiB by default; a smaller one shows that it is asked."""
    (tmp_path / "a.png").write_bytes(b"x" * 11)
    monkeypatch.setattr(bounded_reading, "MOST_BYTES", 10)
    with pytest.raises(DataError, match="larger than"):
        load_image(tmp_path / "a.png")


@pytest.mark.parametrize("name", ["none", "n" * 300, "zero\0byte", "a/below"])
def test_what_is_not_there_is_a_sentence(tmp_path: Path, name: str) -> None:
    """Absent, a name no file system takes, a zero byte, a file used as a folder."""
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(DataError, match="does not exist|cannot be read"):
        read_bounded(tmp_path / name)


def test_an_operating_system_error_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions and failing disks are the user's to mend."""

    def refuse(self: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a").write_bytes(b"x")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="Permission denied"):
        read_bounded(tmp_path / "a")

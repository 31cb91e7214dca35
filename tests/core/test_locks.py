from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cxrlab.core import atomic_folders
from cxrlab.core.atomic_folders import FolderBusy, lock_file, lock_folder
from cxrlab.core.errors import RunError


def test_one_writer_at_a_time_and_nothing_is_left_behind(tmp_path: Path) -> None:
    with lock_folder(tmp_path) as lock:
        assert lock.held and (tmp_path / ".lock").exists()
        with pytest.raises(RunError, match="is being written by another process; wait for it, or choose"):
            lock_folder(tmp_path)
    assert not lock.held and list(tmp_path.iterdir()) == []
    lock.release()
    lock_folder(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    """After a kill the file stays, but the next writer takes the lock."""
    code = (
        "import os, sys; from pathlib import Path; from cxrlab.core.atomic_folders import lock_folder\n"
        "lock = lock_folder(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / ".lock").exists()
    lock_folder(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_removed_in_between_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last holder lets go between our opening and our locking: a nameless file would lock nobody out."""
    real, first = fcntl.flock, lock_folder(tmp_path)

    def too_late(handle: int, how: int) -> None:
        first.release()
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", too_late)
    with lock_folder(tmp_path):
        monkeypatch.undo()
        assert (tmp_path / ".lock").exists()
        with pytest.raises(RunError, match="another process"):
            lock_folder(tmp_path)


def test_somebody_elses_file_of_that_name_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("mine")
    lock_folder(tmp_path).release()
    assert (tmp_path / ".lock").read_text() == "mine"


def test_a_folder_that_knows_no_locks_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network folders; two writers at once would be worse than a refusal."""

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(RunError, match=r"cannot lock .*\.lock: operation not supported"):
        lock_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_locked_file_is_waited_for_and_then_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys" / "keys.yaml"
    with lock_file(file):
        monkeypatch.setattr(atomic_folders, "_FILE_LOCK_TIMEOUT_S", 0.1)
        with pytest.raises(FolderBusy, match=r"another process has locked .*keys\.yaml"):
            lock_file(file)
        lock_file(file.with_name("other.yaml")).release()
    lock_file(file).release()
    assert list(file.parent.iterdir()) == []


def test_a_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        lock_folder(tmp_path / "none")

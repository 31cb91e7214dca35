from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cxrlab.core import files, jsonl
from cxrlab.core.errors import RunError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.runs import Run, finished, state


@dataclass(frozen=True)
class Settings:
    n: int = 3
    rate: float = 1e-5
    workers: int = 1
    names: tuple[str, ...] = ("a",)


def test_a_run_can_be_read_without_the_program(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings(), seed=7) as run:
        assert state(run.folder) == "running" and not run.resumed
        run.append("sub/x.jsonl", {"id": "s1"})
        run.write("scores.json", {"a": 1})
        run.write("note.txt", "hello")
        run.write("raw.bin", b"\0")
    folder = tmp_path / "r"
    assert (folder / "config.yaml").read_text() == "n: 3\nrate: 1.0e-05\nworkers: 1\nnames:\n- a\n"
    found = read_json(folder / "environment.json")
    assert found["seed"] == 7 and found["python"].startswith("3.") and "numpy" in found["packages"]
    assert state(folder) == "finished"
    assert (folder / "note.txt").read_text() == "hello" and (folder / "raw.bin").read_bytes() == b"\0"
    assert list(read_jsonl(folder / "sub" / "x.jsonl")) == [(1, {"id": "s1"})]


def test_ctrl_c_keeps_everything_and_resume_continues(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Run.open(tmp_path / "r", Settings(), seed=7) as run:
        run.append("x.jsonl", {"id": "s1"})
        raise KeyboardInterrupt
    assert read_json(tmp_path / "r" / "status.json")["reason"] == "stopped by Ctrl-C"
    with open(tmp_path / "r" / "x.jsonl", "ab") as file:
        file.write(b'{"id": "torn')
    with Run.open(tmp_path / "r", Settings(workers=8), seed=7, operational=["workers"]) as run:
        assert run.resumed and run.done("x.jsonl") == {"s1"} and run.done("new.jsonl") == set()
        run.append("x.jsonl", {"id": "s2"})
    assert [record["id"] for _, record in read_jsonl(tmp_path / "r" / "x.jsonl")] == ["s1", "s2"]
    assert len(read_json(tmp_path / "r" / "environment.json")["resumed"]) == 1


def test_a_killed_run_is_resumed_too(tmp_path: Path) -> None:
    """After SIGKILL the status still says running; the lock of a dead process is free."""
    code = (
        "import os, sys; from cxrlab.core.runs import Run\n"
        "run = Run.open(sys.argv[1], {'n': 1}, seed=1); run.append('x.jsonl', {'id': 'a'}); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "r")], check=False)
    assert state(tmp_path / "r") == "running"
    with Run.open(tmp_path / "r", {"n": 1}, seed=1) as run:
        assert run.resumed and run.done("x.jsonl") == {"a"}


def test_another_process_at_work_is_respected(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings()):
        code = "import sys; from cxrlab.core.runs import Run; Run.open(sys.argv[1], {})"
        answer = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "r")], capture_output=True, text=True, check=False
        )
    assert "is being written by another process" in answer.stderr


def test_a_finished_run_is_refused(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings(), seed=1):
        pass
    with pytest.raises(RunError, match="finished run with these settings"):
        Run.open(tmp_path / "r", Settings(), seed=1)


def test_other_settings_are_refused_key_by_key(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="boom"), Run.open(tmp_path / "r", Settings(), seed=1):
        raise ValueError("boom")
    assert read_json(tmp_path / "r" / "status.json") == {
        "state": "interrupted", "at": read_json(tmp_path / "r" / "status.json")["at"], "reason": "ValueError: boom"
    }  # fmt: skip
    with pytest.raises(RunError) as caught:
        Run.open(tmp_path / "r", Settings(n=4, names=("a", "b")), seed=2)
    assert "n was 3 and is now 4; names was ['a'] and is now ['a', 'b']; the seed was 1 and is now 2" in str(
        caught.value
    )
    with pytest.raises(RunError, match="unfinished"):
        Run.open(tmp_path / "r", Settings(), seed=1, resume=False)


def test_a_run_of_another_kind_is_refused_without_a_list_of_everything(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", {f"key{k}": k for k in range(20)}):
        pass
    with pytest.raises(RunError, match=r"key3 was 3 and is now 'absent'; and 17 more\); give"):
        Run.open(tmp_path / "r", {"other": 1})


def test_a_refused_folder_is_left_as_it_was_and_unlocked(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    for _ in range(2):
        with pytest.raises(RunError, match=r"not a run \('thesis.txt' is in it\)"):
            Run.open(tmp_path, Settings())
    assert (tmp_path / "thesis.txt").read_text() == "x"
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    "name", ["../x.json", "/etc/x.json", "a/../../x.json", "", "a\\b.json", "config.yaml", "x\0.json"]
)
def test_names_stay_inside_the_folder(tmp_path: Path, name: str) -> None:
    with Run.open(tmp_path / "r", Settings()) as run, pytest.raises(RunError):
        run.write(name, {})


def test_records_go_to_jsonl_files_of_an_open_run(tmp_path: Path) -> None:
    run = Run.open(tmp_path / "r", Settings())
    with pytest.raises(RunError, match="ends in .jsonl"):
        run.append("x.json", {})
    run.close()
    run.close()
    with pytest.raises(RunError, match="is closed"):
        run.append("x.jsonl", {})


def test_a_full_disk_ends_the_run_with_its_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error is the one raised, also when the status cannot be written either."""

    with pytest.raises(RunError, match=r"x\.jsonl: the disk is full"):
        with Run.open(tmp_path / "r", Settings()) as run:
            monkeypatch.setattr(files.os, "write", failing(errno.ENOSPC))
            run.append("x.jsonl", {"id": 1})
    monkeypatch.undo()
    assert state(tmp_path / "r") == "running"
    with Run.open(tmp_path / "r", Settings()) as run:
        assert run.resumed


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(RunError, match="folder"):
        Run.open(tmp_path / "f" / "r", Settings())
    assert state(tmp_path) is None


def test_a_lock_that_cannot_be_taken_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "r" / ".lock").mkdir(parents=True)
    with pytest.raises(RunError, match=r"\.lock: it is a folder"):
        Run.open(tmp_path / "r", Settings())


def test_a_disk_that_fails_at_the_end_leaves_the_run_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that never reached the disk must not be called finished; every file is closed all the same."""
    run = Run.open(tmp_path / "r", Settings())
    run.append("x.jsonl", {"id": 1})
    run.append("y.jsonl", {"id": 1})
    with monkeypatch.context() as patch, pytest.raises(RunError, match="input/output error"):
        patch.setattr(jsonl.os, "fsync", failing(errno.EIO))
        run.close()
    assert state(tmp_path / "r") == "running" and not (tmp_path / "r" / ".lock").exists()
    assert all(file._handle < 0 for file in run._files.values())
    with pytest.raises(RunError, match="is closed"):
        run.append("y.jsonl", {"id": 2})
    with Run.open(tmp_path / "r", Settings()) as again:
        assert again.resumed and again.done("y.jsonl") == {"1"}


def failing(number: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


def test_settings_that_a_run_did_not_know_yet_change_nothing_while_they_are_left_out(tmp_path: Path) -> None:
    """A finished run of an earlier version stays finished when a list or a choice joins the settings."""

    @dataclass(frozen=True)
    class Grown(Settings):
        views: tuple[str, ...] = ()
        missing: str | None = None

    with Run.open(tmp_path / "r", Settings(), seed=7):
        pass
    assert finished(tmp_path / "r", Grown(), seed=7)
    assert not finished(tmp_path / "r", Grown(views=("frontal",)), seed=7)
    assert not finished(tmp_path / "r", Grown(names=()), seed=7)

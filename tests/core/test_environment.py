from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cxrlab.core import environment as room
from cxrlab.core.environment import environment, source_commit, usable_cores, without_secrets


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--api-key", "s3cret"], ["--api-key", "***"]),
        (["--api_key=s3cret"], ["--api_key=***"]),
        (["--token", "--json"], ["--token", "--json"]),
        (["model.password=s3cret"], ["model.password=***"]),
        (["http://me:s3cret@host/v1#m"], ["http://***@host/v1#m"]),
        (["--model=https://host/v1?api_key=s3cret&x=1#m"], ["--model=https://host/v1?api_key=***&x=1#m"]),
        (["--monkey", "banana", "--max-tokens", "5"], ["--monkey", "banana", "--max-tokens", "5"]),
    ],
)
def test_secrets_are_hidden_and_the_rest_is_kept(given: list[str], shown: list[str]) -> None:
    assert without_secrets(given) == shown


def test_the_environment_is_complete() -> None:
    found = environment(["cxrlab", "--token", "x"])
    assert found["command"] == ["cxrlab", "--token", "***"]
    assert set(found) == {"python", "platform", "machine", "cores", "packages", "command", "commit"}
    assert "torchvision" not in found["packages"]


def test_a_path_that_is_not_utf8_can_be_written_down() -> None:
    """Its odd bytes reach Python as half characters, which no JSON file may hold."""
    assert environment(["cxrlab", "nd\udcff"])["command"] == ["cxrlab", "nd\\udcff"]


def test_the_commit_is_that_of_the_checkout(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        return subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "-q")
    assert source_commit(tmp_path) is None
    (tmp_path / "f").write_text("1")
    git("add", "f")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    assert source_commit(tmp_path) == head
    (tmp_path / "f").write_text("2")
    assert source_commit(tmp_path) == f"{head}-dirty"


def test_no_commit_for_an_installed_package_or_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert source_commit(tmp_path / "site-packages" / "cxrlab") is None

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(room.subprocess, "run", missing)
    assert source_commit(tmp_path) is None


def test_cores_are_those_that_this_process_may_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.os, "sched_getaffinity", lambda _: {0, 2, 5}, raising=False)
    monkeypatch.setattr(room, "_quotas", lambda *_: iter(()))
    assert usable_cores() == 3
    monkeypatch.setattr(room, "_quotas", lambda *_: iter((2, 9)))
    assert usable_cores() == 2


@pytest.mark.parametrize(
    ("group", "files", "quotas"),
    [
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, [2]),
        ("0::/", {"cpu.max": "400000 100000"}, [4]),
        ("0::/", {"cpu.max": "50000 100000"}, [1]),
        ("3:cpuset:/x\n2:cpu,cpuacct:/x", {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, [3]),
        ("2:cpu:/x", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, []),
        ("", {"cpu.max": "100000 100000"}, []),
        ("0::/gone", {"other/cpu.max": "nonsense"}, []),
    ],
)
def test_the_quota_of_a_container_is_read_in_either_version(
    tmp_path: Path, group: str, files: dict[str, str], quotas: list[int]
) -> None:
    (tmp_path / "group").write_text(group + "\n")
    for name, text in files.items():
        (tmp_path / "mounted" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mounted" / name).write_text(text + "\n")
    assert list(room._quotas(tmp_path / "mounted", tmp_path / "group")) == quotas

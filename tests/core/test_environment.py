from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cxrlab.core import environment as room
from cxrlab.core.environment import environment, source_commit, without_secrets


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

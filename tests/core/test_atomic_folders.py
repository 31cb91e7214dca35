from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cxrlab.core.atomic_folders import CHECKSUMS, find_damage, write_checksums, write_folder
from cxrlab.core.errors import RunError


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    assert write_folder(out, lambda folder: (folder / "a").write_text("1") and None) == out
    assert sorted(file.name for file in out.iterdir()) == ["a", CHECKSUMS] and [
        f.name for f in out.parent.iterdir()
    ] == ["out"]


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_folder(tmp_path / "out", lambda folder: (folder / "a").touch())
    with pytest.raises(RunError, match="is there already"):
        write_folder(tmp_path / "out", lambda folder: None)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="is there already"):
        write_folder(tmp_path / "file", lambda folder: None)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError])
def test_nothing_is_left_of_a_writing_that_failed(tmp_path: Path, error: type[BaseException]) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise error()

    with pytest.raises(RunError if error is OSError else error):
        write_folder(tmp_path / "out", fail)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    (tmp_path / "part").mkdir()
    (tmp_path / "weights").write_bytes(b"0123456789")
    (tmp_path / "part" / "config.json").write_text("{}")
    write_checksums(tmp_path)
    return tmp_path


def test_checksums_are_those_of_sha256sum(listed: Path) -> None:
    sums = json.loads((listed / CHECKSUMS).read_text())
    assert list(sums) == ["part/config.json", "weights"]
    assert sums["weights"] == {"bytes": 10, "sha256": hashlib.sha256(b"0123456789").hexdigest()}
    assert find_damage(listed) is None
    write_checksums(listed)  # of the same files: the list itself is none of them
    assert json.loads((listed / CHECKSUMS).read_text()) == sums


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / "weights").write_bytes(b"0123456780"), "content of weights"),
        (lambda folder: (folder / "weights").write_bytes(b"012345678"), "weights has 9 bytes"),
        (lambda folder: (folder / "part" / "config.json").unlink(), "part/config.json is missing"),
        (lambda folder: (folder / "part" / "more.json").touch(), "part/more.json was added"),
        (lambda folder: shutil.rmtree(folder / "part"), "part/config.json is missing"),
        (lambda folder: (folder / CHECKSUMS).write_text("{"), CHECKSUMS),
        (lambda folder: (folder / CHECKSUMS).write_text('{"weights": 3}'), CHECKSUMS),
        (lambda folder: (folder / CHECKSUMS).unlink(), CHECKSUMS),
    ],
)
def test_damage_is_found_and_named(listed: Path, damage: Callable[[Path], object], named: str) -> None:
    damage(listed)
    found = find_damage(listed)
    assert found is not None and named in found


def test_hidden_files_are_no_part_of_a_folder(listed: Path) -> None:
    (listed / ".DS_Store").touch()
    (listed / ".cache").mkdir()
    (listed / ".cache" / "x").touch()
    assert find_damage(listed) is None

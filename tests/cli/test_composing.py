from __future__ import annotations

import json
from pathlib import Path

import pytest
from composition_members import corpus, study

from cxrlab.cli.main import main


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRLAB_QUIET", "1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    a, b = (corpus(tmp_path / name, map(study, range(4)), name).path for name in ("x", "y"))
    settings = tmp_path / "two.yaml"
    settings.write_text(
        f"name: two\nstage: 1\nmembers:\n  a: {{corpus: {a}, stages: [1], paper: {{pairs: 12}}}}\n"
        f"  b: {{corpus: {b}, n: 2, stages: [2]}}\n"
    )
    return settings


def test_a_dry_run_prints_tree_and_table_and_writes_nothing(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "compose", "--config", str(file), "--dry-run", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("merge") and "└─ a: filter: text sections (findings)" in shown
    (total,) = [line.split() for line in shown.splitlines() if line.startswith("total ")]
    assert total == ["total", "4", "4", "4", "4", "4", "4", "12"]
    assert not (tmp_path / "out").exists()


def test_a_stage_by_flag_and_the_result_for_programs(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "compose", "--config", str(file), "--stage", "2", "--out", str(tmp_path / "out"), "--json"]
    assert main(words) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["counts"] == {"studies": 2, "patients": 2, "images": 2, "train": 2}
    assert [(row["member"], row["pairs"]) for row in reported["table"]] == [("b", 2)]
    assert main(["data", "check", str(tmp_path / "out")]) == 0


def test_without_a_folder_it_asks_for_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "compose", "--config", str(file)]) == 1
    assert "--out is missing" in capsys.readouterr().err


def test_members_that_are_no_group_are_refused_with_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.yaml").write_text("members: 5\n")
    assert main(["data", "compose", "--config", str(tmp_path / "bad.yaml"), "--dry-run"]) == 1
    assert "bad.yaml:1: members is 5; it must be a group of 'name: value' lines" in capsys.readouterr().err


def test_a_group_of_settings_stands_in_a_file_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nobody can type the members on one line: the help names the file, and so does the sentence when it is missing."""
    assert main(["data", "compose", "--help"]) == 0
    reported = capsys.readouterr().out
    assert reported.startswith("usage: cxrlab data compose --config FILE") and "--members" not in reported
    assert main(["data", "compose", "--out", str(tmp_path / "c")]) == 1
    assert "'members', a group of settings" in capsys.readouterr().err

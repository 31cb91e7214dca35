"""What `--format` prints, and how wide it is."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from cxrlab.cli.main import main

REPORTS = ["Small left pleural effusion.", "The lungs are clear.", "Large pneumothorax.", "Moderate cardiomegaly."]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three scored runs on the same four references: the references moved by one, by two, and themselves."""
    folder = tmp_path_factory.mktemp("formats")
    for name, by in {"r": 0, "moved": 1, "turned": 2, "same": 0}.items():
        (folder / f"{name}.txt").write_text("\n".join(REPORTS[by:] + REPORTS[:by]) + "\n")
    for name in ("moved", "same", "turned"):
        words = ["score", str(folder / "r.txt"), str(folder / f"{name}.txt"), "--out", str(folder / name), "--quiet"]
        assert main(words) == 0
    return folder


def commands(folder: Path) -> dict[str, list[str]]:
    return {
        "score": ["score", str(folder / "r.txt"), str(folder / "moved.txt"), "--quiet"],
        "compare": ["compare", str(folder / "moved"), str(folder / "same"), str(folder / "turned"), "--quiet"],
        "metrics ls": ["metrics", "ls"],
        "metrics validate": ["metrics", "validate", "--benchmark", "phantom", "--n", "20", "--quiet"],
    }


NAMES = ("score", "compare", "metrics ls", "metrics validate")


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_table_fits_eighty_columns(
    name: str, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(commands(runs)[name]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_pipe_is_not_wrapped(runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line per metric, for grep."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["metrics", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) > 80 and all(re.match(r"\S+.* [↑↓] |metric|\d+ more", line) for line in lines)


def test_scores_as_csv_are_those_of_scores_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["score", str(runs / "r.txt"), str(runs / "moved.txt"), "--out", str(runs / "moved"), "--quiet"]
    assert main([*words, "--metrics", "default", "--format", "csv"]) == 1  # another setting of the same folder
    capsys.readouterr()
    assert main([*words, "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    stored = json.loads((runs / "moved/scores.json").read_text())["metrics"]
    assert "row by row" in err and "Image dependence" in err, "what the table does not hold is not lost"
    rows = rows_of(out)
    assert len(rows) > 10
    for row in rows:
        for key in ("value", "low", "high"):
            known = stored[row["metric"]][key]
            assert row[key] == ("" if known is None else str(known))


def test_a_comparison_as_csv_has_a_row_per_run_and_metric(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = commands(runs)["compare"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main([*words, "--format", "csv"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert len(rows) == 2 * len(found["metrics"])
    for row in rows:
        other = found["metrics"][row["metric"]]["against"][row["run"]]
        assert row["difference"] == ("" if other["difference"] is None else str(other["difference"]))
        assert row["verdict"] == other["verdict"] and row["direction"] == found["metrics"][row["metric"]]["direction"]


@pytest.mark.parametrize("name", NAMES)
def test_every_format_is_well_formed(name: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = commands(runs)[name]
    printed = {}
    for format in ("csv", "md", "latex", "json"):
        assert main([*words, "--format", format]) == 0
        printed[format] = capsys.readouterr().out
    assert main([*words, "--json"]) == 0 and capsys.readouterr().out == printed["json"]
    json.loads(printed["json"])
    rows = list(csv.reader(io.StringIO(printed["csv"]), strict=True))
    assert len(rows) > 3 and len({len(row) for row in rows}) == 1
    tables = [line for line in printed["md"].splitlines() if line.startswith("| ")]
    assert len(tables) > 3 and "| --- |" in printed["md"]
    assert printed["latex"].count(r"\begin{tabular}") == printed["latex"].count(r"\end{tabular}") > 0
    outside = re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}", "", printed["latex"], flags=re.S)
    assert all(line.startswith("%") for line in outside.splitlines() if line), "sentences are comments"


def test_json_and_another_format_contradict(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*commands(runs)["metrics ls"], "--json", "--format", "csv"]) == 1
    assert "--json and --format csv" in capsys.readouterr().err
    assert main(["metrics", "ls", "--format", "xml"]) == 1
    assert "xml" in capsys.readouterr().err


def test_only_commands_with_tables_have_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--format", "csv"]) == 1
    assert "--format" in capsys.readouterr().err


def test_help_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["score", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if not line.startswith("  cxrlab")) <= 80


def test_a_preset_lists_what_is_missing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CheXbert's labels are not replaced by those of the built-in rules; what it needs is named with its flags."""
    words = [*commands(runs)["score"], "--preset", "paper"]
    assert main([*words, "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    rows = {row["label"]: row for row in rows_of(out)}
    assert rows["BLEU-4"]["metric"] == "bleu4:coco" and float(rows["BLEU-4"]["value"]) < 0.5
    for label in ("METEOR", "CheXbert Micro-F1-14", "RadGraph F1", "RadCliQ-v1", "GREEN"):
        assert rows[label]["metric"] == rows[label]["value"] == ""
    assert "--chexbert FILE and --bert FOLDER" in err and "--graphs FILE" in err and "--metrics green:" in err
    assert main([*words, "--json"]) == 0
    listed = {row["label"]: row for row in json.loads(capsys.readouterr().out)["preset"]}
    assert listed["BLEU-4"]["metrics"] == ["bleu4:coco"] and "Java" in listed["METEOR"]["missing"]
    assert main([*commands(runs)["score"], "--preset", "paper", "--all"]) == 1
    assert "--all and --preset" in capsys.readouterr().err
    assert main([*commands(runs)["score"], "--preset", "rexrank"]) == 1
    assert "--graphs FILE" in capsys.readouterr().err
    assert main([*commands(runs)["score"], "--preset", "rexrank", "--metrics", "bleu1:coco"]) == 0
    assert "bleu1:coco" in capsys.readouterr().out

"""The commands for one's own data: what they print, their exit codes, and the how-to of docs/own_data.md."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from exported_phantoms import HEADER, export_phantoms

from cxrlab.cli.main import main
from cxrlab.data.corpus import load_corpus

HOW_TO = Path(__file__).parents[2] / "docs" / "own_data.md"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    export_phantoms(folder, 60)
    return folder


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRLAB_QUIET", "1")


def test_the_first_call_tells_the_second(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line that is shown imports every study, with text, view, split and patient as they were."""
    out = tmp_path / "mine"
    words = ["data", "import", "table", str(exported / "reports.xlsx"), "--out", str(out), "--seed", "3"]
    assert main(words) == 1 and not out.exists()
    shown = capsys.readouterr().out
    command = shlex.split(shown.splitlines()[-1])
    assert command[:4] == ["cxrlab", "data", "import", "table"] and not re.search("problems", shown)
    assert main([*command[1:], "--workers", "1"]) == 0
    truth, corpus = list(load_corpus(exported / "phantom")), list(load_corpus(out))
    assert [study.patient for study in corpus] == [study.patient for study in truth]
    assert [study.split for study in corpus] == [study.split for study in truth]
    assert [study.images[0].view for study in corpus] == [study.images[0].view for study in truth]
    for one, other in zip(corpus, truth, strict=True):
        assert one.sections is not None and other.sections is not None
        assert (one.sections.findings or "").split() == (other.sections.findings or "").split()
        assert one.sex == other.sex and one.age == int(other.age or 0)


def test_a_dry_run_ends_well_and_json_holds_no_report(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--columns", "auto"], []):
        table = str(exported / "reports.xlsx")
        assert (
            main(["data", "import", "table", table, "--dry-run", "--json", "--out", str(tmp_path / "out"), *words]) == 0
        )
        text = capsys.readouterr().out
        assert json.loads(text)["columns"]["report"] == ["Befundtext"] and "FINDINGS" not in text
        assert not (tmp_path / "out").exists()


def test_a_wrong_column_ends_with_a_sentence(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "import", "table", str(exported / "reports.xlsx"), "--columns", "image=Dateiname"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "'Dateiname'" in error and "'Datei'" in error and "Traceback" not in error


def test_dicom_and_its_table_are_matched(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "import", "dicom", "--root", str(exported / "scans")]
    assert main([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["studies"] == 60
    assert main([*words, "--out", str(tmp_path / "clinic"), "--workers", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["images"] == 60
    assert main(["data", "card", str(tmp_path / "clinic"), "--name", "clinic", "--synthetic", "--json"]) == 0
    assert main(["data", "card", str(tmp_path / "clinic"), "--licence", "internal"]) == 0
    card = load_corpus(tmp_path / "clinic").card
    assert (card.name, card.licence, card.synthetic) == ("clinic", "internal", True)


@pytest.mark.slow
def test_the_how_to_ends_with_a_scored_page(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the first block of docs/own_data.md, as it stands there; only the first one ends with 1."""
    monkeypatch.chdir(tmp_path)
    for name in ("scans", "reports.xlsx"):
        Path(name).symlink_to(exported / name)
    block = re.search(r"```\n(.*?)```", HOW_TO.read_text(), re.S)
    assert block is not None and all(name in HOW_TO.read_text() for name in HEADER[:5])
    commands = [shlex.split(line)[1:] for line in block[1].splitlines()]
    assert len(commands) == 7
    for number, words in enumerate(commands):
        assert main(words) == (1 if number == 0 else 0), words
    scores = json.loads(Path("runs/scored/scores.json").read_text())
    assert scores["n"] == len(load_corpus("corpora/mine").ids("test"))
    assert "rougeL:google" in Path("page.html").read_text()

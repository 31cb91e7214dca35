from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from cxrlab.cli import read
from cxrlab.cli.main import main
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Presence, Severity, Side
from cxrlab.findings.reader import Reading

TEXT = "Small left effusion, no pneumothorax. Possible nodule. Clear lungs. Odd shadow thing."
READING = Reading(
    TEXT,
    (
        Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD, span=(0, 19)),
        Finding("pneumothorax", Presence.ABSENT, span=(21, 36)),
        Finding("nodule", certainty=Certainty.POSSIBLE, size_mm=12.0, span=(38, 53)),
    ),
    normal=((55, 67),),
    unread=((68, 85),),
)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading by hand, so that this test is about showing and not about reading."""
    import cxrlab.findings.reader as room

    monkeypatch.setattr(room, "read", lambda text: READING if text and text.strip() == TEXT else Reading(text or ""))


def test_findings_are_listed_with_their_words(known: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", TEXT]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["pleural", "effusion", "present", "mild,", "left", '"Small', "left", 'effusion"']
    assert "absent" in lines[1] and '"no pneumothorax"' in lines[1]
    assert "possible" in lines[2] and "12 mm" in lines[2]
    assert lines[3] == 'normal: "Clear lungs."' and lines[4] == 'not understood: "Odd shadow thing."'


def test_json_has_findings_spans_words_and_labels(known: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", TEXT, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == TEXT and found["normal"] == [[55, 67]]
    assert found["findings"][1] | {"span": [21, 36], "words": "no pneumothorax"} == found["findings"][1]
    assert found["labels"] == {"Pleural Effusion": 1, "Pneumothorax": 0, "Lung Lesion": -1}


@pytest.mark.parametrize(("text", "labels"), [("", {}), ("___", {}), ("Normal chest.", {"No Finding": 1})])
def test_a_text_without_a_word_is_not_normal(text: str, labels: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", text, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == labels


@pytest.mark.parametrize("text", ["", " ", "___", "🫁", "x" * 20_000, "a\nb", "effusion.of.the.left"])
def test_any_text_is_read(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one that no file could be named after."""
    assert main(["read", text]) == 0
    assert capsys.readouterr().out.strip()


def test_a_folder_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", str(tmp_path)]) == 1
    assert "is a folder; name a file in it" in capsys.readouterr().err


def test_a_file_is_one_report_and_a_dash_the_input(
    known: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.txt").write_text(TEXT + "\n")
    assert main(["read", str(tmp_path / "report.txt")]) == 0
    from_file = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    assert main(["read", "-"]) == 0
    assert capsys.readouterr().out == from_file and "pneumothorax" in from_file


def test_a_file_of_many_gives_one_line_each(known: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": "a", "report": TEXT}, {"id": "b", "report": None}, {"id": "c", "sections": {"findings": TEXT}}]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["read", str(tmp_path / "r.jsonl")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["id"], len(line["findings"])) for line in lines] == [("a", 3), ("b", 0), ("c", 3)]


def test_a_table_with_other_names_and_with_ids_that_repeat(
    known: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is matched here, so that two images of one study may share its id."""
    (tmp_path / "p.csv").write_text(f'Study ID,Prediction\n7,"{TEXT}"\n7,\n')
    assert main(["read", str(tmp_path / "p.csv")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["id"], len(line["findings"])) for line in lines] == [("7", 3), ("7", 0)]


def test_a_file_that_is_not_there_is_not_taken_for_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "nowhere/report.txt"]) == 1
    assert "nowhere/report.txt does not exist" in capsys.readouterr().err


def test_a_terminal_gets_colours_and_nothing_to_obey(known: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red for present, green for absent; an escape sequence inside a report is shown as blank."""
    monkeypatch.setattr(read, "_colours", lambda: True)
    shown = read.read(TEXT).text
    assert "\033[1;31mSmall left effusion\033[0m, \033[32mno pneumothorax\033[0m." in shown
    wild = Reading("\x1b[2Jclear", (Finding("nodule", span=(0, 9)),))
    monkeypatch.setattr("cxrlab.findings.reader.read", lambda text: wild)
    assert "\x1b[2J" not in read.read("wild").text


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert read._colours()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not read._colours()
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.delenv("NO_COLOR")
    assert not read._colours()

"""Score sheets and comparisons as Python objects: printed, in notebooks, as data frames, and compared in memory."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import cxrlab
from cxrlab.cli.main import main
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.evaluation.score import ScoreSheet

NORMAL = "The lungs are clear. The heart is normal in size."
REFERENCES = {
    f"s{number}": text
    for number, text in enumerate([NORMAL, "Small left pleural effusion.", "Moderate cardiomegaly.", NORMAL] * 3)
}
CONSTANT = dict.fromkeys(REFERENCES, NORMAL)


@pytest.fixture(scope="module")
def constant() -> ScoreSheet:
    return cxrlab.score(REFERENCES, CONSTANT)


@pytest.fixture(scope="module")
def perfect() -> ScoreSheet:
    return cxrlab.score(REFERENCES, REFERENCES)


def test_a_printed_sheet_is_about_ten_lines(constant: ScoreSheet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = str(constant).splitlines()
    assert 8 <= len(lines) <= 11 and lines[0] == "12 pairs: 12 scored"
    row = next(line for line in lines if line.startswith("findings.f1.side ↑"))
    assert row.split()[2] == "0.000" and "[" in row
    assert any("a control that never sees an image" in line for line in lines)
    assert any("Image dependence not tested" in line for line in lines)
    assert repr(constant) == f"ScoreSheet(12 pairs, {len(constant)} metrics)"


def test_a_notebook_shows_the_same(constant: ScoreSheet) -> None:
    page = constant._repr_html_()
    assert "findings.f1.side ↑" in page and page.count("<table>") == 1


def test_a_sheet_as_a_frame(constant: ScoreSheet) -> None:
    pandas = pytest.importorskip("pandas")
    frame = constant.to_frame().set_index("metric")
    assert list(frame.index) == list(constant) and {"low", "high", "floor", "n", "undefined"} <= set(frame.columns)
    for name, score in constant.items():
        assert frame.loc[name, "value"] == score.value or (
            pandas.isna(frame.loc[name, "value"]) and score.value != score.value
        )


def test_sheets_are_compared_like_their_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same numbers in memory and by the command."""
    sheets = []
    for name, texts in (("references", REFERENCES), ("constant", CONSTANT)):
        (tmp_path / f"{name}.json").write_text(json.dumps(texts))
    for name in ("constant", "references"):
        paths = tmp_path / "references.json", tmp_path / f"{name}.json"
        sheets.append(cxrlab.score(*paths))
        assert main(["score", *map(str, paths), "--out", str(tmp_path / name), "--quiet"]) == 0
    capsys.readouterr()
    folders = [str(tmp_path / name) for name in ("constant", "references")]
    gate = "findings.f1=0.05"
    assert main(["compare", *folders, "--noninferior", gate, "--minimum-patients", "5", "--json", "--quiet"]) == 0
    reported = json.loads(capsys.readouterr().out)
    found = cxrlab.compare(
        *sheets, noninferior={"findings.f1": 0.05}, minimum_patients=5, names=("constant", "references")
    )
    assert {**found.to_json(), "folders": []} == {**reported, "folders": []}
    mixed = cxrlab.compare([folders[0], sheets[1]], noninferior={"findings.f1": 0.05}, minimum_patients=5)
    assert mixed.runs == ("constant", "sheet 2")
    assert mixed.to_json()["metrics"]["findings.f1"]["values"]["sheet 2"]["value"] == 1.0


def test_a_comparison_prints(constant: ScoreSheet, perfect: ScoreSheet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = cxrlab.compare(constant, perfect, trials=200)
    text = str(found)
    assert "sheet 2 against sheet 1" in text and max(map(len, text.splitlines())) <= 80
    assert repr(found).startswith("ComparisonResult(sheet 1, sheet 2; 12 studies; ")
    assert "findings.f1.side ↑" in found._repr_html_()


def test_a_comparison_as_a_frame(constant: ScoreSheet, perfect: ScoreSheet) -> None:
    pytest.importorskip("pandas")
    frame = cxrlab.compare(constant, perfect, constant, metrics=["findings.f1"], trials=200).to_frame()
    assert list(frame["run"]) == ["sheet 2", "sheet 3"] and list(frame["difference"]) == [1.0, 0.0]
    assert list(frame["verdict"])[1] == "equal" and math.isnan(frame["p_holm"][1])


def test_a_comparison_of_sheets_can_be_kept(constant: ScoreSheet, perfect: ScoreSheet, tmp_path: Path) -> None:
    out = tmp_path / "compared"
    found = cxrlab.compare(constant, perfect, out=out, trials=200)
    assert json.loads((out / "comparison.json").read_text()) == json.loads(json.dumps(found.to_json()))


def test_wrong_comparisons_of_sheets(constant: ScoreSheet) -> None:
    other = cxrlab.score({"x": NORMAL}, {"x": NORMAL})
    with pytest.raises(DataError, match="same studies"):
        cxrlab.compare(constant, other)
    with pytest.raises(ConfigError, match="two"):
        cxrlab.compare(constant)
    with pytest.raises(ConfigError, match="names"):
        cxrlab.compare(constant, constant, names=("a", "a"))

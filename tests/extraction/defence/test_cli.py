"""`cxrlab defend` as a user types it; the rows of the command table are made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from extraction_results import defence

from cxrlab.cli import extraction
from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import Command
from cxrlab.core.errors import DataError
from cxrlab.core.json_values import dumps
from cxrlab.extraction.config import DefendConfig
from cxrlab.extraction.defence.watermark import Watermark

KEY = b"a key of the tests, 24 b"


def suspect(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(dumps({"id": f"s{n}", "report": text}) + "\n" for n, text in enumerate(texts)))
    return path


def test_a_suspect_is_tested_from_its_predictions(tmp_path: Path, reports: list[str]) -> None:
    (tmp_path / "key").write_bytes(KEY)
    texts = [Watermark(KEY).worded(report) for report in reports[:40]]
    found = extraction.test_watermark(suspect(tmp_path / "p.jsonl", texts), tmp_path / "key")
    assert found.data["p"] < 1e-10 and found.data["contexts_needed"] == 4 and found.data["queries_needed"] <= 4
    assert found.text.startswith("40 reports: ") and "z +" in found.text
    assert KEY.decode() not in dumps(found.data)
    with pytest.raises(DataError, match="holds no report"):
        extraction.test_watermark(suspect(tmp_path / "empty.jsonl", [""]), tmp_path / "key")


def defend_text(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]) -> str:
    """What the command prints for this content of defence.json."""
    monkeypatch.setattr("cxrlab.extraction.defence.defend.defend", lambda config, out: found)
    return extraction.defend(DefendConfig("stub:normal", Path("corpus")), Path("run")).text


def test_the_table_has_what_probes_of_a_gate_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = defend_text(monkeypatch, defence()).splitlines()
    (probes,) = [line for line in lines if line.startswith("gate: ")]
    assert "280 of its 1,500 queries on probes" in probes and "blends 0.6 of" in probes


def test_flags_reach_their_settings(tmp_path: Path) -> None:
    row = Command("what stops a copy", "cxrlab.cli.extraction:defend", "cxrlab defend --victim V --data D --out R")
    line = CommandLine("defend", row, extraction.defend)
    words = ["--victim", "stub:normal", "--data", str(tmp_path), "--defences", "gate,quota", "--settings.quota", "9"]
    config = line.parse([*words, "--out", str(tmp_path / "run")]).arguments["config"]
    assert config.defences == ("gate", "quota") and config.settings.quota == 9 and config.victim == "stub:normal"
    assert "--settings.key-file" in line.help()
    typed = [flag for flag in line.flags if "key" in flag and not flag.endswith(("-file", "-variable"))]
    assert typed == []  # a key is never typed: it is named by its file or by a variable of the environment


def test_the_share_of_a_copy_names_the_studies_that_it_was_measured_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--n 8` draws eight benign images; the copy was measured on the 15 studies of the test split."""
    found = defence()
    found["summary"]["copied"] = {"ratio": 0.5, "low": None, "high": None, "n": 15}
    (line,) = [line for line in defend_text(monkeypatch, found).splitlines() if line.startswith("the copy reaches")]
    assert "0.50 (measured on 15 studies" in line and "--n" in line and "images)" not in line.split(";")[0]

"""`cxrlab data structure` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import toy_corpus
from scripted_model import answer

from cxrlab.cli.main import main
from cxrlab.data.corpus import load_corpus


def test_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy_corpus(tmp_path / "toy")
    assert main(["data", "structure", str(tmp_path / "toy"), "--workers", "1", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "6 studies" in said and "4  structured by rules" in said and "cost" not in said
    assert load_corpus(tmp_path / "out")["s0"].structured["rules"]["findings"]


def test_a_model_with_its_cost_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One answer of 40 tokens serves four equal reports: 40 / 1,000 at a price of 2.5 is 0.1."""
    toy_corpus(tmp_path / "toy")
    file = tmp_path / "script.jsonl"
    line = {"contains": "", "answer": answer(findings="There is a small left pleural effusion."), "tokens": 40}
    file.write_text(json.dumps(line) + "\n")
    words = ["--model", f"scripted:{file}", "--llm.price-answer", "2.5", "--llm.max-cost", "9", "--json"]
    assert main(["data", "structure", str(tmp_path / "toy"), *words, "--out", str(tmp_path / "out")]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["paid"], reported["found"], reported["answer_tokens"], reported["cost"]) == (
        1,
        0,
        40,
        pytest.approx(0.1),
    )
    assert reported["remarks"]["structured by the model"] == 4
    # The same command on the finished corpus tells the same.
    assert main(["data", "structure", str(tmp_path / "toy"), *words, "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out) == reported


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--model", "nobody:x"], "no text models of the kind 'nobody'"),
        (["--split", "test"], "Choose one of train, val"),
        (["--llm.max-cost", "3"], "needs --llm.price-prompt or --llm.price-answer"),
        (["--llm.price-answer", "-1"], "not a price"),
        (["--batch", "0"], "at least 1"),
        (["--limit", "0"], "at least 1"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], reported: str
) -> None:
    toy_corpus(tmp_path / "toy")
    assert main(["data", "structure", str(tmp_path / "toy"), *words, "--out", str(tmp_path / "out")]) == 1
    assert reported in capsys.readouterr().err and not (tmp_path / "out").exists()

"""`cxrlab prefer sample`, `judge` and `pair` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import toy_corpus
from tiny_models import save_tiny_llava

from cxrlab.cli.main import main

TOLD = "There is a small left pleural effusion."
WRONG = "There is a large right pneumothorax."


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_corpus(tmp_path_factory.mktemp("toy") / "corpus", 9).path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llava(tmp_path_factory.mktemp("models") / "tiny")


def candidates(path: Path, *studies: str, reports: tuple[str, ...] = (WRONG, TOLD)) -> Path:
    answers = [{"report": text} for text in reports]
    path.write_text(
        "".join(json.dumps({"id": key, "report": reports[0], "answers": answers}) + "\n" for key in studies)
    )
    return path


def test_from_a_model_to_rewards(
    corpus: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Draw, judge: every flag reaches its setting, and no word of a report is printed."""
    words = ["prefer", "sample", "--model", f"hf:{checkpoint}", "--data", str(corpus), "--answers", "2", "--greedy"]
    words += ["--max-new-tokens", "5", "--loading.device", "cpu", "--out", str(tmp_path / "drawn"), "--quiet"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"9 candidates for 3 studies in {tmp_path / 'drawn' / 'candidates.jsonl'}\n")
    assert "were cut at max_new_tokens: in a pair they may be rejected, not chosen" in out
    words = ["prefer", "judge", "--candidates", str(tmp_path / "drawn"), "--data", str(corpus), "--quiet"]
    assert main([*words, "--judge", "0.5*green:rules+0.5*rougeL:google", "--out", str(tmp_path / "judged")]) == 0
    out = capsys.readouterr().out
    assert "9 candidates of 3 studies judged by 0.5*green:rules+0.5*rougeL:google" in out
    lines = (tmp_path / "judged" / "rewards.jsonl").read_text().splitlines()
    reports = [one["report"] for line in lines for one in json.loads(line)["candidates"]]
    assert len(reports) == 9 and not any(text in out for text in reports if len(text) > 3)


def test_from_candidates_to_pairs(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = candidates(tmp_path / "a.jsonl", "s0", "s1"), candidates(tmp_path / "b.jsonl", "s0", reports=(TOLD,))
    words = ["prefer", "judge", "--candidates", f"{one},{two}", "--data", str(corpus), "--quiet", "--length-control"]
    assert main([*words, "--out", str(tmp_path / "judged")]) == 0
    assert "5 candidates of 2 studies judged by green:rules (length-controlled)" in capsys.readouterr().out
    words = ["prefer", "pair", "--rewards", str(tmp_path / "judged"), "--quiet", "--out", str(tmp_path / "pairs")]
    assert main(words) == 0
    out = capsys.readouterr().out
    table = dict(line.strip().rsplit("  ", 1) for line in out.splitlines()[1:])
    reported = {name.strip(): value.strip() for name, value in table.items()}
    assert reported["studies"] == "2" and reported["identical to another"] == "1" and reported["pairs kept"] == "2"
    assert reported["words per chosen report"] == "7.0" and reported["pairs whose chosen report is longer"] == "100.0 %"
    assert TOLD not in out and WRONG not in out and "max_new_tokens" not in out
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "pairs" / "summary.json").read_text())


def test_pairs_that_a_cut_report_cost_are_shown(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The right report was cut and nothing is left to choose; the row is there only where it counts."""
    file = candidates(tmp_path / "c.jsonl", "s0", "s1")
    whole = f'{{"report": "{TOLD}"}}'
    file.write_text(file.read_text().replace(whole, whole[:-1] + ', "truncated": true}', 1))
    assert main(["prefer", "judge", "--candidates", str(file), "--data", str(corpus), "--out", f"{tmp_path}/j"]) == 0
    assert main(["prefer", "pair", "--rewards", f"{tmp_path}/j", "--out", f"{tmp_path}/pairs", "--quiet"]) == 0
    reported = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["chosen", "cut", "at", "max_new_tokens", "1"] in reported and ["pairs", "kept", "1"] in reported


def test_feedback_and_no_pair(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Readers at odds leave nothing to learn from: the table is shown and the exit code is 1."""
    (tmp_path / "f.csv").write_text("id,chosen,rejected\ns0,x,y\ns0,y,x\n")
    words = ["prefer", "pair", "--feedback", str(tmp_path / "f.csv"), "--data", str(corpus), "--quiet"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr()
    assert "readers disagree" in shown.out and "no pair to train on" in shown.out and shown.err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sample", "--model", "stub:normal", "--data", "{corpus}"], "'stub:normal' cannot sample"),
        (["sample", "--model", "stub:normal", "--data", "{corpus}", "--split", "test"], "is kept for measuring"),
        (["judge", "--candidates", "{file}", "--data", "{corpus}", "--judge", "bertscore"], "needs --extras.encoder"),
        (
            ["judge", "--candidates", "{file}", "--data", "{corpus}", "--extras.chexbert", "x"],
            "--chexbert needs --bert",
        ),
        (["judge", "--data", "{corpus}"], "--candidates is missing; for example: cxrlab prefer judge"),
        (["pair", "--rewards", "{corpus}"], "has no rewards.jsonl"),
        (["pair"], "give one source of pairs"),
        (["train", "--data", "{corpus}", "--pairs", "{pairs}", "--start", "stub:normal"], "models without weights"),
    ],
)
def test_a_mistake_is_one_sentence(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"id": "s0", "chosen": TOLD, "rejected": WRONG, "judge": "hand"}) + "\n")
    places = {"{corpus}": corpus, "{pairs}": pairs, "{file}": candidates(tmp_path / "c.jsonl", "s0")}
    assert main(["prefer", *(str(places.get(word, word)) for word in words), "--out", str(tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert said in err and len(err.strip().splitlines()) == 1 and not (tmp_path / "run").exists()

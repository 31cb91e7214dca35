"""`cxrlab train align` and `cxrlab train finetune` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from training_fixtures import phantoms

from cxrlab.cli.main import main
from cxrlab.cli.output import unused_data
from cxrlab.core.files import read_json
from cxrlab.data.corpus import load_corpus
from cxrlab.training.run_folder import TrainingResult

pytestmark = pytest.mark.slow

SMALL = [
    "--optimisation.steps", "3", "--optimisation.batch-size", "4", "--optimisation.max-length", "400",
    "--optimisation.log-every", "1",
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phantoms(tmp_path_factory.mktemp("train") / "corpus", n=30)


def test_both_stages_run_one_after_the_other(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stage 2 from fresh parts, stage 3 from its run folder; the seed of the command line is the training's."""
    top, data = corpus.parent, ["--data", str(corpus), "--cache", str(corpus.parent / "cache")]
    fresh = ["--encoder", "fresh:tiny", "--language-model", "fresh:tiny"]
    assert main(["train", "align", *data, *fresh, *SMALL, "--seed", "11", "--out", str(top / "align")]) == 0
    assert "3 steps on" in capsys.readouterr().out
    assert read_json(top / "align" / "environment.json")["seed"] == 11
    tuned = ["--start", str(top / "align"), "--lora-rank", "2", "--json", "--out", str(top / "tuned")]
    assert main(["train", "finetune", *data, *SMALL, *tuned]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["stage"] == "finetune" and reported["steps"] == 3 and reported["checkpoint"] == "checkpoint"
    assert (top / "tuned" / "checkpoint" / "adapter_config.json").is_file()
    assert len((top / "tuned" / "history.jsonl").read_text().splitlines()) == 3


def test_a_mistake_is_one_sentence(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "finetune", "--data", str(corpus), "--out", str(tmp_path / "run")]) == 1
    reported = capsys.readouterr().err
    assert "there is no start" in reported and "Traceback" not in reported
    assert not (tmp_path / "run").exists()


def test_a_dry_run_counts_the_pairs_and_writes_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One frontal image with the source's findings per train study; without --dry-run, --out is asked for."""
    monkeypatch.chdir(tmp_path)
    words = ["train", "align", "--data", str(corpus), "--encoder", "fresh:tiny", "--language-model", "fresh:tiny"]
    assert main([*words, "--dry-run", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    train = sum(study.split == "train" for study in load_corpus(corpus))
    assert table["pairs"] == table["studies"] == table["images"] == train > 0
    assert {row["text"] for row in table["rows"]} == {"sections"} and table["unused"] == []
    assert main([*words, "--dry-run"]) == 0
    assert f"{train:,} pairs of {train:,} images of {train:,} studies" in capsys.readouterr().out
    assert main(words) == 1 and "--out" in capsys.readouterr().err and not any(tmp_path.iterdir())


def test_what_was_left_out_and_cut_is_stated() -> None:
    done = TrainingResult("align", "checkpoint", 5, 20, 1.25, 10, left_out={"no text": 3, "no image": 1}, cut=2)
    assert unused_data(done) == [
        "4 studies were left out (no text: 3, no image: 1)",
        "2 reports were cut at max_length",
    ]

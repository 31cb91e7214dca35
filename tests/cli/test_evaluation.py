from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_tiny_llava

from cxrlab.cli.main import main
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.phantom.corpus import make_phantom


def test_generate_states_how_many_reports_and_how_many_images_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = make_phantom(PhantomConfig(n=20, size=32, masks=False, workers=1), tmp_path / "corpus").path
    ids = load_corpus(corpus).ids("train")
    (corpus / load_corpus(corpus)[ids[0]].images[0].path).unlink()
    words = ["generate", "--model", "stub:normal", "--data", str(corpus), "--split", "train"]
    words += ["--out", str(tmp_path / "run")]
    assert main(words) == 1
    assert f"1 of {len(ids)} studies have no readable frontal image" in capsys.readouterr().err
    assert main([*words, "--allow-missing"]) == 0
    file, summary = (tmp_path / "run" / name for name in ("predictions.jsonl", "summary.json"))
    assert capsys.readouterr().out == f"{len(ids) - 1} reports in {file}; without a report: 1, see {summary}\n"


def test_models_ls_lists_names_that_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "ls", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert {"stub:normal", "stub:empty", "retrieval:CORPUS"} <= set(names)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = PhantomConfig(n=20, size=32, masks=False, workers=1)
    return make_phantom(config, tmp_path_factory.mktemp("corpora") / "phantom").path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llava(tmp_path_factory.mktemp("models") / "tiny")


def reports(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "predictions.jsonl").read_text().splitlines()]


def test_a_checkpoint_writes_with_confidence_by_every_strategy(corpus: Path, checkpoint: Path, tmp_path: Path) -> None:
    """The flags reach the model: answers are counted, and those of one seed are the same in batches of another size."""
    words = ["generate", "--model", f"hf:{checkpoint}", "--data", str(corpus), "--split", "train", "--n", "5"]
    words += ["--decoding.max-new-tokens", "6", "--loading.device", "cpu", "--control-studies", "2", "--quiet"]
    several = ["--decoding.answers", "3", "--decoding.strategy"]
    ada_steal = ["diverse", "--decoding.beams", "6", "--decoding.groups", "3"]
    for name, flags in {"sample": [*several, "sample"], "diverse": [*several, *ada_steal], "greedy": []}.items():
        assert main([*words, *flags, "--out", str(tmp_path / name)]) == 0
        for record in reports(tmp_path / name):
            assert record["confidence"]["mean_logprob"] < 0 and 1 <= record["confidence"]["tokens"] <= 6
            if flags:
                assert len(record["answers"]) == 3 and record["answers"][0]["report"] == record["report"]
        assert len((tmp_path / name / "predictions_noise.jsonl").read_text().splitlines()) == 2
    assert main([*words, *several, "sample", "--batch-size", "2", "--out", str(tmp_path / "other")]) == 0
    reported = [
        [[one["report"] for one in record["answers"]] for record in reports(tmp_path / n)] for n in ("sample", "other")
    ]
    assert reported[0] == reported[1]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--decoding.strategy", "beem"], "Did you mean 'beam'"),
        (["--decoding.max-new-tokens", "9999"], "do not fit the 512 positions"),
        (["--controls", "nois"], "Did you mean 'noise'"),
    ],
)
def test_what_cannot_work_is_stated_before_a_folder_is_made(
    corpus: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    words = ["generate", "--model", f"hf:{checkpoint}", "--data", str(corpus), "--split", "train", "--batch-size", "2"]
    assert main([*words, *flags, "--out", str(tmp_path / "run")]) == 1
    assert said in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_score_prints_whether_the_image_matters(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["generate", "--model", "stub:normal", "--data", str(corpus), "--split", "train", "--out"]
    assert main([*words, str(tmp_path / "run"), "--quiet"]) == 0
    assert main([*words, str(tmp_path / "without"), "--control-studies", "0", "--quiet"]) == 0
    capsys.readouterr()
    asked = ["score", "--references", str(corpus), "--metrics", "findings.f1", "--quiet", "--predictions"]
    assert main([*asked, str(tmp_path / "run")]) == 0
    reported = capsys.readouterr().out
    assert "This model does not use the image" in reported and "swapped  0.000" in reported and "100 %" in reported
    assert main([*asked, str(tmp_path / "without")]) == 0
    assert "Image dependence not tested" in capsys.readouterr().out

"""`cxrlab explain` and `cxrlab pointing`, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
from tiny_families import save_tiny

from cxrlab.cli.main import main
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf:{save_tiny('llava', tmp_path_factory.mktemp('model'))}"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_phantom(PhantomConfig(n=8, size=48, seed=2, workers=1), tmp_path_factory.mktemp("corpora") / "c").path


def test_explain_lists_the_pictures(
    model: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = next((corpus / "images").iterdir())
    words = ["explain", "--model", model, "--image", str(image), "--report", "Small effusion.", "--word", "effusion"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert str(tmp_path / "run" / "explain" / "effusion.png") in shown and "1 word explained" in shown
    assert main([*words, "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["words"][0]["word"] == "effusion"


def test_a_missing_word_is_one_sentence(
    model: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = next((corpus / "images").iterdir())
    words = ["explain", "--model", model, "--image", str(image), "--report", "Small effusion.", "--word", "nodule"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_pointing_prints_a_table_with_chance_beside(
    model: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pointing", "--model", model, "--data", str(corpus), "--split", "train", "--report", "reference"]
    assert main([*words, "--maps", "max-mean,gradient", "--trials", "20", "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split()[:2] == ["map", "hits"] and [line.split()[0] for line in shown[1:3]] == [
        "max-mean",
        "gradient",
    ]
    assert "of the image) that the reference report states" in shown[3]

"""`cxrlab harden` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import toy_corpus
from tiny_models import save_tiny_llava

from cxrlab.cli.main import main


def test_from_a_model_to_a_table_and_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Flags reach their settings, the table has the numbers of harden.json, and --json has both files."""
    corpus, model = toy_corpus(tmp_path / "corpus", 9).path, save_tiny_llava(tmp_path / "tiny")
    words = ["harden", "--model", f"hf:{model}", "--data", str(corpus), "--out", str(tmp_path / "run"), "--quiet"]
    words += ["--eps", "8/255", "--steps", "2", "--batch-size", "2", "--attack-steps", "1", "--measure-steps", "2"]
    words += ["--loading.device", "cpu"]
    assert main(words) == 0
    out = capsys.readouterr().out
    first = out.splitlines()[0]
    assert "2 steps on 3 images" in first and "8/255" in first and str(tmp_path / "run/checkpoint") in first
    found = json.loads((tmp_path / "run" / "harden.json").read_text())
    after = found["measured"]["attacked"]["after"]
    row = next(line.split() for line in out.splitlines() if line.startswith("attacked, after"))
    assert row[2:] == [f"{after['distance']:.4g}", f"{after['share']:.3f}", f"{after['cosine']:.3f}"]
    assert f"{found['measured']['n']} images of the val split; PGD with 2 steps at 8/255" in out
    assert main([*words, "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["harden"] == found and reported["training"]["steps"] == 2
    assert (tmp_path / "run" / "checkpoint" / "config.json").is_file()


def test_a_radius_in_grey_levels_is_a_mistake_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["harden", "--model", "builtin:reporter", "--data", str(tmp_path), "--out", str(tmp_path / "run")]
    assert main([*words, "--eps", "4"]) == 1
    assert "Did you mean 4/255?" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

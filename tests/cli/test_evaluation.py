from __future__ import annotations

import json
from pathlib import Path

import pytest

from cxrlab.cli.main import main
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.phantom.corpus import make_phantom


def test_generate_tells_how_many_reports_and_how_many_films_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = make_phantom(PhantomConfig(n=20, size=32, masks=False, workers=1), tmp_path / "corpus").path
    ids = load_corpus(corpus).ids("train")
    (corpus / load_corpus(corpus)[ids[0]].images[0].path).unlink()
    words = ["generate", "--model", "stub:normal", "--data", str(corpus), "--split", "train"]
    words += ["--out", str(tmp_path / "run")]
    assert main(words) == 1
    assert f"1 of {len(ids)} studies have no readable frontal film" in capsys.readouterr().err
    assert main([*words, "--allow-missing"]) == 0
    file = tmp_path / "run" / "predictions.jsonl"
    assert capsys.readouterr().out == f"{len(ids) - 1} reports in {file}; without a readable frontal film: 1\n"


def test_models_ls_lists_names_that_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "ls", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert {"stub:normal", "stub:empty", "retrieval:CORPUS"} <= set(names)

"""`cxrlab robustness` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import toy_corpus

from cxrlab.cli.main import main

HEALTHY: dict[str, object] = {"findings": (), "labels": {"Pleural Effusion": 0}, "masks": {}}


def words(tmp_path: Path, *more: str) -> list[str]:
    corpus = tmp_path / "corpus"
    if not corpus.exists():
        toy_corpus(corpus, 12, {2: HEALTHY, 8: HEALTHY})
    given = ["robustness", "--model", "stub:normal", "--data", str(corpus), "--out", str(tmp_path / "run"), "--quiet"]
    return [*given, "--trials", "20", "--attack.queries", "3", *more]


def test_a_model_of_words_alone_from_images_to_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reported = words(
        tmp_path, "--attacks", "pgd,random-report,noise", "--eps", "2/255", "--only-labels", "pleural effusion"
    )
    assert main(reported) == 0
    out = capsys.readouterr().out
    assert "stub:normal provides no gradients, so that pgd is left out" in out
    assert "does not use the image" in out or "not shown to use the image" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    # Two of four studies have an effusion that a constant report denies; it never changes.
    found = json.loads((tmp_path / "run" / "robustness.json").read_text())
    assert rows["clean"][-1] == "–" and rows["random-report@2/255"][-3] == rows["noise@2/255"][-3] == "0.000"
    assert found["models"]["stub:normal"]["attacks"]["noise@2/255"]["flip_rate"]["value"] == 0
    assert set(found["models"]["stub:normal"]["attacks"]) == {"random-report@2/255", "noise@2/255"}
    assert main([*reported, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--eps", "8"], "Did you mean 8/255?"),
        (["--versus", "smoothed:much:stub:normal"], "'much'"),
        (["--versus", "smoothed:0.1:stub:normal"], "answers no closed questions"),
        (["--attacks", "pgd"], "random-report or noise"),
        (["--smoothing.copies", "5"], "use copies >= 11"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    assert main(words(tmp_path, *more)) == 1
    reported = capsys.readouterr().err
    assert message in reported and "Traceback" not in reported
    assert not (tmp_path / "run").exists()

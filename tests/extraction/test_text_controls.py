from __future__ import annotations

import json
from pathlib import Path

import pytest
from prediction_runs import CHANGED, CLEAR, EFFUSION, effusions, prediction_run

from cxrlab.core.errors import ConfigError
from cxrlab.core.randomness import generator
from cxrlab.evaluation.config import MetricResources
from cxrlab.extraction.config import FidelityConfig
from cxrlab.extraction.control_texts import CONTROLS, SENTENCES, WORDS, measure_controls, reached, review

FEW = FidelityConfig(metrics=("findings.f1", "rougeL:coco"), swaps=100)
MICRO, EXACT = "chexpert14.micro.f1:uncertain-positive", "chexpert5.exact.accuracy:uncertain-positive"


def texts(folder: Path) -> list[str]:
    return [json.loads(line)["report"] for line in (folder / "predictions.jsonl").read_text().splitlines()]


def test_controls_beside_the_models_worked_out_by_hand(tmp_path: Path) -> None:
    """Six studies, four with an effusion and two normal; of six texts "the …" the reader says No Finding of each."""
    corpus = effusions(tmp_path / "corpus", 6, normal=(4, 5))
    victim = prediction_run(tmp_path / "victim", [EFFUSION] * 4 + [CLEAR] * 2)
    poor = prediction_run(tmp_path / "poor", [CHANGED] * 6)
    found = measure_controls({"victim": victim, "poor": poor}, corpus, tmp_path / "out", FEW)
    assert texts(tmp_path / "out" / "the") == ["the the the the the the the"] * 4 + ["the the the the"] * 2
    assert texts(tmp_path / "out" / "empty") == [""] * 6
    assert len(set(texts(tmp_path / "out" / "reviews"))) == 6
    assert list(found["values"]) == ["victim", "poor", "the", "empty", "reviews"] and found["n"] == 6
    value = {name: {metric: cell["value"] for metric, cell in row.items()} for name, row in found["values"].items()}
    assert value["victim"][MICRO] == value["victim"][EXACT] == 1
    # "the": 2 of 6 claims of No Finding are right and 4 effusions are missed: 2·2 / (2·2 + 4 + 4).
    assert value["the"][MICRO] == pytest.approx(1 / 3) and value["the"][EXACT] == pytest.approx(2 / 6)
    # Nothing said, nothing claimed; and none of the five labels of the competition is right but on the two normal ones.
    assert value["empty"][MICRO] == 0 and value["empty"][EXACT] == pytest.approx(2 / 6)
    label = found["observations"]["chexpert"]["the"]["No Finding"]
    assert (label["value"], label["support"], label["claimed"]) == (pytest.approx(4 / 8), 2, 6)
    # The poor model says a pneumothorax everywhere: under both label scores nonsense does as well or better.
    assert found["reached"][MICRO]["poor"][:2] == ["the", "empty"] and "victim" not in found["reached"][MICRO]
    assert "poor" in found["reached"][EXACT]
    assert "the" in found["reached_observations"]["chexpert"]["No Finding"]["poor"]
    assert "findings.f1" not in {m for m, rows in found["reached"].items() if "victim" in rows}


def test_reached_heeds_the_direction_and_passes_over_what_is_unknown() -> None:
    def row(up: float, down: float) -> dict[str, dict[str, object]]:
        return {"up": {"value": up, "direction": "higher"}, "down": {"value": down, "direction": "lower"}}

    found = {"model": row(0.5, 2.0), "the": row(0.6, 3.0), "empty": row(float("nan"), 2.0)}
    assert reached(found, ["model"]) == {"up": {"model": ["the"]}, "down": {"model": ["empty"]}}
    assert reached({"model": row(float("nan"), 0.0), "the": row(1.0, 1.0)}, ["model"]) == {}


def test_reviews_are_whole_sentences_that_the_seed_decides() -> None:
    one = review("", generator(7, "a"))
    assert one == review("whatever it says", generator(7, "a")) != review("", generator(7, "b"))
    assert 4 <= one.count(". ") + 1 <= 10 and "{" not in one
    slots = {part.split("}")[0] for sentence in SENTENCES for part in sentence.split("{")[1:]}
    assert slots == set(WORDS)


def test_a_run_must_not_be_called_like_a_control(tmp_path: Path) -> None:
    for name in CONTROLS:
        with pytest.raises(ConfigError, match="is the name of a control"):
            measure_controls({name: tmp_path}, tmp_path, tmp_path / "out", FEW)


def test_a_file_of_graphs_is_left_out_and_said_so(tmp_path: Path) -> None:
    """It holds graphs of the texts that somebody had, and no control is among them."""
    corpus, victim = effusions(tmp_path / "corpus", 2), prediction_run(tmp_path / "victim", [EFFUSION, CLEAR])
    settings = FidelityConfig(metrics=("findings.f1",), extras=MetricResources(graphs=tmp_path / "graphs.json"))
    found = measure_controls({"victim": victim}, corpus, tmp_path / "out", settings)
    assert "control" in found["left_out"]["radgraph.simple"]

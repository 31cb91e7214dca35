"""The content of robustness.json, from a handful of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_evidence import AIR, NORMAL, evidence, image, lines, trace, truth

from cxrlab.core.jsonl import JsonlAppender
from cxrlab.robustness.audit import conclude
from cxrlab.robustness.audit_metrics import read_evidence

STUDIES = [truth("s1", NORMAL, e=0), truth("s2", NORMAL, e=1), truth("s3", NORMAL, e=1)]
PGD = "pgd@2/255"
CLEAN = {"s1": image(NORMAL, e=0.1), "s2": image(NORMAL, e=0.9), "s3": image(NORMAL, e=0.9)}
TURNED = {**CLEAN, "s1": image(AIR, e=0.8)}
ROUNDED = image(AIR, e=0.5)


def two_models() -> list[Any]:
    """Model a is attacked, corrupted and shown rounded images; b is as a, but unharmed."""
    return [
        lines("a", "clean", CLEAN),
        lines("a", PGD, TURNED, attack=trace(0.004), uint8=ROUNDED),
        lines("a", "blur@3", CLEAN),
        lines("b", "clean", CLEAN),
        lines("b", PGD, CLEAN, attack=trace(0.004)),
        lines("b", PGD, TURNED, crafted_on="a"),
    ]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return conclude(evidence(STUDIES, *two_models()), {"a": "hf:one", "b": "hf:two"}, trials=50)


def test_a_condition_holds_values_differences_and_what_the_attack_was(found: dict[str, Any]) -> None:
    row = found["models"]["hf:one"]["attacks"][PGD]
    assert row["closed_questions.accuracy"]["value"] == pytest.approx(2 / 3)
    assert row["closed_questions.accuracy"]["difference"]["value"] == pytest.approx(-1 / 3)
    assert row["flip_rate"]["value"] == pytest.approx(1 / 3)
    assert row["flip_rate"]["n"] == 3
    assert row["confidence"] == row["closed_questions.confidence"]
    assert row["realised"]["linf"] == {"mean": pytest.approx(0.004), "max": 0.004}
    assert (row["passes"], row["broken"], row["zero_gradients"]) == (20, 1, 0)


def test_rounded_images_are_distinguished(found: dict[str, Any]) -> None:
    """Rounded, all three reports speak of air, and 0.5 is no yes: one of three answers is right, two fewer."""
    row = found["models"]["hf:one"]["attacks"][PGD]["uint8"]
    assert row["flip_rate"]["value"] == 1
    assert row["closed_questions.accuracy"]["value"] == pytest.approx(1 / 3)
    assert row["closed_questions.accuracy"]["difference"]["value"] == pytest.approx(-2 / 3)
    assert "clean_uint8" not in found["models"]["hf:one"]


def test_rounded_images_are_held_against_rounded_clean_images_where_there_are_any() -> None:
    """The clean images already speak of air once rounded, so that nothing is flipped there."""
    clean = lines("a", "clean", CLEAN, uint8=ROUNDED)
    said = evidence(STUDIES, clean, lines("a", PGD, TURNED, uint8=ROUNDED))
    model = conclude(said, trials=50)["models"]["a"]
    assert model["attacks"][PGD]["uint8"]["flip_rate"]["value"] == 0
    assert model["attacks"][PGD]["uint8"]["closed_questions.accuracy"]["difference"]["value"] == 0
    assert model["clean_uint8"]["closed_questions.accuracy"]["value"] == pytest.approx(1 / 3)


def test_every_part_of_the_contract_is_there(found: dict[str, Any]) -> None:
    model = found["models"]["hf:one"]
    assert model["key"] == "a"
    assert set(model["attacks"]) == {PGD}
    assert set(model["corruptions"]) == {"blur@3"}
    assert set(model["worst"]) == {"2/255"}
    assert set(model["labels"]) == {PGD, "blur@3", "worst@2/255"}
    assert model["smallest_eps"]["report"]["harmed"]["2/255"]["value"] == pytest.approx(1 / 3)
    assert model["smallest_eps"]["closed_questions"]["median"] is None
    assert [point[0] for point in model["curves"]["closed_questions.accuracy"]["pgd"]] == [0, pytest.approx(2 / 255)]
    assert set(found["comparison"]) == {"a:b"}
    pair = found["comparison"]["a:b"]
    assert pair["names"] == {"a": "hf:one", "b": "hf:two"}
    assert pair["equal_clean"] is False, "three studies alike do not show it"
    assert pair["transfer"][PGD]["a_to_b"]["flip_rate"]["value"] == pytest.approx(1 / 3)
    assert pair["conditions"][PGD]["errors.significant"]["difference"] == pytest.approx(-1 / 3)
    assert found["controls"] == {}
    assert found["warnings"] == ["There are few patients (3); intervals from fewer than 30 are rough."]


def test_nothing_is_written_that_json_cannot_hold(found: dict[str, Any]) -> None:
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_folder_says_the_same_as_its_lines(found: dict[str, Any], tmp_path: Path) -> None:
    for name, records in (
        ("truth.jsonl", STUDIES),
        ("answers.jsonl", [one for several in two_models() for one in several]),
    ):
        with JsonlAppender(tmp_path / name) as file:
            for record in records:
                file.append(record)
    assert conclude(read_evidence(tmp_path), {"a": "hf:one", "b": "hf:two"}, trials=50) == found


def test_an_encoder_alone_has_answers_and_no_reports() -> None:
    asked = {study: image(e=0.9) for study in CLEAN}
    found = conclude(evidence(STUDIES, lines("a", "clean", asked), lines("a", PGD, asked)), trials=50)
    row = found["models"]["a"]["attacks"][PGD]
    assert row["findings.f1"] == {"value": None, "low": None, "high": None, "n": 0} | {
        "difference": {"value": None, "low": None, "high": None}
    }
    assert row["closed_questions.accuracy"]["n"] == 3
    assert found["comparison"] == {}


def test_a_black_box_has_reports_and_the_confidence_of_reports() -> None:
    answers = {study: image(NORMAL, mean_logprob=0.0) for study in CLEAN}
    found = conclude(evidence(STUDIES, lines("a", "clean", answers), lines("a", "square@0.01", answers)), trials=50)
    row = found["models"]["a"]["attacks"]["square@0.01"]
    assert row["closed_questions.accuracy"]["value"] is None
    assert row["confidence"] == row["report.confidence"]
    assert row["confidence"]["value"] == 1
    assert "realised" not in row


def test_two_models_of_one_name_are_distinguished() -> None:
    said = evidence(STUDIES, lines("a", "clean", CLEAN), lines("b", "clean", CLEAN))
    assert set(conclude(said, {"a": "hf:one", "b": "hf:one"}, trials=50)["models"]) == {"hf:one (a)", "hf:one (b)"}


def test_the_same_seed_gives_the_same_numbers() -> None:
    said = evidence(STUDIES, *two_models())
    first, again, other = (conclude(said, trials=50, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other

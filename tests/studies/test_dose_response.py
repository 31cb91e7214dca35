"""Changes of drops over seeds and patients, the bound of equivalence, and what positive controls say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_evidence import image, lines, trace, truth

from cxrlab.core.errors import ConfigError
from cxrlab.studies.dose_response import EquivalenceSettings, dose_response

ATTACK = "pgd@2/255"
ACCURACY = EquivalenceSettings(margin=0.1, metrics=("closed_questions.accuracy",))
KEYS = {"tuned": "b", "hardened": "c"}


def write_audit(folder: Path, flipped: dict[str, float], seed: int, studies: int = 60) -> Path:
    """An audit in which each model has this share of its answers turned wrong by the attack, studies drawn by chance."""
    folder.mkdir(parents=True)
    names = [f"s{number:02d}" for number in range(studies)]
    truths = [truth(name, e=number % 2) for number, name in enumerate(names)]
    rows = []
    for key, share in flipped.items():
        right = {name: image(e=0.9 if number % 2 else 0.1) for number, name in enumerate(names)}
        drawn = np.random.default_rng([seed, ord(key)]).random(studies) < share
        hit = {name: image(e=0.1 if number % 2 else 0.9) if drawn[number] else right[name]
               for number, name in enumerate(names)}  # fmt: skip
        rows += [
            *lines(key, "clean", right),
            *lines(key, ATTACK, hit, attack=trace()),
            *lines(key, "noise@2/255", right),
        ]
    (folder / "truth.jsonl").write_text("".join(json.dumps(one.to_json()) + "\n" for one in truths))
    (folder / "answers.jsonl").write_text("".join(json.dumps(one.to_json()) + "\n" for one in rows))
    return folder


def respond(
    tmp_path: Path, flipped: dict[str, float], seeds: int = 3, controls: tuple[str, ...] = ("hardened",)
) -> Any:
    audits = {seed: write_audit(tmp_path / f"seed{seed}", flipped, seed) for seed in range(1, seeds + 1)}
    drift = {"tuned": [0.1, 0.2, 0.3][:seeds]}
    return dose_response(audits, KEYS, controls, drift, ("answers",), ACCURACY)


def test_a_tuned_model_like_its_start_has_a_bound_and_the_control_an_effect(tmp_path: Path) -> None:
    found = respond(tmp_path, {"a": 0.5, "b": 0.5, "c": 0.05})
    tuned, control = found["rows"]
    assert tuned["condition"] == ATTACK  # noise is no attack
    assert tuned["drift"] == pytest.approx(0.2) and control["drift"] is None
    assert control["control"] and control["value"] > 0.3 and control["low_95"] > 0
    verdict = found["metrics"][0]
    assert verdict["sensitive"] is True and verdict["bound"] == tuned["smallest_margin"] > abs(tuned["value"])
    assert verdict["established"] is (tuned["smallest_margin"] < 0.1)
    assert f"less than {verdict['bound']:.3f}" in verdict["sentence"] and "'hardened'" in verdict["sentence"]


def test_a_tuned_model_that_is_weaker_is_not_equivalent(tmp_path: Path) -> None:
    found = respond(tmp_path, {"a": 0.1, "b": 0.9, "c": 0.1})
    assert found["rows"][0]["value"] == pytest.approx(-0.8, abs=0.15)
    assert found["metrics"][0]["established"] is False and found["metrics"][0]["bound"] > 0.6


def test_a_control_without_an_effect_makes_the_study_insensitive(tmp_path: Path) -> None:
    verdict = respond(tmp_path, {"a": 0.0, "b": 0.0, "c": 0.0})["metrics"][0]
    assert verdict["sensitive"] is False and "is no evidence" in verdict["sentence"]
    assert verdict["bound"] > 0  # where no patient differs the bound is not zero
    assert respond(tmp_path / "none", {"a": 0.0, "b": 0.0, "c": 0.0}, controls=())["metrics"][0]["sensitive"] is None


def test_one_start_gives_no_bound(tmp_path: Path) -> None:
    verdict = respond(tmp_path, {"a": 0.5, "b": 0.5, "c": 0.05}, seeds=1)["metrics"][0]
    assert verdict["bound"] is None or np.isnan(verdict["bound"])
    assert verdict["established"] is False and "no bound" in verdict["sentence"]


def test_a_quantity_whose_drop_is_not_tested_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'findings.f1'"):
        EquivalenceSettings(metrics=("findings.f2",))

"""Alignment on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run


def page(folder: Path, found: dict[str, Any]) -> str:
    with Run.open(folder / "run", {"start": "builtin:reporter"}, seed=7) as run:
        run.write("preference.json", found)
    return page_of(folder / "run")


def preference(**changed: Any) -> dict[str, Any]:
    value = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 9}
    gap = {"direction": "higher", "difference": 0.125, "low": 0.0625, "high": 0.25, "p": 0.01, "p_holm": 0.02}
    by_study = {"win": 31, "tie": 5, "lose": 4}
    moved = {"before": 40.0, "after": 55.0, "difference": 15.0, "low": 10.0, "high": 20.0, "p": 0.001}
    names = ("green:rules", "errors.omission_finding.significant", "<script>")
    return {
        "n": 40,
        "patients": 33,
        "before": dict.fromkeys(names, value),
        "after": dict.fromkeys(names, {**value, "value": 0.625}),
        "difference": {name: {**gap, "verdict": "better", "by_study": by_study} for name in names},
        "length": {"reference": 41.0, "words": moved, "mean_logprob": moved},
        "drift": {"kl_report": 1.25, "low": 1.0, "high": 1.5, "kl_token": 0.03125},
        "questions": {"n": 80, "accuracy": moved, "calibration_error": {"before": 0.1, "after": 0.2}},
        "retrieval": {"encoder": "builtin:encoder", "gallery": 40, "recall@5": {**moved, "after": 0.75}},
        "selection": {"select": "length-controlled", "judge": "green:rules", "step": 40, "of": 60, "score": 0.7},
        "watched": [
            {"step": step, "reward": 0.5 + step / 100, "reward_length_controlled": 0.5, "words": 40.0 + step}
            for step in (0, 20, 40)
        ],
        **changed,
    }


def test_gain_and_cost_stand_side_by_side(tmp_path: Path) -> None:
    shown = page(tmp_path, preference())
    for wanted in (
        "+0.125",
        "+0.062 to +0.250",
        "31 / 5 / 4",
        "better",
        "+15.000",
        "1.250 nats",
        "step 40 of 60",
        "recall@5",
    ):
        assert wanted in shown
    assert shown.index("errors by kind") < shown.index("omission_finding") and "<script>" not in shown


@pytest.mark.parametrize(("score", "reported"), [(0.7, False), (0.6, True), (0.5, True)])
def test_a_step_that_is_no_better_than_the_start_is_reported(tmp_path: Path, score: float, reported: bool) -> None:
    chosen = {**preference()["selection"], "score": score, "start_score": 0.6}
    shown = page(tmp_path, preference(selection=chosen))
    assert (f"No training step scored higher than the start on the validation images: {score:.3f}" in shown) is reported


def test_reward_is_drawn_against_length(tmp_path: Path) -> None:
    shown = page(tmp_path, preference())
    assert shown.count("</title></circle>") == shown.count("</title></polygon>") == 3
    assert shown.count("<polyline") == 2 and "plain judgement, step 20: 0.700" in shown and "words per report" in shown


@pytest.mark.parametrize("watched", [[], [{"step": 0, "reward": 0.5, "words": 40.0}]])
def test_nothing_is_drawn_of_fewer_than_two_steps(tmp_path: Path, watched: list[dict[str, float]]) -> None:
    assert "<svg" not in page(tmp_path, preference(watched=watched))


def test_steps_that_are_all_alike_are_drawn_too(tmp_path: Path) -> None:
    same = [{"step": step, "reward": 0.0, "reward_length_controlled": 0.0, "words": 0.0} for step in (0, 1)]
    assert page(tmp_path, preference(watched=same)).count("</title></circle>") == 2


def test_a_run_without_questions_and_drift_is_shown(tmp_path: Path) -> None:
    shown = page(tmp_path, preference(questions=None, drift=None))
    assert "closed questions" not in shown and "nats" not in shown and "words per report" in shown


def test_a_word_for_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="preference.json: 'n' is 'many'; it must be a number"):
        page(tmp_path, preference(n="many"))

"""Trainings on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run
from cxrlab.render.run_folder import read_run
from cxrlab.render.training import trainings


def trained(folder: Path, lines: list[dict[str, Any]], summary: dict[str, Any] | None = None) -> Path:
    with Run.open(folder / "run", {"start": "builtin:reporter"}, seed=7) as run:
        for line in lines:
            run.append("history.jsonl", line)
        if summary is not None:
            run.write("summary.json", summary)
    return folder / "run"


def losses(steps: int) -> list[dict[str, Any]]:
    return [{"step": step, "loss": 10.0 - step / 100, "learning_rate": 1e-3} for step in range(1, steps + 1)]


def validated(steps: dict[int, float]) -> list[dict[str, Any]]:
    return [{"step": step, "evaluation": {"loss": loss}} for step, loss in steps.items()]


def test_both_losses_are_drawn_and_the_best_step_is_marked(tmp_path: Path) -> None:
    run = trained(tmp_path, losses(4) + validated({2: 9.5, 4: 9.75}), {"stage": "align", "steps": 4})
    shown = page_of(run)
    for wanted in ("training loss, step 3: 9.970", "validation loss, step 4: 9.750", "best step: 2, step 2: 9.500"):
        assert wanted in shown
    assert shown.count("<dt>stage</dt>") == 1  # the summary is not listed once more among other runs


def test_a_long_history_is_drawn_in_forty_points_with_the_best_step_among_them(tmp_path: Path) -> None:
    """400 steps in groups of ten: the first point is the mean over steps 1 to 10, which is 9.945."""
    valleys = {step: 5.0 + abs(step - 137) for step in range(1, 401)}
    (found,) = trainings([read_run(trained(tmp_path, losses(400) + validated(valleys)))])
    assert found.curve is not None
    titles = [shape.title for shape in found.curve.shapes[0].inside if shape.title]
    assert len([title for title in titles if title.startswith("training loss")]) == 40
    assert "training loss, step 10: 9.945" in titles
    assert len([title for title in titles if title.startswith("validation loss")]) in (40, 41)
    assert {"validation loss, step 137: 5.000", "best step: 137, step 137: 5.000"} <= set(titles)


def test_a_history_of_one_line_or_without_losses_has_no_curve(tmp_path: Path) -> None:
    for name, lines in (("one", losses(1)), ("rewards", [{"step": 2, "evaluation": {"reward": 0.5}}])):
        (found,) = trainings([read_run(trained(tmp_path / name, lines))])
        assert found.curve is None


def test_a_loss_that_is_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'loss' is 'low'"):
        read_run(trained(tmp_path, [{"step": 1, "loss": "low"}]))

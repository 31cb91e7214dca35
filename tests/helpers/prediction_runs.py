"""Finished runs with hand-written reports, and their corpus of effusions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from corpora import toy_corpus

from cxrlab.core.records import Prediction, Report
from cxrlab.core.runs import Run

EFFUSION = "There is a small left pleural effusion."
CLEAR = "The lungs are clear."
CHANGED = "There is a large right pneumothorax."


def effusions(path: Path, count: int, normal: Sequence[int] = (), images_a_patient: int = 1) -> Path:
    """A corpus of test studies s0, s1, …: a small left effusion in each but the normal ones."""
    healthy = {"findings": (), "masks": {}, "labels": {}, "sections": Report(findings=CLEAR)}
    changes: dict[int, dict[str, object]] = {
        k: {"split": "test", "patient": f"p{k // images_a_patient}"} | (healthy if k in normal else {})
        for k in range(count)
    }
    return toy_corpus(path, count, changes).path


def prediction_run(folder: Path, reports: Sequence[str]) -> Path:
    """A finished run with these reports of s0, s1, …"""
    with Run.open(folder, {"made": "for a test"}) as run:
        for number, text in enumerate(reports):
            run.append("predictions.jsonl", Prediction(f"s{number}", text))
        run.write("summary.json", {"missing": []})
    return folder

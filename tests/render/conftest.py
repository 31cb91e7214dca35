"""Run folders as other rooms write them, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import EXAMPLES, Example, Prediction
from cxrlab.core.runs import Run

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A function (name, model, reports by study, summary, examples) → a finished run folder."""

    def make(
        name: str,
        model: str = "stub:normal",
        reports: dict[str, str] | None = None,
        summary: dict[str, Any] | None = None,
        examples: tuple[Example, ...] = (),
        steps: tuple[dict[str, Any], ...] = (),
        sheet: bytes | None = None,
    ) -> Path:
        with Run.open(tmp_path / name, {"model": model, "split": "test"}, seed=7) as run:
            for key, report in (reports or {}).items():
                run.append("predictions.jsonl", Prediction(key, report, extra={"neighbour": "s9"}))
            for number, example in enumerate(examples):
                run.write(example.thumb, encode_png(np.full((4, 4), 40 * number, np.uint8)))
                run.append(EXAMPLES, example)
            for step in steps:
                run.append("steps.jsonl", step)
            if summary is not None:
                run.write("summary.json", summary)
            if sheet is not None:
                run.write("sheet.png", sheet)
        return tmp_path / name

    return make

"""Studies that an importer reads from a fixture, and the expected ones written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus_writer import Dropped
from cxrlab.data.importing import IMPORTERS, ImportPlan


def study_lines(name: str, root: Path, **settings: Any) -> list[dict[str, Any]]:
    """Every study with its remarks, or the reason for leaving it out, in the form of `expected.jsonl`."""
    plan: ImportPlan[object] = IMPORTERS.load(name)(ImportConfig(root, **settings))
    items = list(plan.items)
    answers = [plan.read(item) for item in items]
    assert len(answers) == plan.total
    lines: list[dict[str, Any]] = []
    for item, one in zip(items, answers, strict=True):
        if isinstance(one, Dropped):
            assert one.id == plan.study_id(item)
            lines.append({"dropped": one.id, "reason": one.reason})
        else:
            assert one.study.id == plan.study_id(item)
            lines.append({"study": one.study.to_json(), "remarks": list(one.remarks)})
    return lines


def expected(fixture: Path) -> list[dict[str, Any]]:
    """The expected studies, derived by hand from the fixture."""
    return [json.loads(line) for line in (fixture / "expected.jsonl").read_text().splitlines()]

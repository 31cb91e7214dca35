"""Means of the pointing game."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json, write_json
from cxrlab.evaluation.config import PointingConfig
from cxrlab.evaluation.pointing import PointingTable, summarise
from cxrlab.evaluation.saliency_maps import parse_map

NAMES = [parse_map("max-mean")]
CONFIG = PointingConfig("hf:x", Path("c"), trials=200)


def line(patient: str, *hits: float, kind: str = "nodule", area: float = 0.02) -> dict[str, Any]:
    reported = [
        {
            "observation": kind,
            "side": None,
            "maps": {"max-mean": {"hit": hit, "chance": 0.1, "mass": 0.3, "area": area}},
        }
        for hit in hits
    ]
    return {"id": patient, "patient": patient, "present": len(hits) + 1, "reported": reported}


def test_means_are_over_findings_and_intervals_over_patients() -> None:
    """3 of 4 findings are hit, but all hits are one patient's: a resample has 0, 1 or both of them, so 0 to 1."""
    table = summarise([line("a", 1, 1, 1), line("b", 0)], NAMES, CONFIG)
    hit = table.maps["max-mean"].localised["hit"]
    assert (hit.value, hit.low, hit.high, hit.n) == (0.75, 0.0, 1.0, 4)
    assert (table.studies, table.present, table.reported) == (2, 6, 4)
    assert table.maps["max-mean"].localised["mass"].value == pytest.approx(0.3)


def test_large_masks_and_kinds_are_kept_apart() -> None:
    lines = [line("a", 1), line("b", 0, kind="edema", area=0.4), line("c", 0, kind="edema", area=0.05)]
    row = summarise(lines, NAMES, CONFIG).maps["max-mean"]
    assert (row.localised["hit"].value, row.localised["hit"].n) == (0.5, 2)
    assert row.all["hit"].value == pytest.approx(1 / 3)
    assert {kind: figure.n for kind, figure in row.by_observation.items()} == {"edema": 2, "nodule": 1}


def test_one_patient_has_no_interval_and_it_survives_the_file(tmp_path: Path) -> None:
    table = summarise([line("a", 1)], NAMES, CONFIG)
    assert np.isnan(table.maps["max-mean"].all["hit"].low)
    write_json(tmp_path / "t.json", table)
    again = PointingTable.from_json(read_json(tmp_path / "t.json"))
    assert np.isnan(again.maps["max-mean"].all["hit"].low) and again.maps["max-mean"].all["hit"].value == 1.0
    assert again.reported == 1


def test_nothing_told_is_said() -> None:
    with pytest.raises(DataError, match="none of the 1 findings with a mask on 1 images"):
        summarise([line("a")], NAMES, CONFIG)

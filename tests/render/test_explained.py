"""Overlays and the pointing game on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import encode_png
from cxrlab.core.runs import Run


def page(folder: Path, name: str, found: dict[str, Any]) -> str:
    with Run.open(folder / "run", {"model": "hf:x"}, seed=7) as run:
        run.write("explain/left.png", encode_png(np.zeros((4, 4), np.uint8)))
        run.write(name, found)
    return page_of(folder / "run")


def explained(count: int = 1, picture: str = "explain/left.png") -> dict[str, Any]:
    word = {"word": "<left>", "spans": [[0, 4]], "image_share": [0.25], "log_probability": [], "picture": picture}
    return {"image": "s1", "report": "A & B", "written_by": "model", "maps": ["max-mean"], "words": [word] * count}


def test_words_stand_with_their_pictures_and_cannot_become_markup(tmp_path: Path) -> None:
    shown = page(tmp_path, "explain.json", explained())
    assert (
        "Where the model looked" in shown
        and "&lt;left&gt;; attention on the image: 25%" in shown
        and "A &amp; B" in shown
    )
    assert shown.count("data:image/png") == 1 and "<left>" not in shown


def test_a_long_report_shows_its_first_words(tmp_path: Path) -> None:
    shown = page(tmp_path, "explain.json", explained(15))
    assert shown.count("data:image/png") == 12 and "3 more words in the run folder" in shown


def test_a_picture_outside_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="explain.json names the file"):
        page(tmp_path, "explain.json", explained(picture="../../secret.png"))


def test_the_table_gives_hits_beside_chance(tmp_path: Path) -> None:
    def figure(value: float | None) -> dict[str, Any]:
        return {"value": value, "low": value, "high": value, "n": 9}

    good = {"hit": figure(0.75), "chance": figure(0.125), "mass": figure(0.5), "area": figure(0.03)}
    none = {key: figure(None) for key in good}
    maps = {"max-mean": {"localised": good}, "gradient": {"localised": none}}
    shown = page(tmp_path, "pointing.json", {"model": "hf:x", "report": "generated", "reported": 9, "maps": maps})
    assert "0.750 to 0.750" in shown and "width:75.0%" in shown and "0.125" in shown and "gradient" in shown


def test_a_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'maps.max-mean.localised.hit.value' is 'high'"):
        page(tmp_path, "pointing.json", {"maps": {"max-mean": {"localised": {"hit": {"value": "high"}}}}})

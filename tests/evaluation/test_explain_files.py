"""Files of an explanation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cxrlab.core.image_codec import decode
from cxrlab.core.runs import Run
from cxrlab.evaluation.explain import WordWriter
from cxrlab.evaluation.saliency_maps import PartMaps, parse_map
from cxrlab.models.hf.families import Grid


def maps(value: float, height: int = 30, width: int = 20) -> PartMaps:
    values = {"layer:1": np.full((2, 2), value, np.float32), "gradient": np.full((height, width), value, np.float32)}
    return PartMaps(values, Grid(2, 2, 0.0, 0.0, height, width), image_share=value, log_probability=-value)


def test_arrays_keep_the_numbers_of_each_occurrence(tmp_path: Path) -> None:
    names = [parse_map("layer:1"), parse_map("gradient")]
    with Run.open(tmp_path / "run", {}) as run:
        writer = WordWriter(run, np.zeros((30, 20), np.float32), names, 0.5)
        writer.write("left", [(4, 8), (0, 4)], [maps(0.25), maps(0.5)])
        (word,) = writer.words
        assert writer.overview()
    stored = np.load(tmp_path / "run" / word.arrays["gradient"])
    assert stored.dtype == np.float32 and stored[:, 0, 0].tolist() == [0.25, 0.5] and stored.shape == (2, 30, 20)
    assert (word.image_share, word.log_probability) == ((0.25, 0.5), (-0.25, -0.5))


@pytest.mark.parametrize("word", ["../../etc/passwd", "a/b", "…", "x" * 300, "..", "cœur"])
def test_a_word_cannot_lead_out_of_the_folder(word: str, tmp_path: Path) -> None:
    """A file name keeps letters and digits alone, and few of them."""
    with Run.open(tmp_path / "run", {}) as run:
        writer = WordWriter(run, np.zeros((30, 20), np.float32), [parse_map("gradient")], 0.5)
        for _ in range(2):
            writer.write(word, [(0, 1)], [maps(0.5)])
    names = {path.name for path in (tmp_path / "run" / "explain").iterdir()}
    assert len(names) == 4 and max(map(len, names)) < 70
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_the_overview_of_a_large_image_is_small(tmp_path: Path) -> None:
    """Six panels of 200 pixels a row, however large the image."""
    with Run.open(tmp_path / "run", {}) as run:
        writer = WordWriter(run, np.zeros((1200, 900), np.float32), [parse_map("gradient")], 0.5)
        writer.write("left", [(0, 4)], [maps(0.5, 1200, 900)])
        writer.overview()
    assert decode((tmp_path / "run" / "words.png").read_bytes(), "words").shape[0] < 300


def test_a_large_picture_keeps_its_colours_in_the_overview(tmp_path: Path) -> None:
    red = np.zeros((300, 400, 3), np.float32)
    red[..., 0] = 1.0
    with Run.open(tmp_path / "run", {}) as run:
        writer = WordWriter(run, red, [parse_map("gradient")], 0.5)
        writer.write("left", [(0, 4)], [maps(0.0, 300, 400)])
        writer.overview()
    page = decode((tmp_path / "run" / "words.png").read_bytes(), "words")
    assert ((page == (255, 0, 0)).all(axis=2)).sum() == 200 * 150

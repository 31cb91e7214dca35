"""Which part of an image each image token stands for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf import families
from cxrlab.models.hf.families import Grid, token_grid


def config(family: str = "llava", **values: Any) -> SimpleNamespace:
    vision = SimpleNamespace(patch_size=16, spatial_merge_size=2)
    return SimpleNamespace(model_type=family, vision_config=vision, **values)


def processor(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{"size": {"height": 32, "width": 32}, "do_resize": True, "do_center_crop": False, **values}
    )


def pixels(side: int = 32, tiles: int = 1) -> dict[str, Any]:
    return {"pixel_values": torch.zeros(tiles, 3, side, side)}


def test_a_squeezed_image_is_seen_whole() -> None:
    """32 pixels in patches of 16 are 2 x 2 cells, whatever the shape of the image."""
    grid, before = token_grid(config(), processor(), pixels(), 4, 60, 80)
    assert (grid, before) == (Grid(2, 2, 0.0, 0.0, 60.0, 80.0), 0)
    assert grid.half_cell == 20.0


def test_a_centre_crop_leaves_the_sides_out() -> None:
    """60 x 80 with the short side to 32 is 32 x 42.7; the middle 32 x 32 are the image's columns 10 to 70."""
    crop = processor(size={"shortest_edge": 32}, do_center_crop=True, crop_size={"height": 32, "width": 32})
    grid, _ = token_grid(config(), crop, pixels(), 4, 60, 80)
    assert grid == Grid(2, 2, 0.0, 10.0, 60.0, 60.0)
    down, across = grid.cells(60, 80)
    assert down.tolist() == [0] * 30 + [1] * 30
    assert across.tolist() == [-1] * 10 + [0] * 30 + [1] * 30 + [-1] * 10


def test_a_padded_square_sticks_out_of_the_image() -> None:
    """60 x 80 padded to 80 x 80: ten rows above and below belong to no image."""
    grid, _ = token_grid(config(), processor(do_pad=True), pixels(), 4, 60, 80)
    assert grid == Grid(2, 2, -10.0, 0.0, 80.0, 80.0)
    assert grid.cells(60, 80)[0].tolist() == [0] * 30 + [1] * 30


def test_without_resizing_the_crop_counts_in_pixels() -> None:
    plain = processor(do_resize=False, do_center_crop=True, crop_size={"height": 32, "width": 32})
    grid, _ = token_grid(config(), plain, pixels(), 4, 64, 64)
    assert grid == Grid(2, 2, 16.0, 16.0, 32.0, 32.0)


def test_a_class_token_that_was_kept_stands_before_the_grid() -> None:
    _, before = token_grid(config(vision_feature_select_strategy="full"), processor(), pixels(), 5, 32, 32)
    assert before == 1


def test_qwen_tells_its_grid_and_merges_patches() -> None:
    """4 x 6 patches merged two by two are 2 x 3 tokens."""
    given = {"image_grid_thw": torch.tensor([[1, 4, 6]])}
    grid, _ = token_grid(config("qwen2_5_vl"), None, given, 6, 40, 60)
    assert grid == Grid(2, 3, 0.0, 0.0, 40, 60)
    with pytest.raises(ConfigError, match="2 frames"):
        token_grid(config("qwen2_5_vl"), None, {"image_grid_thw": torch.tensor([[2, 4, 6]])}, 12, 40, 60)


def test_gemma_pools_into_a_square() -> None:
    grid, _ = token_grid(config("gemma3", mm_tokens_per_image=9), processor(), pixels(64), 9, 50, 50)
    assert (grid.rows, grid.columns) == (3, 3)


@pytest.mark.parametrize(
    ("family", "given", "tokens", "message"),
    [
        ("llava_next", pixels(tiles=1), 4, "several tiles"),
        ("idefics2", pixels(), 4, "summary tokens"),
        ("llava", pixels(tiles=3), 4, "3 tiles"),
        ("unheard_of", pixels(), 4, "does not declare which part"),
        ("llava", pixels(), 7, "7 image tokens.* 2 x 2"),
    ],
)
def test_what_is_no_grid_is_refused_with_the_remedy(family: str, given: Any, tokens: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        token_grid(config(family), processor(), given, tokens, 32, 32)
    assert "--maps gradient" in str(error.value)


def test_painting_keeps_the_middles_of_cells_and_blends_between() -> None:
    """Two cells of 4 pixels, 0 and 1: the middles lie at 2 and 6, so pixel centres 2.5 to 5.5 are 1/8 to 7/8."""
    grid = Grid(1, 2, 0.0, 0.0, 1.0, 8.0)
    row = grid.paint(np.array([[0.0, 1.0]], np.float32), 1, 8)[0]
    assert np.allclose(row, [0, 0, 1 / 8, 3 / 8, 5 / 8, 7 / 8, 1, 1])


def test_painting_leaves_what_the_model_does_not_see_cold() -> None:
    painted = Grid(1, 1, 0.0, 2.0, 4.0, 4.0).paint(np.ones((1, 1), np.float32), 4, 8)
    assert painted[:, 2:6].min() == 1.0 and painted[:, :2].max() == painted[:, 6:].max() == 0.0
    with pytest.raises(ValueError, match="does not fit"):
        Grid(1, 1, 0, 0, 4, 4).paint(np.ones((2, 1), np.float32), 4, 4)


def test_a_file_in_the_folder_is_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is touched: model type, pixel path and text form are found by the file alone."""
    (tmp_path / "new_family.py").write_text(
        "from cxrlab.models.hf.families import Family\n"
        "from cxrlab.models.hf.pixels import Plain\n"
        "class New(Family):\n"
        "    model_types = ('new_vl',)\n"
        "    pixel_paths = {'NewImageProcessor': Plain}\n"
        "    processors = ('NewProcessor',)\n"
        "    prompt_separator = ''\n"
    )
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    families.all_families.cache_clear()
    try:
        assert type(families.find_family("new_vl")).__name__ == "New"
        assert families.find_pixel_path("NewImageProcessor") is not None
        assert families.find_family_of_processor(type("NewProcessor", (), {})()).prompt_separator == ""
        assert families.find_family("llava").has_grid
    finally:
        families.all_families.cache_clear()
        sys.modules.pop("cxrlab.models.hf.families.new_family", None)

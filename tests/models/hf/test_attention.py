"""Attention of the positions that emit a report."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from tiny_families import save_tiny

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.prompting import report_ids
from cxrlab.models.hf.saliency import image_grid, report_attention
from cxrlab.models.load_settings import LoadSettings

REPORT = "Small left pleural effusion."


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return cache(lambda family: save_tiny(family, tmp_path_factory.mktemp(family)))


def opened(folder: Path, attention: Any = "eager") -> HfModel:
    return HfModel.load(str(folder), None, LoadSettings(attention=attention))


def image(height: int = 60, width: int = 80) -> Any:
    return np.random.default_rng(1).random((height, width)).astype(np.float32)


@pytest.mark.parametrize("family", ["llava", "paligemma", "gemma3", "qwen2_5_vl"])
def test_one_pass_gives_the_maps_of_writing_token_by_token(family: str, folders: Any) -> None:
    """Generation made to choose the report's tokens: the last row of each step is that of the token it emits."""
    model = opened(folders(family))
    found = report_attention(model, image(), REPORT, "dyspnea")
    encoded = model.encode([image()], [model.prompts.ask("dyspnea")])
    ids = report_ids(model.processor, REPORT)
    length = encoded.inputs["input_ids"].shape[1]

    def dictate(written: Any, scores: Any) -> Any:
        only = torch.full_like(scores, -torch.inf)
        only[:, ids[written.shape[1] - length]] = 0.0
        return only

    with torch.no_grad():
        out = model.model.generate(
            **encoded.inputs,
            max_new_tokens=len(ids),
            do_sample=False,
            logits_processor=[dictate],
            output_attentions=True,
            return_dict_in_generate=True,
        )
    assert out.sequences[0, length:].tolist() == ids
    columns = encoded.image_mask[0].nonzero().flatten()
    steps = [torch.stack([layer[0, :, -1][:, columns] for layer in step]) for step in out.attentions]
    stepwise = torch.stack(steps).numpy()
    assert np.abs(found.values.reshape(stepwise.shape) - stepwise).max() < 1e-5


def test_shares_of_a_row_are_at_most_one_and_depend_on_the_image(folders: Any) -> None:
    model = opened(folders("llava"))
    one, other = (report_attention(model, one_image, REPORT) for one_image in (image(), 1 - image()))
    assert one.values.min() >= 0 and one.values.sum(axis=(3, 4)).max() <= 1 + 1e-6
    assert np.abs(one.values - other.values).max() > 1e-4
    assert np.allclose(one.usual(), one.values.mean(axis=0), atol=1e-7)


def test_the_first_token_does_not_know_what_follows(folders: Any) -> None:
    """Its row is that of the prompt's last position, so another ending changes nothing before it."""
    model = opened(folders("llava"))
    one, other = (report_attention(model, image(), text) for text in (REPORT, "Small right nodule"))
    assert np.allclose(one.of([(0, 5)]), other.of([(0, 5)]), atol=1e-6)
    assert not np.allclose(one.of([(11, 18)]), other.of([(12, 18)]), atol=1e-6)


def test_a_word_is_the_mean_of_its_tokens(folders: Any) -> None:
    found = report_attention(opened(folders("llava")), image(), "Right hydropneumothorax")
    chosen = found.written.tokens_of([(6, 23)])
    assert len(chosen) > 1
    assert np.allclose(found.of([(6, 23)]), found.values[list(chosen)].mean(axis=0), atol=1e-6)


def test_attention_that_was_not_loaded_is_refused_with_the_remedy(folders: Any) -> None:
    """The fast kernels would give nothing at all, without a word."""
    with pytest.raises(ConfigError, match="--loading.attention eager"):
        report_attention(opened(folders("llava"), "sdpa"), image(), REPORT)


def test_a_family_of_tiles_has_no_grid(folders: Any) -> None:
    model = opened(folders("llava_next"))
    assert image_grid(model, image()) is None
    with pytest.raises(ConfigError, match="several tiles"):
        report_attention(model, image(), REPORT)


def test_hooks_are_taken_off_again(folders: Any) -> None:
    """A hundred images must not leave a hundred of them; transformers keeps some of its own from the first pass on."""
    model = opened(folders("llava"))

    def hooks() -> int:
        return sum(len(module._forward_hooks) for module in model.model.modules())

    model.losses([image()], [REPORT])
    before = hooks()
    report_attention(model, image(), REPORT)
    assert hooks() == before


@pytest.mark.parametrize("family", ["llava", "paligemma", "qwen2_5_vl"])
def test_a_cell_lies_where_the_patch_is_cut(family: str, folders: Any) -> None:
    """A bright square inside one cell changes the patch embedding of that token most."""
    model = opened(folders(family))
    dark = np.zeros((64, 96), np.float32)
    grid = image_grid(model, dark)
    assert grid is not None
    rows, columns = grid.cells(*dark.shape)
    cut = next(part for part in model.model.modules() if isinstance(part, (torch.nn.Conv2d, torch.nn.Conv3d)))
    cells = grid.rows * grid.columns

    def patches(image: Any) -> Any:
        kept: list[Any] = []
        handle = cut.register_forward_hook(lambda module, given, result: kept.append(result))
        with torch.no_grad():
            model.losses([image], [REPORT])
        handle.remove()
        if isinstance(cut, torch.nn.Conv3d):  # Qwen: one row a patch, those that are merged into one token together
            return kept[0].reshape(cells, -1)
        return kept[0][0].flatten(1).T

    for row, column in ((0, 1), (grid.rows - 1, 0)):
        lit = dark.copy()
        where = np.ix_(np.flatnonzero(rows == row)[4:-4], np.flatnonzero(columns == column)[4:-4])
        lit[where] = 1.0
        moved = (patches(lit) - patches(dark)).norm(dim=1)
        assert int(moved.argmax()) == row * grid.columns + column

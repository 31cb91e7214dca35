"""Training samples of the localisation script: masks as cells, moved with their image, and attributes by side."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import DRAWN, Side

torch = pytest.importorskip("torch")
EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@pytest.fixture
def localisation(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    return importlib.import_module("localisation")


def test_a_mask_comes_back_as_the_patches_that_it_touches(localisation: Any) -> None:
    """A point at row 40, column 100 of 128 lies in patch (2, 6) of 8 x 8."""
    mask = np.zeros((128, 128), bool)
    mask[40, 100] = True
    packed = torch.from_numpy(localisation._cells(mask, 32))[None, None]
    assert localisation._patches(localisation._opened(packed)).nonzero().tolist() == [[0, 0, 2 * 8 + 6]]


def test_an_image_and_its_masks_are_moved_together(localisation: Any) -> None:
    """A bright square and its own mask: after any move the patches that it covers are the bright ones."""
    image = torch.zeros(1, 128, 128)
    image[0, 48:80, 16:48] = 1.0
    cells = torch.from_numpy(localisation._cells(image[0].numpy() > 0, 32))[None, None]
    for seed in range(20):
        seeds = torch.tensor([seed])
        moved = localisation.augment(image, seeds, localisation.MOVED)
        covered = localisation._patches(localisation.augment(localisation._opened(cells), seeds, localisation.MOVED))[
            0, 0
        ].view(8, 8)
        light = moved[0].view(8, 16, 8, 16).mean((1, 3))
        assert covered[light > 0.2].all() and not covered[light == 0.0].any()


def test_a_kind_on_both_sides_is_bilateral(localisation: Any) -> None:
    sides = list(localisation.WORDS[0])
    left = np.array(localisation._attributes(Finding("nodule", side=Side.LEFT), np.full(4, -1, np.int8)), np.int8)
    both = localisation._attributes(Finding("nodule", side=Side.RIGHT), left)
    assert left[0] == sides.index(Side.LEFT) and both[0] == sides.index(Side.BILATERAL)


def test_heads_that_say_the_truth_lose_little_and_the_opposite_much(localisation: Any) -> None:
    """One image with a left nodule on patch 5; scores of 9 for what is true and -9 for what is not."""
    kind = DRAWN.index("nodule")
    covered = torch.zeros(1, localisation.KINDS, 64, dtype=torch.bool)
    covered[0, kind, 5] = True
    attributes = torch.full((1, localisation.KINDS, 4), -1, dtype=torch.int8)
    attributes[0, kind, 0] = localisation.WORDS[0].index(Side.LEFT)
    patches = torch.full((1, 64, localisation.KINDS, localisation.SIDES), -9.0)
    patches[0, 5, kind, 1 + localisation.WORDS[0].index(Side.LEFT)] = 9.0
    present = torch.full((1, localisation.KINDS), -9.0)
    present[0, kind] = 9.0
    words = torch.zeros(1, localisation.KINDS, sum(map(len, localisation.WORDS)))
    words[0, kind, localisation.WORDS[0].index(Side.LEFT)] = 9.0
    right = float(localisation._loss((patches, present, words), covered, attributes))
    assert right < 0.2
    other = patches.clone()
    other[0, 5, kind] = other[0, 5, kind].roll(1)  # the patch tells another side
    assert float(localisation._loss((other, present, words), covered, attributes)) > right + 2.0

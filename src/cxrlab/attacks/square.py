"""Square attack (Andriushchenko and others, 2020): random search in squares that grow smaller.

For l∞ the search begins with vertical stripes and adds squares of full strength. For l2 it begins with a grid of small
bumps and moves the length that one window has into another.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from cxrlab.attacks.random_search import RandomSearch, signs
from cxrlab.attacks.task import Task

if TYPE_CHECKING:
    from numpy.random import Generator

_AREA = 0.8  # share of the image that the first squares cover
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # of 10,000 queries: the share is halved after each
_TILES = 5  # tiles across the image at the start for l2
_TINY = 1e-12


class Square(RandomSearch):
    """Squares of shrinking size, kept if they raise the loss."""

    name: ClassVar[str] = "square"

    def first(self, task: Task, sources: Sequence[Generator]) -> Tensor:
        """Stripes for l∞: each column of each channel at one end of the ball; tiles for l2."""
        channels, height, width = task.clean.shape[1:]
        if task.budget.norm == "linf":
            change = np.stack(
                [np.broadcast_to(signs(one, channels, 1, width), task.clean.shape[1:]) for one in sources]
            )
        else:
            change = np.stack([_tiles(one, (channels, height, width)) for one in sources])
        return task.clean + task.budget.eps * torch.from_numpy(np.ascontiguousarray(change)).to(task.clean)

    def propose(self, task: Task, images: Tensor, rows: list[int], sources: list[Generator], done: float) -> Tensor:
        """One square an image, at a place of its own."""
        side = math.sqrt(covered(done) * images.shape[-2] * images.shape[-1])
        if task.budget.norm == "linf":
            return images + 2 * task.budget.eps * _squares(sources, images.shape[1:], round(side)).to(images)
        change = (images - task.clean[rows]).double().cpu().numpy()
        moved = [_moved(one, old, round(side), task.budget.eps) for one, old in zip(sources, change, strict=True)]
        return task.clean[rows] + torch.from_numpy(np.stack(moved)).to(images)


class SquareByReport(Square):
    """The same search with nothing but reports: the loss is the harm read off the words."""

    name: ClassVar[str] = "square-report"
    needs_scores: ClassVar[bool] = False
    by_words: ClassVar[bool] = True


def covered(done: float) -> float:
    """Share of the image that a square covers when this share of the queries is spent."""
    return float(_AREA / 2 ** bisect.bisect_left(_HALVINGS, int(done * 10_000)))


def _squares(sources: Sequence[Generator], shape: Sequence[int], side: int) -> Tensor:
    """[B, C, H, W]: -1 or 1 in one square of each image, by channel, and 0 outside."""
    made = np.zeros((len(sources), *shape))
    side = min(max(side, 1), *shape[1:])
    for image, source in zip(made, sources, strict=True):
        top, left = _corner(source, shape, side)
        image[:, top : top + side, left : left + side] = signs(source, shape[0], 1, 1)
    return torch.from_numpy(made)


def _corner(source: Generator, shape: Sequence[int], side: int) -> tuple[int, int]:
    return int(source.integers(0, shape[1] - side + 1)), int(source.integers(0, shape[2] - side + 1))


def _moved(source: Generator, change: np.ndarray, side: int, eps: float) -> np.ndarray:
    """The change with the length of one window moved into another, which gets a bump besides.

    What the clipping of pixels left unused of ε is shared among the channels.
    """
    side = min(max(side, 3) | 1, *change.shape[1:])  # an odd number, as the bump has a middle
    here, there = (_window(change.shape, *_corner(source, change.shape, side), side) for _ in range(2))
    unused = max(eps**2 - float((change**2).sum()), 0.0) / len(change)
    both = np.zeros(change.shape[1:], dtype=bool)
    both[here[1:]] = both[there[1:]] = True
    length = np.sqrt((change**2 * both).sum(axis=(1, 2), keepdims=True) + unused)
    fresh = _unit(change[here]) + signs(source, len(change), 1, 1) * _bump(source, side)
    made = change.copy()
    made[there] = 0
    made[here] = _unit(fresh) * length
    return made


def _window(shape: Sequence[int], top: int, left: int, side: int) -> tuple[slice, slice, slice]:
    return slice(0, shape[0]), slice(top, top + side), slice(left, left + side)


def _unit(windows: np.ndarray) -> np.ndarray:
    """Each channel with length 1; 0 stays 0."""
    lengths = np.sqrt((windows**2).sum(axis=(1, 2), keepdims=True))
    return np.asarray(windows / np.maximum(lengths, _TINY))


def _tiles(source: Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """A change of length 1: bumps side by side, with a margin where they do not fill the image."""
    made = np.zeros(shape)
    side = max(min(shape[1:]) // _TILES, 1)
    for top in range(shape[1] % side // 2, shape[1] - side + 1, side):
        for left in range(shape[2] % side // 2, shape[2] - side + 1, side):
            made[_window(shape, top, left, side)] = signs(source, shape[0], 1, 1) * _bump(source, side)
    return made / max(float(np.linalg.norm(made)), _TINY)


def _bump(source: Generator, side: int) -> np.ndarray:
    """[side, side] of length 1: a hill beside a valley, lying or standing."""
    upper = side // 2
    made = np.concatenate([_hill(upper, side), -_hill(side - upper, side)])
    made /= np.linalg.norm(made)
    return made.T if source.random() < 0.5 else made


def _hill(height: int, width: int) -> np.ndarray:
    """[height, width] of length 1, falling from the middle in rings: ring r has the sum of 1 / (k + 1)² over k >= r."""
    if not height:
        return np.zeros((0, width))
    ring = np.maximum(np.abs(np.arange(height) - height // 2)[:, None], np.abs(np.arange(width) - width // 2)[None, :])
    layers = 1 / np.arange(1, max(height, width) // 2 + 2) ** 2.0
    made = layers[::-1].cumsum()[::-1][ring]
    return np.asarray(made / np.linalg.norm(made))

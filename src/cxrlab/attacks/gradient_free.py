"""Noise of the same size: what a change does that follows no aim. The control beside every attack."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from cxrlab.attacks.attack import Attack, AttackTask
from cxrlab.attacks.config import AttackSettings

if TYPE_CHECKING:
    from numpy.random import Generator


class Noise(Attack):
    """An image drawn evenly from the ball around the clean one."""

    name: ClassVar[str] = "noise"
    white_box: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False
    is_control: ClassVar[bool] = True

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def perturb(self, task: AttackTask) -> Tensor:
        """No pass at all."""
        return task.random_images(task.rows, self.name)


_STEP = 0.5  # length of a tried change as a share of ε
_WAVES = 4  # highest frequency of a wave, in periods across the image


class RandomSearch(Attack):
    """Waves and patches, each kept if it raises the loss."""

    name: ClassVar[str] = "random"
    white_box: ClassVar[bool] = False

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def perturb(self, task: AttackTask) -> Tensor:
        """`queries` passes an image, or fewer with `early_exit`."""
        rows, sources = task.rows, task.generators(task.rows, self.name)
        images = task.initial_images.clone() if task.has_initial_images else task.project(self.first(task, sources))
        losses = task.losses(images, rows)
        left = self._left(task, self._gone(task, images, losses, rows, rows), rows)
        for query in range(1, self.settings.queries):
            if not left:
                break
            drawn = [sources[row] for row in left]
            tried = task.project(self.propose(task, images[left], left, drawn, query / self.settings.queries), left)
            found = task.losses(tried, left)
            rose = found > losses[left]
            gone = self._gone(task, tried, found, left, [row for row, up in zip(left, rose, strict=True) if up])
            # Words seldom change: searches by report keep what does no worse, or they would stand still.
            better = gone | (rose if self.needs_scores else found >= losses[left])
            kept = torch.as_tensor(left)[better].tolist()
            images[kept], losses[kept] = tried[better.to(tried.device)], found[better]
            left = self._left(task, gone, left)
        return images

    def first(self, task: AttackTask, sources: Sequence[Generator]) -> Tensor:
        """Where the search begins, unless images to begin from are given."""
        return task.clean

    def propose(
        self, task: AttackTask, images: Tensor, rows: list[int], sources: list[Generator], done: float
    ) -> Tensor:
        """The next images to try.

        Args:
            task: What is attacked.
            images: The best so far of these rows.
            rows: Images of the task that are still searched.
            sources: A generator for each of them.
            done: Share of the queries that is spent.
        """
        shape = images.shape[1:]
        change = np.stack(
            [_patch(source, shape) if source.random() < 0.5 else _wave(source, shape) for source in sources]
        )
        if task.budget.norm == "l2":
            change /= np.linalg.norm(change.reshape(len(change), -1), axis=1).reshape(-1, 1, 1, 1)
        return images + _STEP * task.budget.eps * torch.from_numpy(change).to(images)

    def _gone(self, task: AttackTask, images: Tensor, losses: Tensor, rows: list[int], rose: list[int]) -> Tensor:
        """Which images are broken and need no more queries, [len(rows)] bool.

        Where losses do not tell, an attack by report asks for the images whose loss rose, within its queries; an answer
        costs many scores, so that the others do not ask.
        """
        gone = torch.zeros(len(rows), dtype=torch.bool)
        if not self.settings.early_exit:
            return gone
        if (told := task.objective.succeeded_by_loss(losses, rows)) is not None:
            return told.cpu().bool()
        passes = task.passes()
        asked = [place for place, row in enumerate(rows) if row in rose and passes[row] < self.settings.queries]
        if asked and not self.needs_scores:
            gone[asked] = task.succeeded(images[asked], [rows[place] for place in asked])
        return gone

    def _left(self, task: AttackTask, gone: Tensor, rows: list[int]) -> list[int]:
        """Images that are not broken and have queries left."""
        spent = task.passes()[rows] >= self.settings.queries
        return torch.as_tensor(rows)[~gone & ~spent].tolist()


class RandomSearchByReport(RandomSearch):
    """The same search with nothing but reports: the loss is the harm read off the words."""

    name: ClassVar[str] = "random-report"
    needs_scores: ClassVar[bool] = False
    text_only: ClassVar[bool] = True


def signs(source: Generator, *shape: int) -> np.ndarray:
    """-1 and 1 in equal parts."""
    return source.integers(0, 2, shape) * 2.0 - 1.0


def _patch(source: Generator, shape: Sequence[int]) -> np.ndarray:
    """A rectangle of up to half of the image each way; each channel up or down."""
    channels, height, width = shape
    tall, wide = (int(source.integers(1, max(size // 2, 1) + 1)) for size in (height, width))
    top, left = int(source.integers(0, height - tall + 1)), int(source.integers(0, width - wide + 1))
    made = np.zeros((channels, height, width))
    made[:, top : top + tall, left : left + wide] = signs(source, channels, 1, 1)
    return made


def _wave(source: Generator, shape: Sequence[int]) -> np.ndarray:
    """A cosine of low frequency across the image; each channel up or down."""
    channels, height, width = shape
    down, across, phase = source.uniform(0, _WAVES), source.uniform(0, _WAVES), source.uniform(0, 2 * np.pi)
    angle = down * np.arange(height)[:, None] / height + across * np.arange(width)[None, :] / width
    return signs(source, channels, 1, 1) * np.cos(2 * np.pi * angle + phase)


_AREA = 0.8  # share of the image that the first squares cover
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # of 10,000 queries: the share is halved after each
_TILES = 5  # tiles across the image at the start for l2
_TINY = 1e-12


class Square(RandomSearch):
    """Squares of shrinking size, kept if they raise the loss."""

    name: ClassVar[str] = "square"

    def first(self, task: AttackTask, sources: Sequence[Generator]) -> Tensor:
        """Stripes for l∞: each column of each channel at one end of the ball; tiles for l2."""
        channels, height, width = task.clean.shape[1:]
        if task.budget.norm == "linf":
            change = np.stack(
                [np.broadcast_to(signs(one, channels, 1, width), task.clean.shape[1:]) for one in sources]
            )
        else:
            change = np.stack([_tiles(one, (channels, height, width)) for one in sources])
        return task.clean + task.budget.eps * torch.from_numpy(np.ascontiguousarray(change)).to(task.clean)

    def propose(
        self, task: AttackTask, images: Tensor, rows: list[int], sources: list[Generator], done: float
    ) -> Tensor:
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
    text_only: ClassVar[bool] = True


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

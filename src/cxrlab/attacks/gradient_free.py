"""Attacks without gradients: random search, Square (Andriushchenko et al. 2020), and the control `noise`."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from cxrlab.attacks.attack import Attack, AttackTask

if TYPE_CHECKING:
    from numpy.random import Generator


class Noise(Attack):
    """The control beside every attack: an image drawn uniformly from the ball, without an objective."""

    name: ClassVar[str] = "noise"
    white_box: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False
    is_control: ClassVar[bool] = True

    def perturb(self, task: AttackTask) -> Tensor:
        """No pass."""
        return task.random_images(task.rows, self.name)


_STEP = 0.5  # length of a proposed change as a share of ε
_WAVES = 4  # highest frequency of a wave, in periods across the image


class RandomSearch(Attack):
    """Random waves and patches, each kept if it raises the loss."""

    name: ClassVar[str] = "random"
    white_box: ClassVar[bool] = False

    def perturb(self, task: AttackTask) -> Tensor:
        """`queries` passes per image, or fewer with `early_exit`."""
        queries, generators = self.settings.queries, task.generators(task.rows, self.name)
        if task.has_initial_images:
            images = task.initial_images.clone()
        else:
            images = task.project(self.initial_proposal(task, generators))
        losses = task.losses(images, task.rows)
        succeeded = self._succeeded(task, images, losses, task.rows, torch.ones(len(task), dtype=torch.bool))
        active = self._unfinished(task, task.rows, succeeded)
        for query in range(1, queries):
            if not active:
                break
            proposal = self.propose(task, images[active], active, [generators[row] for row in active], query / queries)
            proposal = task.project(proposal, active)
            proposed_losses = task.losses(proposal, active)
            higher = proposed_losses > losses[active]
            succeeded = self._succeeded(task, proposal, proposed_losses, active, higher)
            # Text seldom changes: a search by reports keeps what is no worse, or it would stand still.
            accepted = succeeded | (higher if self.needs_scores else proposed_losses >= losses[active])
            kept = list(compress(active, accepted))
            images[kept], losses[kept] = proposal[accepted.to(proposal.device)], proposed_losses[accepted]
            active = self._unfinished(task, active, succeeded)
        return images

    def initial_proposal(self, task: AttackTask, generators: Sequence[Generator]) -> Tensor:
        """Where the search begins, unless initial images are given."""
        return task.clean

    def propose(
        self, task: AttackTask, images: Tensor, rows: list[int], generators: list[Generator], progress: float
    ) -> Tensor:
        """The next images to try.

        Args:
            images: The best so far of the active rows.
            generators: One for each of these rows.
            progress: Share of the queries that is spent.
        """
        shape = images.shape[1:]
        change = np.stack([_patch(one, shape) if one.random() < 0.5 else _wave(one, shape) for one in generators])
        if task.budget.norm == "l2":
            change /= np.linalg.norm(change.reshape(len(change), -1), axis=1).reshape(-1, 1, 1, 1)
        return images + _STEP * task.budget.eps * torch.from_numpy(change).to(images)

    def _succeeded(
        self, task: AttackTask, images: Tensor, losses: Tensor, rows: list[int], candidates: Tensor
    ) -> Tensor:
        """Which images need no more queries, [len(rows)] bool.

        Where losses do not decide, an attack by reports generates a report for the candidates, whose loss rose; a
        report costs as much as many scores, so that the others are skipped. It counts as a query.
        """
        succeeded = torch.zeros(len(rows), dtype=torch.bool)
        if not self.settings.early_exit:
            return succeeded
        if (known := task.objective.succeeded_by_loss(losses, rows)) is not None:
            return known.cpu().bool()
        candidates = candidates & (task.passes()[rows] < self.settings.queries)
        if bool(candidates.any()) and not self.needs_scores:
            checked = list(compress(rows, candidates))
            succeeded[candidates] = task.succeeded(images[candidates.to(images.device)], checked)
        return succeeded

    def _unfinished(self, task: AttackTask, rows: list[int], succeeded: Tensor) -> list[int]:
        """Rows without success that have queries left."""
        return list(compress(rows, ~succeeded & (task.passes()[rows] < self.settings.queries)))


class RandomSearchByReport(RandomSearch):
    """The same search on generated text alone: the loss is the harm read from the reports."""

    name: ClassVar[str] = "random-report"
    needs_scores: ClassVar[bool] = False
    text_only: ClassVar[bool] = True


def random_signs(generator: Generator, *shape: int) -> np.ndarray:
    """-1 and 1 with equal probability."""
    return generator.integers(0, 2, shape) * 2.0 - 1.0


def _patch(generator: Generator, shape: Sequence[int]) -> np.ndarray:
    """A rectangle of up to half of the image each way; each channel up or down."""
    channels, height, width = shape
    tall, wide = (int(generator.integers(1, max(size // 2, 1) + 1)) for size in (height, width))
    top, left = int(generator.integers(0, height - tall + 1)), int(generator.integers(0, width - wide + 1))
    change = np.zeros((channels, height, width))
    change[:, top : top + tall, left : left + wide] = random_signs(generator, channels, 1, 1)
    return change


def _wave(generator: Generator, shape: Sequence[int]) -> np.ndarray:
    """A cosine of low frequency across the image; each channel up or down."""
    channels, height, width = shape
    down, across = generator.uniform(0, _WAVES), generator.uniform(0, _WAVES)
    phase = generator.uniform(0, 2 * np.pi)
    angle = down * np.arange(height)[:, None] / height + across * np.arange(width)[None, :] / width
    return random_signs(generator, channels, 1, 1) * np.cos(2 * np.pi * angle + phase)


_AREA = 0.8  # share of the image that the first squares cover
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # of 10,000 queries: the share is halved after each
_TILES = 5  # tiles across the image at the start for l2
_TINY = 1e-12


class Square(RandomSearch):
    """Squares of shrinking size, kept if they raise the loss."""

    name: ClassVar[str] = "square"

    def initial_proposal(self, task: AttackTask, generators: Sequence[Generator]) -> Tensor:
        """Stripes for l∞: each column of each channel at one end of the ball; tiles for l2."""
        channels, height, width = shape = tuple(task.clean.shape[1:])
        if task.budget.norm == "linf":
            change = np.stack([np.broadcast_to(random_signs(one, channels, 1, width), shape) for one in generators])
        else:
            change = np.stack([_tiles(one, (channels, height, width)) for one in generators])
        return task.clean + task.budget.eps * torch.from_numpy(np.ascontiguousarray(change)).to(task.clean)

    def propose(
        self, task: AttackTask, images: Tensor, rows: list[int], generators: list[Generator], progress: float
    ) -> Tensor:
        """One square per image, each at its own place."""
        side = round(math.sqrt(square_area(progress) * images.shape[-2] * images.shape[-1]))
        if task.budget.norm == "linf":
            squares = np.zeros((len(generators), *images.shape[1:]))
            side = min(max(side, 1), *images.shape[2:])
            for change, generator in zip(squares, generators, strict=True):
                window = _random_window(generator, images.shape[1:], side)
                change[window] = random_signs(generator, images.shape[1], 1, 1)
            return images + 2 * task.budget.eps * torch.from_numpy(squares).to(images)
        changes = (images - task.clean[rows]).double().cpu().numpy()
        moved = [
            _move_window(one, change, side, task.budget.eps) for one, change in zip(generators, changes, strict=True)
        ]
        return task.clean[rows] + torch.from_numpy(np.stack(moved)).to(images)


class SquareByReport(Square):
    """The same search on generated text alone: the loss is the harm read from the reports."""

    name: ClassVar[str] = "square-report"
    needs_scores: ClassVar[bool] = False
    text_only: ClassVar[bool] = True


def square_area(progress: float) -> float:
    """Share of the image that a square covers when this share of the queries is spent."""
    return float(_AREA / 2 ** bisect.bisect_left(_HALVINGS, int(progress * 10_000)))


def _move_window(generator: Generator, change: np.ndarray, side: int, eps: float) -> np.ndarray:
    """The change with the length of one window moved into another, which gets a bump besides.

    What the clipping of pixels left unused of ε is shared among the channels.
    """
    side = min(max(side, 3) | 1, *change.shape[1:])  # an odd number, as the bump has a middle
    target, source = (_random_window(generator, change.shape, side) for _ in range(2))
    unused = max(eps**2 - float((change**2).sum()), 0.0) / len(change)
    both = np.zeros(change.shape[1:], dtype=bool)
    both[target[1:]] = both[source[1:]] = True
    length = np.sqrt((change**2 * both).sum(axis=(1, 2), keepdims=True) + unused)
    new = _unit(change[target]) + random_signs(generator, len(change), 1, 1) * _bump(generator, side)
    moved = change.copy()
    moved[source] = 0
    moved[target] = _unit(new) * length
    return moved


def _random_window(generator: Generator, shape: Sequence[int], side: int) -> tuple[slice, slice, slice]:
    """A square at a random place, in all channels."""
    top, left = int(generator.integers(0, shape[1] - side + 1)), int(generator.integers(0, shape[2] - side + 1))
    return _window(shape, top, left, side)


def _window(shape: Sequence[int], top: int, left: int, side: int) -> tuple[slice, slice, slice]:
    return slice(0, shape[0]), slice(top, top + side), slice(left, left + side)


def _unit(windows: np.ndarray) -> np.ndarray:
    """Each channel with length 1; 0 stays 0."""
    lengths = np.sqrt((windows**2).sum(axis=(1, 2), keepdims=True))
    return np.asarray(windows / np.maximum(lengths, _TINY))


def _tiles(generator: Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """A change of length 1: bumps side by side, with a margin where they do not fill the image."""
    change = np.zeros(shape)
    side = max(min(shape[1:]) // _TILES, 1)
    for top in range(shape[1] % side // 2, shape[1] - side + 1, side):
        for left in range(shape[2] % side // 2, shape[2] - side + 1, side):
            signs = random_signs(generator, shape[0], 1, 1)
            change[_window(shape, top, left, side)] = signs * _bump(generator, side)
    return change / max(float(np.linalg.norm(change)), _TINY)


def _bump(generator: Generator, side: int) -> np.ndarray:
    """[side, side] of length 1: a hill beside a valley, horizontal or vertical."""
    upper = side // 2
    bump = np.concatenate([_hill(upper, side), -_hill(side - upper, side)])
    bump /= np.linalg.norm(bump)
    return bump.T if generator.random() < 0.5 else bump


def _hill(height: int, width: int) -> np.ndarray:
    """[height, width] of length 1, falling from the middle in rings: ring r has the sum of 1 / (k + 1)² over k >= r."""
    if not height:
        return np.zeros((0, width))
    ring = np.maximum(np.abs(np.arange(height) - height // 2)[:, None], np.abs(np.arange(width) - width // 2)[None, :])
    layers = 1 / np.arange(1, max(height, width) // 2 + 2) ** 2.0
    hill = layers[::-1].cumsum()[::-1][ring]
    return np.asarray(hill / np.linalg.norm(hill))

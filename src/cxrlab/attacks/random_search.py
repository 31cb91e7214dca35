"""Search without gradients: try a change, keep it if the loss rises.

The simplest attack of this kind tries wide waves and flat patches. It needs a number for each image that it shows; its
second form takes the number from the words of the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from cxrlab.attacks.base import Attack
from cxrlab.attacks.config import AttackSettings
from cxrlab.attacks.task import Task

if TYPE_CHECKING:
    from numpy.random import Generator

_STEP = 0.5  # length of a tried change as a share of ε
_WAVES = 4  # highest frequency of a wave, in periods across the image


class RandomSearch(Attack):
    """Waves and patches, each kept if it raises the loss."""

    name: ClassVar[str] = "random"
    white_box: ClassVar[bool] = False

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def perturb(self, task: Task) -> Tensor:
        """`queries` passes an image, or fewer with `early_exit`."""
        rows, sources = task.rows, task.generators(task.rows, self.name)
        images = task.begin.clone() if task.warm else task.project(self.first(task, sources))
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

    def first(self, task: Task, sources: Sequence[Generator]) -> Tensor:
        """Where the search begins, unless images to begin from are given."""
        return task.clean

    def propose(self, task: Task, images: Tensor, rows: list[int], sources: list[Generator], done: float) -> Tensor:
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

    def _gone(self, task: Task, images: Tensor, losses: Tensor, rows: list[int], rose: list[int]) -> Tensor:
        """Which images are broken and need no more queries, [len(rows)] bool.

        Where losses do not tell, an attack by report asks for the images whose loss rose, within its queries; an answer
        costs many scores, so that the others do not ask.
        """
        gone = torch.zeros(len(rows), dtype=torch.bool)
        if not self.settings.early_exit:
            return gone
        if (told := task.objective.reached(losses, rows)) is not None:
            return told.cpu().bool()
        passes = task.passes()
        asked = [place for place, row in enumerate(rows) if row in rose and passes[row] < self.settings.queries]
        if asked and not self.needs_scores:
            gone[asked] = task.broken(images[asked], [rows[place] for place in asked])
        return gone

    def _left(self, task: Task, gone: Tensor, rows: list[int]) -> list[int]:
        """Images that are not broken and have queries left."""
        spent = task.passes()[rows] >= self.settings.queries
        return torch.as_tensor(rows)[~gone & ~spent].tolist()


class RandomSearchByReport(RandomSearch):
    """The same search with nothing but reports: the loss is the harm read off the words."""

    name: ClassVar[str] = "random-report"
    needs_scores: ClassVar[bool] = False
    by_words: ClassVar[bool] = True


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

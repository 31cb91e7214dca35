"""Search without gradients: try a change, keep it if the loss rises.

The simplest attack of this kind tries wide waves and flat patches. It needs a number for each film that it shows; its
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
_WAVES = 4  # highest frequency of a wave, in periods across the film


class RandomSearch(Attack):
    """Waves and patches, each kept if it raises the loss.

    Attributes:
        ties: A change that leaves the loss as it was is kept too.
    """

    name: ClassVar[str] = "random"
    white_box: ClassVar[bool] = False
    ties: ClassVar[bool] = False

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def perturb(self, task: Task) -> Tensor:
        """`queries` passes a film."""
        rows, sources = task.rows, task.generators(task.rows, self.name)
        films = task.begin.clone() if task.warm else task.project(self.first(task, sources))
        losses = task.losses(films, rows)
        left = [row for row, gone in zip(rows, self._gone(task, losses, rows).tolist(), strict=True) if not gone]
        for query in range(1, self.settings.queries):
            if not left:
                break
            drawn = [sources[row] for row in left]
            tried = task.project(self.propose(task, films[left], left, drawn, query / self.settings.queries), left)
            found = task.losses(tried, left)
            gone = self._gone(task, found, left)
            better = (found >= losses[left] if self.ties else found > losses[left]) | gone
            kept = torch.as_tensor(left)[better].tolist()
            films[kept], losses[kept] = tried[better.to(tried.device)], found[better]
            left = [row for row, done in zip(left, gone.tolist(), strict=True) if not done]
        return films

    def first(self, task: Task, sources: Sequence[Generator]) -> Tensor:
        """Where the search begins, unless films to begin from are given."""
        return task.clean

    def propose(self, task: Task, films: Tensor, rows: list[int], sources: list[Generator], done: float) -> Tensor:
        """The next films to try.

        Args:
            task: What is attacked.
            films: The best so far of these rows.
            rows: Films of the task that are still searched.
            sources: A generator for each of them.
            done: Share of the queries that is spent.
        """
        shape = films.shape[1:]
        change = np.stack(
            [_patch(source, shape) if source.random() < 0.5 else _wave(source, shape) for source in sources]
        )
        if task.budget.norm == "l2":
            change /= np.linalg.norm(change.reshape(len(change), -1), axis=1).reshape(-1, 1, 1, 1)
        return films + _STEP * task.budget.eps * torch.from_numpy(change).to(films)

    def _gone(self, task: Task, losses: Tensor, rows: list[int]) -> Tensor:
        """Which films are broken by their losses and need no more queries."""
        if not self.settings.early_exit:
            return torch.zeros(len(rows), dtype=torch.bool)
        return task.reached(losses, rows)


class RandomSearchByReport(RandomSearch):
    """The same search with nothing but reports: the loss is the harm read off the words.

    Words seldom change, so that a change is kept as long as it does no worse.
    """

    name: ClassVar[str] = "random-report"
    needs_scores: ClassVar[bool] = False
    ties: ClassVar[bool] = True


def signs(source: Generator, *shape: int) -> np.ndarray:
    """-1 and 1 in equal parts."""
    return source.integers(0, 2, shape) * 2.0 - 1.0


def _patch(source: Generator, shape: Sequence[int]) -> np.ndarray:
    """A rectangle of up to half of the film each way; each channel up or down."""
    channels, height, width = shape
    tall, wide = (int(source.integers(1, max(size // 2, 1) + 1)) for size in (height, width))
    top, left = int(source.integers(0, height - tall + 1)), int(source.integers(0, width - wide + 1))
    made = np.zeros((channels, height, width))
    made[:, top : top + tall, left : left + wide] = signs(source, channels, 1, 1)
    return made


def _wave(source: Generator, shape: Sequence[int]) -> np.ndarray:
    """A cosine of low frequency across the film; each channel up or down."""
    channels, height, width = shape
    down, across, phase = source.uniform(0, _WAVES), source.uniform(0, _WAVES), source.uniform(0, 2 * np.pi)
    angle = down * np.arange(height)[:, None] / height + across * np.arange(width)[None, :] / width
    return signs(source, channels, 1, 1) * np.cos(2 * np.pi * angle + phase)

"""A training small enough to check by hand: a linear layer, rows of unequal weight, everything on the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cxrlab.training.config import Optimisation
from cxrlab.training.distributed import process_count
from cxrlab.training.run_folder import RunFolder, training_run
from cxrlab.training.trainer import Evaluation, Fitted, Job, Part, fit, plan


class ToyRows:
    """Row k is a vector and a target, with 1 + k % 5 items in it; `poisoned` rows have a target that is no number."""

    def __init__(self, n: int = 64, poisoned: tuple[int, ...] = ()) -> None:
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(n, 4, generator=generator)
        self.y = self.x.sum(1, keepdim=True) + 0.1 * torch.randn(n, 1, generator=generator)
        self.weight = 1.0 + torch.arange(n) % 5
        self.y[list(poisoned)] = torch.nan
        self.seen: list[int] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        self.seen += rows
        return {"x": self.x[rows], "y": self.y[rows], "weight": self.weight[rows], "items": self.weight[rows]}


class Toy(nn.Module):
    """Dropout in front of a trained layer, behind a frozen one: what a checkpoint must and must not hold."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.dropout = nn.Dropout(dropout)
        self.trained = nn.Linear(4, 1)

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        error = (self.trained(self.dropout(self.frozen(x))) - y).square().squeeze(1)
        return (weight * error).sum()


def train_toy(
    out: Path,
    module: Toy | None = None,
    rows: ToyRows | None = None,
    evaluation: Evaluation | None = None,
    **changes: Any,
) -> tuple[Toy, Fitted]:
    """Train in the folder `out`, or go on there."""
    settings = Optimisation(
        **{"batch_size": 4, "steps": 12, "learning_rate": 0.05, "save_every": 4, "log_every": 3, **changes}
    )
    module, rows = module or Toy(), rows or ToyRows()
    order = plan(
        [Part(len(rows))],
        settings.batch_size * settings.accumulate * process_count(),
        1.0,
        settings.steps,
        settings.seed,
    )
    with training_run(settings, out, settings.seed) as run:
        return module, fit(Job(module, rows, order, evaluation=evaluation), settings, run)


def folder_of(path: Path) -> RunFolder:
    """A run folder without a writer."""
    return RunFolder(path, None)

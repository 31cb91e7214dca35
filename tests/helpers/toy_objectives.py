"""Objectives with known optima, and every attack of the table with fast settings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cxrlab.attacks.attack import Attack
from cxrlab.attacks.config import ATTACKS, AttackSettings
from cxrlab.attacks.gradient import Universal
from cxrlab.attacks.objectives import Objective

QUICK = AttackSettings(steps=3, queries=6, restarts=2)


def images(count: int, size: int = 8, channels: int = 1, seed: int = 0) -> Tensor:
    """Uniform noise in [0, 1]."""
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(seed))


def names(count: int) -> list[str]:
    return [f"study{number}" for number in range(count)]


class Linear(Objective):
    """Loss w · x; succeeds above a threshold."""

    name = "linear"

    def __init__(self, weights: Tensor, above: float = torch.inf) -> None:
        self.weights, self.above = weights, above
        self.evaluated = 0

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        self.evaluated += len(images)
        return (images * self.weights).flatten(1).sum(dim=1)

    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        return self.losses(images, rows) > self.above

    def succeeded_by_loss(self, losses: Tensor, rows: Sequence[int]) -> Tensor | None:
        return losses > self.above


class Valley(Objective):
    """Loss −|x − target|²: maximal at the target."""

    name = "valley"

    def __init__(self, target: Tensor) -> None:
        self.target = target

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        return -((images - self.target[list(rows)]) ** 2).flatten(1).sum(dim=1)

    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        return torch.zeros(len(images), dtype=torch.bool)


class Margin(Objective):
    """Largest other logit minus that of the right class; above 0 the class is wrong."""

    name = "margin"

    def __init__(self, net: nn.Module, labels: Tensor) -> None:
        self.net, self.labels = net, labels

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        logits = self.net(images)
        right = nn.functional.one_hot(self.labels[list(rows)], logits.shape[1]).bool()
        own = (logits * right).sum(dim=1)
        return logits.masked_fill(right, -torch.inf).amax(dim=1) - own

    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        return self.losses(images, rows) > 0

    def succeeded_by_loss(self, losses: Tensor, rows: Sequence[int]) -> Tensor | None:
        return losses > 0


class CrossEntropy(Margin):
    """−log p of the right class, as libraries for classifiers use it; success needs the predicted class."""

    name = "cross-entropy"

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        return nn.functional.cross_entropy(self.net(images), self.labels[list(rows)], reduction="none")

    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        return self.net(images).argmax(dim=1) != self.labels[list(rows)]

    def succeeded_by_loss(self, losses: Tensor, rows: Sequence[int]) -> Tensor | None:
        return None


class TextOnlyMargin(Margin):
    """The same classifier as a text-only black box: the loss is the margin rounded to steps, without gradients."""

    name = "words"
    gradients = False
    scores = False

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        return (super().losses(images, rows) * 8).floor() / 8

    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        return Margin.losses(self, images, rows) > 0

    def succeeded_by_loss(self, losses: Tensor, rows: Sequence[int]) -> Tensor | None:
        return None


def small_net(channels: int = 1, size: int = 8, seed: int = 0) -> nn.Module:
    """A smooth convolutional net with random weights and ten classes; no gradient is 0."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(channels, 6, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(6 * size * size, 10)
        )
    return net.eval().requires_grad_(False)


def predicted_labels(net: nn.Module, images: Tensor) -> Tensor:
    """The classes that the net predicts."""
    return net(images).argmax(dim=1)


def objective_for(name: str, net: nn.Module, labels: Tensor) -> Objective:
    """An objective for the attack of this name: text only for the report attacks."""
    return TextOnlyMargin(net, labels) if name.endswith("-report") else Margin(net, labels)


def attack(name: str, settings: AttackSettings = QUICK, *, shape: Sequence[int] = (1, 8, 8)) -> Attack:
    """The attack of this name; a universal one with a change of waves."""
    made = ATTACKS.load(name)
    if made is Universal:
        return Universal(settings, change=torch.sin(torch.arange(torch.Size(shape).numel()).float()).reshape(1, *shape))
    ready: Attack = made(settings)
    return ready

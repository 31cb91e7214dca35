"""The steps of hardening: attack the features of a batch of images, then learn to see what was seen before.

A step depends on the weights before it and on its number alone, so that a run that goes on from a saved step ends
with the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cxrlab.attacks.config import AttackSettings
from cxrlab.attacks.gradient import Pgd
from cxrlab.attacks.objectives import Objective
from cxrlab.core.errors import RunError
from cxrlab.core.files import make_folder
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.randomness import generator
from cxrlab.core.terminal import track
from cxrlab.models.local_files import load_torch
from cxrlab.robustness.harden_config import HardenConfig
from cxrlab.robustness.vision_encoder_sight import See, Sight
from cxrlab.training import run_folder
from cxrlab.training.images import Images
from cxrlab.training.run_folder import HISTORY, RunFolder

_STATE = "state.pt"
_WARMUP = 0.05  # share of the steps over which the learning rate rises
_REACH = 2.5  # an attack's steps add up to this many ε: enough to cross the ball from a random image of it


class FeatureDistance(Objective):
    """The features of an image move away from where they should be; nothing is ever broken, there is only a distance.

    Args:
        see: The vision encoder under attack.
        wanted: Features that each image should have, [B, P, D].
    """

    name = "features"

    def __init__(self, see: See, wanted: Tensor) -> None:
        self._see, self._wanted = see, wanted

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Mean over the patches of the squared distance, [B]."""
        return squared_distances(self._see(images), self._wanted[list(rows)])

    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Never."""
        return torch.zeros(len(rows), dtype=torch.bool)


def squared_distances(features: Tensor, wanted: Tensor) -> Tensor:
    """[B, P, D] twice → [B]: squared Euclidean distance of each patch's features, meaned over the patches."""
    return (features - wanted).square().sum(dim=-1).mean(dim=1)


def feature_attack(steps: int) -> Pgd:
    """The attack for this number of steps; more of them are shorter."""
    return Pgd(AttackSettings(steps=steps, step_size=min(1.0, _REACH / steps)))


def as_images(images: NDArray[np.uint8], device: torch.device) -> Tensor:
    """8-bit images [B, H, W] or [B, H, W, 3] → float32 [B, C, H, W] in [0, 1]."""
    pixels = torch.from_numpy(np.ascontiguousarray(images)).to(device).float() / 255
    return pixels.unsqueeze(1) if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)


def planned_steps(config: HardenConfig, images: int) -> int:
    """Steps in all; the last pass may end within a batch, which is then filled from the next pass."""
    return config.steps if config.steps is not None else math.ceil(config.epochs * images / config.batch_size)


def batch_of(step: int, images: int, size: int, seed: int) -> list[int]:
    """Numbers of the images of a step, counted from 0; every pass goes over all images in an order of its own."""
    places = range(step * size, (step + 1) * size)
    orders = {
        epoch: generator(seed, "harden", "order", epoch).permutation(images) for epoch in {p // images for p in places}
    }
    return [int(orders[place // images][place % images]) for place in places]


def rate_at(step: int, steps: int, highest: float) -> float:
    """The learning rate of a step, counted from 0: a short rise, then a cosine that would reach 0 after the last."""
    rise = max(1, round(_WARMUP * steps))
    if step < rise:
        return highest * (step + 1) / rise
    return highest * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


@dataclass(frozen=True, eq=False)
class Hardening:
    """A vision encoder on its way.

    Args:
        sight: The model whose vision encoder learns.
        before: How the vision encoder saw when it began.
        images: What is learnt from.
        names: Id of each image.
        config: Settings.
    """

    sight: Sight
    before: See
    images: Images
    names: Sequence[str]
    config: HardenConfig

    @property
    def steps(self) -> int:
        """In all."""
        return planned_steps(self.config, len(self.images))

    def fit(self, run: RunFolder) -> float:
        """Take the steps that are left; returns the loss of the last line of the history.

        Raises:
            RunError: When the loss is no number, with the step and what to try.
        """
        optimiser = torch.optim.AdamW(self.sight.vision_encoder.parameters(), weight_decay=0.0)
        done, seen = self._restore(run, optimiser)
        total = self.steps
        for step in track(range(done, total), "hardening", total=total - done):
            rate = rate_at(step, total, self.config.learning_rate)
            for group in optimiser.param_groups:
                group["lr"] = rate
            seen.append(self._step(step, optimiser))
            if not all(map(math.isfinite, seen[-1])):
                raise RunError(
                    f"the loss is {sum(seen[-1])} at step {step + 1} with a learning rate of {rate:.2g}; the last "
                    "checkpoint is kept. Try a lower learning_rate in a new folder."
                )
            if (step + 1) % self.config.log_every == 0 or step + 1 == total:
                run.record(self._line(step + 1, seen, rate))
                seen.clear()
            if (step + 1) % self.config.save_every == 0 or step + 1 == total:
                self._save(run, step + 1, optimiser, seen)
        return last_loss(run)

    def _step(self, step: int, optimiser: torch.optim.Optimizer) -> tuple[float, float]:
        """One step of learning; its losses on attacked and on clean images."""
        chosen = batch_of(step, len(self.images), self.config.batch_size, self.config.seed)
        images = as_images(self.images[chosen], self.sight.device)
        with torch.no_grad():
            wanted = self.before(images)
        # An image that comes twice into a batch, and an image that comes again, get other starts.
        keys = [f"{step} {place} {self.names[number]}" for place, number in enumerate(chosen)]
        attack = feature_attack(self.config.attack_steps)
        attacked = attack(
            FeatureDistance(self.sight, wanted), images, self.config.budget, keys=keys, seed=self.config.seed
        ).images
        optimiser.zero_grad(set_to_none=True)
        found = squared_distances(self.sight(torch.cat([attacked, images])), wanted.repeat(2, 1, 1))
        hard, clean = found[: len(images)].mean(), found[len(images) :].mean()
        (hard + self.config.clean_weight * clean).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return hard.item(), clean.item()

    def _line(self, step: int, seen: Sequence[tuple[float, float]], rate: float) -> dict[str, float]:
        """A line of the history: means since the last one."""
        hard, clean = (math.fsum(values) / len(seen) for values in zip(*seen, strict=True))
        loss = hard + self.config.clean_weight * clean
        return {"step": step, "loss": loss, "attacked": hard, "clean": clean, "learning_rate": rate}

    def _save(
        self, run: RunFolder, step: int, optimiser: torch.optim.Optimizer, seen: Sequence[tuple[float, float]]
    ) -> None:
        """A checkpoint that counts once it is whole."""
        folder = run.steps / f"checkpoint-{step}"
        state = {"vision_encoder": self.sight.weights(), "optimiser": optimiser.state_dict(), "seen": list(seen)}
        torch.save(state, make_folder(folder) / _STATE)
        run_folder.mark_complete(folder)
        run_folder.remove_old(run.steps)

    def _restore(self, run: RunFolder, optimiser: torch.optim.Optimizer) -> tuple[int, list[tuple[float, float]]]:
        """Steps taken so far, and the losses that no line of the history holds yet."""
        found: Path | None = run_folder.resumable(run.steps)
        run_folder.remove_incomplete(run.steps)
        run.forget_after(run_folder.step_of(found) if found else 0)
        if found is None:
            return 0, []
        state = load_torch(found / _STATE, self.sight.device)
        self.sight.vision_encoder.load_state_dict(state["vision_encoder"])
        optimiser.load_state_dict(state["optimiser"])
        return run_folder.step_of(found), [(float(hard), float(clean)) for hard, clean in state["seen"]]


def last_loss(run: RunFolder) -> float:
    """The loss in the last line of the history."""
    return float([line["loss"] for _, line in read_jsonl(run.folder / HISTORY)][-1])

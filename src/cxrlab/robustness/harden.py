"""Hardening: a vision encoder learns to see in attacked images what it saw in clean ones.

    checkpoint/       the whole model with the new encoder, in the layout of transformers; name it hf:RUN/checkpoint
    history.jsonl     losses on attacked and on clean images
    measured.jsonl    images of the val split: how far an attack moves their features, before and after
    harden.json       the means of that
    summary.json      steps, images and weights

A copy of the encoder is kept as it was. At every step a few steps of PGD look, inside the ball around each image, for
the image whose features are farthest from what the copy sees in the clean one; then the encoder takes a step towards
seeing in it what the copy saw. Nobody's labels or reports are needed, and projector and language model stay as they
are: what
they are given changes as little as possible.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cosine_similarity

from cxrlab.attacks.config import AttackSettings
from cxrlab.attacks.gradient import Pgd
from cxrlab.attacks.objectives import Objective
from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import make_folder, read_json
from cxrlab.core.json_values import dumps
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.randomness import generator
from cxrlab.core.terminal import track
from cxrlab.data.card import known_collections
from cxrlab.data.corpus import load_corpus
from cxrlab.models.local_files import load_torch
from cxrlab.models.model_card import ModelCard, of_corpora, trained_on
from cxrlab.robustness.settings import HARDEN_OPERATIONAL, HardenConfig
from cxrlab.robustness.vision_encoder import See, Sight, open_sight
from cxrlab.training import run_folder
from cxrlab.training.images import ImageFile, Images, open_images, output_side
from cxrlab.training.run_folder import (
    CACHE,
    HISTORY,
    RESULT,
    RunFolder,
    TrainingResult,
    finish_run,
    read_result,
    training_finished,
    training_run,
)
from cxrlab.training.samples import find_image_file

if TYPE_CHECKING:
    from cxrlab.data.corpus import Corpus


STAGE = "harden"
HARDENED, MEASURED = "harden.json", "measured.jsonl"


@dataclass(frozen=True)
class _Chosen:
    """Images of one split.

    Args:
        names: Id of each study.
        files: Its image.
        patients: Whose images they are.
        left_out: Reason → studies without a usable image.
    """

    names: tuple[str, ...]
    files: tuple[ImageFile, ...]
    patients: frozenset[str]
    left_out: Mapping[str, int]


def harden(config: HardenConfig, out: Path) -> tuple[TrainingResult, dict[str, Any]]:
    """Harden a model's vision encoder; returns what the training came to and the contents of harden.json.

    Args:
        config: Settings.
        out: Run folder; a stopped run goes on from its last checkpoint and ends with the same weights, a finished one
            with the same settings is left as it is.

    Raises:
        ConfigError: When the model has no vision encoder that can be taken by itself.
        DataError: When there is no image to learn from or to measure on, or a patient is in both splits.
    """
    require("models")
    if training_finished(config, out, config.seed, HARDEN_OPERATIONAL):
        return read_result(out), read_json(out / HARDENED)
    _refuse_several_processes()

    corpus = load_corpus(config.data)
    learnt, held_out = _images(corpus, config)
    sight = open_sight(config.model, config.loading)
    output_side(sight.image_processor)  # a vision encoder that is shown several tiles of an image is refused here
    with training_run(config, out, config.seed, HARDEN_OPERATIONAL) as run:
        hardening = _begin(config, sight, learnt, run)
        loss = hardening.fit(run)
        found = {"model": config.model, "measured": _measure(config, hardening, held_out, run)}
        run.write(HARDENED, found)
        summary = _summary(hardening, loss, learnt)
        card = _card(config, sight, corpus, summary)
        finish_run(run, lambda folder: sight.write(folder, _dtype(config), card), summary)
    return summary, found


def _begin(config: HardenConfig, sight: Sight, learnt: _Chosen, run: RunFolder) -> Hardening:
    """Everything that the steps need; a run that goes on must stand on the same images and weights."""
    from cxrlab.training.run_folder import weights_key

    images = _open(config, sight, learnt, run)
    run.stand_on({"images": images.key, "weights": weights_key(sight.model)})
    return Hardening(sight, sight.frozen(), images, learnt.names, config)


def _measure(config: HardenConfig, hardening: Hardening, held_out: _Chosen, run: RunFolder) -> dict[str, Any] | None:
    """Measure the vision encoder as it will be written."""
    hardening.sight.round_to(_dtype(config))
    images = _open(config, hardening.sight, held_out, run)
    records = measure(hardening.sight, hardening.before, images, held_out.names, config)
    run.write(MEASURED, "".join(f"{dumps(record)}\n" for record in records))
    return summarise_measurements(records, config)


def _images(corpus: Corpus, config: HardenConfig) -> tuple[_Chosen, _Chosen]:
    """What is learnt from and what is measured on; no patient is in both."""
    learnt = _draw(corpus, config.split, config.n, config.seed)
    held_out = _draw(corpus, "val", config.measure_n, config.seed)
    if not learnt.names:
        raise DataError(f"{corpus.path} has no frontal image in its {config.split} split; there is nothing to learn.")
    if config.measure_n and not held_out.names:
        raise DataError(f"{corpus.path} has no frontal image in its val split to measure on; give --measure-n 0.")
    if both := sorted(learnt.patients & held_out.patients):
        raise DataError(
            f"{corpus.path}: {len(both)} patients are in both the {config.split} and the val split (for example "
            f"'{both[0]}'); keep each patient in one split."
        )
    return learnt, held_out


def _draw(corpus: Corpus, split: str, n: int | None, seed: int) -> _Chosen:
    """At most n images of a split in the order of the corpus, drawn with the seed."""
    images: dict[str, ImageFile] = {}
    patients: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for study in corpus.studies(split):
        found = find_image_file(corpus, study)
        if isinstance(found, str):
            left_out[found] += 1
        else:
            images[study.id], patients[study.id] = found, study.patient
    names = list(images)
    if n is not None and n < len(names):
        drawn = sorted(generator(seed, STAGE, "films", split).permutation(len(names))[:n].tolist())
        names = [names[number] for number in drawn]
    return _Chosen(
        tuple(names), tuple(images[name] for name in names), frozenset(patients[name] for name in names), left_out
    )


def _open(config: HardenConfig, sight: Sight, chosen: _Chosen, run: RunFolder) -> Images:
    """The images at the size that the vision encoder takes, decoded once."""
    return open_images(chosen.files, sight.image_processor, config.cache or run.folder / CACHE)


def _summary(hardening: Hardening, loss: float, learnt: _Chosen) -> TrainingResult:
    sight = hardening.sight
    return TrainingResult(
        stage=STAGE,
        checkpoint=RESULT,
        steps=hardening.steps,
        samples=hardening.steps * hardening.config.batch_size,
        loss=loss,
        rows=len(learnt.names),
        left_out=learnt.left_out,
        trained_parameters=sum(value.numel() for value in sight.vision_encoder.parameters()),
        parameters=sum(value.numel() for value in sight.model.parameters()),
        extra={"eps": hardening.config.budget.label},
    )


def _card(config: HardenConfig, sight: Sight, corpus: Corpus, summary: TrainingResult) -> ModelCard | None:
    """The model's card with what was done to its encoder; None where nobody knows what it has learnt from before."""
    if sight.card is None:
        return None
    note = {"eps": config.budget.label, "norm": config.budget.norm, "steps": summary.steps, "seed": config.seed}
    seen = tuple(dict.fromkeys((*sight.card.collections, *known_collections(corpus.card))))
    extra = {**sight.card.extra, "hardened_vision_encoder": {"made_from": config.model, **note}}
    learnt = trained_on((sight.card.learnt_from, of_corpora([corpus.card.synthetic])))
    return replace(sight.card, collections=seen, base=None, trained_on=learnt, extra=extra)


def _dtype(config: HardenConfig) -> Any:
    """What the weights are written in."""
    import torch

    return torch.bfloat16 if config.loading.dtype == "bfloat16" else torch.float32


def _refuse_several_processes() -> None:
    from cxrlab.training.processes import count

    if count() > 1:
        raise ConfigError(f"hardening runs in one process and {count()} were launched; call cxrlab without a launcher.")


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


def measure(
    sight: Sight, before: See, images: Images, names: Sequence[str], config: HardenConfig
) -> list[dict[str, Any]]:
    """One record an image: see `summarise_measurements` for what its numbers are.

    Args:
        sight: The hardened vision encoder.
        before: The vision encoder as it was.
        images: Images that were not learnt from.
        names: Id of each.
        config: Radius, steps of the attack, batch and seed.
    """
    records: list[dict[str, Any]] = []
    size = config.batch_size
    batches = [range(first, min(first + size, len(images))) for first in range(0, len(images), size)]
    for chosen in track(batches, "measuring images before and after", len(images), size=len):
        all_images = as_images(images[chosen], sight.device)
        keys = [names[number] for number in chosen]
        with torch.no_grad():
            wanted, now = before(all_images), sight(all_images)
        columns = {
            "length": wanted.square().sum(dim=-1).mean(dim=1),
            "clean": squared_distances(now, wanted),
            "clean_cosine": _cosines(now, wanted),
        }
        for label, see in (("before", before), ("after", sight)):
            moved = _attacked(see, all_images, wanted, keys, config)
            columns[label] = squared_distances(moved, wanted)
            columns[f"{label}_cosine"] = _cosines(moved, wanted)
        told = {name: values.double().tolist() for name, values in columns.items()}
        records += [
            {"id": key, **{name: values[place] for name, values in told.items()}} for place, key in enumerate(keys)
        ]
    return records


def summarise_measurements(records: Sequence[Mapping[str, Any]], config: HardenConfig) -> dict[str, Any] | None:
    """Means over the images; None without any.

    `distance` is the squared distance of the features of a patch from those of the clean image before hardening;
    `share` is that over their own mean squared length; `cosine` that of the angle between the two.
    """
    if not records:
        return None
    mean = {name: math.fsum(one[name] for one in records) / len(records) for name in records[0] if name != "id"}

    def told(name: str) -> dict[str, float]:
        return {
            "distance": mean[name], "share": mean[name] / mean["length"], "cosine": mean[f"{name}_cosine"]
        }  # fmt: skip

    return {
        "n": len(records),
        "split": "val",
        "attack": {
            "name": "pgd",
            "norm": config.budget.norm,
            "eps": config.budget.label,
            "steps": config.measure_steps,
        },
        "attacked": {"before": told("before"), "after": told("after")},
        "clean": told("clean"),
    }


def _attacked(see: See, images: Tensor, wanted: Tensor, keys: Sequence[str], config: HardenConfig) -> Tensor:
    """Features of the images after an attack on this vision encoder, [B, P, D]."""
    attack = feature_attack(config.measure_steps)
    found = attack(FeatureDistance(see, wanted), images, config.budget, keys=keys, seed=config.seed)
    with torch.no_grad():
        return see(found.images)


def _cosines(features: Tensor, wanted: Tensor) -> Tensor:
    """[B], mean over the patches."""
    return cosine_similarity(features, wanted, dim=-1).mean(dim=1)

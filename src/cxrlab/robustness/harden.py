"""`cxrlab harden`: train a vision encoder so that the features of attacked images stay those of the clean ones.

    checkpoint/       the whole model with the new encoder, in the layout of transformers; load it as hf:RUN/checkpoint
    history.jsonl     losses on attacked and on clean images
    measured.jsonl    images of the val split: how far an attack moves their features, before and after
    harden.json       the means of that
    summary.json      steps, images and weights

A frozen copy of the encoder gives the reference features of the clean images. At every step, PGD searches the ball
around each image for the one whose features are farthest from them; then the encoder is trained to give the reference
features for it, and for the clean image. No labels or reports are used, and projector and language model stay as they
are.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
from cxrlab.core.plan import Plan, Work, scratch_folder
from cxrlab.core.randomness import generator
from cxrlab.core.terminal import track
from cxrlab.data.card import known_collections
from cxrlab.data.corpus import load_corpus
from cxrlab.models.local_files import load_torch
from cxrlab.models.model_card import ModelCard, of_corpora, trained_on
from cxrlab.robustness.config import HARDEN_OPERATIONAL, HARDENING_LOSSES, HardenConfig
from cxrlab.robustness.encoder_features import Encode, VisionEncoder, open_vision_encoder
from cxrlab.training import distributed, run_folder
from cxrlab.training.image_cache import ImageFile, Images, open_images, output_side
from cxrlab.training.run_folder import CACHE, HISTORY, RESULT, SUMMARY, RunFolder, TrainingResult, weights_key
from cxrlab.training.samples import find_image_file
from cxrlab.training.training_plan import Clock, steps_done, training_done

if TYPE_CHECKING:
    from cxrlab.data.corpus import Corpus

STAGE = "harden"
HARDENED, MEASURED = "harden.json", "measured.jsonl"
_STATE = "state.pt"
_TIMED_STEPS = 3  # that are taken for a plan
_WARMUP = 0.05  # share of the steps over which the learning rate rises
_REACH = 2.5  # an attack's steps add up to this many ε: enough to cross the ball from a random start


def harden(config: HardenConfig, out: Path) -> tuple[TrainingResult, dict[str, Any]]:
    """Harden a model's vision encoder; returns the training result and the content of harden.json.

    Args:
        out: Run folder; a stopped run continues from its last checkpoint and ends with the same weights, a finished one
            with the same settings is left as it is.

    Raises:
        ConfigError: When the model has no separate vision encoder.
        DataError: When there is no image to train or measure on, or a patient is in both splits.
    """
    require("models")
    if run_folder.training_finished(config, out, config.seed, HARDEN_OPERATIONAL):
        return run_folder.read_result(out), read_json(out / HARDENED)
    corpus, train, held_out, encoder = _prepare(config)
    dtype = torch.bfloat16 if config.loading.dtype == "bfloat16" else torch.float32
    with run_folder.training_run(config, out, config.seed, HARDEN_OPERATIONAL) as run:
        cache = config.cache or run.folder / CACHE
        images = open_images(train.files, encoder.image_processor, cache)
        run.check_basis({"images": images.key, "weights": weights_key(encoder.model)})
        reference = encoder.frozen()
        loss = Hardening(encoder, reference, images, train.names, config).fit(run)
        encoder.round_to(dtype)  # measured as it will be written
        images = open_images(held_out.files, encoder.image_processor, cache)
        records = measure(encoder, reference, images, held_out.names, config)
        run.write(MEASURED, "".join(f"{dumps(record)}\n" for record in records))
        found = {"model": config.model, "measured": mean_measurements(records, config)}
        run.write(HARDENED, found)
        steps = planned_steps(config, len(train.names))
        result = TrainingResult(
            stage=STAGE,
            checkpoint=RESULT,
            steps=steps,
            samples=steps * config.batch_size,
            loss=loss,
            rows=len(train.names),
            left_out=train.left_out,
            trained_parameters=sum(value.numel() for value in encoder.module.parameters()),
            parameters=sum(value.numel() for value in encoder.model.parameters()),
            extra={"eps": config.budget.label},
        )
        card = _hardened_card(encoder.card, config, corpus, steps)
        run.write_folder(RESULT, lambda folder: encoder.save(folder, dtype, card))
        run.write(SUMMARY, result)
        run.remove_steps()
    return result, found


def plan_hardening(config: HardenConfig, out: Path | None = None) -> Plan:
    """Take three steps and measure a batch of the val split, in a scratch folder.

    Args:
        out: A run folder that may hold a part of the training already.
    """
    require("models")
    if training_done(config, out, config.seed, HARDEN_OPERATIONAL):
        return Plan("harden", ())
    _, train, held_out, encoder = _prepare(config)
    size, clock = config.batch_size, Clock()
    few = train.first(size * _TIMED_STEPS)
    with scratch_folder() as folder:
        start = time.perf_counter()
        images = open_images(few.files, encoder.image_processor, folder)
        decoding_s = (time.perf_counter() - start) / len(few.files)
        cached = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / len(few.files)
        reference = encoder.frozen()
        hardening = Hardening(encoder, reference, images, few.names, config)
        optimiser = torch.optim.AdamW(encoder.module.parameters(), weight_decay=0.0)
        clock.tick()
        for step in range(min(_TIMED_STEPS, planned_steps(config, len(train.names)))):
            hardening.training_step(step, optimiser)
            clock.tick()
        both = len(train.files) + len(held_out.files)
        work = [
            Work("images into the cache", "image", both, decoding_s, measured=len(few.files)),
            clock.steps().work(planned_steps(config, len(train.names)), steps_done(out)),
        ]
        if held_out.names:
            some = held_out.first(size)
            images = open_images(some.files, encoder.image_processor, folder)
            start = time.perf_counter()
            measure(encoder, reference, images, some.names, config)
            each = (time.perf_counter() - start) / len(some.names)
            work.append(Work("images measured before and after", "image", len(held_out.names), each,
                             measured=len(some.names)))  # fmt: skip
    trained = sum(value.numel() for value in encoder.module.parameters())
    number = 2 if config.loading.dtype == "bfloat16" else 4
    result = number * sum(value.numel() for value in encoder.model.parameters())
    disk = (cached * both + result + (run_folder.KEPT + 1) * 12 * trained) / 1e9
    facts = {"images": len(train.names), "images_per_step": size, "trained_weights": trained}
    notes = ("loading the model, and writing checkpoints.",)
    return Plan("harden", tuple(work), disk_gb=disk, facts=facts, left_out=notes)


def _prepare(config: HardenConfig) -> tuple[Corpus, _ChosenImages, _ChosenImages, VisionEncoder]:
    """The corpus, the images to train and to measure on, and the vision encoder; whatever is wrong is refused here."""
    if (count := distributed.process_count()) > 1:
        raise ConfigError(f"Hardening runs in one process and {count} were launched; call cxrlab without a launcher.")
    corpus = load_corpus(config.data)
    train = _draw_images(corpus, config.split, config.n, config.seed)
    held_out = _draw_images(corpus, "val", config.measure_n, config.seed)
    if not train.names:
        raise DataError(f"{corpus.path} has no frontal image in its {config.split} split to train on.")
    if config.measure_n and not held_out.names:
        raise DataError(f"{corpus.path} has no frontal image in its val split to measure on; give --measure-n 0.")
    if both := sorted(train.patients & held_out.patients):
        raise DataError(
            f"{corpus.path}: {len(both)} patients are in both the {config.split} and the val split (for example "
            f"'{both[0]}'); keep each patient in one split."
        )
    encoder = open_vision_encoder(config.model, config.loading)
    output_side(encoder.image_processor)  # raises for an encoder that takes several tiles of an image
    return corpus, train, held_out, encoder


@dataclass(frozen=True)
class _ChosenImages:
    """Images of one split, and reason → studies without a usable image."""

    names: tuple[str, ...]
    files: tuple[ImageFile, ...]
    patients: frozenset[str]
    left_out: Mapping[str, int]

    def first(self, count: int) -> _ChosenImages:
        """The first so many."""
        return replace(self, names=self.names[:count], files=self.files[:count])


def _draw_images(corpus: Corpus, split: str, n: int | None, seed: int) -> _ChosenImages:
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
    return _ChosenImages(
        tuple(names), tuple(images[name] for name in names), frozenset(patients[name] for name in names), left_out
    )


def _hardened_card(card: ModelCard | None, config: HardenConfig, corpus: Corpus, steps: int) -> ModelCard | None:
    """The model's card with the hardening added; None where the model had none, as its training data are unknown."""
    if card is None:
        return None
    note = {"eps": config.budget.label, "norm": config.budget.norm, "steps": steps, "seed": config.seed}
    collections = tuple(dict.fromkeys((*card.collections, *known_collections(corpus.card))))
    extra = {**card.extra, "hardened_vision_encoder": {"made_from": config.model, **note}}
    sources = trained_on((card.learnt_from, of_corpora([corpus.card.synthetic])))
    return replace(card, collections=collections, base=None, trained_on=sources, extra=extra)


@dataclass(frozen=True, eq=False)
class StepFeatures:
    """Features of one batch, [B, P, D] each: of the attacked and clean images, and the reference features."""

    attacked: Tensor
    clean: Tensor
    reference: Tensor


def attacked_loss(step: StepFeatures) -> Tensor:
    """Squared distance of the features of attacked images from the reference."""
    return squared_distances(step.attacked, step.reference).mean()


def clean_loss(step: StepFeatures) -> Tensor:
    """Squared distance of the features of clean images from the reference."""
    return squared_distances(step.clean, step.reference).mean()


def squared_distances(features: Tensor, reference: Tensor) -> Tensor:
    """[B, P, D] twice → [B]: squared Euclidean distance of each patch's features, averaged over the patches."""
    return (features - reference).square().sum(dim=-1).mean(dim=1)


@dataclass(frozen=True, eq=False)
class Hardening:
    """Training of a vision encoder; a step depends only on its number and the weights before it."""

    encoder: VisionEncoder
    reference: Encode  # The vision encoder before training
    images: Images
    names: Sequence[str]  # Id of each image
    config: HardenConfig

    @cached_property
    def losses(self) -> Mapping[str, tuple[Callable[[StepFeatures], Tensor], float]]:
        """Loss by name, with its weight."""
        return {name: (HARDENING_LOSSES.load(name), weight) for name, weight in self.config.weights.items()}

    def fit(self, run: RunFolder) -> float:
        """Run the steps that are left; returns the loss in the last line of the history.

        Raises:
            RunError: When the loss is not finite.
        """
        config = self.config
        optimiser = torch.optim.AdamW(self.encoder.module.parameters(), weight_decay=0.0)
        done, recent = self._restore(run, optimiser)
        total = planned_steps(config, len(self.images))
        for step in track(range(done, total), "hardening", total=total - done):
            rate = rate_at(step, total, config.learning_rate)
            for group in optimiser.param_groups:
                group["lr"] = rate
            recent.append(self.training_step(step, optimiser))
            if not all(map(math.isfinite, recent[-1])):
                raise RunError(
                    f"The loss is {sum(recent[-1])} at step {step + 1} with a learning rate of {rate:.2g}; the last "
                    "checkpoint is kept. Use a lower --learning-rate in a new folder."
                )
            last = step + 1 == total
            if (step + 1) % config.log_every == 0 or last:
                columns = zip(self.losses, zip(*recent, strict=True), strict=True)
                means = {name: math.fsum(column) / len(recent) for name, column in columns}
                loss = sum(weight * means[name] for name, (_, weight) in self.losses.items())
                run.record({"step": step + 1, "loss": loss, **means, "learning_rate": rate})
                recent.clear()
            if (step + 1) % config.save_every == 0 or last:
                folder = run.steps / f"checkpoint-{step + 1}"
                state = {
                    "vision_encoder": self.encoder.module.state_dict(),
                    "optimiser": optimiser.state_dict(),
                    "seen": list(recent),
                }
                torch.save(state, make_folder(folder) / _STATE)
                run_folder.mark_complete(folder)
                run_folder.remove_old(run.steps)
        return float([line["loss"] for _, line in read_jsonl(run.folder / HISTORY)][-1])

    def training_step(self, step: int, optimiser: torch.optim.Optimizer) -> tuple[float, ...]:
        """Attack a batch, and take one optimiser step on its losses; returns them in the order of `losses`."""
        config = self.config
        chosen = batch_of(step, len(self.images), config.batch_size, config.seed)
        images = as_images(self.images[chosen], self.encoder.device)
        with torch.no_grad():
            reference = self.reference(images)
        # An image that occurs twice in a batch, or in a later batch, gets another start.
        keys = [f"{step} {place} {self.names[number]}" for place, number in enumerate(chosen)]
        attacked = attack_features(self.encoder, images, reference, keys, config, config.attack_steps)
        optimiser.zero_grad(set_to_none=True)
        found = self.encoder(torch.cat([attacked, images]))
        features = StepFeatures(found[: len(images)], found[len(images) :], reference)
        losses = [loss(features) for loss, _ in self.losses.values()]
        weights = [weight for _, weight in self.losses.values()]
        total = torch.stack([weight * loss for weight, loss in zip(weights, losses, strict=True)]).sum()
        total.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return tuple(loss.item() for loss in losses)

    def _restore(self, run: RunFolder, optimiser: torch.optim.Optimizer) -> tuple[int, list[tuple[float, ...]]]:
        """Number of steps done, and the losses that are not in the history yet."""
        found: Path | None = run_folder.resumable(run.steps)
        run_folder.remove_incomplete(run.steps)
        run.forget_after(run_folder.step_of(found) if found else 0)
        if found is None:
            return 0, []
        state = load_torch(found / _STATE, self.encoder.device)
        self.encoder.module.load_state_dict(state["vision_encoder"])
        optimiser.load_state_dict(state["optimiser"])
        return run_folder.step_of(found), [tuple(map(float, losses)) for losses in state["seen"]]


class FeatureDistance(Objective):
    """Move the features of an image away from its reference features; there is no success, only a distance.

    Args:
        encode: The vision encoder under attack.
        reference: Reference features of each image, [B, P, D].
    """

    name = "features"

    def __init__(self, encode: Encode, reference: Tensor) -> None:
        self._encode, self._reference = encode, reference

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Squared distance, averaged over the patches, [B]."""
        return squared_distances(self._encode(images), self._reference[list(rows)])

    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Never."""
        return torch.zeros(len(rows), dtype=torch.bool)


def attack_features(
    encode: Encode, images: Tensor, reference: Tensor, keys: Sequence[str], config: HardenConfig, steps: int
) -> Tensor:
    """The images whose features PGD found farthest from the reference; more steps are shorter ones."""
    attack = Pgd(AttackSettings(steps=steps, step_size=min(1.0, _REACH / steps)))
    return attack(FeatureDistance(encode, reference), images, config.budget, keys=keys, seed=config.seed).images


def as_images(images: NDArray[np.uint8], device: torch.device) -> Tensor:
    """8-bit images [B, H, W] or [B, H, W, 3] → float32 [B, C, H, W] in [0, 1]."""
    pixels = torch.from_numpy(np.ascontiguousarray(images)).to(device).float() / 255
    return pixels.unsqueeze(1) if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)


def planned_steps(config: HardenConfig, images: int) -> int:
    """Number of steps; the last epoch may end within a batch, which is then filled from the next epoch."""
    return config.steps if config.steps is not None else math.ceil(config.epochs * images / config.batch_size)


def batch_of(step: int, images: int, size: int, seed: int) -> list[int]:
    """Numbers of the images of a step, counted from 0; every epoch has its own order of all images."""
    places = range(step * size, (step + 1) * size)
    orders = {
        epoch: generator(seed, "harden", "order", epoch).permutation(images) for epoch in {p // images for p in places}
    }
    return [int(orders[place // images][place % images]) for place in places]


def rate_at(step: int, steps: int, highest: float) -> float:
    """Learning rate of a step, counted from 0: linear warm-up, then a cosine that would reach 0 after the last step."""
    rise = max(1, round(_WARMUP * steps))
    if step < rise:
        return highest * (step + 1) / rise
    return highest * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def measure(
    encoder: VisionEncoder, reference: Encode, images: Images, names: Sequence[str], config: HardenConfig
) -> list[dict[str, Any]]:
    """How far an attack moves the features of held-out images before and after hardening, one record per image.

    Both encoders are attacked with the same starts. Both are compared with the features of the clean images before
    hardening, since the projector was trained on those. See `mean_measurements` for the numbers.
    """
    records: list[dict[str, Any]] = []
    size = config.batch_size
    batches = [range(first, min(first + size, len(images))) for first in range(0, len(images), size)]
    for chosen in track(batches, "measuring images before and after", len(images), size=len):
        batch = as_images(images[chosen], encoder.device)
        keys = [names[number] for number in chosen]
        with torch.no_grad():
            before, features = reference(batch), {"clean": encoder(batch)}
        for label, encode in (("before", reference), ("after", encoder)):
            attacked = attack_features(encode, batch, before, keys, config, config.measure_steps)
            with torch.no_grad():
                features[label] = encode(attacked)
        columns = {"length": before.square().sum(dim=-1).mean(dim=1)}
        for label, moved in features.items():
            columns[label] = squared_distances(moved, before)
            columns[f"{label}_cosine"] = cosine_similarity(moved, before, dim=-1).mean(dim=1)
        values = {name: column.double().tolist() for name, column in columns.items()}
        records += [{"id": key, **{name: values[name][place] for name in values}} for place, key in enumerate(keys)]
    return records


def mean_measurements(records: Sequence[Mapping[str, Any]], config: HardenConfig) -> dict[str, Any] | None:
    """Means over the images; None without any.

    `distance` is the squared distance of a patch's features from those of the clean image before hardening; `share` is
    that over their own mean squared length; `cosine` is the cosine of the angle between the two.
    """
    if not records:
        return None
    mean = {name: math.fsum(one[name] for one in records) / len(records) for name in records[0] if name != "id"}
    rows = {
        name: {"distance": mean[name], "share": mean[name] / mean["length"], "cosine": mean[f"{name}_cosine"]}
        for name in ("before", "after", "clean")
    }
    return {
        "n": len(records),
        "split": "val",
        "attack": {
            "name": "pgd",
            "norm": config.budget.norm,
            "eps": config.budget.label,
            "steps": config.measure_steps,
        },
        "attacked": {"before": rows["before"], "after": rows["after"]},
        "clean": rows["clean"],
    }

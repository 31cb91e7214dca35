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

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import dumps
from cxrlab.core.randomness import generator
from cxrlab.data.card import known_collections
from cxrlab.data.corpus import load_corpus
from cxrlab.models.model_card import ModelCard, of_corpora, trained_on
from cxrlab.robustness.harden_config import OPERATIONAL, HardenConfig
from cxrlab.training.images import ImageFile, Images, open_images, output_side
from cxrlab.training.run_folder import (
    CACHE,
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
    from cxrlab.robustness.harden_steps import Hardening
    from cxrlab.robustness.vision_encoder_sight import Sight

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
    if training_finished(config, out, config.seed, OPERATIONAL):
        return read_result(out), read_json(out / HARDENED)
    _refuse_several_processes()
    from cxrlab.robustness.vision_encoder_sight import open_sight

    corpus = load_corpus(config.data)
    learnt, held_out = _images(corpus, config)
    sight = open_sight(config.model, config.loading)
    output_side(sight.image_processor)  # a vision encoder that is shown several tiles of an image is refused here
    with training_run(config, out, config.seed, OPERATIONAL) as run:
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
    from cxrlab.robustness.harden_steps import Hardening
    from cxrlab.training.fingerprint import weights_key

    images = _open(config, sight, learnt, run)
    run.stand_on({"images": images.key, "weights": weights_key(sight.model)})
    return Hardening(sight, sight.frozen(), images, learnt.names, config)


def _measure(config: HardenConfig, hardening: Hardening, held_out: _Chosen, run: RunFolder) -> dict[str, Any] | None:
    """Measure the vision encoder as it will be written."""
    from cxrlab.robustness.harden_measure import measure, summary

    hardening.sight.round_to(_dtype(config))
    images = _open(config, hardening.sight, held_out, run)
    records = measure(hardening.sight, hardening.before, images, held_out.names, config)
    run.write(MEASURED, "".join(f"{dumps(record)}\n" for record in records))
    return summary(records, config)


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

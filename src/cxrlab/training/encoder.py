"""Stage 1: contrastive training of a vision encoder with a text encoder, on images and their reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.install import require
from cxrlab.core.progress import track
from cxrlab.data.parallel import ordered_map
from cxrlab.findings.excerpts import present_sentences
from cxrlab.models.local_files import first_line, quiet_loading
from cxrlab.models.model_card import ModelCard, of_corpora, trained_on, write_model_card
from cxrlab.training.config import FREE, Also, EncoderConfig, also_of
from cxrlab.training.result import Training, conclude, read_result
from cxrlab.training.run_folder import CACHE, RESULT, RunFolder, concluded, training_run
from cxrlab.training.samples import Sample, Source, read_source

if TYPE_CHECKING:
    from cxrlab.training.contrastive_step import PairEncoder
    from cxrlab.training.encoder_parts import EncoderParts
    from cxrlab.training.order import Order
    from cxrlab.training.pair_rows import PairRows, Texts

_BLOCK = 128  # reports that a worker is given at once

Evaluate = Callable[[Any, int], Mapping[str, float]]
"""(dual encoder, step) → name → number."""


def train_encoder(config: EncoderConfig, out: Path, on_evaluate: Evaluate | None = None) -> Training:
    """Train a contrastive encoder into RUN/checkpoint, which `load_encoder` and stages 2 and 3 open.

    The loss of guessing is the logarithm of the pairs that a step compares; `extra` of the result has their number.

    Args:
        config: Settings.
        out: Run folder; a stopped run goes on, a finished one with the same settings is left as it is.
        on_evaluate: Asked for numbers every `evaluate_every` steps and at the end; they go into the history.
    """
    require("models")
    settings = config.optimisation
    if concluded(config, out, settings.seed, FREE):
        return read_result(out)
    from cxrlab.training.encoder_parts import load_parts
    from cxrlab.training.pair_rows import tokenise
    from cxrlab.training.processes import count

    compared = settings.batch_size * settings.accumulate * count()
    if compared < 2:
        raise ConfigError("a step of one pair has nothing to compare it with; use a batch_size of at least 2.")
    sources = _sources(config)
    parts = load_parts(config)
    texts = tokenise(parts.tokenizer, [one.report for source in sources for one in source.samples], parts.longest)
    order = _order(config, sources, texts, compared)
    module, unreached = _module(config, parts)
    with training_run(config, out, settings.seed, FREE) as run:
        rows = _rows(config, sources, parts, texts, run)
        steps, samples, loss = _fit(config, module, rows, order, run, on_evaluate)
        left_out: Counter[str] = sum((Counter(source.left_out) for source in sources), Counter())
        result = Training(
            stage="encoder",
            checkpoint=RESULT,
            steps=steps,
            samples=samples,
            loss=loss,
            rows=len(rows),
            left_out=left_out,
            cut=texts.cut,
            trained_parameters=sum(value.numel() for value in module.parameters() if value.requires_grad),
            parameters=sum(value.numel() for value in module.parameters()),
            extra={
                "compared": compared,
                "distinct_reports": len(np.unique(texts.keys)),
                "scale": float(parts.model.logit_scale.detach().exp()),
                "not_trained": unreached,
            },
        )
        conclude(run, partial(write_encoder, parts, _card(config, sources, parts, result)), result)
    return result


def write_encoder(parts: EncoderParts, card: ModelCard, folder: Path) -> None:
    """Model, tokenizer, image processor and card into a folder that `load_encoder` opens."""
    with quiet_loading():
        parts.model.cpu().eval().save_pretrained(folder)
    parts.tokenizer.save_pretrained(folder)
    parts.image_processor.save_pretrained(folder)
    write_model_card(card, folder)


def _sources(config: EncoderConfig) -> list[Source]:
    """The corpora; together they must hold at least two different reports."""
    main = read_source(Also(config.data, text=config.text), config.n, config.optimisation.seed)
    sources = [main, *(read_source(one) for one in also_of(config.also).values())]
    if config.statements == "present":
        sources = [_of_what_is_there(source) for source in sources]
    if len({sample.report for source in sources for sample in source.samples}) < 2:
        raise DataError(
            f"the reports of {', '.join(str(source.path) for source in sources)} are all the same, so no image can be "
            "told from another by its report."
        )
    return sources


def _of_what_is_there(source: Source) -> Source:
    """The same images with the sentences that state something present; captions are taken whole."""
    chests = [sample for sample in source.samples if sample.image is not None and not sample.image.rgb]
    blocks = [chests[first : first + _BLOCK] for first in range(0, len(chests), _BLOCK)]
    told: dict[str, str] = {}
    for found in track(ordered_map(_present, blocks), "reading reports", len(chests), size=len):
        told.update(found)
    samples = (replace(sample, report=told.get(sample.id, sample.report)) for sample in source.samples)
    return replace(source, samples=tuple(samples))


def _present(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    return [(sample.id, present_sentences(sample.report)) for sample in samples]


def _order(config: EncoderConfig, sources: Sequence[Source], texts: Texts, compared: int) -> Order:
    from cxrlab.training.order import Part, plan

    settings = config.optimisation
    passes = [Part(len(source.samples), source.weight) for source in sources]
    # Grouped by length an image would be compared with reports as long as its own: another, harder task.
    lengths = texts.lengths if settings.group_by_length else None
    return plan(passes, compared, settings.epochs, settings.steps, settings.seed, lengths)


def _module(config: EncoderConfig, parts: EncoderParts) -> tuple[PairEncoder, list[str]]:
    """What is trained, and the parts of it that the loss does not reach; a pair that does not fit is refused."""
    import torch

    from cxrlab.training.checks import check_memory
    from cxrlab.training.contrastive_step import PairEncoder, freeze_unreached
    from cxrlab.training.encoder_parts import memory

    settings = config.optimisation
    module = PairEncoder(parts.model, parts.image_processor, config.augmentation, settings.batch_size)
    try:
        unreached = freeze_unreached(
            module, parts.tokenizer(["a", "b"], padding=True, return_tensors="pt")["input_ids"]
        )
    except (RuntimeError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ConfigError(f"vision encoder and text encoder do not work as a pair ({first_line(error)}).") from error
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    check_memory(memory(parts.model, settings, parts.longest), device)
    if settings.gradient_checkpointing:
        # The model of two encoders has no such switch itself; CLIP has one for both.
        whole = parts.model.supports_gradient_checkpointing
        for part in (parts.model,) if whole else (parts.model.vision_model, parts.model.text_model):
            part.gradient_checkpointing_enable({"use_reentrant": False})
    return module, [name.removeprefix("model.") for name in unreached]


def _rows(
    config: EncoderConfig, sources: Sequence[Source], parts: EncoderParts, texts: Texts, run: RunFolder
) -> PairRows:
    from cxrlab.training.images import distinct, open_images
    from cxrlab.training.pair_rows import PairRows
    from cxrlab.training.processes import first_alone
    from cxrlab.training.trainer_settings import length_multiple

    images = [sample.image for source in sources for sample in source.samples if sample.image is not None]
    files, image_of = distinct(images)
    with first_alone():  # the others find the images decoded
        opened = open_images(
            files, parts.image_processor, config.cache or run.folder / CACHE,
            cache=config.cache_images, most_gb=config.cache_gb,
        )  # fmt: skip
    return PairRows(opened, image_of, texts, int(parts.tokenizer.pad_token_id), length_multiple())


def _fit(
    config: EncoderConfig, module: PairEncoder, rows: PairRows, order: Order, run: RunFolder,
    on_evaluate: Evaluate | None,
) -> tuple[int, int, float]:  # fmt: skip
    """Steps taken, pairs seen, and the last loss."""
    from cxrlab.training.contrastive_step import ContrastiveEngine
    from cxrlab.training.engine import Job, fit

    settings = config.optimisation
    evaluate = None if on_evaluate is None else lambda trained, step: on_evaluate(trained.model, step)
    job = Job(module, rows, order, "contrastive training", ContrastiveEngine, evaluate)
    # The engine sees the step's pairs of this process as one batch; the step itself takes them in pieces.
    whole = replace(settings, batch_size=settings.batch_size * settings.accumulate, accumulate=1)
    fitted = fit(job, whole, run)
    module.limit_scale()
    return fitted.steps, fitted.samples, fitted.loss


def _card(config: EncoderConfig, sources: Sequence[Source], parts: EncoderParts, result: Training) -> ModelCard:
    seen = (*parts.collections, *(name for source in sources for name in source.collections))
    start = (
        {"start": config.start}
        if config.start
        else {"vision_encoder": config.vision_encoder, "text_encoder": config.text_encoder}
    )
    return ModelCard(
        stage="encoder",
        collections=tuple(dict.fromkeys(seen)),
        trained_on=trained_on((parts.trained_on, of_corpora(source.synthetic for source in sources))),
        extra={
            "made_from": start,
            "seed": config.optimisation.seed,
            "steps": result.steps,
            "samples": result.samples,
            "corpora": [source.name for source in sources],
        },
    )

"""Stage 1: contrastive training of a vision encoder with a text encoder, or training on findings of the reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.terminal import track
from cxrlab.data.parallel import ordered_map
from cxrlab.findings.finding_sentences import present_sentences
from cxrlab.models.dual_encoder import longest_text, open_encoder
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import first_line, quiet_loading
from cxrlab.models.model_card import ModelCard, of_corpora, trained_on, write_model_card
from cxrlab.models.model_parts import folder_of, load_text_encoder, load_vision_encoder
from cxrlab.models.random_init import build_dual_encoder
from cxrlab.training.config import OPERATIONAL, EncoderConfig, Optimisation
from cxrlab.training.memory_estimate import Memory, activations
from cxrlab.training.run_folder import (
    BEST,
    CACHE,
    RESULT,
    SUMMARY,
    RunFolder,
    TrainingResult,
    read_result,
    training_finished,
    training_run,
)
from cxrlab.training.samples import Source, read_sources

if TYPE_CHECKING:
    from cxrlab.training.contrastive import PairEncoder, Texts
    from cxrlab.training.trainer import Job, Order

_BLOCK = 128  # reports per task of a worker


def train_encoder(config: EncoderConfig, out: Path) -> TrainingResult:
    """Train an encoder into RUN/checkpoint, which stages 2 and 3 open, and `load_encoder` where it is contrastive.

    The contrastive loss of guessing is the logarithm of the number of pairs compared per step, `extra["compared"]` of the result.

    Args:
        config: Settings.
        out: Run folder; a stopped run continues, a finished one with the same settings is left as it is.
    """
    require("models")
    settings = config.optimisation
    if training_finished(config, out, settings.seed, OPERATIONAL):
        return read_result(out)
    if config.objective == "findings":
        from cxrlab.training.findings_encoder import train_findings_encoder

        return train_findings_encoder(config, out)
    from cxrlab.training import best_weights
    from cxrlab.training.trainer import fit
    from cxrlab.training.validation import summarise_validation

    ready = prepare_encoder(config)
    parts, module, order, sources = ready.parts, ready.module, ready.order, ready.sources
    with training_run(config, out, settings.seed, OPERATIONAL) as run:
        job = encoder_job(ready, run)
        fitted = fit(job, in_one_batch(settings), run, config.track)
        module.limit_scale()
        left_out: Counter[str] = sum((Counter(source.left_out) for source in sources), Counter())
        result = TrainingResult(
            stage="encoder",
            checkpoint=RESULT,
            steps=fitted.steps,
            samples=fitted.samples,
            loss=fitted.loss,
            rows=len(job.rows),
            left_out=left_out,
            cut=ready.texts.cut,
            trained_parameters=sum(value.numel() for value in module.parameters() if value.requires_grad),
            parameters=sum(value.numel() for value in module.parameters()),
            extra={
                "compared": order.step,
                "distinct_reports": len(np.unique(ready.texts.keys)),
                "scale": float(parts.model.logit_scale.detach().exp()),
                "not_trained": [name.removeprefix("model.") for name in ready.unreached],
                **summarise_validation(ready.held_out, fitted),
            },
        )
        run.write_folder(RESULT, lambda folder: save_encoder(folder, config, sources, parts, result))
        if fitted.best is not None and run.writes:
            best_weights.restore(run.steps, fitted.best.step, module)
            module.limit_scale()
            then = replace(result, steps=fitted.best.step, samples=fitted.best.step * order.step)
            run.write_folder(BEST, lambda folder: save_encoder(folder, config, sources, parts, then))
        run.write(SUMMARY, result)
        run.remove_steps()
    return result


@dataclass(frozen=True, eq=False)
class PreparedEncoder:
    """A contrastive training before its run folder is made.

    Args:
        held_out: The validation split, None without one; `validated` has its chosen statements.
        unreached: Names of weights that no loss reaches.
        needed: Memory by the estimate.
    """

    config: EncoderConfig
    sources: list[Source]
    held_out: Source | None
    validated: list[Source]
    parts: EncoderParts
    texts: Texts
    validation_texts: Texts
    order: Order
    module: PairEncoder
    unreached: list[str]
    needed: Memory


def prepare_encoder(config: EncoderConfig) -> PreparedEncoder:
    """Read the corpora and open the encoders; whatever does not fit is refused here."""
    from cxrlab.training.contrastive import PairEncoder, freeze_unreached, tokenise
    from cxrlab.training.distributed import process_count, training_device
    from cxrlab.training.memory_estimate import check_memory
    from cxrlab.training.trackers import check_installed
    from cxrlab.training.trainer import Part, plan_steps
    from cxrlab.training.validation import validation_source

    settings = config.optimisation
    check_installed(config.track)
    refuse_sharding(settings)
    compared = settings.batch_size * settings.accumulate * process_count()
    if compared < 2:
        raise ConfigError("a step of one pair has nothing to compare it with; use a batch_size of at least 2.")
    sources, held_out = _read_sources(config), validation_source(config)
    validated = [_chosen_statements(held_out, config)] if held_out is not None else []
    parts = load_parts(config)
    texts, validation_texts = (
        tokenise(parts.tokenizer, [one.report for source in some for one in source.samples], parts.longest)
        for some in (sources, validated)
    )
    # By default not grouped by length, which would compare images with reports as long as their own: a harder task.
    order = plan_steps([Part(len(source.samples), source.weight) for source in sources], settings, texts.lengths)
    module = PairEncoder(parts.model, parts.image_processor, config.augmentation, settings.batch_size)
    try:
        probe = parts.tokenizer(["a", "b"], padding=True, return_tensors="pt")["input_ids"]
        unreached = freeze_unreached(module, probe)
    except (RuntimeError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ConfigError(f"vision encoder and text encoder do not work as a pair ({first_line(error)}).") from error
    needed = memory(parts.model, settings, parts.longest)
    check_memory(needed, training_device())
    if settings.gradient_checkpointing:
        # CLIP has one switch for both encoders; the model of two encoders has none itself.
        whole = parts.model.supports_gradient_checkpointing
        for part in (parts.model,) if whole else (parts.model.vision_model, parts.model.text_model):
            part.gradient_checkpointing_enable({"use_reentrant": False})
    return PreparedEncoder(
        config, sources, held_out, validated, parts, texts, validation_texts, order, module, unreached, needed
    )


def refuse_sharding(settings: Optimisation) -> None:
    """Stage 1 has no step over shared weights."""
    from cxrlab.training.distributed import shares_weights

    if shares_weights(settings):
        raise ConfigError("Stage 1 does not share its weights; give --optimisation.sharding none, or launch with "
                          "configs/distributed/ddp.yaml.")  # fmt: skip


def encoder_job(ready: PreparedEncoder, run: RunFolder, rows: Sequence[int] | None = None) -> Job:
    """What is trained, with its images decoded; those of some rows alone where they are given."""
    from cxrlab.training.contrastive import ContrastiveDataset, ContrastiveTrainer
    from cxrlab.training.distributed import main_process_first
    from cxrlab.training.image_cache import distinct, open_images
    from cxrlab.training.trainer import Job, length_multiple
    from cxrlab.training.validation import contrastive_validation

    config, parts, settings = ready.config, ready.parts, ready.config.optimisation

    def pairs(sources: Sequence[Source], texts: Texts, rows: Sequence[int] | None = None) -> ContrastiveDataset:
        samples = [sample for source in sources for sample in source.samples]
        files, image_of = distinct([image for sample in samples for image in sample.images])
        if rows is not None:
            used = np.unique(image_of[list(rows)])
            numbers = np.zeros(len(files), np.int64)
            numbers[used] = np.arange(len(used))
            files, image_of = [files[number] for number in used], numbers[image_of]
        folder, cache, most_gb = config.cache or run.folder / CACHE, config.cache_images, config.cache_gb
        with main_process_first():  # the other processes find the images decoded
            images = open_images(files, parts.image_processor, folder, cache=cache, most_gb=most_gb)
        return ContrastiveDataset(images, image_of, texts, int(parts.tokenizer.pad_token_id), length_multiple())

    dataset, evaluation = pairs(ready.sources, ready.texts, rows), None
    if ready.validated and rows is None:
        evaluation = contrastive_validation(
            pairs(ready.validated, ready.validation_texts), config.validation, settings.batch_size, ready.order.step,
            settings.seed,
        )  # fmt: skip
    return Job(ready.module, dataset, ready.order, "contrastive training", ContrastiveTrainer, evaluation)


def in_one_batch(settings: Optimisation) -> Optimisation:
    """The trainer sees all pairs of a step as one batch; `ContrastiveTrainer` splits it into forward passes."""
    return replace(settings, batch_size=settings.batch_size * settings.accumulate, accumulate=1)


def save_encoder(
    folder: Path, config: EncoderConfig, sources: Sequence[Source], parts: EncoderParts, result: TrainingResult
) -> None:
    """Write model, tokenizer, image processor and card into a folder that `load_encoder` opens."""
    with quiet_loading():
        parts.model.cpu().eval().save_pretrained(folder)
    parts.tokenizer.save_pretrained(folder)
    parts.image_processor.save_pretrained(folder)
    seen = (*parts.collections, *(name for source in sources for name in source.collections))
    made_from = (
        {"start": config.start}
        if config.start
        else {"vision_encoder": config.vision_encoder, "text_encoder": config.text_encoder}
    )
    card = ModelCard(
        stage="encoder",
        collections=tuple(dict.fromkeys(seen)),
        trained_on=trained_on((parts.trained_on, of_corpora(source.synthetic for source in sources))),
        extra={
            "made_from": made_from,
            "seed": config.optimisation.seed,
            "steps": result.steps,
            "samples": result.samples,
            "corpora": [source.name for source in sources],
        },
    )
    write_model_card(card, folder)


def _read_sources(config: EncoderConfig) -> list[Source]:
    """The corpora, with all sentences or the present findings alone; they must hold two different reports."""
    sources = [_chosen_statements(source, config) for source in read_sources(config)]
    if len({sample.report for source in sources for sample in source.samples}) < 2:
        raise DataError(
            f"the reports of {', '.join(str(source.path) for source in sources)} are all the same, so images cannot be "
            "distinguished by their reports."
        )
    return sources


def _chosen_statements(source: Source, config: EncoderConfig) -> Source:
    """The samples with all sentences of their reports, or with the present findings alone."""
    if config.statements == "all":
        return source
    # Captions of pictures without a chest are taken whole.
    chests = [not sample.images[0].rgb for sample in source.samples]
    texts = list(dict.fromkeys(one.report for one, chest in zip(source.samples, chests, strict=True) if chest))
    blocks = [texts[first : first + _BLOCK] for first in range(0, len(texts), _BLOCK)]
    present = track(ordered_map(_present, blocks), "reading reports", len(texts), size=len)
    found = dict(zip(texts, (text for block in present for text in block), strict=True))
    samples = tuple(
        replace(sample, report=found[sample.report]) if chest else sample
        for sample, chest in zip(source.samples, chests, strict=True)
    )
    return replace(source, samples=samples)


def _present(reports: Sequence[str]) -> list[str]:
    return [present_sentences(report) for report in reports]


@dataclass(frozen=True, eq=False)
class EncoderParts:
    """A dual encoder before training.

    Args:
        model: With `get_image_features`, `get_text_features` and `logit_scale`, every weight trained.
        tokenizer: Of its text encoder; its `model_max_length` is `longest`.
        image_processor: Of its vision encoder.
        longest: Most tokens per report.
        collections: Collections of images that the vision encoder was trained on.
        trained_on: See `ModelCard.learnt_from`.
    """

    model: Any
    tokenizer: Any
    image_processor: Any
    longest: int
    collections: tuple[str, ...]
    trained_on: str | None = None


def load_parts(config: EncoderConfig) -> EncoderParts:
    """Open or build the dual encoder that a config names, in float32 on the CPU."""
    import torch

    from cxrlab.models.biomedclip import ProjectedDualEncoder, ProjectedDualEncoderConfig
    from cxrlab.training.image_cache import sized_processor

    seed, width, any_size = config.optimisation.seed, config.projection_dim, False
    if config.start is not None:
        kind, _, argument = config.start.partition(":")
        if kind not in ("hf", "builtin") or not argument:
            raise ConfigError(f"start={config.start!r} does not name a dual encoder; write hf:FOLDER or builtin:NAME.")
        opened = open_encoder(folder_of(config.start), LoadSettings(device="cpu", dtype="float32"))
        if str(opened.model.config.model_type).startswith("siglip"):
            raise ConfigError(
                f"start={config.start!r} is a SigLIP, which was trained with another loss; take a CLIP or dual encoder."
            )
        model, tokenizer, image_processor = opened.model, opened.tokenizer, opened.image_processor
        collections, learnt = (opened.card.collections, opened.card.learnt_from) if opened.card else ((), None)
    else:
        vision = load_vision_encoder(str(config.vision_encoder), seed=seed, image_size=config.image_size)
        text = load_text_encoder(str(config.text_encoder), seed=seed + 1)
        if config.text_head == "bert":
            model = build_dual_encoder(vision.model, text.model, width, seed + 2)
        else:  # BiomedCLIP: first token and two matrices with a GELU between them; hidden width as in open_clip
            hidden = (int(text.model.config.hidden_size) + width) // 2
            shape = ProjectedDualEncoderConfig.from_vision_text_configs(
                vision.model.config, text.model.config, projection_dim=width, text_hidden=hidden, text_pooling="first"
            )
            torch.manual_seed(seed + 2)
            model = ProjectedDualEncoder(config=shape, vision_model=vision.model, text_model=text.model)
        tokenizer, image_processor, any_size = text.tokenizer, vision.image_processor, vision.any_size
        collections, learnt = vision.collections, vision.trained_on
    wanted = None if any_size else config.image_size
    image_processor = sized_processor(image_processor, int(model.config.vision_config.image_size), wanted)
    if tokenizer.pad_token_id is None:
        raise ConfigError("the tokenizer of the text encoder has no padding token, so reports make no batch.")
    longest = min(config.optimisation.max_length, longest_text(model, tokenizer))
    tokenizer.model_max_length = longest
    return EncoderParts(model.requires_grad_(True), tokenizer, image_processor, longest, collections, learnt)


def memory(model: Any, settings: Optimisation, longest: int) -> Memory:
    """Rough memory of the training on one device; see `training.memory_estimate.estimate`.

    Validation takes no more: batches of the same size and length, without gradients.
    """
    weights = sum(value.numel() * value.element_size() for value in model.parameters())
    trained = sum(value.numel() for value in model.parameters() if value.requires_grad)
    number = 2 if settings.precision == "bfloat16" else 4
    vision, text = model.config.vision_config, model.config.text_config
    kept = 0
    for config, tokens in ((vision, (vision.image_size // vision.patch_size) ** 2 + 1), (text, longest)):
        kept += activations(config, tokens, settings.gradient_checkpointing)
    return Memory(weights, 3 * 4 * trained, settings.batch_size * kept * number)

"""Estimate a training from sizes alone: operations of its samples on a named GPU, and the memory of the check."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cxrlab.core.environment import require
from cxrlab.core.llm_requests import estimate_tokens
from cxrlab.core.plan import Plan, Work
from cxrlab.models.hf.operations import TRAINING, Gpus, Shape, open_sizes, sample_flops, shape_of, with_adapters
from cxrlab.training.config import AdapterConfig, AlignConfig, FinetuneConfig, Optimisation, ReportConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cxrlab.training.memory_estimate import Memory
    from cxrlab.training.samples import Sample

PROMPT = 60  # tokens of a prompt without its image and indication
NOTES = (
    "the shares of the data sheet were measured with 7 billion weights on one H200; smaller models reach less.",
    "validations, reading images, sums over GPUs, and writing checkpoints.",
)


def estimate_report_training(stage: str, config: AlignConfig | FinetuneConfig, gpus: Gpus) -> Plan:
    """Stage 2 or 3 on the samples of its corpora; the start needs its config.json alone."""
    require("models")
    from cxrlab.training.samples import read_sources

    finetunes = isinstance(config, FinetuneConfig)
    sources = read_sources(config)
    model = open_sizes(config.start, config.encoder, config.language_model)
    lengths = sample_lengths(shape_of(model, features_kept=False), [s for source in sources for s in source.samples])
    samples = sum(len(source.samples) for source in sources)
    return training_of_sizes(f"train {'finetune' if finetunes else stage}", config, model, gpus, samples, *lengths)


def sample_lengths(shape: Shape, samples: Iterable[Sample]) -> tuple[int, int, int]:
    """Mean tokens per sample, mean tokens per report, and tokens of the longest sample, estimated from their texts."""
    found = [
        (
            estimate_tokens(one.report),
            estimate_tokens(one.indication or "") + shape.image_tokens * max(1, len(one.images)),
        )
        for one in samples
    ]
    whole = [report + given + PROMPT for report, given in found]
    return round(statistics.fmean(whole)), round(statistics.fmean(report for report, _ in found)), max(whole)


def training_of_sizes(
    command: str, config: ReportConfig, model: Any, gpus: Gpus, samples: int, tokens: int, report: int, longest: int
) -> Plan:
    """So many samples of so many tokens.

    Args:
        model: A LLaVA, on the device `meta`.
        tokens: Per sample, image included.
        report: Tokens per report.
        longest: Tokens of the longest sample.
    """
    settings = config.optimisation
    needed = memory_per_gpu(model, config, settings, gpus, longest)
    each = gpus.seconds(training_operations(model, config, tokens, report), TRAINING)
    seen = seen_samples(settings, samples, gpus)
    facts = {**gpus.facts(needed.whole), "samples": samples, "tokens_per_sample": tokens}
    work = (Work("training samples", "sample", seen, each),)
    return Plan(command, work, None, needed.whole / 1e9, facts=facts, left_out=NOTES)


def seen_samples(settings: Optimisation, samples: int, gpus: Gpus) -> int:
    """Samples of all steps."""
    if settings.steps is not None:
        return settings.steps * settings.batch_size * settings.accumulate * gpus.count
    return round(settings.epochs * samples)


def training_operations(model: Any, config: ReportConfig, tokens: int, report: int) -> float:
    """Of one sample, forward and backward; a language model that is trained whole has gradients of its weights too."""
    kept = config.cache_features != "off" and not config.train_vision_encoder
    shape = shape_of(model, features_kept=kept)
    rank = config.lora_rank if isinstance(config, AdapterConfig) else 0
    if rank:
        shape = with_adapters(shape, model, rank)
    operations = sample_flops(shape, tokens, report)
    if config.train_language and not rank:
        operations += 2.0 * shape.linear * tokens + 2.0 * shape.output * report
    if config.train_vision_encoder:
        operations += 2 * shape.encoder_operations
    return operations


def memory_per_gpu(
    model: Any, config: ReportConfig, settings: Optimisation, gpus: Gpus, longest: int, *, whole_weights: bool = False
) -> Memory:
    """The estimate of `check_fits` for a LLaVA, where so many GPUs train together."""
    from cxrlab.training.align_finetune import count_trainable
    from cxrlab.training.memory_estimate import estimate, estimate_vision, gathered_weights
    from cxrlab.training.report_model import language_linears

    quantised = 0
    if isinstance(config, AdapterConfig) and config.quantise != "none":
        quantised = sum(model.get_submodule(name).weight.numel() for name in language_linears(model))
    needed = estimate(model, settings, longest, count_trainable(model, config), 0, quantised)
    if config.train_vision_encoder:
        patches = shape_of(model, features_kept=False).image_tokens
        needed += estimate_vision(model, settings, patches, trained=True)
    if settings.sharding != "none" and gpus.count > 1:
        gathered = needed.weights if whole_weights else gathered_weights(model, settings)
        needed = replace(needed.shared(gpus.count, gathered))
    return needed

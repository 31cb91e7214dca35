"""Plan a run of `generate`: its time and memory on this machine, measured on a few of its studies before anything is written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.plan import Plan, Work, count_lines
from cxrlab.core.records import Prediction
from cxrlab.core.runs import progress
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import (
    OPERATIONAL,
    PREDICTIONS,
    Images,
    MissingReport,
    ReportGenerator,
    plan_batches,
    prepare,
    read_cache,
    sample_ids,
    select_studies,
)
from cxrlab.models.hf.operations import Gpus, open_sizes, shape_of


@dataclass(frozen=True)
class GenerationTime:
    """The time of generation, measured on two batches from all over a run.

    Args:
        once_s: What the first batch took longer than the second: kernels are chosen, graphs captured.
    """

    studies: int  # of both batches
    batch_size: int  # the largest that fits in memory, up to the requested one
    once_s: float
    seconds_each: float  # per study, of the second batch
    mean_tokens: float | None  # per report measured; None where the model does not report them

    def work(self, name: str, count: int, done: int = 0, unit: str = "report") -> Work:
        """So many reports at this speed."""
        return Work(name, unit, count, self.seconds_each, done, self.once_s, self.studies)


def plan_generation(config: GenerateConfig, out: Path | None = None) -> Plan:
    """Generate two batches of the run and discard them.

    Requests to a model behind an address may cost money: they are counted, and none is sent.

    Args:
        out: A run folder that may hold a part of the run already.
    """
    state = progress(out, config, seed=config.seed, operational=OPERATIONAL)
    if state == "finished":
        return Plan("generate", ())
    done = count_lines(out, PREDICTIONS) if state == "begun" else 0
    ready = prepare(config)
    model, controls = ready.generator.model, min(len(ready.ids), config.control_studies) * len(config.controls)
    if model.capabilities.black_box:
        most = config.decoding.max_new_tokens
        work = [
            Work(name, "request", count, done=had, answer_tokens=most * (count - had))
            for name, count, had in (("reports", len(ready.ids), done), ("reports of control images", controls, 0))
        ]
        return Plan("generate", tuple(work), left_out=("tokens of prompts and images, which the server counts.",))
    if not isinstance(ready.generator, ReportGenerator):
        raise ConfigError("--plan measures one process; call cxrlab without a launcher.")
    timed = time_generation(ready.generator, ready.images, ready.ids, config.batch_size, config.seed)
    work = [timed.work("reports", len(ready.ids), done)]
    if controls:
        work.append(Work("reports of control images, at most", "report", controls, timed.seconds_each))
    facts = {
        "reports_per_second": 1 / timed.seconds_each if timed.seconds_each else None,
        "batch": timed.batch_size,
        "tokens_per_report": timed.mean_tokens,
        "key-value_cache": read_cache(model),
    }
    note = f"longer reports elsewhere in the split take longer than the {timed.studies:,} that were measured."
    return Plan("generate", tuple(work), facts=facts, left_out=(note, "loading the model."))


def time_generation(
    generator: ReportGenerator, images: Images, ids: Sequence[str], batch_size: int, seed: int
) -> GenerationTime:
    """Generate two batches; a `DataError` where none of their studies gets a report."""
    answers: list[Prediction] = []
    missing: list[MissingReport] = []

    def measure(size: int) -> list[tuple[int, float]]:
        """Studies and seconds of two batches, from all over the run."""
        answers.clear()
        missing.clear()
        found = []
        some = sample_ids(ids, 2 * size, seed)
        for batch, _ in plan_batches(images, some, size, window=size):
            start = time.perf_counter()
            outcomes = [outcome for _, outcome in next(generator.outcomes(images, [batch]))]
            found.append((len(batch), time.perf_counter() - start))
            answers.extend(one for one in outcomes if isinstance(one, Prediction))
            missing.extend(one for one in outcomes if isinstance(one, MissingReport))
        return found

    size = BatchSize(batch_size)
    batches = size.retry(measure, len(ids))
    if not answers:
        raise DataError(
            f"no time can be measured: none of {len(missing)} studies got a report (for example: {missing[0].reason})"
        )
    (first, first_s), (last, last_s) = batches[0], batches[-1]
    each = last_s / last
    tokens = [count for one in answers if (count := one.confidence.get("tokens")) is not None]
    return GenerationTime(
        studies=sum(count for count, _ in batches),
        batch_size=size.current,
        once_s=max(0.0, first_s - first * each),
        seconds_each=each,
        mean_tokens=sum(tokens) / len(tokens) if tokens else None,
    )


def estimate_generation(config: GenerateConfig, gpus: Gpus) -> Plan:
    """The run from sizes alone, on the studies of its split; the model needs its config.json alone."""
    corpus = load_corpus(config.data)
    ids = select_studies(corpus, config.split, config.n, config.seed)
    return generation_of_sizes(config, open_sizes(config.model), gpus, len(ids))


def generation_of_sizes(config: GenerateConfig, model: Any, gpus: Gpus, reports: int, prompt: int = 60) -> Plan:
    """So many reports that are as long as `max_new_tokens`, after an image and so many other tokens."""
    shape, new = shape_of(model, features_kept=False), config.decoding.max_new_tokens
    tokens = shape.image_tokens + prompt
    each = shape.report_seconds(gpus, tokens, new, config.batch_size)
    weights = 2 * sum(value.numel() for value in model.parameters())
    needed = weights + 2 * shape.layers * shape.cache_width * (tokens + new) * config.batch_size
    controls = min(reports, config.control_studies) * len(config.controls)
    work = [Work("reports", "report", reports, each)]
    work += [Work("reports of control images, at most", "report", controls, each)] if controls else []
    facts = {**gpus.facts(needed), "tokens_per_prompt": tokens, "tokens_per_report": new}
    notes = ("reports that end before their longest length take less.", "loading the model, and activations.")
    return Plan("generate", tuple(work), None, needed / 1e9, facts=facts, left_out=notes)

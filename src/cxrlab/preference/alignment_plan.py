"""Plan a preference training: take a few of its steps in a scratch folder, and generate two batches of its reports."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.environment import require
from cxrlab.core.plan import Plan, Work, scratch_folder
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.counted_requests import NOTE, CountedModels
from cxrlab.evaluation.generation_plan import plan_generation
from cxrlab.models.hf.operations import PREFILL, TRAINING, Gpus, open_sizes, shape_of
from cxrlab.preference.config import OPERATIONAL, PreferConfig
from cxrlab.preference.train import make_alignment_job, prepare_alignment
from cxrlab.training.run_folder import CACHE, training_run
from cxrlab.training.size_estimate import NOTES, memory_per_gpu, sample_lengths, seen_samples, training_operations
from cxrlab.training.training_plan import (
    check_one_process,
    evaluations,
    first_rows,
    steps_done,
    time_steps,
    training_disk,
    training_done,
    with_images_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cxrlab.preference.dataset import PreferenceDataset


def plan_alignment(config: PreferConfig, out: Path | None = None) -> Plan:
    """Time a few steps, the reference of two batches, a part of a validation, and reports for the comparison.

    Args:
        out: A run folder that may hold a part of the training already.
    """
    require("models")
    from cxrlab.preference.checkpoint_selection import CheckpointSelector

    check_one_process()
    settings, validation = config.optimisation, config.validation
    trained = training_done(config, out, settings.seed, OPERATIONAL)
    measured = _comparison(config)
    if trained:
        return Plan("prefer train", tuple(measured))
    gc.collect()  # the start, which is opened again
    ready = prepare_alignment(config)
    items = first_rows(ready.order)
    rows = [row for item in items for row in (2 * item, 2 * item + 1)]
    few = replace(ready, rows=replace(ready.rows, reports=with_images_of(ready.rows.reports, rows)))
    scratch = replace(
        config, cache=None, validation=replace(validation, n=min(validation.n, 2 * validation.batch_size))
    )
    models = CountedModels(config.llm, [load_corpus(config.data).egress_data])
    selector = CheckpointSelector(scratch, ready.prompts, ready.start, models)
    reference: list[Work] = []

    def some(module: Any, dataset: PreferenceDataset) -> NDArray[np.float32]:
        """The reference of the items of two batches; the time of a step does not depend on the values of the others."""
        found = np.zeros((len(dataset), 2), np.float32)
        reference.append(_time_reference(module, dataset, items, found, config))
        return found

    with scratch_folder() as folder, training_run(scratch, folder / "run", settings.seed, OPERATIONAL) as run:
        started = time.perf_counter()
        job, _ = make_alignment_job(replace(few, config=scratch), run, selector.evaluation, some)
        prepared_s = time.perf_counter() - started - sum(one.seconds or 0.0 for one in reference)
        cached = sum(file.stat().st_size for file in (run.folder / CACHE).rglob("*") if file.is_file())
        timed = time_steps(job, settings, run)
        disk = training_disk(job.module, config)
    images, files = len(few.rows.reports.files), len(ready.rows.reports.files)
    work = [timed.work(ready.order.steps, steps_done(out))]
    work[:0] = [replace(one, count=len(ready.rows), measured=one.count) for one in reference]
    if cached:
        work.insert(0, Work("images into the cache", "image", files, prepared_s / images, measured=images))
        disk += cached / images * files
    notes = ["reading the corpora, loading the model, and writing checkpoints."]
    if selector.evaluation is not None:
        times = evaluations(ready.order.steps, selector.evaluation)
        share = min(validation.n, _with_findings(config)) / scratch.validation.n
        work.append(Work("validations", "validation", times, timed.evaluation_s * max(1.0, share)))
        for one in models.work():
            work.append(one.times(round(times * max(1.0, share))))
            notes.append(NOTE)
    if measured:
        notes.append("scores, log-probabilities and closed questions of the comparison.")
    trained_weights = sum(value.numel() for value in job.module.parameters() if value.requires_grad)
    facts = {"rows": len(ready.rows), "rows_per_step": ready.order.step, "trained_weights": trained_weights}
    return Plan(
        "prefer train",
        (*work, *measured),
        estimated_gb=ready.needed.whole / 1e9,
        disk_gb=disk / 1e9,
        facts=facts,
        left_out=tuple(dict.fromkeys(notes)),
    )


def estimate_alignment(config: PreferConfig, gpus: Gpus) -> Plan:
    """The training from sizes alone, on the rows of its file; the start needs its config.json alone."""
    require("models")
    from cxrlab.preference.dataset import read_preferences

    judged = read_preferences(
        config.pairs, config.data, paired=config.loss.kind.paired, n=config.n, context=config.context,
        seed=config.optimisation.seed,
    )  # fmt: skip
    model = open_sizes(config.start)
    lengths = sample_lengths(shape_of(model, features_kept=False), judged.source.samples)
    return alignment_of_sizes(config, model, gpus, len(judged), *lengths)


def alignment_of_sizes(
    config: PreferConfig, model: Any, gpus: Gpus, rows: int, tokens: int, report: int, longest: int
) -> Plan:
    """So many rows of two reports each; for the other arguments see `training_of_sizes`."""
    settings, shape = config.optimisation, shape_of(model, features_kept=False)
    both = replace(settings, batch_size=2 * settings.batch_size)
    whole = config.loss.kind.needs_reference or bool(config.validation.n)
    needed = memory_per_gpu(model, config, both, gpus, longest, whole_weights=whole)
    seen = seen_samples(settings, rows, gpus)
    each = 2 * gpus.seconds(training_operations(model, config, tokens, report), TRAINING)
    work = [Work("training rows", "row", seen, each)]
    if config.loss.kind.needs_reference:
        forward = 2 * gpus.seconds(shape.forward(tokens, report), PREFILL)
        work.insert(0, Work("reference log-probabilities", "row", rows, forward))
    one, prompt = Gpus(gpus.name), tokens - report
    if config.validation.n:
        steps = seen // (settings.batch_size * settings.accumulate * gpus.count)
        every = config.validation.every or max(steps, 1)
        size = config.validation.batch_size
        spent = shape.report_seconds(one, prompt, config.validation.max_new_tokens, size)
        count = config.validation.n * (1 + -(-steps // every))
        work.append(Work("reports of validations, by one GPU", "report", count, spent))
    if config.measure.n:
        spent = shape.report_seconds(one, prompt, config.measure.max_new_tokens, config.measure.batch_size)
        count = config.measure.n * (2 + config.measure.drift)
        work.append(Work("reports of the comparison, by one GPU", "report", count, spent))
    facts = {**gpus.facts(needed.whole), "rows": rows, "tokens_per_report_and_image": tokens}
    return Plan("prefer train", tuple(work), None, needed.whole / 1e9, facts=facts, left_out=NOTES)


def _time_reference(
    module: Any, rows: PreferenceDataset, items: list[int], found: NDArray[np.float32], config: PreferConfig
) -> Work:
    """Log-probabilities of the items of two batches, into `found`; the second is timed."""
    from cxrlab.preference.dataset import batch_log_probabilities

    size, each, done = config.optimisation.batch_size, 0.0, 0
    module.eval()
    for first in range(0, min(len(items), 2 * size), size):
        batch = items[first : first + size]
        start = time.perf_counter()
        found[batch] = batch_log_probabilities(module, rows, batch, config.optimisation.precision)
        each, done = (time.perf_counter() - start) / len(batch), done + len(batch)
    module.train()
    return Work("reference log-probabilities", "row", done, each)


def _with_findings(config: PreferConfig) -> int:
    """Studies that a validation can be made of."""
    studies = load_corpus(config.data).studies(config.validation.split)
    return sum(1 for study in studies if study.sections and study.sections.findings)


def _comparison(config: PreferConfig) -> list[Work]:
    """Reports of the start, which take the place of those after the training, and of the drift."""
    from cxrlab.preference.measure_alignment import reports_config
    from cxrlab.training.report_model import start_model_name

    measure = config.measure
    if not measure.n:
        return []
    start, data = start_model_name(config.start), measure.data or config.data
    given = reports_config(start, data, measure, config.optimisation.seed, config.context)
    names = {"reports": "reports before, after and for the drift" if measure.drift else "reports before and after"}
    return [
        replace(one.times(2 + (measure.drift and one.name == "reports")), name=names.get(one.name, one.name))
        for one in plan_generation(given).work
    ]

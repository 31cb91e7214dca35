"""Preference training: a report model learns to write what was judged better.

    checkpoint/        the aligned model: an adapter on the start, or with lora_rank 0 a whole LLaVA
    history.jsonl      loss, ratios and accuracy of the last batch; what was watched stands among them
    selection.json     which step was kept, and why
    measured/          the model before and after, compared; see `cost`
    preference.json    what that came to

The start is the reference. Its log-probabilities are computed once; afterwards only the model that is trained is
in memory, and each image is looked at once for both reports of a pair, or not at all where features are kept.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_json, write_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.data.corpus import load_corpus
from cxrlab.models.model_card import ModelCard, trained_on
from cxrlab.models.prompts import Prompts
from cxrlab.preference.config import OPERATIONAL, PreferConfig
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
from cxrlab.training.samples import Sample

if TYPE_CHECKING:
    from cxrlab.preference.dataset import Judged, PreferenceDataset
    from cxrlab.training.report_dataset import Lesson
    from cxrlab.training.trainer import Order

SELECTION, PREFERENCE, MEASURED = "selection.json", "preference.json", "measured"
STAGE = "prefer"


def prefer(
    config: PreferConfig, out: Path, before_in: Path | None = None
) -> tuple[TrainingResult, dict[str, Any] | None]:
    """Align a model and compare it with what it was; returns both results, the second None when nothing is measured.

    Args:
        config: Settings.
        out: Run folder; a stopped run goes on, a finished one with the same settings is left as it is.
        before_in: Folder for what the start wrote, where runs from one start share it; see `measure_alignment`.
    """
    _check_measured(config)
    done = train(config, out)
    if not config.measure.n:
        return done, None
    from cxrlab.training import processes

    with processes.first_alone():  # the others find it done
        if not (out / PREFERENCE).is_file():
            _measure(config, out, done, before_in)
    found: dict[str, Any] = read_json(out / PREFERENCE)
    return done, found


def _check_measured(config: PreferConfig) -> None:
    """Nothing is trained where there is nothing to measure it on afterwards."""
    data = config.measure.data or config.data
    if config.measure.n and not load_corpus(data).ids(config.measure.split):
        raise DataError(
            f"{data} has no study in its {config.measure.split} split to measure on; give another with "
            "--measure.split or --measure.data, or --measure.n 0."
        )


def _measure(config: PreferConfig, out: Path, done: TrainingResult, before_in: Path | None) -> None:
    from cxrlab.preference.measure import measure_alignment
    from cxrlab.training.llava import start_model_name

    found = measure_alignment(
        start_model_name(config.start),
        f"hf:{out / done.checkpoint}",
        config.measure.data or config.data,
        config.measure,
        out / MEASURED,
        config.optimisation.seed,
        before_in,
    )
    write_json(out / PREFERENCE, {**found, "selection": read_json(out / SELECTION), "watched": watched_lines(out)})


def watched_lines(out: Path) -> list[dict[str, Any]]:
    """What was watched, step after step, from the history of a run."""
    lines = (line for _, line in read_jsonl(out / HISTORY))
    return [{"step": line["step"], **line["evaluation"]} for line in lines if line.get("evaluation")]


def train(config: PreferConfig, out: Path) -> TrainingResult:
    """Align a model by pairs or by single judged reports.

    Args:
        config: Settings.
        out: Run folder; a stopped run goes on, a finished one with the same settings is left as it is.
    """
    require("models")
    seed = config.optimisation.seed
    if training_finished(config, out, seed, OPERATIONAL):
        return read_result(out)
    _refuse_shards(config)
    from cxrlab.preference.checkpoint_selection import CheckpointSelector
    from cxrlab.preference.dataset import read_preferences
    from cxrlab.preference.losses import PreferenceLoss
    from cxrlab.training import report_dataset
    from cxrlab.training.fingerprint import weights_key
    from cxrlab.training.llava import ReportLoss, load_start
    from cxrlab.training.report_training import save_trained, select_trainable
    from cxrlab.training.trainer import Job, fit

    judged = read_preferences(
        config.pairs, config.data, paired=config.loss.paired, held_out=_held_out(config), n=config.n, seed=seed
    )
    start = load_start(config.start, None, None, seed)
    asked = replace(config, prompts=config.prompts or start.prompts)
    lesson = report_dataset.prepare(asked, (judged.source,), start.model, start.processor, _asked)
    order = _planned(config, lesson, judged, start.model)
    watcher = CheckpointSelector(
        config, asked.prompts, start
    )  # a wrong judge or split is told before the folder is made
    with training_run(config, out, seed, OPERATIONAL) as run:
        report_dataset.freeze(start.model, config.optimisation.precision)
        module = ReportLoss(start.model, start.processor.image_processor).to(report_dataset.training_device())
        # Of what is trained whole the weights are float32, and so they must be for the reference.
        weights = f"{weights_key(module)} {'adapters' if config.lora_rank else 'whole'}"
        peft = select_trainable(start.model, config)
        module.to(report_dataset.training_device())
        rows = _rows(config, lesson, judged, module, run, weights)
        settings = config.optimisation
        if settings.gradient_checkpointing:
            report_dataset.enable_gradient_checkpointing(start.model, vision_encoder_frozen=True)
        if settings.compiled:
            report_dataset.compile_layers(start.model)
        aligned = PreferenceLoss(module, config.loss)
        look = partial(watcher.evaluate, run=run) if config.validation.n else None
        fitted = fit(Job(aligned, rows, order, "aligning", on_evaluate=look, look_first=bool(look)), settings, run)
        run.write(SELECTION, watcher.choose(aligned, run, fitted.steps, watched_lines(out)))
        summary = report_dataset.summarise(STAGE, fitted, lesson, rows.reports, aligned, RESULT)
        summary = replace(summary, rows=len(rows), extra={**summary.extra, "loss": config.loss.name})
        seen = tuple(dict.fromkeys((*start.collections, *lesson.collections)))
        extra = {"made_from": start.names, "seed": seed, "steps": fitted.steps, "loss": config.loss.name}
        learnt = trained_on((start.trained_on, lesson.trained_on))
        card = ModelCard(STAGE, asked.prompts, seen, trained_on=learnt, extra=extra)
        finish_run(run, lambda folder: save_trained(folder, peft, start, card, config, run.result), summary)
    return summary


def _held_out(config: PreferConfig) -> tuple[str, ...]:
    """Splits of the corpus that pairs must not be of: test always, and what is watched or measured."""
    watched = (config.validation.split,) if config.validation.n else ()
    own = config.measure.data is None or config.measure.data.resolve() == config.data.resolve()
    measured = (config.measure.split,) if config.measure.n and own else ()
    return tuple(dict.fromkeys(("test", *watched, *measured)))


def _asked(prompts: Prompts, sample: Sample) -> str:
    return prompts.ask(sample.indication)


def _refuse_shards(config: PreferConfig) -> None:
    """Refuse to watch a model whose weights are spread over processes: one of them alone cannot write with it."""
    if config.validation.n and any(
        os.environ.get(f"ACCELERATE_USE_{name}") == "true" for name in ("FSDP", "DEEPSPEED")
    ):
        raise ConfigError(
            "a model whose weights are spread over processes cannot be watched while it is trained; give --validation.n 0, "
            "or launch with configs/distributed/ddp.yaml."
        )


def _planned(config: PreferConfig, lesson: Lesson, judged: Judged, model: Any) -> Order:
    """Which pairs when; too little data for one step and too little memory are refused before the run is made."""
    from cxrlab.preference.dataset import PreferenceDataset
    from cxrlab.training import processes, report_dataset
    from cxrlab.training.memory import check_memory, estimate
    from cxrlab.training.report_training import count_trainable
    from cxrlab.training.trainer import Part, plan

    settings = config.optimisation
    rows = PreferenceDataset(lesson.rows(settings.max_length))
    both = replace(settings, batch_size=2 * settings.batch_size)
    check_memory(
        estimate(model, both, rows.reports.longest, count_trainable(model, config)), report_dataset.training_device()
    )
    return plan(
        [Part(len(judged))],
        settings.batch_size * settings.accumulate * processes.count(),
        settings.epochs,
        settings.steps,
        settings.seed,
        rows.lengths if settings.group_by_length else None,
    )


def _rows(
    config: PreferConfig, lesson: Lesson, judged: Judged, module: Any, run: RunFolder, weights: str
) -> PreferenceDataset:
    """The twins with images or features and, where the loss asks for them, reference log-probabilities."""
    from cxrlab.preference.dataset import PreferenceDataset, reference_log_probabilities
    from cxrlab.training import processes, report_dataset

    settings = config.optimisation
    images, features = report_dataset.open_seen(
        config, lesson, module.model, run, report_dataset.training_device(), vision_encoder_frozen=True
    )
    rows = PreferenceDataset(lesson.rows(settings.max_length), images, features, desirable=judged.desirable)
    if not config.loss.needs_reference:
        return rows
    with processes.first_alone():
        reference = reference_log_probabilities(
            module,
            rows,
            config.cache or run.folder / CACHE,
            weights=weights,
            precision=settings.precision,
            batch_size=settings.batch_size,
        )
    return replace(rows, reference=reference)

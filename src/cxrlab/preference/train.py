"""Preference training: align a report model with judged reports, keep the best step, compare before and after.

    checkpoint/        the aligned model: an adapter on the start, or with lora_rank 0 a whole LLaVA
    history.jsonl      loss, log-ratios and accuracy per logged step, with the evaluations in between
    selection.json     the step that was kept, and why
    measured/          the model before and after; see `measure`
    preference.json    their comparison

The start is the reference model. Its log-probabilities are computed once, so that only the trained model is in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.environment import require
from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json, write_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.terminal import NoticeStream
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import caution_context
from cxrlab.preference.config import OPERATIONAL, PreferConfig
from cxrlab.training.run_folder import (
    CACHE,
    HISTORY,
    RESULT,
    SUMMARY,
    RunFolder,
    TrainingResult,
    read_result,
    training_finished,
    training_run,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cxrlab.preference.dataset import PreferenceDataset
    from cxrlab.training.memory_estimate import Memory
    from cxrlab.training.report_model import StartModel
    from cxrlab.training.trainer import Evaluation, Job, Order

SELECTION, PREFERENCE, MEASURED = "selection.json", "preference.json", "measured"
STAGE = "prefer"


def prefer(
    config: PreferConfig, out: Path, before_in: Path | None = None
) -> tuple[TrainingResult, dict[str, Any] | None]:
    """Align a model and compare it with its start; returns both results, the second None when nothing is measured.

    Args:
        out: Run folder; a stopped run continues, a finished one with the same settings is left as it is.
        before_in: Folder for the reports of the start, where several runs share it; see `measure_alignment`.
    """
    measure, data = config.measure, config.measure.data or config.data
    if measure.n and not load_corpus(data).ids(measure.split):  # before anything is trained
        raise DataError(
            f"{data} has no study in its {measure.split} split to measure on; give another with "
            "--measure.split or --measure.data, or --measure.n 0."
        )
    done = train(config, out)
    if not measure.n:
        return done, None
    from cxrlab.preference.measure_alignment import measure_alignment
    from cxrlab.training.distributed import main_process_first
    from cxrlab.training.report_model import start_model_name

    with main_process_first():  # the other processes find it done
        if not (out / PREFERENCE).is_file():
            before, after = start_model_name(config.start), f"hf:{out / done.checkpoint}"
            seed = config.optimisation.seed
            result = measure_alignment(before, after, data, measure, out / MEASURED, seed, before_in, config.context)
            selection = read_json(out / SELECTION)
            write_json(out / PREFERENCE, {**result, "selection": selection, "watched": evaluations(out)})
    found: dict[str, Any] = read_json(out / PREFERENCE)
    return done, found


def evaluations(out: Path) -> list[dict[str, Any]]:
    """The evaluations in the history of a run, each with its step."""
    lines = (line for _, line in read_jsonl(out / HISTORY))
    return [{"step": line["step"], **line["evaluation"]} for line in lines if line.get("evaluation")]


def train(config: PreferConfig, out: Path) -> TrainingResult:
    """Align a model with pairs or single judged reports; for the arguments see `prefer`."""
    require("models")
    seed = config.optimisation.seed
    if training_finished(config, out, seed, OPERATIONAL):
        return read_result(out)
    from cxrlab.evaluation.load_model import TextModels, UnopenedModel
    from cxrlab.preference.checkpoint_selection import CheckpointSelector
    from cxrlab.training.align_finetune import describe, save_trained, summarise
    from cxrlab.training.distributed import is_main_process
    from cxrlab.training.trainer import fit

    # Whatever does not fit is refused before the run folder is made.
    ready = prepare_alignment(config)
    start, reports = ready.start, ready.rows.reports
    models = TextModels(
        config.llm, [load_corpus(config.data).egress_data], out
    )  # for a judge; other processes ask none
    selector = CheckpointSelector(config, ready.prompts, start, models if is_main_process() else UnopenedModel)

    with models, training_run(config, out, seed, OPERATIONAL) as run:
        job, peft = make_alignment_job(ready, run, selector.evaluation)
        fitted = fit(job, config.optimisation, run, config.track)
        if run.writes:
            run.write(SELECTION, selector.choose(job.module, run, fitted, evaluations(out)))
        summary = summarise(STAGE, fitted, reports, job.module)
        summary = replace(summary, rows=len(ready.rows), extra={**summary.extra, "loss": config.loss.name})
        facts = {"seed": seed, "steps": fitted.steps, "loss": config.loss.name, **config.context.recorded}
        card = describe(STAGE, ready.prompts, start, reports, **facts)
        run.write_folder(RESULT, lambda folder: save_trained(folder, peft, start, card, config, run.result))
        run.write(SUMMARY, summary)
        run.remove_steps()
    return summary


@dataclass(frozen=True, eq=False)
class PreparedAlignment:
    """A preference training before its run folder is made.

    Args:
        prompts: Row of the prompts table, or a file.
        rows: The pairs or single reports, without images.
        order: Of the rows, over all steps.
        needed: Memory by the estimate.
    """

    config: PreferConfig
    start: StartModel
    prompts: str | None
    rows: PreferenceDataset
    order: Order
    needed: Memory

    @property
    def whole_weights(self) -> bool:
        """Whether each process needs the whole model: the reference and the reports of validations come from it."""
        return self.config.loss.kind.needs_reference or bool(self.config.validation.n)


def prepare_alignment(config: PreferConfig) -> PreparedAlignment:
    """Read the pairs and open the start; whatever does not fit is refused here."""
    from cxrlab.preference.dataset import PreferenceDataset, read_preferences
    from cxrlab.training.align_finetune import check_fits
    from cxrlab.training.distributed import is_main_process
    from cxrlab.training.image_text import load_image_text
    from cxrlab.training.report_dataset import ask_for_report, load_dataset
    from cxrlab.training.report_model import is_llava, load_start
    from cxrlab.training.trackers import check_installed
    from cxrlab.training.trainer import Part, plan_steps

    settings = config.optimisation
    check_installed(config.track)
    validation = (config.validation.split,) if config.validation.n else ()
    own_corpus = config.measure.data is None or config.measure.data.resolve() == config.data.resolve()
    measured = (config.measure.split,) if config.measure.n and own_corpus else ()
    judged = read_preferences(
        config.pairs,
        config.data,
        paired=config.loss.kind.paired,
        held_out=tuple(dict.fromkeys(("test", *validation, *measured))),
        n=config.n,
        seed=settings.seed,
        context=config.context,
    )
    start = load_start(config.start, None, None, settings.seed, settings.precision, any_family=True)
    if is_main_process() and (caution := caution_context(config.start, start.card, config.context)):
        NoticeStream(sys.stderr).write(f"caution: {caution}\n")
    prompts = config.prompts or start.prompts
    load = load_dataset if is_llava(start.model) else load_image_text
    reports = load((judged.source,), start.model, start.processor, prompts, settings, ask_for_report)
    rows = PreferenceDataset(reports, desirable=judged.desirable)
    both = replace(settings, batch_size=2 * settings.batch_size)
    whole_weights = config.loss.kind.needs_reference or bool(config.validation.n)
    needed = check_fits(start.model, reports, config, both, whole_weights=whole_weights)
    order = plan_steps([Part(len(judged))], settings, rows.lengths)
    return PreparedAlignment(config, start, prompts, rows, order, needed)


def make_alignment_job(
    ready: PreparedAlignment,
    run: RunFolder,
    evaluation: Evaluation | None,
    reference: Callable[[Any, PreferenceDataset], NDArray[np.float32]] | None = None,
) -> tuple[Job, Any]:
    """What is trained, with its images decoded and the reference computed; and the `PeftModel`, None without adapters.

    Args:
        reference: (model, rows) → log π_ref of both reports, [N, 2]; when None from the cache, or computed into it.
    """
    import torch

    from cxrlab.preference.dataset import reference_log_probabilities
    from cxrlab.preference.losses import PreferenceLoss
    from cxrlab.training.align_finetune import freeze, open_vision_inputs, select_trainable, with_features
    from cxrlab.training.distributed import main_process_first, shares_weights, training_device
    from cxrlab.training.image_text import ImageTextLoss
    from cxrlab.training.report_dataset import ReportDataset
    from cxrlab.training.report_model import ReportLoss, compile_layers, enable_gradient_checkpointing, find_parts
    from cxrlab.training.run_folder import weights_key
    from cxrlab.training.trainer import Job

    config, start, rows = ready.config, ready.start, ready.rows
    settings, reports = config.optimisation, rows.reports
    device = training_device() if ready.whole_weights or not shares_weights(settings) else torch.device("cpu")
    freeze(start.model, settings.precision)
    module: ReportLoss | ImageTextLoss
    if isinstance(reports, ReportDataset):
        module = ReportLoss(start.model, start.processor.image_processor).to(device)
    else:
        module = ImageTextLoss(start.model, find_parts(start.model)).to(device)
    # Weights that are trained whole become float32, and the reference must use the same.
    trained = ["adapters" if config.lora_rank else "whole", *["vision"] * config.train_vision_encoder]
    weights = " ".join([weights_key(module), *trained, *[config.quantise] * (config.quantise != "none")])
    peft = select_trainable(start.model, config)
    module.to(device)
    if isinstance(module, ImageTextLoss) and config.train_vision_encoder:
        module.freeze_unused(reports.__getitems__([0]), settings.precision)
    if isinstance(reports, ReportDataset):
        images, features = open_vision_inputs(config, reports, start, run)
        rows = replace(rows, images=images, features=features)
    else:
        rows = replace(rows, reports=with_features(config, reports, start, run))
    if config.loss.kind.needs_reference:
        folder, precision, batch = config.cache or run.folder / CACHE, settings.precision, settings.batch_size
        with main_process_first():
            found = (
                reference_log_probabilities(
                    module, rows, folder, weights=weights, precision=precision, batch_size=batch
                )
                if reference is None
                else reference(module, rows)
            )
        rows = replace(rows, reference=found)
    if settings.gradient_checkpointing:
        enable_gradient_checkpointing(start.model, vision_encoder_frozen=not config.train_vision_encoder)
    if settings.compiled:
        compile_layers(start.model)
    return Job(PreferenceLoss(module, config.loss), rows, ready.order, STAGE, evaluation=evaluation), peft

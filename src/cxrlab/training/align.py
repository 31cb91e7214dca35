"""Stage 2: a projector learns to show a frozen language model what a frozen vision encoder sees.

The image stands alone in front of the report, as the prompts' `align` says (empty by default), and
only the projector, two linear layers with GELU between them, is trained.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cxrlab.core.install import require
from cxrlab.models.local_files import quiet_loading
from cxrlab.models.model_card import ModelCard, trained_on, write_model_card
from cxrlab.training.config import FREE, AlignConfig
from cxrlab.training.result import Training, conclude, read_result
from cxrlab.training.run_folder import RESULT, concluded, training_run


def align(config: AlignConfig, out: Path, on_evaluate: Any = None) -> Training:
    """Train a projector between vision encoder and language model; RUN/checkpoint is the whole LLaVA.

    Args:
        config: Settings.
        out: Run folder; a stopped run goes on, a finished one with the same settings is left as it is.
        on_evaluate: (model, step) → numbers for the history; see `engine.Evaluate`.
    """
    require("models")
    seed = config.optimisation.seed
    if concluded(config, out, seed, FREE):
        return read_result(out)
    from cxrlab.training import reports
    from cxrlab.training.reporter import ReporterLoss
    from cxrlab.training.starts import open_start

    sources = reports.read_sources(config)
    start = open_start(config.start, config.encoder, config.language_model, seed)
    model, processor = start.model, start.processor
    lesson = reports.prepare(config, sources, model, processor, lambda prompts, sample: prompts.align)
    order = reports.planned(config, lesson, model, reports.size_of(model.model.multi_modal_projector))
    reports.freeze(model, config.optimisation.precision)
    reports.unfreeze(model.model.multi_modal_projector)
    module = ReporterLoss(model, processor.image_processor)
    with training_run(config, out, seed, FREE) as run:
        fitted, rows = reports.learn(
            config, lesson, module, run, order, label="aligning the projector", on_evaluate=on_evaluate
        )
        summary = reports.summarise("align", fitted, lesson, rows, module, RESULT)
        seen = tuple(dict.fromkeys((*start.collections, *lesson.collections)))
        card = ModelCard(
            "align",
            config.prompts,
            seen,
            trained_on=trained_on((start.trained_on, lesson.trained_on)),
            extra={"made_from": start.names, "seed": seed, "steps": fitted.steps},
        )
        precision = config.optimisation.precision
        conclude(run, lambda folder: write_llava(folder, model, processor, card, precision), summary)
    return summary


def write_llava(folder: Path, model: Any, processor: Any, card: ModelCard, precision: str) -> None:
    """A whole LLaVA in the layout of Hugging Face; weights in float32, or all in bfloat16."""
    import torch

    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    model.to("cpu", dtype).eval()
    model.config.dtype = dtype
    with quiet_loading():
        model.save_pretrained(folder)
    processor.save_pretrained(folder)
    write_model_card(card, folder)

"""Stage 3: projector and language model learn to write the report for an image and the reason it was taken.

By default the language model keeps its weights and gets low-rank adapters; RUN/checkpoint is then an
adapter folder with the projector in it, and its cxrlab.json names what it stands on. With
`lora_rank: 0` the whole language model is trained and a whole LLaVA is written.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from cxrlab.core.environment import require
from cxrlab.models.local_files import quiet_loading, verify_checksums
from cxrlab.models.model_card import ModelCard, trained_on, write_model_card
from cxrlab.models.prompts import Prompts
from cxrlab.training.config import OPERATIONAL, AlignConfig, FinetuneConfig, Optimisation
from cxrlab.training.run_folder import (
    RESULT,
    RunFolder,
    TrainingResult,
    finish_run,
    read_result,
    training_finished,
    training_run,
    write_result,
)
from cxrlab.training.samples import Sample

BASE = "base"


class Trained(Protocol):
    """What of a model a recipe trains."""

    @property
    def optimisation(self) -> Optimisation:
        """How the weights are moved."""

    @property
    def lora_rank(self) -> int:
        """Of adapters on the language model; 0 for none."""

    @property
    def lora_alpha(self) -> float:
        """Their scale, divided by the rank."""

    @property
    def lora_dropout(self) -> float:
        """Share of their inputs that is dropped."""

    @property
    def train_projector(self) -> bool:
        """Whether the projector is trained."""

    @property
    def train_language(self) -> bool:
        """Whether the language model is, by adapters or whole."""

    @property
    def train_vision_encoder(self) -> bool:
        """Whether the vision encoder is."""


def finetune(config: FinetuneConfig, out: Path, on_evaluate: Any = None) -> TrainingResult:
    """Train projector and language model on images with reports.

    Args:
        config: Settings.
        out: Run folder; a stopped run goes on, a finished one with the same settings is left as it is.
        on_evaluate: (model, step) → numbers for the history; see `engine.Evaluate`.
    """
    require("models")
    seed = config.optimisation.seed
    if training_finished(config, out, seed, OPERATIONAL):
        return read_result(out)
    from cxrlab.training import report_dataset
    from cxrlab.training.llava import ReportLoss, load_start

    sources = report_dataset.read_sources(config)
    start = load_start(config.start, config.encoder, config.language_model, seed)
    lesson = report_dataset.prepare(
        config,
        sources,
        start.model,
        start.processor,
        partial(_asked, config.indication),
    )
    order = report_dataset.planned(config, lesson, start.model, count_trainable(start.model, config))
    with training_run(config, out, seed, OPERATIONAL) as run:
        start = _with_folder(start, run, config)
        peft = select_trainable(start.model, config)
        module = ReportLoss(start.model, start.processor.image_processor, config.augmentation)
        fitted, rows = report_dataset.learn(
            config,
            lesson,
            module,
            run,
            order,
            label="fine-tuning",
            vision_encoder_frozen=not config.train_vision_encoder,
            on_evaluate=on_evaluate,
        )
        summary = report_dataset.summarise("finetune", fitted, lesson, rows, module, RESULT)
        seen = tuple(dict.fromkeys((*start.collections, *lesson.collections)))
        card = ModelCard(
            "finetune",
            config.prompts,
            seen,
            trained_on=trained_on((start.trained_on, lesson.trained_on)),
            extra={"made_from": start.names, "seed": seed, "steps": fitted.steps},
        )
        finish_run(run, lambda folder: save_trained(folder, peft, start, card, config, run.result), summary)
    return summary


def _asked(with_indication: bool, prompts: Prompts, sample: Sample) -> str:
    if sample.question is not None:
        return prompts.question(sample.question)
    return prompts.ask(sample.indication if with_indication else None)


def select_trainable(model: Any, config: Trained) -> Any:
    """Freeze the model but for what the config trains; the `PeftModel` around it, None when there are no adapters."""
    import torch

    from cxrlab.training.llava import add_adapters
    from cxrlab.training.report_dataset import freeze, unfreeze, unfreeze_vision_encoder

    freeze(model, config.optimisation.precision)
    torch.manual_seed(config.optimisation.seed + 3)
    peft = None
    if config.lora_rank:
        peft = add_adapters(
            model,
            config.lora_rank,
            config.lora_alpha,
            config.lora_dropout,
            train_projector=config.train_projector,
            autocast=config.optimisation.precision == "bfloat16",
        )
    elif config.train_projector:
        unfreeze(model.model.multi_modal_projector)
    if config.train_language and not config.lora_rank:
        unfreeze(model.model.language_model)
        unfreeze(model.lm_head)
    if config.train_vision_encoder:
        unfreeze_vision_encoder(model)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return peft


def count_trainable(model: Any, config: Trained) -> int:
    """How many weights `select_trainable` will train, told before anything is changed."""
    from cxrlab.training.llava import language_linears
    from cxrlab.training.report_dataset import size_of

    inner = model.model
    linears = [model.get_submodule(name) for name in language_linears(model)]
    adapters = config.lora_rank * sum(one.in_features + one.out_features for one in linears)
    whole = size_of(inner.language_model) if config.train_language else 0
    language = adapters if config.lora_rank else whole
    projector = size_of(inner.multi_modal_projector) if config.train_projector else 0
    return language + projector + (size_of(inner.vision_tower) if config.train_vision_encoder else 0)


def _with_folder(start: Any, run: RunFolder, config: FinetuneConfig) -> Any:
    """A start that was put together from parts is written down first: an adapter needs something to stand on."""
    if start.folder is not None or not config.lora_rank:
        return start
    names = {"made_from": start.names}
    card = ModelCard("parts", config.prompts, start.collections, trained_on=start.trained_on, extra=names)
    folder = run.folder / BASE
    if run.begun and folder.is_dir():
        verify_checksums(folder)
    else:  # what a run left that never took a step may be of other parts
        write_result(run, lambda to: save_llava(to, start.model, start.processor, card, "float32"), BASE)
    return replace(start, folder=folder)


def save_trained(folder: Path, peft: Any, start: Any, card: ModelCard, config: Trained, result: Path) -> None:
    """Write what was trained into a folder: an adapter that names its base, or a whole LLaVA."""
    if peft is None or config.train_vision_encoder:
        model = start.model if peft is None else peft.merge_and_unload()
        save_llava(folder, model, start.processor, card, config.optimisation.precision)
        return
    base = start.base(result)
    peft.peft_config["default"].base_model_name_or_path = base.removeprefix("hf:")
    peft.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # a form to fill in, not a description
    start.processor.save_pretrained(folder)
    write_model_card(replace(card, base=base), folder)


def align(config: AlignConfig, out: Path, on_evaluate: Any = None) -> TrainingResult:
    """Train a projector between vision encoder and language model; RUN/checkpoint is the whole LLaVA.

    Args:
        config: Settings.
        out: Run folder; a stopped run goes on, a finished one with the same settings is left as it is.
        on_evaluate: (model, step) → numbers for the history; see `engine.Evaluate`.
    """
    require("models")
    seed = config.optimisation.seed
    if training_finished(config, out, seed, OPERATIONAL):
        return read_result(out)
    from cxrlab.training import report_dataset
    from cxrlab.training.llava import ReportLoss, load_start

    sources = report_dataset.read_sources(config)
    start = load_start(config.start, config.encoder, config.language_model, seed)
    model, processor = start.model, start.processor
    lesson = report_dataset.prepare(config, sources, model, processor, lambda prompts, sample: prompts.align)
    order = report_dataset.planned(config, lesson, model, report_dataset.size_of(model.model.multi_modal_projector))
    report_dataset.freeze(model, config.optimisation.precision)
    report_dataset.unfreeze(model.model.multi_modal_projector)
    module = ReportLoss(model, processor.image_processor)
    with training_run(config, out, seed, OPERATIONAL) as run:
        fitted, rows = report_dataset.learn(
            config, lesson, module, run, order, label="aligning the projector", on_evaluate=on_evaluate
        )
        summary = report_dataset.summarise("align", fitted, lesson, rows, module, RESULT)
        seen = tuple(dict.fromkeys((*start.collections, *lesson.collections)))
        card = ModelCard(
            "align",
            config.prompts,
            seen,
            trained_on=trained_on((start.trained_on, lesson.trained_on)),
            extra={"made_from": start.names, "seed": seed, "steps": fitted.steps},
        )
        precision = config.optimisation.precision
        finish_run(run, lambda folder: save_llava(folder, model, processor, card, precision), summary)
    return summary


def save_llava(folder: Path, model: Any, processor: Any, card: ModelCard, precision: str) -> None:
    """A whole LLaVA in the layout of Hugging Face; weights in float32, or all in bfloat16."""
    import torch

    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    model.to("cpu", dtype).eval()
    model.config.dtype = dtype
    with quiet_loading():
        model.save_pretrained(folder)
    processor.save_pretrained(folder)
    write_model_card(card, folder)

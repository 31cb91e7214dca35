"""Stages 2 and 3: train a projector (align), then the report model (finetune), and write the checkpoint.

Fine-tuning adapts the language model with LoRA by default: RUN/checkpoint is an adapter folder that holds the projector
too, and its cxrlab.json names the base model. With `lora_rank: 0`, and after align, it is a whole model. Stage 2 trains
a LLaVA; stage 3 trains one on cached images and features, and any other family through its own inputs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.environment import require
from cxrlab.models.local_files import quiet_loading, verify_checksums
from cxrlab.models.model_card import ModelCard, trained_on, write_model_card
from cxrlab.training.config import (
    NONE,
    OPERATIONAL,
    AdapterConfig,
    AlignConfig,
    FinetuneConfig,
    Optimisation,
    ReportConfig,
)
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
from cxrlab.training.samples import context_of, read_sources

if TYPE_CHECKING:
    from torch import nn

    from cxrlab.training.image_cache import Images
    from cxrlab.training.image_features import Features
    from cxrlab.training.image_text import ImageTextDataset
    from cxrlab.training.memory_estimate import Memory
    from cxrlab.training.report_dataset import Ask, ReportDataset
    from cxrlab.training.report_model import StartModel
    from cxrlab.training.samples import Source
    from cxrlab.training.trainer import Fitted, Job, Order

    Trained = ReportDataset | ImageTextDataset

BASE = "base"


def align(config: AlignConfig, out: Path) -> TrainingResult:
    """Stage 2: train the projector between a frozen vision encoder and a frozen language model.

    Args:
        config: Settings.
        out: Run folder; a stopped run continues, a finished one with the same settings is left as it is.
    """
    return _train("align", config, out, asks(config))


def finetune(config: FinetuneConfig, out: Path) -> TrainingResult:
    """Stage 3: adapt the language model (LoRA by default) to write findings; for the arguments see `align`."""
    return _train("finetune", config, out, asks(config))


def asks(config: AlignConfig | FinetuneConfig) -> Ask:
    """The prompt of each sample in a stage."""
    from cxrlab.training.report_dataset import ask_for_report

    if isinstance(config, FinetuneConfig):
        return partial(ask_for_report, indication=config.indication)
    return lambda prompts, sample: prompts.align


def _train(stage: str, config: AlignConfig | FinetuneConfig, out: Path, ask: Ask) -> TrainingResult:
    require("models")
    settings = config.optimisation
    if training_finished(config, out, settings.seed, OPERATIONAL):
        return read_result(out)
    from cxrlab.training import best_weights
    from cxrlab.training.trainer import fit
    from cxrlab.training.validation import summarise_validation

    ready = prepare_training(stage, config, ask)
    with training_run(config, out, settings.seed, OPERATIONAL) as run:
        if isinstance(config, AdapterConfig) and config.lora_rank and ready.start.folder is None:
            ready = replace(ready, start=_save_base(ready.start, run, config.prompts, settings.precision))
        start, dataset = ready.start, ready.dataset
        job, peft = make_job(ready, run)
        fitted = fit(job, settings, run, config.track)
        summary = summarise(stage, fitted, dataset, job.module)
        summary = replace(summary, extra={**summary.extra, **summarise_validation(ready.held_out, fitted)})
        facts = {"conversation": config.conversation, "seed": settings.seed, "steps": fitted.steps}
        card = describe(stage, config.prompts, start, dataset, **facts, **context_of(config).recorded)
        # RUN/checkpoint is first written to a temporary folder, which is renamed when it is complete. The summary marks
        # the training as done; only then are the checkpoints to resume from removed.
        run.write_folder(RESULT, lambda folder: save_trained(folder, peft, start, card, config, run.result))
        if fitted.best is not None and run.writes:
            best_weights.restore(run.steps, fitted.best.step, job.module)
            card = replace(card, extra={**card.extra, "steps": fitted.best.step})
            run.write_folder(BEST, lambda folder: save_trained(folder, peft, start, card, config, run.result))
        run.write(SUMMARY, summary)
        run.remove_steps()
    return summary


@dataclass(frozen=True, eq=False)
class Prepared:
    """A training of a report model before its run folder is made.

    Args:
        order: Of the samples, over all steps.
        held_out: Samples of the validation, None without one; `validated` holds them in batches.
        needed: Memory by the estimate.
    """

    stage: str
    config: AlignConfig | FinetuneConfig
    start: StartModel
    dataset: Trained
    order: Order
    held_out: Source | None
    validated: Trained | None
    needed: Memory


def prepare_training(stage: str, config: AlignConfig | FinetuneConfig, ask: Ask) -> Prepared:
    """Read the corpora and open the model; whatever does not fit is refused here."""
    from cxrlab.models.hf.conversations import check_conversation, set_conversation, set_family_conversation
    from cxrlab.training.image_text import load_image_text
    from cxrlab.training.report_dataset import load_dataset
    from cxrlab.training.report_model import is_llava, load_start
    from cxrlab.training.trackers import check_installed
    from cxrlab.training.trainer import Part, plan_steps
    from cxrlab.training.validation import validation_source

    settings = config.optimisation
    check_installed(config.track)
    check_conversation(config.conversation)
    sources = read_sources(config)
    any_family = isinstance(config, FinetuneConfig)
    start = load_start(
        config.start,
        config.encoder,
        config.language_model,
        settings.seed,
        settings.precision,
        any_family=any_family,
        image_size=config.image_size if isinstance(config, AlignConfig) else None,
    )
    llava = is_llava(start.model)
    (set_conversation if llava else set_family_conversation)(start.processor, config.conversation)
    load = load_dataset if llava else load_image_text
    dataset = load(sources, start.model, start.processor, config.prompts, settings, ask)
    held_out, validated = validation_source(config), None
    if held_out is not None:
        validated = load([held_out], start.model, start.processor, config.prompts, settings, ask)
    needed = check_fits(start.model, dataset, config, settings, validated.longest if validated else 0)
    order = plan_steps([Part(len(source.samples), source.weight) for source in sources], settings, dataset.lengths)
    return Prepared(stage, config, start, dataset, order, held_out, validated, needed)


def make_job(ready: Prepared, run: RunFolder) -> tuple[Job, Any]:
    """What is trained, with its images decoded; and the `PeftModel`, None without adapters."""
    from cxrlab.training.distributed import shares_weights, training_device
    from cxrlab.training.image_text import ImageTextDataset, ImageTextLoss
    from cxrlab.training.report_dataset import ReportDataset
    from cxrlab.training.report_model import ReportLoss, compile_layers, enable_gradient_checkpointing, find_parts
    from cxrlab.training.trainer import Job
    from cxrlab.training.validation import report_validation

    config, start, dataset, validated = ready.config, ready.start, ready.dataset, ready.validated
    settings = config.optimisation
    parts = find_parts(start.model)
    peft = select_trainable(start.model, config)
    module: Any
    if isinstance(dataset, ReportDataset):
        augmentation = config.augmentation if isinstance(config, FinetuneConfig) else NONE
        module = ReportLoss(start.model, start.processor.image_processor, augmentation)
        images, features = open_vision_inputs(config, dataset, start, run)
        dataset = replace(dataset, images=images, features=features, varied=not augmentation.none)
        if isinstance(validated, ReportDataset):
            images, features = open_vision_inputs(config, validated, start, run)
            validated = replace(validated, images=images, features=features)
    else:
        module = ImageTextLoss(start.model, parts)
        dataset = with_features(config, dataset, start, run)
        if isinstance(validated, ImageTextDataset):
            validated = with_features(config, validated, start, run)
        if config.train_vision_encoder:
            if not shares_weights(settings):  # shared weights may be too large for one device
                module.to(training_device())
            module.freeze_unused(dataset.__getitems__([0]), settings.precision)
    evaluation = None
    if validated is not None:
        evaluation = report_validation(validated, config.validation, settings.batch_size)
    if settings.gradient_checkpointing:
        enable_gradient_checkpointing(start.model, vision_encoder_frozen=not config.train_vision_encoder)
    if settings.compiled:
        compile_layers(start.model)
    return Job(module, dataset, ready.order, ready.stage, evaluation=evaluation), peft


def check_fits(
    model: Any,
    dataset: Trained,
    config: ReportConfig,
    settings: Optimisation,
    validated: int = 0,
    *,
    whole_weights: bool = False,
) -> Memory:
    """Refuse settings that a family does not have, and a training that does not fit; returns the estimate of its memory.

    Args:
        model: Before it is changed.
        dataset: Of the training.
        config: What is trained.
        settings: Of the optimisation, with the samples of a forward pass as `batch_size`.
        validated: Tokens of the longest validation sample; 0 without validation.
        whole_weights: Each process needs the whole weights at some time, also where processes share them.
    """
    from cxrlab.training.distributed import process_count, shares_weights, training_device
    from cxrlab.training.image_text import ImageTextDataset, check_settings
    from cxrlab.training.memory_estimate import (
        check_memory,
        estimate,
        estimate_logits,
        estimate_vision,
        gathered_weights,
    )
    from cxrlab.training.report_model import check_quantisation, language_linears

    quantised = 0
    if isinstance(config, AdapterConfig) and config.quantise != "none":
        check_quantisation(training_device(), sharded=shares_weights(settings))
        quantised = sum(model.get_submodule(name).weight.numel() for name in language_linears(model))
    needed = estimate(model, settings, dataset.longest, count_trainable(model, config), validated, quantised)
    if isinstance(dataset, ImageTextDataset):
        check_settings(config, model.config.model_type)
        needed += estimate_vision(model, settings, dataset.most_patches, trained=config.train_vision_encoder)
        needed += estimate_logits(model, settings, dataset.longest_report)
    elif config.train_vision_encoder:
        patches = dataset.image_tokens * dataset.image_of.shape[1]
        needed += estimate_vision(model, settings, patches, trained=True)
    if shares_weights(settings):
        gathered = needed.weights if whole_weights else gathered_weights(model, settings)
        needed = needed.shared(process_count(), gathered)
    check_memory(needed, training_device())
    return needed


def freeze(model: Any, precision: str) -> None:
    """Freeze all weights and store them in this precision."""
    import torch

    model.requires_grad_(False)
    store_weights(model, getattr(torch, precision))


def store_weights(model: Any, dtype: Any) -> None:
    """Store all weights in this precision; buffers, such as the frequencies of rotary positions, keep theirs."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def select_trainable(model: Any, config: ReportConfig) -> Any:
    """Freeze the model but for what the config trains, in float32; returns the `PeftModel`, None without adapters."""
    import torch

    from cxrlab.training.image_features import vision_encoder_features
    from cxrlab.training.report_model import add_adapters, find_parts, is_llava, quantise_language_model

    freeze(model, config.optimisation.precision)
    torch.manual_seed(config.optimisation.seed + 3)
    parts, peft = find_parts(model), None
    trained: list[Any] = []
    if isinstance(config, AdapterConfig) and config.lora_rank:
        if config.quantise != "none":
            quantise_language_model(model, config.optimisation.precision)
        peft = add_adapters(
            model,
            config.lora_rank,
            config.lora_alpha,
            config.lora_dropout,
            train_projector=config.train_projector,
            autocast=config.optimisation.precision == "bfloat16",
        )
    else:
        trained += parts.projector.parameters() if config.train_projector else []
        trained += parts.language_parameters() if config.train_language else []
    if config.train_vision_encoder:
        trained += parts.vision_parameters()
    for parameter in trained:
        parameter.requires_grad_(True)
    # A projector behind a vision encoder in float32 gets its features in float32, frozen or not.
    behind = parts.projector.parameters() if config.train_vision_encoder else ()
    for parameter in (*behind, *(value for value in model.parameters() if value.requires_grad)):
        parameter.data = parameter.data.float()
    if config.train_vision_encoder and is_llava(model):
        # Layers behind the one whose features are used get no gradient, for which several processes would wait forever.
        side = model.config.vision_config.image_size
        blank = torch.zeros(1, 3, side, side, device=parts.vision_parameters()[0].device)
        torch.autograd.backward([vision_encoder_features(model, blank).sum()])
        for parameter in parts.vision_parameters():
            parameter.requires_grad_(parameter.grad is not None)
            parameter.grad = None
    return peft


def count_trainable(model: Any, config: ReportConfig) -> int:
    """Number of weights that `select_trainable` will train; the model is not changed."""
    from cxrlab.training.report_model import find_parts, language_linears

    parts = find_parts(model)
    trained = list(parts.projector.parameters()) if config.train_projector else []
    trained += parts.vision_parameters() if config.train_vision_encoder else []
    adapters: int = 0
    if isinstance(config, AdapterConfig) and config.lora_rank:
        linears = [model.get_submodule(name) for name in language_linears(model)]
        adapters = config.lora_rank * sum(one.in_features + one.out_features for one in linears)
    elif config.train_language:
        trained += parts.language_parameters()
    # A head may share its weights with the embeddings.
    return adapters + sum(int(value.numel()) for value in {id(value): value for value in trained}.values())


def open_vision_inputs(
    config: ReportConfig, dataset: ReportDataset, start: StartModel, run: RunFolder
) -> tuple[Images | None, Features | None]:
    """The images, and the features of a frozen vision encoder in their place where these are cached."""
    import torch

    from cxrlab.training.distributed import main_process_first, training_device
    from cxrlab.training.image_cache import open_images
    from cxrlab.training.image_features import open_features

    if not dataset.files:
        return None, None
    folder, most_gb = config.cache or run.folder / CACHE, config.cache_gb
    with main_process_first():  # the other processes find the caches filled
        processor = start.processor.image_processor
        images = open_images(dataset.files, processor, folder, cache=config.cache_images, most_gb=most_gb)
        if config.train_vision_encoder:
            return images, None
        dtype, device = getattr(torch, config.optimisation.precision), training_device()
        start.model.model.vision_tower.to(device)
        cache = config.cache_features
        return images, open_features(
            start.model, images, folder, cache=cache, most_gb=most_gb, dtype=dtype, device=device
        )


def with_features(
    config: ReportConfig, dataset: ImageTextDataset, start: StartModel, run: RunFolder
) -> ImageTextDataset:
    """The data set of a family other than LLaVA with the features of its frozen vision encoder, where they are cached."""
    import torch

    from cxrlab.core.errors import ConfigError
    from cxrlab.models.hf.families import find_family
    from cxrlab.training.distributed import main_process_first, training_device
    from cxrlab.training.image_features import open_family_features

    family = find_family(start.model.config.model_type)
    several = dataset.image_of.shape[1] > 1
    if config.train_vision_encoder or family.feature_source is None or (several and not family.same_among_several):
        return dataset
    vision, device = start.model.get_submodule(family.vision_encoder), training_device()
    vision.to(device).eval()
    with main_process_first():  # the other processes find the cache filled
        features = open_family_features(
            start.model,
            dataset.encoder,
            dataset.files,
            dataset.sizes,
            config.cache or run.folder / CACHE,
            cache=config.cache_features,
            most_gb=config.cache_gb,
            dtype=getattr(torch, config.optimisation.precision),
            device=device,
        )
    if features is None and config.cache_features == "on":
        raise ConfigError(
            "cache_features=on: images of different size have features of different shape, which are not cached; leave "
            "the setting out."
        )
    return replace(dataset, features=features)


def summarise(stage: str, fitted: Fitted, dataset: Trained, module: nn.Module) -> TrainingResult:
    """The summary of a training of a report model."""
    sizes = [(value.numel(), value.requires_grad) for value in module.parameters()]
    return TrainingResult(
        stage=stage,
        checkpoint=RESULT,
        steps=fitted.steps,
        samples=fitted.samples,
        loss=fitted.loss,
        rows=len(dataset),
        left_out=dataset.left_out,
        cut=dataset.cut,
        trained_parameters=sum(size for size, trained in sizes if trained),
        parameters=sum(size for size, _ in sizes),
        extra={"longest_sample": dataset.longest, "mean_sample": float(dataset.lengths.mean())},
    )


def describe(stage: str, prompts: str | None, start: StartModel, dataset: Trained, **extra: Any) -> ModelCard:
    """The model card of a trained report model."""
    seen = tuple(dict.fromkeys((*start.collections, *dataset.collections)))
    learnt = trained_on((start.trained_on, dataset.trained_on))
    return ModelCard(stage, prompts, seen, trained_on=learnt, extra={"made_from": start.names, **extra})


def _save_base(start: StartModel, run: RunFolder, prompts: str, precision: str) -> StartModel:
    """Write a start that was assembled from parts to RUN/base: an adapter needs a base model in a folder.

    Its weights have the precision in which they stay frozen, so the adapter is trained on exactly these.
    """
    folder = run.folder / BASE
    if run.begun and folder.is_dir():
        verify_checksums(folder)
    else:  # a run that never took a step may have left a base of other parts
        names = {"made_from": start.names}
        card = ModelCard("parts", prompts, start.collections, trained_on=start.trained_on, extra=names)
        run.write_folder(BASE, lambda to: save_whole(to, start.model, start.processor, card, precision))
    return replace(start, folder=folder)


def save_trained(
    folder: Path, peft: Any, start: StartModel, card: ModelCard, config: ReportConfig, result: Path
) -> None:
    """Write an adapter that names its base, or a whole model."""
    if peft is None or config.train_vision_encoder:
        # Merging takes the adapters out of the model, into which the weights of the best step are yet to be put.
        model = start.model if peft is None else copy.deepcopy(peft.cpu()).merge_and_unload()
        save_whole(folder, model, start.processor, card, config.optimisation.precision)
        return
    base = start.base(result)
    peft.peft_config["default"].base_model_name_or_path = base.removeprefix("hf:")
    peft.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # an empty template
    start.processor.save_pretrained(folder)
    write_model_card(replace(card, base=base), folder)


def save_whole(folder: Path, model: Any, processor: Any, card: ModelCard, precision: str) -> None:
    """Write a whole model in the layout of Hugging Face, all weights in float32 or bfloat16."""
    import torch

    dtype = getattr(torch, precision)
    model.to("cpu").eval()
    store_weights(model, dtype)
    model.config.dtype = dtype
    with quiet_loading():
        model.save_pretrained(folder)
    processor.save_pretrained(folder)
    write_model_card(card, folder)

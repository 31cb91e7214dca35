"""Stages 2 and 3 in common: samples into batches, a LLaVA into a loss, both onto the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from cxrlab.core.errors import ConfigError
from cxrlab.models.model_card import of_corpora
from cxrlab.models.prompts import Prompts, load_prompts
from cxrlab.training import processes
from cxrlab.training.checks import check_context, check_memory, estimate
from cxrlab.training.config import AlignConfig, Also, FinetuneConfig, Optimisation, also_of
from cxrlab.training.engine import Evaluate, Fitted, Job, fit
from cxrlab.training.feature_store import Features, open_features, vision_encoder_features
from cxrlab.training.images import ImageFile, Images, distinct, open_images
from cxrlab.training.order import Order, Part, plan
from cxrlab.training.reporter import ReporterLoss
from cxrlab.training.result import Training
from cxrlab.training.run_folder import CACHE, RunFolder
from cxrlab.training.samples import Sample, Source, read_source
from cxrlab.training.tokens import ReportRows, Tokens, tokenise
from cxrlab.training.trainer_settings import length_multiple

Config = AlignConfig | FinetuneConfig


class Asking(Protocol):
    """What `prepare` asks of a recipe."""

    @property
    def prompts(self) -> str | None:
        """Row of the prompts' table."""

    @property
    def optimisation(self) -> Optimisation:
        """How the weights are moved."""


class Seeing(Protocol):
    """What `open_seen` asks of a recipe."""

    @property
    def optimisation(self) -> Optimisation:
        """How the weights are moved."""

    @property
    def cache(self) -> Path | None:
        """Folder for images and features."""

    @property
    def cache_images(self) -> str:
        """Whether images are decoded once: auto, on or off."""

    @property
    def cache_features(self) -> str:
        """Whether the vision encoder is run once over every image: auto, on or off."""

    @property
    def cache_gb(self) -> float:
        """Largest cache that auto makes, in 10^9 bytes."""


Ask = Callable[[Prompts, Sample], str]
"""What is asked beside the image of a sample."""


@dataclass(frozen=True)
class Lesson:
    """Everything that is learnt, before an image is opened.

    Args:
        sources: The corpora, the main one first.
        tokens: Of all their samples, in order.
        images: Every image once.
        image_of: Number of each sample's image; -1 where words alone are learnt.
        processor: Of the model.
        image_token: Id of `<image>`.
        image_tokens: Tokens that an image widens to.
    """

    sources: tuple[Source, ...]
    tokens: Tokens
    images: tuple[ImageFile, ...]
    image_of: np.ndarray[Any, np.dtype[np.int64]]
    processor: Any
    image_token: int
    image_tokens: int

    @property
    def collections(self) -> tuple[str, ...]:
        """Collections of images that are learnt from."""
        return tuple(dict.fromkeys(name for source in self.sources for name in source.collections))

    @property
    def trained_on(self) -> str:
        """What a model is trained on by them."""
        return of_corpora(source.synthetic for source in self.sources)

    @property
    def left_out(self) -> dict[str, int]:
        """Reason → studies that are not learnt from, over all corpora."""
        return dict(sum((Counter(source.left_out) for source in self.sources), Counter[str]()))

    def rows(
        self, max_length: int, images: Images | None = None, features: Features | None = None, varied: bool = False
    ) -> ReportRows:
        """The samples in batches."""
        tokenizer = self.processor.tokenizer
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        return ReportRows(
            self.tokens,
            self.image_of,
            images,
            features,
            image_tokens=self.image_tokens,
            image_token=self.image_token,
            pad=int(pad),
            max_length=max_length,
            multiple=length_multiple(),
            varied=varied,
        )


def read_sources(config: Config) -> tuple[Source, ...]:
    """The corpora of a config, the main one first."""
    main = Also(config.data, text=config.text)
    seed = config.optimisation.seed
    further = [read_source(one, seed=seed) for one in also_of(config.also).values()]
    return (read_source(main, config.n, seed), *further)


def prepare(config: Asking, sources: Sequence[Source], model: Any, processor: Any, ask: Ask) -> Lesson:
    """Cut everything into tokens and check that it fits the model."""
    asked: list[str | None] = []
    for source in sources:
        prompts = load_prompts(source.prompts or config.prompts)
        asked += [
            None if sample.image is None and sample.told is None else ask(prompts, sample) for sample in source.samples
        ]
    samples = [sample for source in sources for sample in source.samples]
    shown = np.array([sample.image is not None for sample in samples])
    images, numbers = distinct([sample.image for sample in samples if sample.image is not None])
    image_of = np.full(len(asked), -1, np.int64)
    image_of[shown] = numbers
    token = int(model.config.image_token_id)
    tokens = tokenise(processor, token, asked, [one.report for one in samples], [one.told for one in samples])
    lesson = Lesson(tuple(sources), tokens, tuple(images), image_of, processor, token, image_tokens(model))
    check_context(model, config.optimisation, lesson.rows(config.optimisation.max_length).longest)
    return lesson


def image_tokens(model: Any) -> int:
    """Tokens of one image: patches of the vision encoder, and its class token where the model keeps it."""
    vision = model.config.vision_config
    patches = (vision.image_size // vision.patch_size) ** 2
    return int(patches + (model.config.vision_feature_select_strategy != "default"))


def learn(
    config: Config,
    lesson: Lesson,
    module: ReporterLoss,
    run: RunFolder,
    order: Order,
    *,
    label: str,
    vision_encoder_frozen: bool = True,
    on_evaluate: Evaluate | None = None,
) -> tuple[Fitted, ReportRows]:
    """Open images or features, and train what has `requires_grad`."""
    settings = config.optimisation
    images, features = open_seen(config, lesson, module.model, run, here(), vision_encoder_frozen)
    rows = lesson.rows(settings.max_length, images, features, varied=not module.augmentation.none)
    if settings.gradient_checkpointing:
        checkpointed(module.model, vision_encoder_frozen)
    if settings.compiled:
        compile_layers(module.model)

    def evaluate(_: Any, step: int) -> Any:
        return on_evaluate(module.model, step) if on_evaluate is not None else {}

    job = Job(module, rows, order, label, on_evaluate=evaluate if on_evaluate is not None else None)
    return fit(job, settings, run), rows


def planned(config: Config, lesson: Lesson, model: Any, trained: int) -> Order:
    """Which samples when; too little data for one step and too little memory are refused here, before the run is made.

    Args:
        config: Settings.
        lesson: What is learnt.
        model: What learns.
        trained: Weights of it that will be trained, adapters included.
    """
    settings = config.optimisation
    rows = lesson.rows(settings.max_length)
    check_memory(estimate(model, settings, rows.longest, trained), here())
    return plan(
        [Part(len(source.samples), source.weight) for source in lesson.sources],
        settings.batch_size * settings.accumulate * processes.count(),
        settings.epochs,
        settings.steps,
        settings.seed,
        rows.lengths if settings.group_by_length else None,
    )


def summarise(
    stage: str, fitted: Fitted, lesson: Lesson, rows: ReportRows, module: torch.nn.Module, checkpoint: str
) -> Training:
    """The summary of stages 2 and 3."""
    sizes = [(value.numel(), value.requires_grad) for value in module.parameters()]
    return Training(
        stage=stage,
        checkpoint=checkpoint,
        steps=fitted.steps,
        samples=fitted.samples,
        loss=fitted.loss,
        rows=len(rows),
        left_out=lesson.left_out,
        cut=rows.cut,
        trained_parameters=sum(size for size, trained in sizes if trained),
        parameters=sum(size for size, _ in sizes),
        extra={"longest_sample": rows.longest, "mean_sample": float(rows.lengths.mean())},
    )


def here() -> torch.device:
    """Where this process trains."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def open_seen(
    config: Seeing, lesson: Lesson, model: Any, run: RunFolder, device: torch.device, vision_encoder_frozen: bool
) -> tuple[Images | None, Features | None]:
    """Images, and the features of a frozen vision encoder in their place where they are cached."""
    if not lesson.images:
        return None, None
    folder = config.cache or run.folder / CACHE
    settings = config.optimisation
    with processes.first_alone():
        images = open_images(
            lesson.images,
            lesson.processor.image_processor,
            folder,
            cache=config.cache_images,
            most_gb=config.cache_gb,
        )
        if not vision_encoder_frozen:
            return images, None
        dtype = torch.bfloat16 if settings.precision == "bfloat16" else torch.float32
        model.model.vision_tower.to(device)
        features = open_features(
            model, images, folder, cache=config.cache_features, most_gb=config.cache_gb, dtype=dtype, device=device
        )
    return images, features


def checkpointed(model: Any, vision_encoder_frozen: bool) -> None:
    """Activations are computed twice and few are kept."""
    settings = {"use_reentrant": False}
    model.model.language_model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
    if not vision_encoder_frozen:
        model.model.vision_tower.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)


def compile_layers(model: Any) -> None:
    """One layer is compiled for batches of any length; the others are like it and use what was made for it."""
    language = model.model.language_model
    layers = getattr(language, "layers", None)
    if layers is None:
        raise ConfigError(f"compiled=true: {type(language).__name__} has no list of layers to compile.")
    for layer in layers:
        layer.compile(dynamic=True)


def freeze(model: Any, precision: str) -> None:
    """Nothing of the model is trained; its weights are stored in this precision."""
    model.requires_grad_(False)
    if precision == "bfloat16":
        model.to(torch.bfloat16)


def unfreeze(part: torch.nn.Module) -> None:
    """All of this part is trained, in float32."""
    part.to(torch.float32).requires_grad_(True)


def unfreeze_vision_encoder(model: Any) -> None:
    """All of the vision encoder that its features depend on is trained; layers behind the one that is read are not."""
    vision_encoder = model.model.vision_tower
    unfreeze(vision_encoder)
    side = model.config.vision_config.image_size
    seen = vision_encoder_features(
        model, torch.zeros(1, 3, side, side, device=next(vision_encoder.parameters()).device)
    )
    torch.autograd.backward([seen.sum()])
    for parameter in vision_encoder.parameters():
        # Processes that train together would wait for a gradient that never comes.
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None


def size_of(part: torch.nn.Module) -> int:
    """Weights of a part."""
    return sum(value.numel() for value in part.parameters())

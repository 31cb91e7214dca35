"""Samples as tokens: cut into tokens once, kept as flat arrays, put into batches by indexing alone.

The tokens of the image are not stored: a sample keeps the place of its one `<image>`, and a batch
widens it to as many tokens as the image has features. Only the report's own tokens, its end token
included, are learnt; the image and the prompt never are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.prompting import all_report_ids, prompt_text
from cxrlab.models.model_card import of_corpora
from cxrlab.models.prompts import Prompts, load_prompts
from cxrlab.models.tokenization import token_ids
from cxrlab.training import processes
from cxrlab.training.config import AlignConfig, ExtraCorpus, FinetuneConfig, Optimisation, parse_extra_corpora
from cxrlab.training.image_features import Features, open_features, vision_encoder_features
from cxrlab.training.images import ImageFile, Images, distinct, open_images
from cxrlab.training.llava import ReportLoss
from cxrlab.training.memory import check_context, check_memory, estimate
from cxrlab.training.run_folder import CACHE, RunFolder, TrainingResult
from cxrlab.training.samples import Sample, Source, read_source
from cxrlab.training.trainer import ITEMS, ROWS, Evaluate, Fitted, Job, Order, Part, fit, length_multiple, plan

_BLOCK = 4096  # texts that the tokenizer is given at once


@dataclass(frozen=True)
class Tokens:
    """Token sequences of N samples, one after the other.

    Args:
        ids: All tokens, int32.
        starts: Where each sample begins, [N + 1].
        prompts: Tokens in front of each report, `<image>` counted once, [N].
        images: Place of `<image>` in each sample, [N]; -1 where there is none.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    prompts: NDArray[np.int32]
    images: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.prompts)


def tokenise(
    processor: Any,
    image_token: int,
    asked: Sequence[str | None],
    reports: Sequence[str],
    told: Sequence[str | None] | None = None,
) -> Tokens:
    """Cut prompts and reports into tokens.

    Args:
        processor: Of the model.
        image_token: Id of `<image>`.
        asked: What is asked for each sample; None where words alone are learnt, without an image or a prompt.
        reports: What is to be answered.
        told: Words that stand in the place of each image; None, or None for a sample, where it is shown.
    """
    requests = list(zip(asked, told or [None] * len(asked), strict=True))
    ids: list[NDArray[np.int32]] = []
    prompts, images = np.zeros(len(asked), np.int32), np.full(len(asked), -1, np.int32)
    starts = np.zeros(len(asked) + 1, np.int64)
    for first in range(0, len(asked), _BLOCK):
        before = _prompt_ids(processor, requests[first : first + _BLOCK])
        answers = all_report_ids(processor, reports[first : first + _BLOCK])
        for number, (prompt, answer) in enumerate(zip(before, answers, strict=True), first):
            words, instead = requests[number]
            if words is not None and instead is None:
                if (radiographs := prompt.count(image_token)) != 1:
                    raise DataError(f"a prompt has {radiographs} image tokens; it must have one image.")
                images[number] = prompt.index(image_token)
            prompts[number] = len(prompt)
            starts[number + 1] = starts[number] + len(prompt) + len(answer)
            ids.append(np.asarray([*prompt, *answer], np.int32))
    return Tokens(np.concatenate(ids) if ids else np.zeros(0, np.int32), starts, prompts, images)


def _prompt_ids(processor: Any, requests: Sequence[tuple[str | None, str | None]]) -> list[list[int]]:
    """Tokens in front of the report; those of a sample for which nothing is asked are the begin token alone."""
    tokenizer = processor.tokenizer
    begin = tokenizer.bos_token
    found: dict[tuple[str | None, str | None], list[int]] = {}
    texts = {
        request: begin or "" if request[0] is None else prompt_text(processor, request[0], request[1])
        for request in dict.fromkeys(requests)
    }
    for own in (False, True):  # a chat template writes the begin token itself
        chosen = {
            request: text
            for request, text in texts.items()
            if text and own == (not begin or text[: len(begin)] != begin)
        }
        if chosen:
            cut = token_ids(tokenizer, list(chosen.values()), add_special_tokens=own)
            found.update(zip(chosen, cut, strict=True))
    return [found.get(request, []) for request in requests]


@dataclass(frozen=True)
class ReportDataset:
    """Samples in batches: what `ReportLoss` takes.

    Args:
        tokens: Of the samples.
        image_of: Number of each sample's image, [N]; -1 where words alone are learnt.
        images: The images; None when features stand in for them.
        features: Features of the frozen vision encoder for every image; None when it is run.
        image_tokens: Tokens that an image widens to.
        image_token: Id of `<image>`.
        pad: Id that fills a batch up.
        max_length: Most tokens of a sample; what is longer is cut at its end.
        multiple: A batch is as long as a multiple of this holds its longest sample, but never longer than the longest
            of all. A GPU plans its kernels anew for every shape; there are then few.
        varied: Name the rows of the images too, from which the variation of each is drawn.
    """

    tokens: Tokens
    image_of: NDArray[np.int64]
    images: Images | None
    features: Features | None
    image_tokens: int
    image_token: int
    pad: int
    max_length: int
    multiple: int = 1
    varied: bool = False

    def __post_init__(self) -> None:
        shortest = int((self.tokens.prompts + self._widened()).max(initial=0)) + 1
        if shortest > self.max_length:
            raise ConfigError(
                f"max_length={self.max_length} cuts into the {self.image_tokens:,} image tokens and the prompt, which "
                f"take up to {shortest - 1:,}; the report would be learnt without seeing the image. Use max_length >= "
                f"{shortest + 63}."
            )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def key(self) -> str:
        """A hash of everything that is learnt: tokens, images, and the longest sample."""
        digest = hashlib.blake2b(digest_size=12)
        for array in (self.tokens.ids, self.tokens.starts, self.tokens.prompts, self.image_of):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(f"{self.images.key if self.images is not None else None} {self.max_length}".encode())
        return digest.hexdigest()

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sample as the model sees it, [N]."""
        return np.minimum(np.diff(self.tokens.starts) + self._widened(), self.max_length)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sample."""
        return int(self.lengths.max(initial=0))

    @property
    def cut(self) -> int:
        """Samples whose report loses its end to `max_length`."""
        return int((np.diff(self.tokens.starts) + self._widened() > self.max_length).sum())

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """One batch: ids [B, L], places of the image's tokens and of what is learnt in it, targets, and the images."""
        chosen = np.asarray(rows, np.int64)
        ids, inside, learnt = self._laid_out(chosen)
        places = np.flatnonzero(learnt)
        batch = {
            "input_ids": torch.from_numpy(ids),
            "image_places": torch.from_numpy(np.flatnonzero(inside)),
            "places": torch.from_numpy(places),
            "targets": torch.from_numpy(ids.reshape(-1)[places + 1]),  # the next place is in the same row
            ITEMS: torch.tensor([len(places)]),
        }
        numbers = self.image_of[chosen]
        seen = numbers >= 0
        if seen.any():
            if self.features is not None:
                batch["features"] = self.features[numbers[seen]]
            elif self.images is not None:
                batch["images"] = torch.from_numpy(self.images[numbers[seen]])
                if self.varied:
                    batch[ROWS] = torch.from_numpy(chosen[seen])
        return batch

    def _widened(self, rows: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int64]:
        """Tokens that an image adds to each of these samples beyond its `<image>`."""
        return np.where(self.tokens.images[rows] >= 0, self.image_tokens - 1, 0).astype(np.int64)

    def _laid_out(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Ids, where the image's tokens stand, and after which places a token of the report comes; all [B, L]."""
        tokens, wide = self.tokens, self.image_tokens - 1
        start = tokens.starts[rows][:, None]
        length = tokens.starts[rows + 1][:, None] - start
        image = tokens.images[rows][:, None].astype(np.int64)
        extra = self._widened(rows)[:, None]
        whole = np.minimum(length + extra, self.max_length)
        place = np.arange(self._padded(int(whole.max())))[None]
        inside = (image >= 0) & (place >= image) & (place <= image + wide)
        source = place - np.where(place > image + wide, extra, 0)
        ids = tokens.ids[start + np.minimum(source, length - 1)].astype(np.int64)
        ids[inside] = self.image_token
        valid = place < whole
        ids[~valid] = self.pad
        first = tokens.prompts[rows][:, None] + extra - 1
        return ids, inside & valid, (place >= first) & (place < whole - 1)

    def _padded(self, longest: int) -> int:
        return min(-(-longest // self.multiple) * self.multiple, max(longest, self.longest))


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
    ) -> ReportDataset:
        """The samples in batches."""
        tokenizer = self.processor.tokenizer
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        return ReportDataset(
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
    main = ExtraCorpus(config.data, text=config.text)
    seed = config.optimisation.seed
    further = [read_source(one, seed=seed) for one in parse_extra_corpora(config.extra_corpora).values()]
    return (read_source(main, config.n, seed), *further)


def prepare(config: Asking, sources: Sequence[Source], model: Any, processor: Any, ask: Ask) -> Lesson:
    """Cut everything into tokens and check that it fits the model."""
    asked: list[str | None] = []
    for source in sources:
        prompts = load_prompts(source.prompts or config.prompts)
        asked += [
            None if sample.image is None and sample.listed_findings is None else ask(prompts, sample)
            for sample in source.samples
        ]
    samples = [sample for source in sources for sample in source.samples]
    shown = np.array([sample.image is not None for sample in samples])
    images, numbers = distinct([sample.image for sample in samples if sample.image is not None])
    image_of = np.full(len(asked), -1, np.int64)
    image_of[shown] = numbers
    token = int(model.config.image_token_id)
    tokens = tokenise(
        processor, token, asked, [one.report for one in samples], [one.listed_findings for one in samples]
    )
    lesson = Lesson(tuple(sources), tokens, tuple(images), image_of, processor, token, count_image_tokens(model))
    check_context(model, config.optimisation, lesson.rows(config.optimisation.max_length).longest)
    return lesson


def count_image_tokens(model: Any) -> int:
    """Tokens of one image: patches of the vision encoder, and its class token where the model keeps it."""
    vision = model.config.vision_config
    patches = (vision.image_size // vision.patch_size) ** 2
    return int(patches + (model.config.vision_feature_select_strategy != "default"))


def learn(
    config: Config,
    lesson: Lesson,
    module: ReportLoss,
    run: RunFolder,
    order: Order,
    *,
    label: str,
    vision_encoder_frozen: bool = True,
    on_evaluate: Evaluate | None = None,
) -> tuple[Fitted, ReportDataset]:
    """Open images or features, and train what has `requires_grad`."""
    settings = config.optimisation
    images, features = open_seen(config, lesson, module.model, run, training_device(), vision_encoder_frozen)
    rows = lesson.rows(settings.max_length, images, features, varied=not module.augmentation.none)
    if settings.gradient_checkpointing:
        enable_gradient_checkpointing(module.model, vision_encoder_frozen)
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
    check_memory(estimate(model, settings, rows.longest, trained), training_device())
    return plan(
        [Part(len(source.samples), source.weight) for source in lesson.sources],
        settings.batch_size * settings.accumulate * processes.count(),
        settings.epochs,
        settings.steps,
        settings.seed,
        rows.lengths if settings.group_by_length else None,
    )


def summarise(
    stage: str, fitted: Fitted, lesson: Lesson, rows: ReportDataset, module: torch.nn.Module, checkpoint: str
) -> TrainingResult:
    """The summary of stages 2 and 3."""
    sizes = [(value.numel(), value.requires_grad) for value in module.parameters()]
    return TrainingResult(
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


def training_device() -> torch.device:
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


def enable_gradient_checkpointing(model: Any, vision_encoder_frozen: bool) -> None:
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

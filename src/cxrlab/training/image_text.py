"""Fine-tuning of any image-text-to-text family: batches made as for generation, and the loss of their reports.

Images, prompts and reports become the family's inputs by the encoder that generation and scoring use. The features of a
frozen vision encoder are cached where the family declares them (`Family.feature_source`); else it runs at every step. A
LLaVA is trained faster, without a processor: see `report_dataset`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from torch import Tensor, nn

from cxrlab.core.errors import ConfigError
from cxrlab.data.images import image_size
from cxrlab.data.parallel import ordered_map
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.frozen_encoder import given_features
from cxrlab.models.hf.inputs import Encoder, Sizes, as_images, make_encoder
from cxrlab.models.hf.prompting import all_report_ids, chat_template
from cxrlab.models.hf.scoring import logits_at, without_mask
from cxrlab.models.prompts import load_prompts
from cxrlab.training.config import Optimisation, ReportConfig
from cxrlab.training.image_cache import ImageFile, images_key, numbers_of_images, read_image
from cxrlab.training.image_features import Features
from cxrlab.training.memory_estimate import check_context
from cxrlab.training.report_dataset import Ask, OfSources
from cxrlab.training.report_model import ModelParts
from cxrlab.training.samples import Source
from cxrlab.training.trainer import ITEMS

CPU = torch.device("cpu")


def check_settings(config: ReportConfig, model_type: str) -> None:
    """Refuse settings that a family other than LLaVA does not have."""
    if config.cache_images == "on":
        raise ConfigError(
            f"cache_images=on: a '{model_type}' prepares its images at every step; leave the setting out."
        )
    if config.cache_features == "on" and find_family(model_type).feature_source is None:
        raise ConfigError(f"cache_features=on: the vision encoder of a '{model_type}' is run at every step, since its "
                          "language model takes more than one output of it; leave the setting out.")  # fmt: skip
    augmentation = getattr(config, "augmentation", None)
    if augmentation is not None and not augmentation.none:
        raise ConfigError(f"augmentation is made for the images of a LLaVA; leave it out for a '{model_type}'.")


def load_image_text(
    sources: Sequence[Source], model: Any, processor: Any, prompts: str | None, settings: Optimisation, ask: Ask
) -> ImageTextDataset:
    """Tokenise the reports of all corpora, read the sizes of their images, and check that they fit the model."""
    samples = [sample for source in sources for sample in source.samples]
    if any(not sample.images for sample in samples):
        raise ConfigError(
            f"a '{model.config.model_type}' needs an image in every sample; leave corpora with images=false out of "
            "extra_corpora (a LLaVA takes them)."
        )
    family = find_family(model.config.model_type)
    if not family.several_images and any(sample.context is not None for sample in samples):
        raise ConfigError(
            f"a '{model.config.model_type}' takes one image and an indication per study; leave out --views and --prior."
        )
    files, image_of = numbers_of_images([sample.images for sample in samples])
    requests = [
        ask(wording, sample)
        for source in sources
        for wording in [load_prompts(source.prompts or prompts)]
        for sample in source.samples
    ]
    encoder = make_encoder(model, processor)
    encoder.device, encoder.dtype = CPU, torch.float32  # batches are made on the CPU, by several processes
    dataset = ImageTextDataset(
        encoder,
        tuple(requests),
        tuple(np.asarray(ids, np.int32) for ids in all_report_ids(processor, [one.report for one in samples])),
        image_of,
        tuple(files),
        images_key(files, processor.image_processor),
        tuple(ordered_map(image_size, [file.path for file in files])),
        settings.max_length,
        _numbers_per_patch(model.config.vision_config),
        tuple(sources),
    )
    dataset.check_length()
    check_context(model, dataset.longest)
    return dataset


def _numbers_per_patch(vision: Any) -> int:
    side = vision.patch_size if isinstance(vision.patch_size, int) else vision.patch_size[0]
    return 3 * int(getattr(vision, "temporal_patch_size", 1)) * int(side) ** 2


@dataclass(frozen=True)
class ImageTextDataset(OfSources):
    """Samples in batches, as `ImageTextLoss` takes them.

    Args:
        encoder: Makes the family's inputs.
        prompts: Of each sample.
        reports: Token ids of each report, its end token last.
        image_of: Numbers of each sample's images, [N, K]; -1 after the last.
        files: Every image once.
        images: Hash of the image files.
        sizes: Height and width of every image.
        max_length: Most tokens per sample; a longer report is truncated.
        numbers_per_patch: Numbers of `pixel_values` that make one patch.
        features: Of the frozen vision encoder for every image; None when it is run at every step.
    """

    encoder: Encoder
    prompts: tuple[str, ...]
    reports: tuple[NDArray[np.int32], ...]
    image_of: NDArray[np.int64]
    files: tuple[ImageFile, ...]
    images: str
    sizes: tuple[tuple[int, int], ...]
    max_length: int
    numbers_per_patch: int
    sources: tuple[Source, ...] = ()
    features: Features | None = None

    def __len__(self) -> int:
        return len(self.reports)

    @property
    def key(self) -> str:
        """A hash of the training data: chat template, prompts, reports, images, and the length limit."""
        digest = hashlib.blake2b(str(chat_template(self.encoder.processor)).encode(), digest_size=12)
        for prompt, report in zip(self.prompts, self.reports, strict=True):
            digest.update(prompt.encode() + b"\0" + report.tobytes() + b"\0")
        digest.update(self.image_of.tobytes() + f"{self.images} {self.max_length}".encode())
        return digest.hexdigest()

    @cached_property
    def before_reports(self) -> NDArray[np.int64]:
        """Tokens of image and prompt of each sample, [N]."""
        length = self.encoder.expander.length
        return np.array([length(prompt, self._sizes(row)) for row, prompt in enumerate(self.prompts)], np.int64)

    @cached_property
    def whole_lengths(self) -> NDArray[np.int64]:
        """Tokens of each sample before its report is truncated, [N]."""
        return self.before_reports + np.array([len(report) for report in self.reports], np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sample as the model sees it, [N]."""
        return np.minimum(self.whole_lengths, self.max_length)

    @property
    def longest(self) -> int:
        """Tokens of the longest sample."""
        return int(self.lengths.max(initial=0))

    @property
    def longest_report(self) -> int:
        """Tokens of the longest report as the model sees it."""
        return int((self.lengths - self.before_reports).max(initial=0))

    @property
    def cut(self) -> int:
        """Samples whose report is truncated by `max_length`."""
        return int((self.whole_lengths > self.max_length).sum())

    def check_length(self) -> None:
        """Refuse a `max_length` that leaves no room for a report."""
        before = int(self.before_reports.max(initial=0))
        if before >= self.max_length:
            raise ConfigError(
                f"max_length={self.max_length} leaves no room for the report: image and prompt take up to {before:,} "
                f"tokens. Use max_length >= {before + 64}."
            )

    @cached_property
    def most_patches(self) -> int:
        """Patches of the sample with the largest images."""
        largest = max(map(self._sizes, range(len(self))), key=lambda sizes: sum(one[0] * one[1] for one in sizes))
        pixels = self.encoder.path.inputs([[torch.zeros(1, *size) for size in largest]])["pixel_values"]
        return int(pixels.numel() // self.numbers_per_patch)

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """One batch: the family's inputs, the columns that precede a target, the places among them, and the targets."""
        numbers = [self._numbers(row) for row in rows]
        sizes = tuple(self._sizes(row) for row in rows)
        prompts = tuple(self.prompts[row] for row in rows)
        answers = []
        for row, prompt, own in zip(rows, prompts, sizes, strict=True):
            before = len(self.encoder.expander.prompt(prompt, own).ids)
            answers.append(tuple(self.reports[row][: self.max_length - before].tolist()))
        if self.features is not None:
            encoded = self.encoder.text_inputs(sizes, prompts, tuple(answers), "right")
            features = self.features[np.array([number for own in numbers for number in own], np.int64)]
            inputs = {**encoded.inputs, **self.encoder.blank_inputs(sizes), "features": features}
        else:
            distinct = list(dict.fromkeys(number for own in numbers for number in own))
            images = as_images([read_image(self.files[number]) for number in distinct], CPU)
            read = dict(zip(distinct, images, strict=True))
            encoded = self.encoder.encode([[read[number] for number in own] for own in numbers], prompts, answers)
            inputs = encoded.inputs
        follows = encoded.report_mask[:, 1:]
        columns = follows.any(dim=0).nonzero().squeeze(1)
        places = follows[:, columns].flatten().nonzero().squeeze(1)
        return {
            **inputs,
            "columns": columns,
            "places": places,
            "targets": encoded.ids[:, 1:][:, columns].flatten()[places],
            ITEMS: torch.tensor([len(places)]),
        }

    def _numbers(self, row: int) -> list[int]:
        return [int(number) for number in self.image_of[row] if number >= 0]

    def _sizes(self, row: int) -> Sizes:
        return tuple(self.sizes[number] for number in self._numbers(row))


class ImageTextLoss(nn.Module):
    """A model of any family together with the loss of its reports.

    Args:
        model: The model, with or without adapters.
        parts: Its parts.
    """

    def __init__(self, model: Any, parts: ModelParts) -> None:
        super().__init__()
        self.model = model
        find_family(model.config.model_type).prepare_training(model)
        self._vision = parts.vision_parameters()
        self._vision_encoder = [parts.vision_encoder]  # in a list, since it is registered in the model already

    def forward(self, columns: Tensor, places: Tensor, targets: Tensor, **inputs: Tensor) -> Tensor:
        """Sum of -log p of the targets, a scalar.

        Args:
            columns: Positions that precede a target in any row, [C].
            places: Which of the B × C of them precede a target, [K].
            targets: The tokens that follow, [K].
            inputs: Of the family, padded on the right; with `features` of a frozen vision encoder, blank pixels.
        """
        scores = self.scores(columns, places, **inputs)
        return functional.cross_entropy(scores.float(), targets, reduction="sum")

    def scores(self, columns: Tensor, places: Tensor, features: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Logits of the tokens after each of the places, [K, V]; see `forward`."""
        dtype = self._vision[0].dtype
        given = {
            name: tensor.to(dtype) if tensor.is_floating_point() or name == "pixel_values" else tensor
            for name, tensor in inputs.items()
        }
        with nullcontext() if features is None else given_features(self.model, features):
            logits = logits_at(self.model, without_mask(self.model, given), columns)
        return logits.flatten(0, 1).index_select(0, places)

    def target_scores(self, batch: Mapping[str, Tensor], copies: int = 1) -> tuple[Tensor, Tensor]:
        """Logits of every target [K, V] and the row that it is in [K]; every row has its own image, copies too."""
        scores = self.scores(**{name: value for name, value in batch.items() if name != "targets"})
        return scores, torch.div(batch["places"], batch["columns"].shape[0], rounding_mode="floor")

    def freeze_unused(self, batch: dict[str, Tensor], precision: str) -> None:
        """Freeze weights of the vision encoder that get no gradient from a batch, in the precision of the training.

        Layers behind the one whose features are used would let several processes wait forever.
        """
        device = self._vision[0].device
        given = {name: value.to(device) for name, value in batch.items() if name != ITEMS}
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            loss = self(**given)
        torch.autograd.backward([loss])
        for parameter in self._vision:
            parameter.requires_grad_(parameter.grad is not None)
        self.zero_grad(set_to_none=True)

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a frozen vision encoder stays in evaluation mode, so that its features stay the same."""
        super().train(mode)
        if not any(parameter.requires_grad for parameter in self._vision):
            self._vision_encoder[0].eval()
        return self

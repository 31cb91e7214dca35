"""Data set of reports: samples as flat token arrays, put into batches by indexing alone.

The image tokens are not stored: a sample keeps the place of each `<image>`, and a batch widens it to as many tokens as
an image has features. Only the tokens of the report, its end token included, are targets.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.prompting import all_report_ids, prompt_text
from cxrlab.models.model_card import of_corpora
from cxrlab.models.prompts import Prompts, load_prompts
from cxrlab.models.tokenization import token_ids
from cxrlab.training.config import Optimisation
from cxrlab.training.image_cache import ImageFile, Images, numbers_of_images
from cxrlab.training.image_features import Features
from cxrlab.training.memory_estimate import check_context
from cxrlab.training.samples import Sample, Source
from cxrlab.training.trainer import ITEMS, ROWS, length_multiple

_BLOCK = 4096  # texts that the tokenizer is given at once

Ask = Callable[[Prompts, Sample], str]
"""The prompt of a sample."""


def ask_for_report(prompts: Prompts, sample: Sample, *, indication: bool = True) -> str:
    """Prompt of stage 3 and of preference training: a request for the report, or the sample's closed question."""
    if sample.question is not None:
        return prompts.question(sample.question)
    if sample.context is not None:
        return prompts.ask(sample.context if indication else replace(sample.context, indication=None))
    return prompts.ask(sample.indication if indication else None)


def load_dataset(
    sources: Sequence[Source], model: Any, processor: Any, prompts: str | None, settings: Optimisation, ask: Ask
) -> ReportDataset:
    """Tokenise the samples of all corpora and check that they fit the model; images are opened later."""
    samples = [sample for source in sources for sample in source.samples]
    requests: list[str | None] = []
    for source in sources:
        wording = load_prompts(source.prompts or prompts)
        requests += [
            None if not sample.images and sample.listed_findings is None else ask(wording, sample)
            for sample in source.samples
        ]
    files, image_of = numbers_of_images([sample.images for sample in samples])
    image_token, tokenizer = int(model.config.image_token_id), processor.tokenizer
    reports, listed = [one.report for one in samples], [one.listed_findings for one in samples]
    dataset = ReportDataset(
        tokenise(processor, image_token, requests, reports, listed, [len(sample.images) for sample in samples]),
        image_of,
        images=None,
        features=None,
        image_tokens=count_image_tokens(model),
        image_token=image_token,
        pad=int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id),
        max_length=settings.max_length,
        multiple=length_multiple(),
        sources=tuple(sources),
        files=tuple(files),
    )
    check_context(model, dataset.longest)
    return dataset


def count_image_tokens(model: Any) -> int:
    """Tokens of one image: patches of the vision encoder, and its class token where the model keeps it."""
    vision = model.config.vision_config
    patches = (vision.image_size // vision.patch_size) ** 2
    return int(patches + (model.config.vision_feature_select_strategy != "default"))


@dataclass(frozen=True)
class Tokens:
    """Token sequences of N samples, one after the other.

    Args:
        ids: All tokens, int32.
        starts: Where each sample begins, [N + 1].
        prompts: Tokens in front of each report, `<image>` counted once, [N].
        images: Places of `<image>` in each sample, [N, K] in ascending order; -1 after the last.
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
    prompts: Sequence[str | None],
    reports: Sequence[str],
    listed: Sequence[str | None] | None = None,
    images: Sequence[int] | None = None,
) -> Tokens:
    """Tokenise prompts and reports.

    Args:
        processor: Of the model.
        image_token: Id of `<image>`.
        prompts: Of each sample; None for text without image or prompt, which begins with the begin token alone.
        reports: Of each sample.
        listed: Text in place of each image; None, or None for a sample, where the image is used.
        images: Number of images of each sample that has them; one each when None.
    """
    tokenizer = processor.tokenizer
    begin = tokenizer.bos_token
    count = len(prompts)
    requests = list(zip(prompts, listed or [None] * count, images or [1] * count, strict=True))
    ids: list[NDArray[np.int32]] = []
    lengths, places = np.zeros(count, np.int32), np.full((count, max([1, *(images or ())])), -1, np.int32)
    starts = np.zeros(count + 1, np.int64)
    for first in range(0, count, _BLOCK):
        block = requests[first : first + _BLOCK]
        texts = {
            (prompt, image_replacement, shown): begin or ""
            if prompt is None
            else prompt_text(processor, prompt, image_replacement, shown)
            for prompt, image_replacement, shown in dict.fromkeys(block)
        }
        prompt_ids: dict[tuple[str | None, str | None, int], list[int]] = {}
        for add_begin in (False, True):  # a chat template writes the begin token itself
            chosen = {
                request: text
                for request, text in texts.items()
                if text and add_begin == (not begin or not text.startswith(begin))
            }
            if chosen:
                found = token_ids(tokenizer, list(chosen.values()), add_special_tokens=add_begin)
                prompt_ids.update(zip(chosen, found, strict=True))
        answers = all_report_ids(processor, reports[first : first + _BLOCK])
        for number, (request, answer) in enumerate(zip(block, answers, strict=True), first):
            before = prompt_ids.get(request, [])
            if request[0] is not None and request[1] is None:
                if (found_images := before.count(image_token)) != request[2]:
                    raise DataError(f"a prompt has {found_images} image tokens; it must have {request[2]}.")
                places[number, : request[2]] = [place for place, token in enumerate(before) if token == image_token]
            lengths[number] = len(before)
            starts[number + 1] = starts[number] + len(before) + len(answer)
            ids.append(np.asarray([*before, *answer], np.int32))
    return Tokens(np.concatenate(ids) if ids else np.zeros(0, np.int32), starts, lengths, places)


class OfSources:
    """What is known of the corpora of a data set.

    Attributes:
        sources: The corpora, the main one first.
    """

    sources: tuple[Source, ...]

    @property
    def collections(self) -> tuple[str, ...]:
        """Collections of images in the corpora."""
        return tuple(dict.fromkeys(name for source in self.sources for name in source.collections))

    @property
    def trained_on(self) -> str:
        """What a model is trained on by these corpora; see `ModelCard`."""
        return of_corpora(source.synthetic for source in self.sources)

    @property
    def left_out(self) -> dict[str, int]:
        """Reason → unused studies, over all corpora."""
        return dict(sum((Counter(source.left_out) for source in self.sources), Counter[str]()))


@dataclass(frozen=True)
class ReportDataset(OfSources):
    """Samples in batches, as `ReportLoss` takes them.

    Args:
        tokens: Of the samples.
        image_of: Numbers of each sample's images, [N, K]; -1 after the last.
        images: The images; None when features replace them, or before they are opened.
        features: Features of the frozen vision encoder for every image; None when it is run at every step.
        image_tokens: Tokens per image.
        image_token: Id of `<image>`.
        pad: Padding token.
        max_length: Most tokens per sample; longer samples are truncated.
        multiple: Batch lengths are rounded up to a multiple of this, but never beyond the longest sample of all: a GPU
            plans its kernels anew for every shape.
        varied: Add the rows of the images to a batch, from which the augmentation of each is drawn.
        sources: The corpora, the main one first.
        files: Every image once.
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
    sources: tuple[Source, ...] = ()
    files: tuple[ImageFile, ...] = ()

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
        """A hash of the training data: tokens, images, and the length limit."""
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
        """Samples whose report is truncated by `max_length`."""
        return int((np.diff(self.tokens.starts) + self._widened() > self.max_length).sum())

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """One batch: ids [B, L], places of the image tokens and of what precedes a target, targets, and the images."""
        # A sample of 6 stored tokens whose image has 3 features, in a batch padded to 9 (first = 1, wide = 2):
        #   place          0      1        2        3     4     5      6    7    8
        #   source         0      1        2        3     2     3      4    5    6
        #   input_ids    begin <image>  <image>  <image> ask  clear  lungs end  pad
        #   inside                x        x        x
        #   before_target                                 x     x      x            targets: clear, lungs, end
        chosen = np.asarray(rows, np.int64)
        tokens, wide = self.tokens, self.image_tokens - 1
        start = tokens.starts[chosen][:, None]
        length = tokens.starts[chosen + 1][:, None] - start
        extra = self._widened(chosen)[:, None]
        whole = np.minimum(length + extra, self.max_length)
        longest = int(whole.max())
        padded = min(-(-longest // self.multiple) * self.multiple, max(longest, self.longest))
        place = np.arange(padded)[None]
        inside = np.zeros((len(chosen), padded), np.bool_)
        source = np.broadcast_to(place, inside.shape).copy()
        for number in range(tokens.images.shape[1]):
            stored = tokens.images[chosen, number][:, None].astype(np.int64)
            first = stored + number * wide  # the images before it are widened too
            inside |= (stored >= 0) & (place >= first) & (place <= first + wide)
            source -= np.where(stored >= 0, np.clip(place - first, 0, wide), 0)
        ids = tokens.ids[start + np.minimum(source, length - 1)].astype(np.int64)
        ids[inside] = self.image_token
        valid = place < whole
        ids[~valid] = self.pad
        before_target = (place >= tokens.prompts[chosen][:, None] + extra - 1) & (place < whole - 1)
        places = np.flatnonzero(before_target)
        batch = {
            "input_ids": torch.from_numpy(ids),
            "image_places": torch.from_numpy(np.flatnonzero(inside & valid)),
            "places": torch.from_numpy(places),
            "targets": torch.from_numpy(ids.reshape(-1)[places + 1]),  # the next place is in the same row
            ITEMS: torch.tensor([len(places)]),
        }
        seen = self.image_of[chosen] >= 0
        if seen.any():
            numbers = self.images_of(chosen)
            if self.features is not None:
                batch["features"] = self.features[numbers]
            elif self.images is not None:
                batch["images"] = torch.from_numpy(self.images[numbers])
                if self.varied:
                    # The images of a sample are varied each in its own way.
                    rows_of_images = chosen[:, None] + len(self) * np.arange(seen.shape[1])
                    batch[ROWS] = torch.from_numpy(rows_of_images[seen])
        return batch

    def images_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the images of these samples, one after the other."""
        numbers: NDArray[np.int64] = self.image_of[rows]
        return numbers[numbers >= 0]

    def _widened(self, rows: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int64]:
        """Tokens that the images add to each of these samples beyond their `<image>`."""
        counts: NDArray[np.int64] = (self.tokens.images[rows] >= 0).sum(axis=1, dtype=np.int64)
        return counts * (self.image_tokens - 1)

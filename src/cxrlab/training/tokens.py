"""Samples as tokens: cut into tokens once, kept as flat arrays, put into batches by indexing alone.

The tokens of the image are not stored: a sample keeps the place of its one `<image>`, and a batch
widens it to as many tokens as the image has features. Only the report's own tokens, its end token
included, are learnt; the image and the prompt never are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.prompting import all_report_ids, prompt_text
from cxrlab.models.tokenization import token_ids
from cxrlab.training.feature_store import Features
from cxrlab.training.images import Images
from cxrlab.training.rows import ITEMS, ROWS

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
class ReportRows:
    """Samples in batches: what `ReporterLoss` takes.

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

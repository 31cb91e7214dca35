"""Samples as tokens: cut into tokens once, kept as flat arrays, put into batches by indexing alone.

The tokens of the film are not stored: a sample keeps the place of its one `<image>`, and a batch
widens it to as many tokens as the film has features. Only the report's own tokens, its end token
included, are learnt; the film and the prompt never are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.prompting import prompt_text, report_ids
from cxrlab.training.feature_store import Features
from cxrlab.training.films import Films

_BLOCK = 1024  # texts that the tokenizer is given at once


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


def tokenise(processor: Any, image_token: int, asked: Sequence[str | None], reports: Sequence[str]) -> Tokens:
    """Cut prompts and reports into tokens.

    Args:
        processor: Of the model.
        image_token: Id of `<image>`.
        asked: What is asked for each sample; None where words alone are learnt, without a film or a prompt.
        reports: What is to be answered.
    """
    ids: list[NDArray[np.int32]] = []
    prompts, images = np.zeros(len(asked), np.int32), np.full(len(asked), -1, np.int32)
    starts = np.zeros(len(asked) + 1, np.int64)
    for first in range(0, len(asked), _BLOCK):
        for offset, before in enumerate(_prompt_ids(processor, asked[first : first + _BLOCK])):
            number = first + offset
            answer = report_ids(processor, reports[number])
            if asked[number] is not None:
                if before.count(image_token) != 1:
                    raise DataError(f"a prompt has {before.count(image_token)} image tokens; it must have one film.")
                images[number] = before.index(image_token)
            prompts[number] = len(before)
            starts[number + 1] = starts[number] + len(before) + len(answer)
            ids.append(np.asarray([*before, *answer], np.int32))
    return Tokens(np.concatenate(ids) if ids else np.zeros(0, np.int32), starts, prompts, images)


def _prompt_ids(processor: Any, asked: Sequence[str | None]) -> list[list[int]]:
    """Tokens in front of the report; those of a sample without a film are the begin token alone."""
    tokenizer = processor.tokenizer
    begin = tokenizer.bos_token
    texts = [begin or "" if words is None else prompt_text(processor, words) for words in asked]
    found: list[list[int]] = []
    for text in texts:
        own = not begin or not text.startswith(begin)  # a chat template writes the begin token itself
        found.append(tokenizer(text, add_special_tokens=own)["input_ids"] if text else [])
    return found


@dataclass(frozen=True)
class ReportRows:
    """Samples in batches: what `ReporterLoss` takes.

    Args:
        tokens: Of the samples.
        film_of: Number of each sample's film, [N]; -1 where words alone are learnt.
        films: The films; None when features stand in for them.
        features: Features of the frozen tower for every film; None when it is run.
        image_tokens: Tokens that a film widens to.
        image_token: Id of `<image>`.
        pad: Id that fills a batch up.
        max_length: Most tokens of a sample; what is longer is cut at its end.
    """

    tokens: Tokens
    film_of: NDArray[np.int64]
    films: Films | None
    features: Features | None
    image_tokens: int
    image_token: int
    pad: int
    max_length: int

    def __post_init__(self) -> None:
        shortest = int((self.tokens.prompts + self._widened()).max(initial=0)) + 1
        if shortest > self.max_length:
            raise ConfigError(
                f"max_length={self.max_length} cuts into the {self.image_tokens:,} image tokens and the prompt, which "
                f"take up to {shortest - 1:,}; the report would be learnt without seeing the film. Use max_length >= "
                f"{shortest + 63}."
            )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def key(self) -> str:
        """A hash of everything that is learnt: tokens, films, and the longest sample."""
        digest = hashlib.blake2b(digest_size=12)
        for array in (self.tokens.ids, self.tokens.starts, self.tokens.prompts, self.film_of):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(f"{self.films.key if self.films is not None else None} {self.max_length}".encode())
        return digest.hexdigest()

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sample as the model sees it, [N]."""
        return np.minimum(np.diff(self.tokens.starts) + self._widened(), self.max_length)

    @property
    def cut(self) -> int:
        """Samples whose report loses its end to `max_length`."""
        return int((np.diff(self.tokens.starts) + self._widened() > self.max_length).sum())

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """One batch: ids [B, L], places of the film's tokens and of what is learnt in it, targets, and the films."""
        chosen = np.asarray(rows, np.int64)
        ids, inside, learnt = self._laid_out(chosen)
        batch = {
            "input_ids": torch.from_numpy(ids),
            "image_places": torch.from_numpy(np.flatnonzero(inside)),
            "places": torch.from_numpy(np.flatnonzero(learnt)),
            "targets": torch.from_numpy(np.roll(ids, -1, axis=1)[learnt]),
            "items": torch.tensor([int(learnt.sum())]),
        }
        numbers = self.film_of[chosen]
        numbers = numbers[numbers >= 0]
        if len(numbers):
            if self.features is not None:
                batch["features"] = self.features[numbers]
            elif self.films is not None:
                batch["films"] = torch.from_numpy(self.films[numbers])
        return batch

    def _widened(self) -> NDArray[np.int64]:
        """Tokens that a film adds to each sample beyond its `<image>`, [N]."""
        return np.where(self.tokens.images >= 0, self.image_tokens - 1, 0).astype(np.int64)

    def _laid_out(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Ids, where the film's tokens stand, and after which places a token of the report comes; all [B, L]."""
        tokens, wide = self.tokens, self.image_tokens - 1
        start, length = tokens.starts[rows][:, None], np.diff(tokens.starts)[rows][:, None]
        image = tokens.images[rows][:, None].astype(np.int64)
        extra = self._widened()[rows][:, None]
        whole = np.minimum(length + extra, self.max_length)
        place = np.arange(int(whole.max()))[None]
        inside = (image >= 0) & (place >= image) & (place <= image + wide)
        source = np.where((image >= 0) & (place > image + wide), place - wide, place)
        ids = tokens.ids[start + np.minimum(source, length - 1)].astype(np.int64)
        ids[inside] = self.image_token
        valid = place < whole
        ids[~valid] = self.pad
        report = valid & (place >= tokens.prompts[rows][:, None] + extra)
        learnt = np.zeros_like(report)
        learnt[:, :-1] = report[:, 1:]
        return ids, inside & valid, learnt

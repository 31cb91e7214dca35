"""One step of stage 1 on the engine: images varied, both encoders run, the loss over all pieces and processes."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from cxrlab.core.errors import DataError
from cxrlab.models.tokenization import user_ids
from cxrlab.training.augment import varied
from cxrlab.training.config import Augmentation
from cxrlab.training.image_features import to_pixels
from cxrlab.training.images import Images
from cxrlab.training.trainer import ROWS, ExactTrainer


class PairEncoder(nn.Module):
    """A dual encoder with what stands before it in training.

    Args:
        model: With `get_image_features`, `get_text_features` and `logit_scale`.
        image_processor: Of its vision encoder.
        augmentation: How images are varied; not in evaluation mode.
        piece: Most pairs that go through at once.
    """

    def __init__(self, model: Any, image_processor: Any, augmentation: Augmentation, piece: int) -> None:
        super().__init__()
        self.model = model
        self.image_processor, self.augmentation, self.piece = image_processor, augmentation, piece

    def forward(self, images: Tensor, ids: Tensor, mask: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors of images and of reports [B, D], of any length, and the log of the scale.

        Args:
            images: uint8 [B, H, W] or [B, H, W, 3].
            ids: Tokens [B, T].
            mask: [B, T], 0 for padding.
            seeds: [B], for the variation of each image.
        """
        if self.training:
            images = varied(images, seeds, self.augmentation)
        pixels = to_pixels(images, self.image_processor)
        vectors = self.model.get_image_features(pixel_values=pixels)
        texts = self.model.get_text_features(input_ids=ids, attention_mask=mask)
        pooled = (getattr(found, "pooler_output", found) for found in (vectors, texts))
        return (*pooled, self.model.logit_scale)

    def limit_scale(self) -> None:
        """Hold the scale at 100 where a step has carried it beyond."""
        with torch.no_grad():
            self.model.logit_scale.clamp_(max=LARGEST_LOG_SCALE)


class ContrastiveTrainer(ExactTrainer):
    """Steps over the whole batch, whatever fits through at once; see `cached_gradients`."""

    def training_step(self, model: nn.Module, inputs: dict[str, Any], items: Any = None) -> Tensor:
        """Forward and backward of one step's pairs of this process; returns their loss, detached."""
        module: PairEncoder = self.job.module  # type: ignore[assignment]
        module.limit_scale()
        batch = self.ready(inputs)
        image_ids, reports = batch.pop("image_keys"), batch.pop("report_keys")
        parts = zip(*(values.split(module.piece) for values in batch.values()), strict=True)
        pieces = [dict(zip(batch, part, strict=True)) for part in parts]

        def embed(piece: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
            with self.compute_loss_context_manager():
                vectors: tuple[Tensor, Tensor, Tensor] = model(**piece)
            return vectors

        def loss_of(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
            return symmetric_loss(Pairs(images, texts, image_ids, reports), scale)

        if len(pieces) == 1:
            loss = loss_of(*embed(pieces[0]))
            self.accelerator.backward(loss, **self._backward_settings())
        else:
            loss = backward_in_pieces(
                pieces, embed, loss_of, self.accelerator.backward, lambda: self.accelerator.no_sync(model)
            )
        self.journal.note(loss.detach())
        return loss.detach()


def freeze_unreached(module: PairEncoder, ids: Tensor) -> list[str]:
    """Take out of training what the loss does not depend on, by one pass over blank images; returns the names.

    VisionEncoders carry parts that only another task uses (a mask token, a second pooler). Processes that train
    together would wait for their gradients for ever.

    Args:
        module: Before training.
        ids: Tokens of two or more texts of the same length, [B, T].
    """
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    side, count = int(module.model.config.vision_config.image_size), len(ids)
    radiographs, places = torch.zeros(count, side, side, dtype=torch.uint8), torch.arange(count)
    with torch.random.fork_rng([]):
        images, texts, scale = module(radiographs, ids, torch.ones_like(ids), places)
    total = (images * texts).sum() * scale  # any number that depends on all of it
    found = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    unreached = [name for name, gradient in zip(trained, found, strict=True) if gradient is None]
    for name in unreached:
        trained[name].requires_grad_(False)
    return unreached


# The temperature never falls below 1/100: beyond that one hard pair decides the whole step.
LARGEST_LOG_SCALE = math.log(100.0)
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Images and their reports as one process holds them.

    Args:
        images: One row an image [n, D], of any length but 0.
        texts: The vector of its report [n, D].
        image_ids: Which image it is [n], whole numbers; equal for the same image.
        reports: Which report it is [n], whole numbers; equal for the same words.
    """

    images: Tensor
    texts: Tensor
    image_ids: Tensor
    reports: Tensor


def report_key(text: str) -> int:
    """A whole number that two texts share when they have the same words, whatever the case, spacing and punctuation.

    It fits a signed 64-bit integer. Two different texts share one in about N² / 10¹⁹ of corpora of N texts.
    """
    words = " ".join(_WORDS.findall(text.casefold()))
    return int.from_bytes(blake2b(words.encode(), digest_size=8).digest(), "little", signed=True)


def symmetric_loss(pairs: Pairs, log_scale: Tensor) -> Tensor:
    """Mean −log probability of the own report and of the own image, over the pairs of this process.

    Cosines are multiplied by exp(log_scale) and compared in float32, whatever the vectors come in. Every process
    must hold as many pairs; the mean over processes is then the loss of the whole batch, and so are its gradients.

    Args:
        pairs: Of this process.
        log_scale: Natural logarithm of 1 / temperature, a scalar.
    """
    # Half precision would round cosines to steps of 1/256, which times a scale of 100 is 0.4 of a logit.
    with torch.autocast(pairs.images.device.type, enabled=False):
        images, texts = (normalize(vectors.float(), dim=1) for vectors in (pairs.images, pairs.texts))
        all_images, all_texts = gather(images), gather(texts)
        own = torch.arange(len(images), device=images.device) + len(images) * _rank()
        left_out = _repeats(pairs, own)
        scale = log_scale.float().exp()
        by_image = (scale * images @ all_texts.T).masked_fill(left_out, -math.inf)
        by_text = (scale * texts @ all_images.T).masked_fill(left_out, -math.inf)
        return (cross_entropy(by_image, own) + cross_entropy(by_text, own)) / 2


def gather(rows: Tensor) -> Tensor:
    """Rows of all processes one below the other, in order of rank; gradients flow back to the process they came from.

    Where one process runs alone these are its own rows. Every process must hold as many.
    """
    if not _several():
        return rows
    gathered: Tensor = _Gather.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


def _repeats(pairs: Pairs, own: Tensor) -> Tensor:
    """[n, N], True where a pair of the whole batch shares image or report with one of ours and is not that one."""
    same = pairs.reports[:, None] == gather(pairs.reports)[None, :]
    same |= pairs.image_ids[:, None] == gather(pairs.image_ids)[None, :]
    same[torch.arange(len(own), device=own.device), own] = False
    return same


class _Gather(torch.autograd.Function):
    """All rows forward; backward the sum over processes of what each has to say on ours."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.rows = len(rows)
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        # Summed, then averaged over processes with the gradients of the weights: the mean over processes
        # of their losses is what is differentiated.
        total = gradients[0].contiguous()
        dist.all_reduce(total)
        start = ctx.rows * _rank()
        return total[start : start + ctx.rows]


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _rank() -> int:
    return dist.get_rank() if _several() else 0


P = TypeVar("P")
# A piece → vectors of its images [b, D], of its reports [b, D], and the log of the scale, with gradients.
Embed = Callable[[P], tuple[Tensor, Tensor, Tensor]]
# Vectors of all images and all reports, and the log of the scale → the loss.
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def backward_in_pieces(
    pieces: Sequence[P],
    embed: Embed[P],
    loss_of: Loss,
    backward: Callable[[Tensor], None] = torch.Tensor.backward,
    alone: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Tensor:
    """Add the gradient of the loss over all pieces to the weights, and return that loss, detached.

    Dropout draws the same numbers in both passes over a piece; the generator stands afterwards where one pass
    over all pieces leaves it.

    Args:
        pieces: What is embedded at a time.
        embed: One piece through the model.
        loss_of: Over everything.
        backward: Carries a scalar to the weights.
        alone: Held around every piece but the last, where processes should not yet exchange gradients.
    """
    states = []
    with torch.no_grad():
        vectors = []
        for piece in pieces:
            states.append(_random_state())
            vectors.append(embed(piece))
    end = _random_state()
    images = torch.cat([images for images, _, _ in vectors]).detach().requires_grad_()
    texts = torch.cat([texts for _, texts, _ in vectors]).detach().requires_grad_()
    scale = vectors[0][2].detach().clone().requires_grad_()
    loss = loss_of(images, texts, scale)
    wanted = torch.autograd.grad(loss, (images, texts, scale))
    start = 0
    for index, (piece, state) in enumerate(zip(pieces, states, strict=True)):
        last = index == len(pieces) - 1
        with nullcontext() if last else alone():
            _restore(state)
            radiographs, reports, log_scale = embed(piece)
            rows = slice(start, start := start + len(radiographs))
            part = (radiographs * wanted[0][rows]).sum() + (reports * wanted[1][rows]).sum()
            # The scale is one number for all pieces: its whole gradient goes with the last.
            backward(part + log_scale * (wanted[2] if last else 0.0))
    _restore(end)
    return loss.detach()


def _random_state() -> tuple[Tensor, list[Tensor]]:
    """Where torch's generators stand: that of the CPU and those of the GPUs."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def _restore(state: tuple[Tensor, list[Tensor]]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])


_BLOCK = 4096  # texts that the tokenizer is given at once


@dataclass(frozen=True)
class Texts:
    """Reports as tokens, one after the other.

    Args:
        ids: All tokens, int32.
        starts: Where each report begins, [N + 1].
        keys: A number a report that those with the same words share, [N]; see `report_key`.
        cut: Reports that were cut at their end.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    keys: NDArray[np.int64]
    cut: int

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each report, [N]."""
        return np.diff(self.starts)


def tokenise(tokenizer: Any, reports: Sequence[str], longest: int) -> Texts:
    """Cut reports into tokens, at most `longest` each, those that the tokenizer adds included.

    Two reports that are equal as far as they are read have the same key: what was cut off cannot tell them apart.
    """
    ids: list[NDArray[np.int32]] = []
    keys = np.zeros(len(reports), np.int64)
    cut = 0
    for first in range(0, len(reports), _BLOCK):
        block = list(reports[first : first + _BLOCK])
        found = user_ids(tokenizer, block, truncation=True, max_length=longest)
        ids += [np.asarray(tokens, np.int32) for tokens in found]
        read = dict(enumerate(block))
        for place in _cut_off(tokenizer, block, found, longest):
            read[place] = tokenizer.decode(found[place], skip_special_tokens=True)
            cut += 1
        keys[first : first + len(block)] = [report_key(text) for text in read.values()]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in ids])]).astype(np.int64)
    return Texts(np.concatenate(ids) if ids else np.zeros(0, np.int32), starts, keys, cut)


def _cut_off(tokenizer: Any, texts: list[str], found: list[list[int]], longest: int) -> list[int]:
    """Numbers of the texts of which `found` is not the whole."""
    full = [number for number, tokens in enumerate(found) if len(tokens) == longest]
    whole = user_ids(tokenizer, [texts[number] for number in full], truncation=False, verbose=False)
    return [number for number, tokens in zip(full, whole, strict=True) if len(tokens) > longest]


@dataclass(frozen=True)
class ContrastiveDataset:
    """Images with their reports; what `PairEncoder` takes.

    Args:
        images: Each image once.
        image_of: Number of each pair's image, [N].
        texts: The reports, [N].
        pad: Token that fills a batch up.
        multiple: A batch is as long as a multiple of this holds its longest report; see `ReportDataset`.
    """

    images: Images
    image_of: NDArray[np.int64]
    texts: Texts
    pad: int
    multiple: int = 1

    def __post_init__(self) -> None:
        if len(self.image_of) != len(self.texts):
            raise DataError(f"{len(self.image_of)} images stand beside {len(self.texts)} reports.")

    def __len__(self) -> int:
        return len(self.image_of)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest report."""
        return int(self.texts.lengths.max(initial=1))

    @property
    def key(self) -> str:
        """A hash of everything that is learnt: images and tokens."""
        digest = hashlib.blake2b(digest_size=12)
        for array in (self.texts.ids, self.texts.starts, self.texts.keys, self.image_of):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(self.images.key.encode())
        return digest.hexdigest()

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """Images uint8 [B, H, W] (or [B, H, W, 3]), ids and mask [B, T], and the keys of image and report [B]."""
        chosen = np.asarray(rows, np.int64)
        starts = self.texts.starts[chosen]
        lengths = self.texts.starts[chosen + 1] - starts
        width = min(-(-int(lengths.max(initial=1)) // self.multiple) * self.multiple, self.longest)
        mask = np.arange(width)[None, :] < lengths[:, None]
        ids = np.full(mask.shape, self.pad, np.int64)
        inside = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        ids[mask] = self.texts.ids[np.repeat(starts, lengths) + inside]
        numbers = self.image_of[chosen]
        return {
            "images": torch.from_numpy(self.images[numbers]),
            "ids": torch.from_numpy(ids),
            "mask": torch.from_numpy(mask.astype(np.int64)),
            "image_keys": torch.from_numpy(numbers),
            "report_keys": torch.from_numpy(self.texts.keys[chosen]),
            ROWS: torch.from_numpy(chosen),
        }

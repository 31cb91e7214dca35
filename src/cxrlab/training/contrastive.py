"""A step of contrastive training: augment images, run both encoders, compute the loss over all processes."""

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
from cxrlab.training.image_cache import Images
from cxrlab.training.image_features import to_pixels
from cxrlab.training.trainer import ROWS, ExactTrainer


class PairEncoder(nn.Module):
    """A dual encoder with augmentation and normalisation of its images, at most `piece` pairs per forward pass."""

    def __init__(self, model: Any, image_processor: Any, augmentation: Augmentation, piece: int) -> None:
        super().__init__()
        self.model = model
        self.image_processor, self.augmentation, self.piece = image_processor, augmentation, piece

    def forward(self, images: Tensor, ids: Tensor, mask: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings of images and reports [B, D], not normalised, and the log of the scale.

        Args:
            images: uint8 [B, H, W] or [B, H, W, 3].
            ids: Tokens [B, T].
            mask: [B, T], 0 for padding.
            seeds: [B], for the augmentation of each image.
        """
        if self.training:
            images = varied(images, seeds, self.augmentation)
        pixels = to_pixels(images, self.image_processor)
        vectors = self.model.get_image_features(pixel_values=pixels)
        texts = self.model.get_text_features(input_ids=ids, attention_mask=mask)
        pooled = (getattr(found, "pooler_output", found) for found in (vectors, texts))
        return (*pooled, self.model.logit_scale)

    def limit_scale(self) -> None:
        """Limit the scale to 100."""
        with torch.no_grad():
            self.model.logit_scale.clamp_(max=LARGEST_LOG_SCALE)


class ContrastiveTrainer(ExactTrainer):
    """Steps over the whole batch in several forward passes; see `backward_in_pieces`."""

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
            self.accelerator.backward(loss)
        else:
            loss = backward_in_pieces(
                pieces, embed, loss_of, self.accelerator.backward, lambda: self.accelerator.no_sync(model)
            )
        self.journal.note(loss.detach())
        return loss.detach()


def freeze_unreached(module: PairEncoder, ids: Tensor) -> list[str]:
    """Freeze what the loss does not depend on, found by one pass over blank images; returns the names.

    Encoders have parts that only another task uses (a mask token, a second pooler). Several processes would wait for
    their gradients forever. `ids` are the tokens of two or more texts of the same length, [B, T].
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
    """The images and reports of one process.

    Args:
        images: Embeddings of the images [n, D], not 0.
        texts: Embeddings of their reports [n, D].
        image_ids: Integers [n], equal for the same image.
        reports: Integers [n], equal for the same words.
    """

    images: Tensor
    texts: Tensor
    image_ids: Tensor
    reports: Tensor


def report_key(text: str) -> int:
    """A 64-bit hash of the words of a text, without case, spacing and punctuation."""
    words = " ".join(_WORDS.findall(text.casefold()))
    return int.from_bytes(blake2b(words.encode(), digest_size=8).digest(), "little", signed=True)


def symmetric_loss(pairs: Pairs, log_scale: Tensor, own_process: bool = False) -> Tensor:
    """Symmetric InfoNCE loss over the pairs of this process, compared with those of all processes in float32.

    Pairs with the same image or the same report are no negatives of one another. Every process must hold equally many
    pairs; the mean over processes is then the loss of the whole batch. `log_scale` is log(1 / temperature). With
    `own_process` the pairs are compared with one another alone.
    """
    # Half precision would round cosines to steps of 1/256, which times a scale of 100 is 0.4 of a logit.
    with torch.autocast(pairs.images.device.type, enabled=False):
        images, texts = (normalize(vectors.float(), dim=1) for vectors in (pairs.images, pairs.texts))
        every: Callable[[Tensor], Tensor] = (lambda rows: rows) if own_process else gather
        all_images, all_texts = every(images), every(texts)
        own = torch.arange(len(images), device=images.device) + (0 if own_process else len(images) * _rank())
        same = pairs.reports[:, None] == every(pairs.reports)[None, :]
        same |= pairs.image_ids[:, None] == every(pairs.image_ids)[None, :]
        same[torch.arange(len(own), device=own.device), own] = False
        scale = log_scale.float().exp()
        by_image = (scale * images @ all_texts.T).masked_fill(same, -math.inf)
        by_text = (scale * texts @ all_images.T).masked_fill(same, -math.inf)
        return (cross_entropy(by_image, own) + cross_entropy(by_text, own)) / 2


def gather(rows: Tensor) -> Tensor:
    """Rows of all processes in order of rank, equally many each; gradients flow back to the process they came from."""
    if not _several():
        return rows
    gathered: Tensor = _Gather.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    """Forward: all rows. Backward: the sum over processes of the gradients of this process's rows."""

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
# Piece → embeddings of its images [b, D] and reports [b, D], and the log of the scale, with gradients.
Embed = Callable[[P], tuple[Tensor, Tensor, Tensor]]
# Embeddings of all images and all reports, and the log of the scale → the loss.
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def backward_in_pieces(
    pieces: Sequence[P],
    embed: Embed[P],
    loss_of: Loss,
    backward: Callable[[Tensor], None] = torch.Tensor.backward,
    alone: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Tensor:
    """Backward pass of the loss over all pieces with the memory of one piece (GradCache); returns the loss, detached.

    All pieces are embedded without gradients, the loss gives the gradient of each embedding, and every piece is
    embedded once more to carry it to the weights. Dropout draws the same numbers in both passes, and the random state
    afterwards is that of one pass over all pieces.

    Args:
        pieces: Parts of the batch.
        embed: Forward pass of one piece.
        loss_of: Loss over all pieces.
        backward: Backward pass from a scalar.
        alone: Context of every piece but the last, in which processes do not exchange gradients.
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
    """The state of torch's generators: of the CPU and of the GPUs."""
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
        keys: `report_key` of each report, [N].
        cut: Number of truncated reports.
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
    """Tokenise reports, at most `longest` tokens each, special tokens included.

    Two reports that are equal after truncation have the same key.
    """
    ids: list[NDArray[np.int32]] = []
    keys = np.zeros(len(reports), np.int64)
    cut = 0
    for first in range(0, len(reports), _BLOCK):
        block = list(reports[first : first + _BLOCK])
        found = user_ids(tokenizer, block, truncation=True, max_length=longest)
        ids += [np.asarray(tokens, np.int32) for tokens in found]
        read = dict(enumerate(block))
        full = [place for place, tokens in enumerate(found) if len(tokens) == longest]
        whole = user_ids(tokenizer, [block[place] for place in full], truncation=False, verbose=False)
        for place, tokens in zip(full, whole, strict=True):
            if len(tokens) > longest:
                read[place] = tokenizer.decode(found[place], skip_special_tokens=True)
                cut += 1
        keys[first : first + len(block)] = [report_key(text) for text in read.values()]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in ids])]).astype(np.int64)
    return Texts(np.concatenate(ids) if ids else np.zeros(0, np.int32), starts, keys, cut)


@dataclass(frozen=True)
class ContrastiveDataset:
    """Images with their reports in batches, as `PairEncoder` takes them.

    Args:
        images: Each image once.
        image_of: Number of each pair's image, [N].
        texts: The reports, [N].
        pad: Padding token.
        multiple: Batch lengths are rounded up to a multiple of this; see `ReportDataset`.
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
        """A hash of the training data: images and tokens."""
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

"""The loss of stage 1: each image must find its own report among those of the whole batch, and each report its image.

The batch is that of all processes together: vectors are gathered with their gradients, so that two
processes with half a batch each learn what one process with the whole batch learns.

Reports repeat. Of two images with the same normal report neither is a wrong answer for the other, so a
pair that shares its report or its image with the one that is asked about is left out of the comparison. It is
not made a second right answer: the text is the same, so its vector is pulled towards this image already,
and a target spread over all of them would push away the image that fits best. With masking the loss of a
pair is what it would be if its repeats were not in the batch.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

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

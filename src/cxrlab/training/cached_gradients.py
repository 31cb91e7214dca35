"""A contrastive step over more pairs than fit into memory at once, without changing what is learnt.

The loss compares every pair with every other, so the mean over small batches is another loss than that
of the large one. Here all pieces are embedded first without gradients, the loss of all vectors gives
each vector its gradient, and each piece is then embedded again and its part carried to the weights: twice the
forward passes, and the gradient of the large batch exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

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

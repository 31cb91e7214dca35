"""A large batch in pieces is the large batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cxrlab.training.contrastive import Pairs, backward_in_pieces, symmetric_loss

IMAGES, REPORTS = torch.arange(12), torch.tensor([1, 2, 3, 4, 1, 5, 6, 2, 7, 8, 9, 3])


class VisionEncoders(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.image, self.text, self.dropout = nn.Linear(5, 4), nn.Linear(7, 4), nn.Dropout(dropout)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.image(self.dropout(images)), self.text(texts), self.scale


def loss_of(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    return symmetric_loss(Pairs(images, texts, IMAGES, REPORTS), scale)


def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    return torch.randn(12, 5), torch.randn(12, 7)


def gradients(vision_encoders: VisionEncoders) -> list[Tensor]:
    return [parameter.grad for parameter in vision_encoders.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("sizes", [(12,), (4, 4, 4), (5, 5, 2), (1,) * 12])
def test_pieces_give_the_gradient_of_the_whole_batch(sizes: tuple[int, ...]) -> None:
    images, texts = data()
    whole, parts = VisionEncoders(0.0), VisionEncoders(0.0)
    loss = loss_of(*whole(images, texts))
    loss.backward()  # type: ignore[no-untyped-call]
    pieces = list(zip(images.split(list(sizes)), texts.split(list(sizes)), strict=True))
    reported = backward_in_pieces(pieces, lambda piece: parts(*piece), loss_of)
    torch.testing.assert_close(reported, loss.detach(), rtol=0, atol=1e-6)
    assert len(gradients(parts)) == 5
    for mine, wanted in zip(gradients(parts), gradients(whole), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-6)


def test_the_mean_over_small_batches_is_another_gradient() -> None:
    """Why this file exists: with three batches of four each pair meets three others, not eleven."""
    radiographs, texts = data()
    whole, small = VisionEncoders(0.0), VisionEncoders(0.0)
    loss_of(*whole(radiographs, texts)).backward()  # type: ignore[no-untyped-call]
    for rows in torch.arange(12).split(4):
        images, reports, scale = small(radiographs[rows], texts[rows])
        (symmetric_loss(Pairs(images, reports, IMAGES[rows], REPORTS[rows]), scale) / 3).backward()  # type: ignore[no-untyped-call]
    assert (gradients(small)[1] - gradients(whole)[1]).abs().max() > 1e-2


def test_dropout_draws_the_same_in_both_passes() -> None:
    """The gradient is then that of one pass over the pieces with these draws, and the generator stands where that
    pass leaves it."""
    images, texts = data()
    pieces = list(zip(images.split(4), texts.split(4), strict=True))
    plain, cached = VisionEncoders(0.5), VisionEncoders(0.5)
    torch.manual_seed(9)
    vectors = [plain(*piece) for piece in pieces]
    after = torch.get_rng_state()
    loss = loss_of(torch.cat([one[0] for one in vectors]), torch.cat([one[1] for one in vectors]), plain.scale)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.manual_seed(9)
    reported = backward_in_pieces(pieces, lambda piece: cached(*piece), loss_of)
    assert torch.equal(torch.get_rng_state(), after)
    torch.testing.assert_close(reported, loss.detach(), rtol=0, atol=1e-6)
    for mine, wanted in zip(gradients(cached), gradients(plain), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-6)


def test_processes_exchange_gradients_with_the_last_piece_alone() -> None:
    images, texts = data()
    vision_encoders, held = VisionEncoders(0.0), []

    class Alone:
        def __enter__(self) -> None:
            held.append("enter")

        def __exit__(self, *_: object) -> None:
            held.append("exit")

    pieces = list(zip(images.split(4), texts.split(4), strict=True))
    backward_in_pieces(pieces, lambda piece: vision_encoders(*piece), loss_of, alone=Alone)
    assert held == ["enter", "exit"] * 2

"""One step of stage 1 on the engine: images varied, both encoders run, the loss over all pieces and processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cxrlab.training.augment import varied
from cxrlab.training.augmentation import Augmentation
from cxrlab.training.cached_gradients import backward_in_pieces
from cxrlab.training.contrastive_loss import LARGEST_LOG_SCALE, Pairs, symmetric_loss
from cxrlab.training.engine import Engine
from cxrlab.training.pixels import to_pixels


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


class ContrastiveEngine(Engine):
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

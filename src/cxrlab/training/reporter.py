"""The loss of a report, computed where it is learnt and nowhere else.

The word scores of a 7-billion-parameter model over 1,369 image tokens would take gigabytes; only the
places in front of a report's tokens are scored. Samples are padded on the right, which a model that reads
from left to right never sees, so that no mask is needed and the fastest attention is used.
"""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from cxrlab.training.augment import varied
from cxrlab.training.augmentation import NONE, Augmentation
from cxrlab.training.feature_store import vision_encoder_features
from cxrlab.training.pixels import to_pixels


class ReporterLoss(nn.Module):
    """A LLaVA together with the loss of its reports; what is trained is what has `requires_grad`.

    Args:
        model: The LLaVA, with adapters inside or without.
        image_processor: Scales and normalises its images.
        augmentation: How images are varied in training, for a vision encoder that is trained.
    """

    def __init__(self, model: Any, image_processor: Any, augmentation: Augmentation = NONE) -> None:
        super().__init__()
        self.model = model
        self.image_processor, self.augmentation = image_processor, augmentation

    @property
    def config(self) -> Any:
        """The model's, where launchers look for sizes."""
        return self.model.config

    def forward(
        self,
        input_ids: Tensor,
        image_places: Tensor,
        places: Tensor,
        targets: Tensor,
        features: Tensor | None = None,
        images: Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> Tensor:
        """Sum of -log p of the targets, a scalar.

        Args:
            input_ids: [B, L], padded on the right.
            image_places: Where features of images stand in the batch laid flat, [R × P].
            places: After which places of the batch laid flat a target comes, [K].
            targets: The tokens that come there, [K].
            features: Of the frozen vision encoder, [R, P, D].
            images: In place of features, uint8 [R, H, W] or [R, H, W, 3].
            seeds: For the variation of each image, [R]; None leaves them as they are.
        """
        if self.training and images is not None and seeds is not None:
            images = varied(images, seeds, self.augmentation)
        scores = self.scores(input_ids, image_places, places, features, images)
        return functional.cross_entropy(scores.float(), targets, reduction="sum")

    def scores(
        self,
        input_ids: Tensor,
        image_places: Tensor,
        places: Tensor,
        features: Tensor | None = None,
        images: Tensor | None = None,
        copies: int = 1,
    ) -> Tensor:
        """Scores of all tokens after each of the places, [K, V]; see `forward`.

        Args:
            input_ids: [B, L].
            image_places: [copies × R × P].
            places: [K].
            features: [R, P, D].
            images: In place of features.
            copies: How often the images stand in the batch, one after the other in the same order: R images are then
                looked at and projected once for copies × R rows.
        """
        inner = self.model.model
        words = inner.get_input_embeddings()(input_ids)
        seen = self._seen(features, images)
        if seen is not None and copies > 1:
            seen = seen.repeat(copies, 1, 1)
        if (0 if seen is None else seen.shape[0] * seen.shape[1]) != image_places.shape[0]:
            raise ValueError(f"{image_places.shape[0]} image tokens do not match the images of the batch")
        flat = words.flatten(0, 1)
        if seen is not None:
            flat = flat.index_copy(0, image_places, seen.flatten(0, 1).to(flat.dtype))
        elif self._projector_trained():
            # Every process must give every trained parameter a gradient, also in a batch without an image.
            flat = flat + 0.0 * inner.multi_modal_projector(self._nothing()).sum().to(flat.dtype)
        hidden = inner.language_model(inputs_embeds=flat.view_as(words), use_cache=False).last_hidden_state
        scores: Tensor = self.model.lm_head(hidden.flatten(0, 1).index_select(0, places))
        return scores

    def train(self, mode: bool = True) -> Self:
        """As ever, but a frozen vision encoder stays in evaluation mode: its features must not depend on the step."""
        super().train(mode)
        if not any(parameter.requires_grad for parameter in self.model.model.vision_tower.parameters()):
            self.model.model.vision_tower.eval()
        return self

    def _seen(self, features: Tensor | None, images: Tensor | None) -> Tensor | None:
        """What the language model is given for the images, [R, P, D]; None in a batch without any."""
        if features is None and images is None:
            return None
        if features is None:
            vision_encoder = self.model.model.vision_tower
            trained = any(parameter.requires_grad for parameter in vision_encoder.parameters())
            with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
                pixels = to_pixels(images, self.image_processor) if images is not None else images
                features = vision_encoder_features(self.model, pixels.to(next(vision_encoder.parameters()).dtype))  # type: ignore[union-attr]
        return self._project(features)

    def _project(self, features: Tensor) -> Tensor:
        projector = self.model.model.multi_modal_projector
        found: Tensor = projector(features.to(next(projector.parameters()).dtype))
        return found

    def _projector_trained(self) -> bool:
        return any(parameter.requires_grad for parameter in self.model.model.multi_modal_projector.parameters())

    def _nothing(self) -> Tensor:
        projector = self.model.model.multi_modal_projector
        weight = next(parameter for parameter in projector.parameters() if parameter.ndim == 2)
        return torch.zeros(1, 1, weight.shape[1], dtype=weight.dtype, device=weight.device)

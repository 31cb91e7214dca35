"""The vision encoder of a model: its features with any weights, and the model around it.

The features of a report model are those that its projector gets for each patch; the feature of a contrastive encoder is
the image vector before normalisation. Only the vision encoder runs and is moved to the device: the language model stays
where it was loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.models.dual_encoder import open_encoder
from cxrlab.models.hf.adapters import is_adapter, resolve
from cxrlab.models.hf.checkpoint import device_of, locate, open_checkpoint
from cxrlab.models.hf.pixels import Scaling
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import DUAL_ENCODERS, quiet_loading
from cxrlab.models.model_card import ModelCard, write_model_card

Encode = Callable[[Tensor], Tensor]
"""Images [B, C, H, W] float32 in [0, 1] → features [B, P, D]."""


def is_encoder_folder(folder: Path) -> bool:
    """Whether config.json names a contrastive encoder; False without one, which is reported by whoever opens it."""
    file = folder / "config.json"
    config = read_json(file) if file.is_file() else None
    return isinstance(config, dict) and config.get("model_type") in (*DUAL_ENCODERS, "clip", "siglip", "siglip2")


def open_vision_encoder(name: str, loading: LoadSettings) -> VisionEncoder:
    """Open the model of this name to train its vision encoder.

    Args:
        name: hf:FOLDER or builtin:NAME, of a report model or a contrastive encoder; adapters are merged.
        loading: Device of the vision encoder.

    Raises:
        ConfigError: When the model has no weights, or no separate vision encoder.
    """
    if not name.startswith(("hf:", "builtin:")):
        raise ConfigError(f"'{name}' has no vision encoder to harden; give hf:FOLDER or builtin:NAME.")
    here = replace(loading, device="cpu", dtype="float32")
    folder = locate(resolve(name, Path()), here)
    device = device_of(loading)
    if not is_adapter(folder) and is_encoder_folder(folder):
        encoder = open_encoder(folder, here)

        def save_processor(target: Path) -> None:
            encoder.tokenizer.save_pretrained(target)
            encoder.image_processor.save_pretrained(target)

        features = _Features(encoder.model, "vision_model", None)
        return VisionEncoder(encoder.model, features, encoder.image_processor, device, save_processor, encoder.card)
    found = open_checkpoint(folder, here, merge=True)
    inner = getattr(found.model, "model", found.model)
    if not all(hasattr(inner, part) for part in ("vision_tower", "multi_modal_projector", "get_image_features")):
        raise ConfigError(
            f"'{name}' is a model of the type '{found.model.config.model_type}', which has no separate vision encoder; "
            "give a model with a vision encoder and a projector behind it, such as a LLaVA."
        )
    features = _Features(inner, "vision_tower", "multi_modal_projector")
    processor = found.processor
    return VisionEncoder(
        found.model, features, processor.image_processor, device, processor.save_pretrained, found.card
    )


class VisionEncoder:
    """A model whose vision encoder can be trained; all its other parts are frozen.

    Args:
        model: The whole model in float32, evaluation mode.
        features: Its forward pass up to the features.
        save_processor: Writes the processor into a folder.
        card: The model's card; None where its folder has none.
    """

    def __init__(
        self, model: Any, features: _Features, image_processor: Any, device: torch.device,
        save_processor: Callable[[Path], None], card: ModelCard | None,
    ) -> None:  # fmt: skip
        self.model, self.image_processor, self.device, self.card = model, image_processor, device, card
        self._features, self._save_processor = features, save_processor
        self._scaling = Scaling.of(image_processor)
        model.requires_grad_(False)
        self.module = features.get_submodule(features.encoder_name).to(device).requires_grad_(True)

    def __call__(self, images: Tensor) -> Tensor:
        """Features with the current weights; differentiable with respect to images and weights."""
        found: Tensor = self._features(self._scaling(images))
        return found

    def frozen(self) -> Encode:
        """The same with a copy of the current weights; differentiable with respect to images only."""
        from torch.func import functional_call

        name = self._features.encoder_name
        weights = {f"{name}.{key}": value.clone().detach() for key, value in self.module.state_dict().items()}

        def encode(images: Tensor) -> Tensor:
            found: Tensor = functional_call(self._features, weights, (self._scaling(images),))
            return found

        return encode

    def round_to(self, dtype: torch.dtype) -> None:
        """Round the weights as they will be once written in this precision."""
        self.module.to(dtype).float()

    def save(self, folder: Path, dtype: torch.dtype, card: ModelCard | None) -> None:
        """Write the whole model with its processor, and its card where it has one."""
        self.model.to("cpu", dtype).eval()
        self.model.config.dtype = dtype
        with quiet_loading():
            self.model.save_pretrained(folder)
            self._save_processor(folder)
        if card is not None:
            write_model_card(card, folder)


class _Features(nn.Module):
    """The forward pass of a model up to the features of its vision encoder.

    Args:
        inner: With `get_image_features` and the vision encoder.
        encoder: Name of the vision encoder in it.
        projector: Name of the projector behind the vision encoder; None for a contrastive encoder.
    """

    def __init__(self, inner: nn.Module, encoder: str, projector: str | None) -> None:
        super().__init__()
        self.inner, self.encoder_name, self.projector = inner, f"inner.{encoder}", projector

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels [B, 3, H, W] → [B, P, D]."""
        if self.projector is None:
            found = self.inner.get_image_features(pixel_values=pixels)  # type: ignore[operator]
            vectors: Tensor = getattr(found, "pooler_output", found)
            return vectors.unsqueeze(1)

        def stop(_: nn.Module, given: tuple[Any, ...]) -> None:
            raise _ProjectorReached(given[0])

        handle = self.inner.get_submodule(self.projector).register_forward_pre_hook(stop)
        try:
            self.inner.get_image_features(pixel_values=pixels)  # type: ignore[operator]
        except _ProjectorReached as reached:
            return reached.features
        finally:
            handle.remove()
        raise RuntimeError(f"the forward pass of {type(self.inner).__name__} did not reach its {self.projector}")


class _ProjectorReached(Exception):  # noqa: N818 - no error: it carries the projector's input
    def __init__(self, features: Tensor) -> None:
        self.features = features

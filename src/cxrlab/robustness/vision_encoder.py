"""What a vision encoder sees in images, with its own weights or with others, and the model around it.

Of a report model these are the features of every patch that its projector is given; of a contrastive encoder the
vector of the image before its length is set to 1. Only the encoder runs, and only the encoder is moved to the device:
of a large report model the language model stays where it was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json
from cxrlab.models.dual_encoder import EncoderFolder, open_encoder
from cxrlab.models.hf.adapters import is_adapter, resolve
from cxrlab.models.hf.checkpoint import device_of, locate, open_checkpoint
from cxrlab.models.hf.pixels import Scaling
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import DUAL_ENCODERS, quiet_loading
from cxrlab.models.model_card import ModelCard, write_model_card

Weights = Mapping[str, Tensor]
See = Callable[[Tensor], Tensor]
"""Images [B, C, H, W] float32 in [0, 1] → features [B, P, D]."""

_ENCODERS = (*DUAL_ENCODERS, "clip", "siglip", "siglip2")


class _Reached(Exception):  # noqa: N818 - no error: it carries what the projector would have been given
    def __init__(self, features: Tensor) -> None:
        self.features = features


class _Looking(nn.Module):
    """A model whose forward pass ends where its vision encoder does.

    Args:
        inner: With `get_image_features` and the vision encoder.
        vision_encoder: Name of the vision encoder in it.
        behind: Name of the projector behind the vision encoder; None for an encoder.
    """

    def __init__(self, inner: nn.Module, vision_encoder: str, behind: str | None) -> None:
        super().__init__()
        self.inner, self.vision_encoder_name, self.behind = inner, f"inner.{vision_encoder}", behind

    @property
    def vision_encoder(self) -> nn.Module:
        """The part that learns."""
        return self.get_submodule(self.vision_encoder_name)

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels [B, 3, H, W] → [B, P, D]."""
        if self.behind is None:
            found = self.inner.get_image_features(pixel_values=pixels)  # type: ignore[operator]
            return _vectors(found).unsqueeze(1)
        handle = self.inner.get_submodule(self.behind).register_forward_pre_hook(_stop)
        try:
            self.inner.get_image_features(pixel_values=pixels)  # type: ignore[operator]
        except _Reached as reached:
            return reached.features
        finally:
            handle.remove()
        raise RuntimeError(f"the pass through {type(self.inner).__name__} never came to its {self.behind}")


class Sight:
    """An opened model of which the vision encoder can learn; all else is frozen.

    Args:
        model: The whole model in float32, evaluation mode.
        looking: The part of it that sees.
        image_processor: Whose scaling images get.
        device: Where the vision encoder runs.
        write: Writes model and processor into an empty folder.
        card: What is known of the model; None where its folder does not tell.
    """

    def __init__(
        self,
        model: Any,
        looking: _Looking,
        image_processor: Any,
        device: torch.device,
        write: Callable[[Path], None],
        card: ModelCard | None,
    ) -> None:
        self.model, self.image_processor, self.device, self.card = model, image_processor, device, card
        self._looking, self._write = looking, write
        self._scaling = Scaling.of(image_processor)
        model.requires_grad_(False)
        self.vision_encoder = looking.vision_encoder.to(device).requires_grad_(True)

    def __call__(self, images: Tensor) -> Tensor:
        """Features with the vision encoder's weights as they are now; differentiable to images and weights."""
        found: Tensor = self._looking(self._scaling(images))
        return found

    def frozen(self) -> See:
        """The same with a copy of the weights of this moment, which never change; differentiable to images alone."""
        return self.with_weights({name: value.clone() for name, value in self.weights().items()})

    def with_weights(self, weights: Weights) -> See:
        """The same with these weights of the vision encoder in place of its own."""
        from torch.func import functional_call

        named = {f"{self._looking.vision_encoder_name}.{name}": value.detach() for name, value in weights.items()}

        def see(images: Tensor) -> Tensor:
            found: Tensor = functional_call(self._looking, named, (self._scaling(images),))
            return found

        return see

    def weights(self) -> dict[str, Tensor]:
        """The vision encoder's weights by name, not copied."""
        return dict(self.vision_encoder.state_dict())

    def round_to(self, dtype: torch.dtype) -> None:
        """Give the vision encoder the numbers that it will have once written in this precision."""
        self.vision_encoder.to(dtype).float()

    def write(self, folder: Path, dtype: torch.dtype, card: ModelCard | None) -> None:
        """Write the whole model with everything beside its weights; a model without a card gets none."""
        self.model.to("cpu", dtype).eval()
        self.model.config.dtype = dtype
        with quiet_loading():
            self.model.save_pretrained(folder)
            self._write(folder)
        if card is not None:
            write_model_card(card, folder)


def open_sight(name: str, loading: LoadSettings) -> Sight:
    """Open the model of this name to have its vision encoder hardened.

    Args:
        name: hf:FOLDER or builtin:NAME, of a report model or a contrastive encoder; adapters are merged.
        loading: Device of the vision encoder.

    Raises:
        ConfigError: When the name is of a model without weights, or the model has no vision encoder of its own.
    """
    if not name.startswith(("hf:", "builtin:")):
        raise ConfigError(f"'{name}' has no vision encoder that could be hardened; give hf:FOLDER or builtin:NAME.")
    here = replace(loading, device="cpu", dtype="float32")
    folder = locate(resolve(name, Path()), here)
    device = device_of(loading)
    return _encoder(folder, here, device) if _kind(folder) in _ENCODERS else _reporter(name, folder, here, device)


def _kind(folder: Path) -> str:
    if is_adapter(folder) or not (folder / "config.json").is_file():
        return ""  # what is missing is told by whoever opens it
    config = read_json(folder / "config.json")
    return str(config.get("model_type")) if isinstance(config, dict) else ""


def _encoder(folder: Path, loading: LoadSettings, device: torch.device) -> Sight:
    found: EncoderFolder = open_encoder(folder, loading)

    def write(target: Path) -> None:
        found.tokenizer.save_pretrained(target)
        found.image_processor.save_pretrained(target)

    looking = _Looking(found.model, "vision_model", None)
    return Sight(found.model, looking, found.image_processor, device, write, found.card)


def _reporter(name: str, folder: Path, loading: LoadSettings, device: torch.device) -> Sight:
    found = open_checkpoint(folder, loading, merge=True)
    inner = getattr(found.model, "model", found.model)
    if not all(hasattr(inner, part) for part in ("vision_tower", "multi_modal_projector", "get_image_features")):
        raise ConfigError(
            f"'{name}' is a model of the type '{found.model.config.model_type}', whose encoder is not apart from "
            "the rest; hardening takes models with a vision encoder and a projector behind it, such as a LLaVA."
        )
    looking = _Looking(inner, "vision_tower", "multi_modal_projector")
    processor = found.processor
    return Sight(found.model, looking, processor.image_processor, device, processor.save_pretrained, found.card)


def _stop(_: nn.Module, given: tuple[Any, ...]) -> None:
    raise _Reached(given[0])


def _vectors(found: Any) -> Tensor:
    vectors: Tensor = getattr(found, "pooler_output", found)
    return vectors

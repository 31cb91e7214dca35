"""What an open_clip folder holds: config and weights, under the names that publishers gave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError, shown
from cxrlab.core.files import read_json
from cxrlab.models.convert.tensors import read_tensors

_CONFIG = "open_clip_config.json"
_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")
_IMAGE = 224  # open_clip's side of an image where a config gives none
_MODES = ("bicubic", "bilinear")


@dataclass(frozen=True)
class OpenClip:
    """A published encoder.

    Args:
        vision: Settings of the vision encoder.
        text: Settings of the text encoder.
        preprocessing: Mean, deviation, interpolation and way to resize, where they are not open_clip's own.
        shared: Numbers of the space that images and texts share.
        tensors: Name → tensor of both encoders.
    """

    vision: Mapping[str, Any]
    text: Mapping[str, Any]
    preprocessing: Mapping[str, Any]
    shared: int
    tensors: Mapping[str, Any]

    @property
    def image(self) -> int:
        """Side of the image in pixels."""
        size = self.vision.get("image_size", _IMAGE)
        side = size[0] if isinstance(size, list) and len(set(size)) == 1 else size
        if not isinstance(side, int) or isinstance(side, bool) or side < 1:
            raise DataError(f"image_size of the open_clip config is {shown(size)}; images must be squares.")
        return side


def read_open_clip(folder: Path) -> OpenClip:
    """The encoder in a folder: `open_clip_config.json` with its weights, or one other config and one `.pt` file."""
    path = _config_file(folder)
    whole = read_json(path)
    model = whole.get("model_cfg", whole) if isinstance(whole, dict) else None
    told: dict[str, Any] = model if isinstance(model, dict) else {}
    vision, text, shared = (told.get(key) for key in ("vision_cfg", "text_cfg", "embed_dim"))
    if not isinstance(vision, dict) or not isinstance(text, dict) or not isinstance(shared, int):
        raise DataError(f"{path} is no config of open_clip: it needs embed_dim, vision_cfg and text_cfg.")
    return OpenClip(vision, text, whole.get("preprocess_cfg") or {}, shared, read_tensors(_weights_file(folder)))


def image_processor(encoder: OpenClip) -> Any:
    """The preparation of images that open_clip does before the vision encoder, as a CLIP image processor.

    Shortest side to the size of the vision encoder and centre cut out, unless the config squeezes images instead.
    """
    from transformers import CLIPImageProcessorPil

    from cxrlab.models.building import MEAN, STD

    given, side = encoder.preprocessing, encoder.image
    size, interpolation = given.get("size", side), given.get("interpolation", "bicubic")
    resize, mode = given.get("resize_mode", "shortest"), given.get("mode", "RGB")
    if size not in (side, [side, side]):
        raise DataError(f"preprocess_cfg brings images to {shown(size)} px, but the vision encoder reads {side} px.")
    if interpolation not in _MODES or resize not in ("shortest", "squash") or mode != "RGB":
        raise DataError(
            f"preprocess_cfg asks for interpolation {shown(interpolation)}, resize_mode {shown(resize)} and mode "
            f"{shown(mode)}; those that can be converted are {' or '.join(_MODES)}, shortest or squash, and RGB."
        )
    square = {"height": side, "width": side}
    return CLIPImageProcessorPil(
        size={"shortest_edge": side} if resize == "shortest" else square,
        do_center_crop=resize == "shortest",
        crop_size=square,
        resample=3 if interpolation == "bicubic" else 2,
        image_mean=list(given.get("mean", MEAN)),
        image_std=list(given.get("std", STD)),
    )


def _config_file(folder: Path) -> Path:
    if (folder / _CONFIG).is_file():
        return folder / _CONFIG
    found = [path for path in sorted(folder.glob("*.json")) if _is_config(path)]
    return _only(found, folder, f"a config of open_clip ({_CONFIG}, or another .json with vision_cfg in it)")


def _is_config(path: Path) -> bool:
    whole = read_json(path)
    return isinstance(whole, dict) and "vision_cfg" in whole.get("model_cfg", whole)


def _weights_file(folder: Path) -> Path:
    named = [folder / name for name in _WEIGHTS if (folder / name).is_file()]
    return named[0] if named else _only(sorted(folder.glob("*.pt")), folder, f"weights ({', '.join(_WEIGHTS)} or .pt)")


def _only(found: list[Path], folder: Path, what: str) -> Path:
    if len(found) != 1:
        several = f"several: {', '.join(path.name for path in found)}" if found else "none"
        raise DataError(f"{folder} should hold one file with {what}, and holds {several}.")
    return found[0]

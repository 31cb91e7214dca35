"""open_clip encoders with a timm ViT and a BERT (BiomedCLIP, BiomedCLIP-CXR), as a dual encoder of transformers.

The plain `VisionTextDualEncoderModel` where it computes the same, else `ProjectedDualEncoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError, shown
from cxrlab.models.convert.config import ConvertConfig
from cxrlab.models.convert.converting import Converted
from cxrlab.models.convert.open_clip_files import OpenClip, image_processor, read_open_clip
from cxrlab.models.convert.open_clip_text import TextEncoder, convert_text
from cxrlab.models.convert.tensors import check_names, shape, under
from cxrlab.models.convert.timm_vit import convert_vision_encoder
from cxrlab.models.local_files import quiet_loading
from cxrlab.models.model_card import ModelCard, write_model_card

_VISION_ENCODERS = ("visual.", "text.")
_HEAD = "visual.head.proj.weight"


def convert_open_clip(source: Path, config: ConvertConfig, out: Path) -> Converted:
    """Write a dual encoder with tokenizer and image processor into `out`."""
    from transformers import VisionTextDualEncoderProcessor

    encoder, unused = read_open_clip(source), dict[str, str]()
    dtype = number_format(config, encoder.tensors)
    others = {name for name in encoder.tensors if not name.startswith(_VISION_ENCODERS)}
    check_names({"logit_scale"} - others, others - {"logit_scale"}, "the open_clip encoder")
    _check_head(encoder)
    vision_encoder = vision_encoder_of(encoder, dtype)
    text = convert_text(under(encoder.tensors, "text."), encoder.text, config.text or source, dtype, unused)
    model = _joined(vision_encoder, text, encoder, dtype)
    processor = VisionTextDualEncoderProcessor(image_processor(encoder), text.tokenizer)
    with quiet_loading():
        model.save_pretrained(out)
        processor.save_pretrained(out)
    if config.collections:  # without a card it is unknown what an encoder has learnt from; a card would say nothing
        extra = {"layout": "open-clip", "source": source.name}
        write_model_card(ModelCard("convert", collections=config.collections, extra=extra), out)
    return Converted(type(model).__name__, model.num_parameters(), encoder.image, unused)


def vision_encoder_of(encoder: OpenClip, dtype: Any) -> Any:
    """The vision encoder of an encoder, without the projection into the shared space."""
    name = encoder.vision.get("timm_model_name")
    trunk = under(encoder.tensors, "visual.trunk.")
    if not isinstance(name, str) or not trunk:
        raise DataError(
            "the vision encoder of this encoder is not one of timm (vision_cfg has no timm_model_name, or there are no "
            "tensors visual.trunk.*); encoders built on a ViT of timm can be converted."
        )
    return convert_vision_encoder(trunk, name, encoder.image, dtype)


def _check_head(encoder: OpenClip) -> None:
    """Raise unless the class token times one matrix is what the vision encoder gives."""
    pool, projection = encoder.vision.get("timm_pool", "avg"), encoder.vision.get("timm_proj", "linear")
    if pool not in ("", "token") or projection != "linear":
        raise DataError(
            f"the encoder pools by {shown(pool)} and projects by {shown(projection)}; encoders that read the class "
            "token (timm_pool '' or token) and project by one matrix (timm_proj linear) can be converted."
        )
    head = {name for name in under(encoder.tensors, "visual.") if not name.startswith("trunk.")}
    check_names({"head.proj.weight"} - head, head - {"head.proj.weight"}, "the head of the vision encoder")


def number_format(config: ConvertConfig, tensors: Mapping[str, Any]) -> Any:
    """The number format to write: the one asked for, else that of most tensors of the source."""
    import torch

    if config.dtype != "auto":
        return getattr(torch, config.dtype)
    formats = [tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()]
    return max(set(formats), key=formats.count, default=torch.float32)


def _joined(vision_encoder: Any, text: TextEncoder, encoder: OpenClip, dtype: Any) -> Any:
    """Both encoders with their projections and the temperature."""
    import torch
    from transformers import VisionTextDualEncoderConfig, VisionTextDualEncoderModel

    from cxrlab.models.projected_encoder import ProjectedDualEncoder, ProjectedDualEncoderConfig

    sizes: dict[str, Any] = {"projection_dim": encoder.shared}
    model_class, config_class = VisionTextDualEncoderModel, VisionTextDualEncoderConfig
    if text.pooling != "pooler" or len(text.projection) != 1:
        model_class, config_class = ProjectedDualEncoder, ProjectedDualEncoderConfig
        sizes["text_pooling"] = text.pooling
        sizes["text_hidden"] = text.projection[0].shape[0] if len(text.projection) == 2 else 0
    config = config_class.from_vision_text_configs(vision_encoder.config, text.model.config, **sizes)
    model = model_class(config=config, vision_model=vision_encoder, text_model=text.model).to(dtype)
    matrices = model.text_projection
    places = [matrices] if len(text.projection) == 1 else [matrices[0], matrices[2]]
    pairs = [(place.weight, matrix) for place, matrix in zip(places, text.projection, strict=True)]
    pairs += [(model.visual_projection.weight, encoder.tensors[_HEAD])]
    pairs += [(model.logit_scale, encoder.tensors["logit_scale"].squeeze())]
    with torch.no_grad():
        for place, value in pairs:
            if place.shape != value.shape:
                raise DataError(f"a projection has the shape {shape(value)} where {shape(place)} was expected.")
            place.copy_(value)
    return model.eval()

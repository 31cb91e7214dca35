"""Convert open_clip encoders with a timm ViT and a BERT (BiomedCLIP, BiomedCLIP-CXR) to dual encoders of transformers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, short_repr
from cxrlab.core.files import read_json
from cxrlab.models.convert import (
    ConvertConfig,
    Converted,
    check_names,
    filled,
    read_tensors,
    renamed,
    shape,
    under,
    without,
)
from cxrlab.models.local_files import load_tokenizer, quiet_loading
from cxrlab.models.model_card import ModelCard, write_model_card


def convert_open_clip(source: Path, config: ConvertConfig, out: Path) -> Converted:
    """Write a dual encoder with tokenizer and image processor into `out`.

    It is a `VisionTextDualEncoderModel` if that computes the same, else a `ProjectedDualEncoder`.
    """
    import torch
    from transformers import VisionTextDualEncoderProcessor

    encoder, unused = read_open_clip(source), dict[str, str]()
    if config.dtype == "auto":
        formats = [tensor.dtype for tensor in encoder.tensors.values() if tensor.is_floating_point()]
        dtype: Any = max(set(formats), key=formats.count, default=torch.float32)
    else:
        dtype = getattr(torch, config.dtype)
    others = {name for name in encoder.tensors if not name.startswith(("visual.", "text."))}
    check_names({"logit_scale"} - others, others - {"logit_scale"}, "the open_clip encoder")
    pool, projection = encoder.vision.get("timm_pool", "avg"), encoder.vision.get("timm_proj", "linear")
    if pool not in ("", "token") or projection != "linear":
        raise DataError(
            f"the vision encoder has timm_pool={short_repr(pool)} and timm_proj={short_repr(projection)}; only encoders "
            "that read the class token (timm_pool '' or token) and project linearly (timm_proj linear) can be converted."
        )
    head = {name for name in under(encoder.tensors, "visual.") if not name.startswith("trunk.")}
    check_names({"head.proj.weight"} - head, head - {"head.proj.weight"}, "the head of the vision encoder")
    vision_encoder = vision_encoder_of(encoder, dtype)
    text = convert_text(under(encoder.tensors, "text."), encoder.text, config.text or source, dtype, unused)
    model = _join(vision_encoder, text, encoder, dtype)
    processor = VisionTextDualEncoderProcessor(image_processor(encoder), text.tokenizer)
    with quiet_loading():
        model.save_pretrained(out)
        processor.save_pretrained(out)
    if config.collections:  # without them the card would be empty
        extra = {"layout": "open-clip", "source": source.name}
        write_model_card(ModelCard("convert", collections=config.collections, extra=extra), out)
    return Converted(type(model).__name__, model.num_parameters(), encoder.image, unused)


def vision_encoder_of(encoder: OpenClip, dtype: Any) -> Any:
    """The vision encoder of an open_clip encoder, without the projection into the shared space."""
    name = encoder.vision.get("timm_model_name")
    trunk = under(encoder.tensors, "visual.trunk.")
    if not isinstance(name, str) or not trunk:
        raise DataError(
            "the vision encoder is not from timm (vision_cfg has no timm_model_name, or there are no tensors "
            "visual.trunk.*); only encoders built on a timm ViT can be converted."
        )
    return convert_vision_encoder(trunk, name, encoder.image, dtype)


def _join(vision_encoder: Any, text: TextEncoder, encoder: OpenClip, dtype: Any) -> Any:
    """Both encoders in one model, with their projections and the temperature."""
    import torch
    from transformers import VisionTextDualEncoderConfig, VisionTextDualEncoderModel

    from cxrlab.models.biomedclip import ProjectedDualEncoder, ProjectedDualEncoderConfig

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
    pairs += [(model.visual_projection.weight, encoder.tensors["visual.head.proj.weight"])]
    pairs += [(model.logit_scale, encoder.tensors["logit_scale"].squeeze())]
    with torch.no_grad():
        for place, value in pairs:
            if place.shape != value.shape:
                raise DataError(f"a projection has the shape {shape(value)} where {shape(place)} was expected.")
            place.copy_(value)
    return model.eval()


_CONFIG = "open_clip_config.json"
_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")
_IMAGE = 224  # open_clip's default image size
_MODES = ("bicubic", "bilinear")


@dataclass(frozen=True)
class OpenClip:
    """A published open_clip encoder."""

    vision: Mapping[str, Any]  # settings of the vision encoder
    text: Mapping[str, Any]  # settings of the text encoder
    # Mean, standard deviation, interpolation and resizing, if they differ from open_clip's defaults.
    preprocessing: Mapping[str, Any]
    shared: int  # dimension of the space that images and texts share
    tensors: Mapping[str, Any]  # name → tensor of both encoders

    @property
    def image(self) -> int:
        """Side of the image in pixels."""
        size = self.vision.get("image_size", _IMAGE)
        side = size[0] if isinstance(size, list) and len(set(size)) == 1 else size
        if not isinstance(side, int) or isinstance(side, bool) or side < 1:
            raise DataError(f"image_size of the open_clip config is {short_repr(size)}; images must be squares.")
        return side


def read_open_clip(folder: Path) -> OpenClip:
    """The encoder in a folder: `open_clip_config.json` with its weights, or one other config and one `.pt` file."""
    path = folder / _CONFIG
    if not path.is_file():
        configs = []
        for file in sorted(folder.glob("*.json")):
            values = read_json(file)
            if isinstance(values, dict) and "vision_cfg" in values.get("model_cfg", values):
                configs.append(file)
        path = _only(configs, folder, f"a config of open_clip ({_CONFIG}, or another .json with vision_cfg in it)")
    whole = read_json(path)
    model = whole.get("model_cfg", whole) if isinstance(whole, dict) else None
    settings: dict[str, Any] = model if isinstance(model, dict) else {}
    vision, text, shared = (settings.get(key) for key in ("vision_cfg", "text_cfg", "embed_dim"))
    if not isinstance(vision, dict) or not isinstance(text, dict) or not isinstance(shared, int):
        raise DataError(f"{path} is not a config of open_clip: it needs embed_dim, vision_cfg and text_cfg.")
    weights = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if weights is None:
        weights = _only(sorted(folder.glob("*.pt")), folder, f"weights ({', '.join(_WEIGHTS)} or .pt)")
    return OpenClip(vision, text, whole.get("preprocess_cfg") or {}, shared, read_tensors(weights))


def image_processor(encoder: OpenClip) -> Any:
    """The image preprocessing of open_clip as a CLIP image processor: resize and centre crop, or squash if configured."""
    from transformers import CLIPImageProcessorPil

    from cxrlab.models.random_init import MEAN, STD

    given, side = encoder.preprocessing, encoder.image
    size, interpolation = given.get("size", side), given.get("interpolation", "bicubic")
    resize, mode = given.get("resize_mode", "shortest"), given.get("mode", "RGB")
    if size not in (side, [side, side]):
        raise DataError(
            f"preprocess_cfg resizes images to {short_repr(size)} px, but the vision encoder reads {side} px."
        )
    if interpolation not in _MODES or resize not in ("shortest", "squash") or mode != "RGB":
        raise DataError(
            f"preprocess_cfg has interpolation={short_repr(interpolation)}, resize_mode={short_repr(resize)} and mode="
            f"{short_repr(mode)}; supported are {' or '.join(_MODES)}, shortest or squash, and RGB."
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


def _only(found: list[Path], folder: Path, what: str) -> Path:
    if len(found) != 1:
        several = f"several: {', '.join(path.name for path in found)}" if found else "none"
        raise DataError(f"{folder} should hold one file with {what}, and holds {several}.")
    return found[0]


_WHERE = "the vision encoder (visual.trunk)"
# timm ViTs with the norm, activation and head width of DINOv2; others (clip, siglip, huge, reg4 …) differ in one of
# them, which the tensors do not show.
_NAMES = re.compile(r"vit_(tiny|small|base|large)_patch\d+(_\d+)?(_in21k|_dino|_dinov2)?(\.\w+)?")
_HEAD_TIMM_VIT = 64  # width of an attention head in all of them
_BLOCK = {
    "norm1": ("norm1",),
    "attn.qkv": ("attention.attention.query", "attention.attention.key", "attention.attention.value"),
    "attn.proj": ("attention.output.dense",),
    "norm2": ("norm2",),
    "mlp.fc1": ("mlp.fc1",),
    "mlp.fc2": ("mlp.fc2",),
}
_AROUND = {
    "cls_token": ("embeddings.cls_token",),
    "pos_embed": ("embeddings.position_embeddings",),
    "patch_embed.proj.weight": ("embeddings.patch_embeddings.projection.weight",),
    "patch_embed.proj.bias": ("embeddings.patch_embeddings.projection.bias",),
    "norm.weight": ("layernorm.weight",),
    "norm.bias": ("layernorm.bias",),
}
_SCALES = {"ls1.gamma": "layer_scale1.lambda1", "ls2.gamma": "layer_scale2.lambda1"}


def convert_vision_encoder(trunk: Mapping[str, Any], name: str, image: int, dtype: Any) -> Any:
    """A `Dinov2Model` with the tensors of a timm ViT.

    Args:
        trunk: Name in timm → tensor.
        name: Name of the model in timm, such as `vit_base_patch14_dinov2`.
        image: Side of the image in pixels, from the published config.
    """
    import torch
    from transformers import Dinov2Model

    if not _NAMES.fullmatch(name):
        raise DataError(
            f"{_WHERE} is timm's '{name}', which may differ from transformers' DINOv2; only models named "
            "vit_{tiny,small,base,large}_patchN, with or without _dinov2, can be converted."
        )
    if {"reg_token", "norm_pre.weight", "fc_norm.weight"} & set(trunk):
        raise DataError(
            f"{_WHERE} has register tokens or further norms, which the converted vision encoder would not have."
        )
    layers = 1 + max((int(found[1]) for key in trunk if (found := re.match(r"blocks\.(\d+)\.", key))), default=-1)
    scaled = "blocks.0.ls1.gamma" in trunk
    names: dict[str, tuple[str, ...]] = dict(_AROUND)  # name in timm → names in published DINOv2 checkpoints
    for layer in range(layers):
        old, new = f"blocks.{layer}", f"encoder.layer.{layer}"
        for module, targets in _BLOCK.items():
            for kind in ("weight", "bias"):
                names[f"{old}.{module}.{kind}"] = tuple(f"{new}.{target}.{kind}" for target in targets)
        if scaled:
            names |= {f"{old}.{scale}": (f"{new}.{target}",) for scale, target in _SCALES.items()}
    tensors = renamed(trunk, names, _WHERE)
    config = _dinov2_config(trunk, layers, image)
    if not scaled:
        width = config.hidden_size
        scales = [f"encoder.layer.{layer}.{target}" for layer in range(layers) for target in _SCALES.values()]
        tensors |= {name: torch.ones(width) for name in scales}
    return filled(Dinov2Model, config, tensors, _WHERE, dtype)


def _dinov2_config(trunk: Mapping[str, Any], layers: int, image: int) -> Any:
    """A config with sizes from the tensors, checked against each other and against the published image size."""
    from transformers import Dinov2Config

    if not layers:
        check_names(["blocks.0"], [], _WHERE)
    kernel, positions, hidden = trunk["patch_embed.proj.weight"], trunk["pos_embed"], trunk["blocks.0.mlp.fc1.weight"]
    if kernel.dim() != 4 or kernel.shape[2] != kernel.shape[3] or positions.dim() != 3 or hidden.dim() != 2:
        raise DataError(f"{_WHERE}: patch_embed.proj is {shape(kernel)} and pos_embed {shape(positions)}; not a ViT.")
    width, channels, patch = int(kernel.shape[0]), int(kernel.shape[1]), int(kernel.shape[3])
    side = math.isqrt(positions.shape[1] - 1)
    if side * side + 1 != positions.shape[1]:
        raise DataError(f"{_WHERE}: {positions.shape[1]} position embeddings are not a square and a class token.")
    if side * patch != image:
        raise DataError(
            f"{_WHERE} has positions for images of {side * patch} px, but its config says image_size {image}; positions "
            "are not resampled. Correct image_size in the config if the weights are right."
        )
    if width % _HEAD_TIMM_VIT or hidden.shape[0] % width:
        raise DataError(f"{_WHERE}: width {width} and MLP width {hidden.shape[0]} are not those of a timm ViT.")
    return Dinov2Config(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // _HEAD_TIMM_VIT,
        mlp_ratio=hidden.shape[0] // width,
        image_size=image,
        patch_size=patch,
        num_channels=channels,
        use_mask_token=False,
    )


_WHERE_OPEN_CLIP_TEXT = "the text encoder (text.transformer)"
# BERT models that differ from BERT's config in sizes only, which the tensors show; others need their config.json.
_PLAIN_BERT = re.compile(r"(microsoft/BiomedNLP-(PubMedBERT|BiomedBERT)-|(google-bert/)?bert-(base|large)-)\S+")
_HEAD_OPEN_CLIP_TEXT = 64  # width of an attention head in all of them
_POOLINGS = {"cls_pooler": "pooler", "cls_last_hidden_state_pooler": "first"}
_BUFFERS = {
    r"embeddings\.position_ids": "whole numbers from 0 on, not trained",
    r"embeddings\.token_type_ids": "zeros, not trained",
}
_POOLER = {r"pooler\.dense\.(weight|bias)": "BERT's own pooler, which this encoder does not use"}


@dataclass(frozen=True)
class TextEncoder:
    """A converted text encoder."""

    model: Any  # a `BertModel`, with its pooler if that is used
    tokenizer: Any  # truncates texts to the length used in training
    pooling: str  # `pooler` or `first`; see `ProjectedDualEncoderConfig`
    projection: tuple[Any, ...]  # matrices of the projection, one or two


def convert_text(
    tensors: Mapping[str, Any], settings: Mapping[str, Any], folder: Path, dtype: Any, unused: dict[str, str]
) -> TextEncoder:
    """The text encoder of an open_clip encoder.

    Args:
        tensors: Name → tensor, without the prefix `text.`.
        settings: `text_cfg` of the published config.
        folder: Holds the tokenizer, and config.json of the text model unless it is a plain BERT.
        unused: Name → reason of tensors that are not needed; extended.
    """
    from transformers import BertModel

    if "hf_pooler_type" not in settings and settings.get("pooler_type") == "cls_pooler":
        raise ConfigError(
            'text_cfg has "pooler_type": "cls_pooler", which meant BERT\'s pooler to some versions of open_clip and '
            'the first token to others; write "hf_pooler_type": "cls_pooler" for the former or '
            '"hf_pooler_type": "cls_last_hidden_state_pooler" for the latter (BiomedCLIP).'
        )
    pooler = settings.get("hf_pooler_type") or settings.get("pooler_type") or "cls_pooler"  # open_clip's default
    if pooler not in _POOLINGS:
        raise DataError(f"the text encoder pools by {short_repr(pooler)}; {' and '.join(_POOLINGS)} can be converted.")
    pooling = _POOLINGS[pooler]
    needless: dict[str, str] = {}
    reasons = _BUFFERS | (_POOLER if pooling == "first" else {})
    bert = without(under(tensors, "transformer."), reasons, needless)
    unused |= {f"text.transformer.{name}": reason for name, reason in needless.items()}
    config = _bert_config(bert, settings, folder)
    kind = settings.get("hf_proj_type", settings.get("proj"))
    names = {"mlp": ("proj.0.weight", "proj.2.weight"), "linear": ("proj.weight",)}.get(kind or "")
    if names is None:
        raise DataError(f"the text encoder projects by {short_repr(kind)}; mlp and linear can be converted.")
    head = {name for name in tensors if not name.startswith("transformer.")}
    check_names(set(names) - head, head - set(names), f"the text projection ({kind})")
    model = filled(BertModel, config, bert, _WHERE_OPEN_CLIP_TEXT, dtype, add_pooling_layer=pooling == "pooler")
    tokenizer = load_tokenizer(folder)
    if len(tokenizer) > config.vocab_size:
        raise DataError(
            f"the tokenizer in {folder} has {len(tokenizer):,} tokens and the text encoder {config.vocab_size:,}; "
            "it belongs to another model."
        )
    if tokenizer.pad_token_id != config.pad_token_id:
        raise DataError(
            f"the tokenizer in {folder} pads with {short_repr(tokenizer.pad_token)}, number {tokenizer.pad_token_id}, and "
            f"the text encoder with number {config.pad_token_id}; it belongs to another model."
        )
    tokenizer.model_max_length = min(int(settings.get("context_length", 77)), config.max_position_embeddings)
    return TextEncoder(model, tokenizer, pooling, tuple(tensors[name] for name in names))


def _bert_config(bert: Mapping[str, Any], settings: Mapping[str, Any], folder: Path) -> Any:
    from transformers import BertConfig

    path, name = folder / "config.json", str(settings.get("hf_model_name"))
    if path.is_file():
        found = read_json(path)
        kind = found.get("model_type") if isinstance(found, dict) else None
        if kind == "bert":
            return BertConfig.from_dict(found)
        raise DataError(f"{path} describes a {short_repr(kind)}; only text encoders that are a BERT can be converted.")
    if not _PLAIN_BERT.fullmatch(name):
        raise ConfigError(
            f"the text encoder is {short_repr(name)}, whose settings are not in the weights; give a folder with its "
            "config.json and tokenizer with --text."
        )
    words, places = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
    kinds, inner = "embeddings.token_type_embeddings.weight", "encoder.layer.0.intermediate.dense.weight"
    check_names({words, places, kinds, inner} - set(bert), [], _WHERE_OPEN_CLIP_TEXT)
    layers = 1 + max(int(found[1]) for key in bert if (found := re.match(r"encoder\.layer\.(\d+)\.", key)))
    width = int(bert[words].shape[1])
    if width % _HEAD_OPEN_CLIP_TEXT:
        raise DataError(
            f"{_WHERE_OPEN_CLIP_TEXT}: width {width} is not a whole number of heads of {_HEAD_OPEN_CLIP_TEXT}."
        )
    return BertConfig(
        vocab_size=int(bert[words].shape[0]),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // _HEAD_OPEN_CLIP_TEXT,
        intermediate_size=int(bert[inner].shape[0]),
        max_position_embeddings=int(bert[places].shape[0]),
        type_vocab_size=int(bert[kinds].shape[0]),
    )

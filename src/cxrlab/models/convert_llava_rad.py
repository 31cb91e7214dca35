"""Convert LLaVA-Rad, published as LoRA, projector, Vicuna and an open_clip encoder, to one LLaVA of transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, short_repr
from cxrlab.core.files import make_folder, read_json
from cxrlab.models.convert import (
    ConvertConfig,
    Converted,
    check_loaded,
    check_names,
    read_tensors,
    shape,
    without,
)
from cxrlab.models.convert_open_clip import image_processor, read_open_clip, vision_encoder_of
from cxrlab.models.hf.conversations import llava_template
from cxrlab.models.local_files import first_line, load_tokenizer, pickled_code_refused, quiet_loading
from cxrlab.models.model_card import ModelCard, write_model_card
from cxrlab.models.model_parts import add_image_token, add_rows
from cxrlab.models.random_init import IMAGE

PROMPTS = "llava-rad/1"
# Training images of LLaVA-Rad: the seven data sets of CXR-697K (configs/llava_rad), as named in corpus cards.
_COLLECTIONS = (
    "beth-israel",
    "stanford",
    "albert-einstein",
    "dunedin",
    "vindr",
    "jf-healthcare",
    "san-juan-alicante",
)
_BASE = "base"  # folder of the base inside an adapter's
SHARD = "5GB"
_ANSWER = 256  # most tokens of an answer, as LLaVA-Rad was evaluated
PROJECTOR = re.compile(r"(?:base_model\.)?(?:model\.)*mm_projector\.(.+)")
PLACES = {"0.weight": "linear_1", "0.bias": "linear_1", "2.weight": "linear_2", "2.bias": "linear_2"}
_SELECT = {"patch": "default", "cls_patch": "full"}
# The only values in config.json that transformers' LLaVA supports; None: the key may be absent.
NEEDED: Mapping[str, tuple[Any, ...]] = {
    "mm_projector_type": ("mlp2x_gelu",),
    "mm_use_im_start_end": (False, None),
    "mm_use_im_patch_token": (False, None),
}
_NEEDED: Mapping[str, tuple[Any, ...]] = {**NEEDED, "image_aspect_ratio": ("square", None)}
# Settings of the language model that are in both configs and must agree.
_SHARED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps")
_UNUSED = {
    r"text\..+": "the encoder's text encoder; a LLaVA reads text with its language model",
    r"visual\.head\..+": "the projection into the space of the encoder; a LLaVA has a projector of its own",
    r"logit_(scale|bias)": "the temperature of contrastive training",
}


def convert_llava_rad(source: Path, config: ConvertConfig, out: Path) -> Converted:
    """Write a LLaVA with its processor into `out`; with `keep_adapter` an adapter folder with its base inside."""
    from transformers import LlavaProcessor

    if config.base is None:
        raise ConfigError("LLaVA-Rad is published without its language model; give the folder of Vicuna with --base.")
    settings = read_settings(source, _NEEDED)
    lora = read_lora(source)
    projector_file = source / "non_lora_trainables.bin"
    tensors = read_tensors(projector_file)
    projector = {match[1]: tensor for name, tensor in tensors.items() if (match := PROJECTOR.fullmatch(name))}
    others = {name for name in tensors if not PROJECTOR.fullmatch(name)}
    surplus = others | (set(projector) - set(PLACES))
    check_names(set(PLACES) - set(projector), surplus, f"the projector ({projector_file})")
    encoder, unused = read_open_clip(config.vision_encoder or source), dict[str, str]()
    language, tokenizer = _load_language_model(config, settings)
    check_fit(language, lora)
    if not config.keep_adapter:
        merge(language, lora)
    visual = {name: t for name, t in encoder.tensors.items() if not name.startswith("visual.trunk.")}
    check_names([], without(visual, _UNUSED, unused), "the open_clip encoder")
    vision_encoder = vision_encoder_of(encoder, language.dtype)
    model = assemble(vision_encoder, language, projector, tokenizer, settings)
    processor = LlavaProcessor(
        image_processor=image_processor(encoder),
        tokenizer=tokenizer,
        patch_size=vision_encoder.config.patch_size,
        vision_feature_select_strategy=model.config.vision_feature_select_strategy,
        num_additional_image_tokens=1,
        image_token=IMAGE,
        chat_template=llava_template(tokenizer),
    )
    whole = make_folder(out / _BASE) if config.keep_adapter else out
    with quiet_loading():
        model.save_pretrained(whole, max_shard_size=SHARD)
        processor.save_pretrained(whole)
    extra = {"layout": "llava-rad", "source": source.name, "language_model": config.base.name}
    card = ModelCard("convert", PROMPTS, config.collections or _COLLECTIONS, extra=extra)
    write_model_card(card, whole)
    if config.keep_adapter:
        # Within a LLaVA, modules of the language model have another prefix.
        names = {name: f"model.language_model.{name.removeprefix('model.')}" for name in lora.pairs}
        write_adapter(lora, names, out)
        write_model_card(replace(card, base=f"hf:{_BASE}"), out)
    return Converted(type(model).__name__, model.num_parameters(), encoder.image, unused)


def read_settings(source: Path, needed: Mapping[str, tuple[Any, ...]]) -> Mapping[str, Any]:
    """config.json of a published LLaVA 1.x; raises for settings that cannot be converted."""
    path = source / "config.json"
    found = read_json(path)
    if not isinstance(found, dict) or "mm_projector_type" not in found:
        raise DataError(f"{path} is not a config of LLaVA 1.x: it has no mm_projector_type.")
    for key, allowed in needed.items():
        if found.get(key) not in allowed:
            raise DataError(
                f"{path} has {key}={short_repr(found.get(key))}; it must be {short_repr(allowed[0])} to be converted."
            )
    if found.get("mm_vision_select_feature", "patch") not in _SELECT:
        raise DataError(
            f"{path} has the unknown mm_vision_select_feature {short_repr(found['mm_vision_select_feature'])}."
        )
    if not isinstance(found.get("mm_vision_select_layer"), int):
        raise DataError(f"{path} has no mm_vision_select_layer: the layer of the vision encoder to read.")
    return found


def _load_language_model(config: ConvertConfig, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """The base model in the requested number format, extended by the token `<image>`, and its tokenizer."""
    import torch
    import transformers

    loader: Any = transformers.AutoModelForCausalLM
    folder = config.base
    if folder is None or not (folder / "config.json").is_file():
        raise DataError(f"{folder} holds no model (config.json is missing); name the folder of Vicuna with --base.")
    base = read_json(folder / "config.json")
    for key in _SHARED:
        if key in settings and settings[key] != base.get(key):
            raise DataError(
                f"{folder} has {key}={short_repr(base.get(key))} and the model to convert {short_repr(settings[key])}; "
                "give the base that it was trained on with --base."
            )
    tokenizer = load_tokenizer(folder)
    try:
        with quiet_loading(), pickled_code_refused(folder):
            model, loaded = loader.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                dtype=config.dtype if config.dtype == "auto" else getattr(torch, config.dtype),
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{folder} holds no language model that can be loaded ({first_line(error)}).") from error
    check_loaded(loaded, f"the language model ({folder})")
    if tokenizer.unk_token is None or tokenizer.eos_token is None:
        raise DataError("the base's tokenizer has no unknown or no end token; it is not that of Vicuna.")
    add_image_token(tokenizer)
    add_rows(model, tokenizer)
    return model.eval(), tokenizer


def assemble(
    vision_encoder: Any, language: Any, projector: Mapping[str, Any], tokenizer: Any, settings: Mapping[str, Any]
) -> Any:
    """One LLaVA that shares the tensors of its parts; only the projector is copied."""
    import torch
    import transformers
    from transformers import GenerationConfig, LlavaForConditionalGeneration

    make: Any = transformers.LlavaConfig
    config = make(
        vision_config=vision_encoder.config,
        text_config=language.config,
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        vision_feature_layer=settings["mm_vision_select_layer"],
        vision_feature_select_strategy=_SELECT[settings.get("mm_vision_select_feature", "patch")],
        tie_word_embeddings=bool(language.config.tie_word_embeddings),
        image_seq_length=(vision_encoder.config.image_size // vision_encoder.config.patch_size) ** 2,
    )
    with torch.device("meta"):  # avoids a second copy of seven billion parameters
        model = LlavaForConditionalGeneration(config)
    model.model.vision_tower, model.model.language_model = vision_encoder, language.model
    model.lm_head = language.lm_head
    place = model.model.multi_modal_projector.to_empty(device="cpu").to(language.dtype)
    with torch.no_grad():
        for name, layer in PLACES.items():
            target, value = getattr(getattr(place, layer), name.partition(".")[2]), projector[name]
            if target.shape != value.shape:
                raise DataError(f"mm_projector.{name} is {shape(value)} where {shape(target)} was expected.")
            target.copy_(value)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        max_new_tokens=_ANSWER,
    )
    return model.eval()


_CONFIG = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_NAME = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
# Values of a plain LoRA, which adds (alpha / rank) · B·A and nothing else.
_PLAIN = {
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "modules_to_save": (None, []),
    "rank_pattern": ({},),
    "alpha_pattern": ({},),
    "use_rslora": (False,),
    "use_dora": (False,),
}


@dataclass(frozen=True)
class Lora:
    """A plain LoRA adapter."""

    rank: int
    alpha: float
    dropout: float  # used in training only
    pairs: dict[str, tuple[Any, Any]]  # name of a module → (A [rank, in], B [out, rank])


def read_lora(folder: Path) -> Lora:
    """The LoRA in a PEFT folder; raises unless it is a plain one."""
    config = read_json(folder / _CONFIG)
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise DataError(f"{folder / _CONFIG} does not describe a LoRA.")
    for key, allowed in _PLAIN.items():
        if key in config and config[key] not in allowed:
            raise DataError(
                f"{folder / _CONFIG} has {key}={short_repr(config[key])}; only plain LoRAs can be converted."
            )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or not isinstance(alpha, (int, float)) or rank < 1:
        raise DataError(
            f"{folder / _CONFIG} gives r={short_repr(rank)} and lora_alpha={short_repr(alpha)}; numbers are needed."
        )
    path = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), folder / _WEIGHTS[1])
    halves: dict[str, dict[str, Any]] = {}
    for name, tensor in read_tensors(path).items():
        found = _NAME.fullmatch(name)
        if found is None:
            raise DataError(f"{path} holds {name}, which is not part of a LoRA.")
        halves.setdefault(found[1], {})[found[2]] = tensor
    if alone := sorted(module for module, half in halves.items() if len(half) != 2):
        raise DataError(f"{path} lacks one of the two matrices of {len(alone)} modules, such as {alone[0]}.")
    pairs = {module: (half["A"], half["B"]) for module, half in halves.items()}
    return Lora(rank, float(alpha), float(config.get("lora_dropout") or 0.0), pairs)


def check_fit(model: Any, lora: Lora) -> None:
    """Raise if the LoRA changes a module that the model does not have, or has other sizes than its weight."""
    modules = dict(model.named_modules())
    for name, (a, b) in lora.pairs.items():
        weight = getattr(modules.get(name), "weight", None)
        if weight is None:
            raise DataError(f"the LoRA changes {name}, which the base does not have; give the base it was trained on.")
        if a.shape != (lora.rank, weight.shape[1]) or b.shape != (weight.shape[0], lora.rank):
            raise DataError(
                f"the LoRA's matrices for {name} are {shape(a)} and {shape(b)}, and the weight is {shape(weight)}; "
                "give the base it was trained on."
            )


def merge(model: Any, lora: Lora) -> None:
    """Add the LoRA to the model's weights; computed in float32, stored in the weights' own dtype."""
    import torch

    with torch.no_grad():
        for name, (a, b) in lora.pairs.items():
            weight = model.get_submodule(name).weight
            weight.copy_(weight.float() + (lora.alpha / lora.rank) * (b.float() @ a.float()))


def write_adapter(lora: Lora, names: Mapping[str, str], out: Path) -> None:
    """Write a PEFT adapter folder. It names no base model, which PEFT would look for online; the model card does.

    Args:
        names: Module → its name in the adapter's base model.
    """
    import peft
    from safetensors.torch import save_file

    make: Any = peft.LoraConfig
    config = make(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=sorted(names.values()),
        task_type="CAUSAL_LM",
        inference_mode=True,
    )
    config.save_pretrained(out)
    tensors = {
        f"base_model.model.{names[module]}.lora_{letter}.weight": tensor.contiguous().clone()
        for module, pair in lora.pairs.items()
        for letter, tensor in zip("AB", pair, strict=True)
    }
    save_file(tensors, out / _WEIGHTS[0], metadata={"format": "pt"})

"""LLaVA-Rad as published, a LoRA and a projector over Vicuna and an open_clip encoder, as one LLaVA of transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, shown
from cxrlab.core.files import make_folder, read_json
from cxrlab.models.building import IMAGE
from cxrlab.models.convert.config import ConvertConfig
from cxrlab.models.convert.converting import Converted
from cxrlab.models.convert.lora import check_fit, merge, read_lora, write_adapter
from cxrlab.models.convert.open_clip import vision_encoder_of
from cxrlab.models.convert.open_clip_files import image_processor, read_open_clip
from cxrlab.models.convert.tensors import check_loaded, check_names, read_tensors, shape, without
from cxrlab.models.convert.vicuna import add_image_token, chat_template
from cxrlab.models.local_files import first_line, load_tokenizer, quiet_loading, refused_code
from cxrlab.models.model_card import ModelCard, write_model_card

PROMPTS = "llava-rad/1"
# Whose images LLaVA-Rad has seen, by cards of corpora: the seven data sets of CXR-697K (configs/data/cxr697k.yaml).
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
_SHARD = "5GB"
_ANSWER = 256  # most tokens of an answer, as LLaVA-Rad was evaluated
_PROJECTOR = re.compile(r"(?:base_model\.)?(?:model\.)*mm_projector\.(.+)")
_PLACES = {"0.weight": "linear_1", "0.bias": "linear_1", "2.weight": "linear_2", "2.bias": "linear_2"}
_SELECT = {"patch": "default", "cls_patch": "full"}
# What config.json must say, since transformers' LLaVA does nothing else; None: the key may be absent.
_NEEDED: Mapping[str, tuple[Any, ...]] = {
    "mm_projector_type": ("mlp2x_gelu",),
    "mm_use_im_start_end": (False, None),
    "mm_use_im_patch_token": (False, None),
    "image_aspect_ratio": ("square", None),
}
# Settings of the language model that stand in both configs and must agree.
_SHARED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps")
_UNUSED = {
    r"text\..+": "the encoder's text encoder; a LLaVA reads text with its language model",
    r"visual\.head\..+": "the projection into the space of the encoder; a LLaVA has a projector of its own",
    r"logit_(scale|bias)": "the temperature of contrastive training",
}


def convert_llava_rad(source: Path, config: ConvertConfig, out: Path) -> Converted:
    """Write a LLaVA with its processor into `out`; with `keep_adapter` an adapter folder with its base inside."""
    if config.base is None:
        raise ConfigError("LLaVA-Rad is published without its language model; give the folder of Vicuna with --base.")
    settings = _settings(source)
    lora, projector = read_lora(source), _projector(source)
    encoder, unused = read_open_clip(config.vision_encoder or source), dict[str, str]()
    language, tokenizer = _language_model(config, settings)
    check_fit(language, lora)
    if not config.keep_adapter:
        merge(language, lora)
    visual = {name: t for name, t in encoder.tensors.items() if not name.startswith("visual.trunk.")}
    check_names([], without(visual, _UNUSED, unused), "the open_clip encoder")
    vision_encoder = vision_encoder_of(encoder, language.dtype)
    model = _assembled(vision_encoder, language, projector, tokenizer, settings)
    whole = make_folder(out / _BASE) if config.keep_adapter else out
    with quiet_loading():
        model.save_pretrained(whole, max_shard_size=_SHARD)
        _processor(encoder, vision_encoder, tokenizer, model.config).save_pretrained(whole)
    extra = {"layout": "llava-rad", "source": source.name, "language_model": config.base.name}
    card = ModelCard("convert", PROMPTS, config.collections or _COLLECTIONS, extra=extra)
    write_model_card(card, whole)
    if config.keep_adapter:
        write_adapter(lora, {name: _in_llava(name) for name in lora.pairs}, out)
        write_model_card(replace(card, base=f"hf:{_BASE}"), out)
    return Converted(type(model).__name__, model.num_parameters(), encoder.image, unused)


def _in_llava(name: str) -> str:
    """What a module of the language model is called once it is part of a LLaVA."""
    return f"model.language_model.{name.removeprefix('model.')}"


def _settings(source: Path) -> Mapping[str, Any]:
    """config.json of the published folder, checked for what cannot be converted."""
    path = source / "config.json"
    found = read_json(path)
    if not isinstance(found, dict) or "mm_projector_type" not in found:
        raise DataError(f"{path} is no config of LLaVA 1.x: it says nothing of a projector (mm_projector_type).")
    for key, allowed in _NEEDED.items():
        if found.get(key) not in allowed:
            raise DataError(
                f"{path} has {key}={shown(found.get(key))}; it must be {shown(allowed[0])} to be converted."
            )
    if found.get("mm_vision_select_feature", "patch") not in _SELECT:
        raise DataError(f"{path} takes the features {shown(found['mm_vision_select_feature'])}, which are not known.")
    if not isinstance(found.get("mm_vision_select_layer"), int):
        raise DataError(f"{path} does not say which layer of the vision encoder is read (mm_vision_select_layer).")
    return found


def _projector(source: Path) -> dict[str, Any]:
    """Name within the projector → tensor; whatever else was trained beside the LoRA is refused."""
    path = source / "non_lora_trainables.bin"
    tensors = read_tensors(path)
    found = {match[1]: tensor for name, tensor in tensors.items() if (match := _PROJECTOR.fullmatch(name))}
    others = {name for name in tensors if not _PROJECTOR.fullmatch(name)}
    check_names(set(_PLACES) - set(found), others | (set(found) - set(_PLACES)), f"the projector ({path})")
    return found


def _language_model(config: ConvertConfig, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """The base in the number format asked for, with a row for `<image>`, and its tokenizer."""
    import torch
    import transformers

    loader: Any = transformers.AutoModelForCausalLM
    folder = config.base
    if folder is None or not (folder / "config.json").is_file():
        raise DataError(f"{folder} holds no model (config.json is missing); name the folder of Vicuna with --base.")
    told = read_json(folder / "config.json")
    for key in _SHARED:
        if key in settings and settings[key] != told.get(key):
            raise DataError(
                f"{folder} has {key}={shown(told.get(key))} and the model to convert {shown(settings[key])}; it is "
                "another base than the one that was trained."
            )
    tokenizer = load_tokenizer(folder)
    try:
        with quiet_loading(), refused_code(folder):
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
    _make_room(model, tokenizer)
    return model.eval(), tokenizer


def _make_room(model: Any, tokenizer: Any) -> None:
    """A row for `<image>` in the embeddings and in the output, both copies of those of `<unk>`.

    The image's features replace the embedding, so that any would do. The output is what matters: `<unk>` was never
    to be written, so `<image>` is as improbable, and a log-probability moves by log(1 + p(<unk>)) and no more.
    """
    import torch

    rows = model.get_input_embeddings().weight.shape[0]
    number, unknown = add_image_token(tokenizer), tokenizer.unk_token_id
    if number < rows:
        return
    with quiet_loading():
        model.resize_token_embeddings(number + 1, mean_resizing=False)
    with torch.no_grad():
        for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
            layer.weight[rows:] = layer.weight[unknown]


def _assembled(
    vision_encoder: Any, language: Any, projector: Mapping[str, Any], tokenizer: Any, settings: Mapping[str, Any]
) -> Any:
    """The parts in one LLaVA; theirs are the tensors, nothing is copied but the projector."""
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
    with torch.device("meta"):  # the parts are there already; a second copy of seven billion numbers is not made
        model = LlavaForConditionalGeneration(config)
    model.model.vision_tower, model.model.language_model = vision_encoder, language.model
    model.lm_head = language.lm_head
    place = model.model.multi_modal_projector.to_empty(device="cpu").to(language.dtype)
    with torch.no_grad():
        for name, layer in _PLACES.items():
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


def _processor(encoder: Any, vision_encoder: Any, tokenizer: Any, config: Any) -> Any:
    from transformers import LlavaProcessor

    return LlavaProcessor(
        image_processor=image_processor(encoder),
        tokenizer=tokenizer,
        patch_size=vision_encoder.config.patch_size,
        vision_feature_select_strategy=config.vision_feature_select_strategy,
        num_additional_image_tokens=1,
        image_token=IMAGE,
        chat_template=chat_template(tokenizer),
    )

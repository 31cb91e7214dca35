"""Convert LLaVA-1.5 and LLaVA-Med 1.5 from the layout of LLaVA 1.x, with CLIP beside them, to a LLaVA of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, short_repr
from cxrlab.models.convert import ConvertConfig, Converted, check_names, filled, read_tensors, under, without
from cxrlab.models.convert_llava_rad import NEEDED, PLACES, PROJECTOR, SHARD, assemble, read_settings
from cxrlab.models.hf.conversations import MISTRAL, VICUNA, llava_template
from cxrlab.models.local_files import (
    first_line,
    load_image_processor,
    load_tokenizer,
    pickled_code_refused,
    quiet_loading,
)
from cxrlab.models.model_card import ModelCard, write_model_card
from cxrlab.models.model_parts import add_image_token, add_rows
from cxrlab.models.random_init import IMAGE

PROMPTS = "llava-rad/1"  # no wording of these models for reports is published
_VISION = "model.vision_tower.vision_tower."
# model_type of config.json -> name of the language model in transformers, and its conversation.
_LANGUAGE_MODELS = {"llava": ("Llama", VICUNA), "llava_llama": ("Llama", VICUNA), "llava_mistral": ("Mistral", MISTRAL)}
_NEEDED: Mapping[str, tuple[Any, ...]] = {**NEEDED, "image_aspect_ratio": ("pad", "square", None)}
# Settings of a language model that transformers reads under these names and writes under others.
_OLD_NAMES = ("rope_theta", "rope_scaling")
_UNUSED = {
    r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq": "computed by transformers",
    r".*\.embeddings\.position_ids": "computed by transformers",
}


def convert_llava(source: Path, config: ConvertConfig, out: Path) -> Converted:
    """Write a LLaVA with its processor into `out`; weights of the vision encoder in `source` replace CLIP's own."""
    import torch
    import transformers
    from transformers import LlavaProcessor

    if config.vision_encoder is None:
        raise ConfigError("LLaVA is published without the settings of CLIP; give its folder with --vision-encoder.")
    if config.base is not None or config.keep_adapter:
        raise ConfigError("--base and --keep-adapter are for a LoRA; leave them out for whole weights.")
    settings = read_settings(source, _NEEDED)
    if settings.get("model_type") not in _LANGUAGE_MODELS:
        raise DataError(
            f"{source / 'config.json'} has model_type={short_repr(settings.get('model_type'))}; known are "
            f"{', '.join(_LANGUAGE_MODELS)}."
        )
    family, conversation = _LANGUAGE_MODELS[settings["model_type"]]
    unused = dict[str, str]()
    tensors = without(_read_weights(source), _UNUSED, unused)
    dtype = _commonest_dtype(tensors) if config.dtype == "auto" else getattr(torch, config.dtype)
    projector = {match[1]: tensors[name] for name in tensors if (match := PROJECTOR.fullmatch(name))}
    check_names(set(PLACES) - set(projector), set(projector) - set(PLACES), f"the projector ({source})")
    words = {
        name: tensor
        for name, tensor in tensors.items()
        if not PROJECTOR.fullmatch(name) and not name.startswith(_VISION)
    }
    text_config = getattr(transformers, f"{family}Config")
    names = {*text_config().to_dict(), *_OLD_NAMES} - {"model_type", "architectures", "dtype"}
    language = filled(
        getattr(transformers, f"{family}ForCausalLM"),
        text_config(**{name: value for name, value in settings.items() if name in names}),
        words,
        f"the language model ({source})",
        dtype,
    )
    tokenizer = load_tokenizer(source)
    if tokenizer.unk_token is None or tokenizer.eos_token is None:
        raise DataError(f"the tokenizer of {source} has no unknown or no end token; it is not that of LLaVA 1.x.")
    add_image_token(tokenizer)
    add_rows(language, tokenizer)
    vision_encoder = _vision_encoder(config.vision_encoder, under(tensors, _VISION), dtype)
    model = assemble(vision_encoder, language, projector, tokenizer, settings)
    processor = LlavaProcessor(
        image_processor=_image_processor(config.vision_encoder, pad=settings.get("image_aspect_ratio") == "pad"),
        tokenizer=tokenizer,
        patch_size=vision_encoder.config.patch_size,
        vision_feature_select_strategy=model.config.vision_feature_select_strategy,
        num_additional_image_tokens=1,
        image_token=IMAGE,
        chat_template=llava_template(tokenizer, conversation),
    )
    with quiet_loading():
        model.save_pretrained(out, max_shard_size=SHARD)
        processor.save_pretrained(out)
    if config.collections:
        write_model_card(ModelCard("convert", PROMPTS, config.collections, extra={"layout": "llava"}), out)
    return Converted(type(model).__name__, model.num_parameters(), vision_encoder.config.image_size, unused)


def _read_weights(source: Path) -> dict[str, Any]:
    """All tensors of the shards in a folder, safetensors before pickles."""
    files = sorted(source.glob("*.safetensors")) or sorted(source.glob("pytorch_model*.bin"))
    if not files:
        raise DataError(f"{source} holds no weights: looked for *.safetensors and pytorch_model*.bin.")
    tensors: dict[str, Any] = {}
    for file in files:
        tensors |= read_tensors(file)
    return tensors


def _commonest_dtype(tensors: Mapping[str, Any]) -> Any:
    formats = [tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()]
    return max(set(formats), key=formats.count)


def _vision_encoder(folder: Path, own: Mapping[str, Any], dtype: Any) -> Any:
    """CLIP's vision encoder with the weights `own` of the published model, or those of the folder where it has none."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    loader: Any = CLIPVisionModel
    try:
        config = CLIPVisionConfig.from_pretrained(folder, local_files_only=True)
        if own:
            return filled(loader, config, own, "the vision encoder", dtype)
        with quiet_loading(), pickled_code_refused(folder):
            model, report = loader.from_pretrained(folder, local_files_only=True, dtype=dtype, output_loading_info=True)
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} holds no CLIP that transformers can load ({first_line(error)}).") from error
    check_names(report["missing_keys"], (), f"the vision encoder ({folder})")  # its text encoder is left over
    return model.eval()


def _image_processor(folder: Path, *, pad: bool) -> Any:
    """CLIP's image processor; with `pad`, images become squares of the mean colour first, as LLaVA 1.5 was trained."""
    from transformers import LlavaImageProcessorPil

    found = load_image_processor(folder)
    if not pad:
        return found
    kept = ("size", "resample", "crop_size", "do_center_crop", "image_mean", "image_std", "rescale_factor")
    return LlavaImageProcessorPil(do_pad=True, **{name: getattr(found, name) for name in kept})

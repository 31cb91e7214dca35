"""Parts taken out of checkpoint folders: whatever a folder lacks is one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.install import require
from cxrlab.models.hf.adapters import base_of, is_adapter, merged, resolve
from cxrlab.models.loading import Loading
from cxrlab.models.local_files import first_line, quiet_loading

_DUAL = ("vision-text-dual-encoder", "projected-dual-encoder")


def folder_of(name: str) -> Path:
    """The local folder of `hf:FOLDER_OR_ID` or `builtin:NAME`; of a run folder, the checkpoint in it."""
    from cxrlab.models.hf.source import locate

    require("models")
    found = resolve(name, Path())
    folder = locate(found, Loading())
    inner = folder / "checkpoint"
    return inner if inner.is_dir() and not (folder / "config.json").is_file() and not is_adapter(folder) else folder


def base_folder(folder: Path) -> Path:
    """The folder itself, or what an adapter stands on, where it has no tokenizer of its own."""
    from cxrlab.models.hf.source import locate

    while is_adapter(folder) and not (folder / "tokenizer_config.json").is_file():
        folder = locate(base_of(folder, Loading()), Loading())
    return folder


def open_part(folder: Path, take: Callable[[Path, str], Any], what: str) -> Any:
    """What `take` finds in the folder; whatever transformers raises becomes one sentence."""
    if is_adapter(folder):
        return take(folder, "llava")
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json; name the folder of a model with {what} in it.")
    config = read_json(folder / "config.json")
    kind = str(config.get("model_type")) if isinstance(config, dict) else "None"
    try:
        with quiet_loading():
            found = take(folder, kind)
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        raise DataError(f"{what} cannot be taken out of {folder} ('{kind}'): {first_line(error)}.") from error
    if found is None:
        raise DataError(f"{folder} holds a model of the type '{kind}', which has not {what} that can be taken out.")
    return found.eval()


def tower_of(folder: Path, kind: str) -> Any:
    """The vision tower of a dual encoder, a LLaVA, a CLIP or a vision model; None for another kind."""
    from transformers import AutoConfig, AutoModel, CLIPVisionModel

    if kind in _DUAL:
        from cxrlab.models.projected_encoder import dual_encoder_class

        return _loaded(dual_encoder_class(folder), folder).vision_model
    if kind == "llava":
        return _llava(folder).model.vision_tower
    if kind == "clip":
        return _loaded(CLIPVisionModel, folder)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    plain = hasattr(config, "image_size") and hasattr(config, "patch_size") and not hasattr(config, "text_config")
    return _loaded(AutoModel, folder) if plain else None


def language_of(folder: Path, kind: str) -> Any:
    """The language model of a LLaVA or a causal model; None for another kind."""
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    if kind == "llava":
        return _causal(_llava(folder))
    if kind in CAUSAL:
        return _loaded(AutoModelForCausalLM, folder)
    return None


def _loaded(kind: Any, folder: Path) -> Any:
    """A model whose tensors all come from the folder; pooling heads, which nothing here reads, may be missing."""
    model, told = kind.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    missing = sorted(name for name in told["missing_keys"] if "pooler" not in name and "head" not in name)
    if missing:
        raise DataError(
            f"{folder} lacks {len(missing)} of the model's tensors (for example {missing[0]}), which would be random; "
            "copy or fetch it again."
        )
    return model


def _llava(folder: Path) -> Any:
    """The LLaVA of a folder, adapters merged into its weights."""
    from transformers import LlavaForConditionalGeneration

    if is_adapter(folder):
        base = folder_of(f"hf:{base_of(folder, Loading())}")
        return merged(_llava(base), folder)
    return _loaded(LlavaForConditionalGeneration, folder)


def _causal(llava: Any) -> Any:
    """The language model of a LLaVA with its head, as a causal model; its tensors are used, not copied."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(llava.config.text_config)
    model.model = llava.model.language_model
    model.lm_head = llava.lm_head
    return model


def image_processor_of(folder: Path) -> Any:
    """The image processor of a folder."""
    from transformers import AutoImageProcessor

    folder = base_folder(folder) if is_adapter(folder) else folder
    try:
        with quiet_loading():
            return AutoImageProcessor.from_pretrained(folder, local_files_only=True, use_fast=False)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder} has no image processor that transformers can load ({first_line(error)}); it needs "
            "preprocessor_config.json or processor_config.json."
        ) from error

"""Parts taken out of checkpoint folders: whatever a folder lacks is one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.install import require
from cxrlab.models.hf.adapters import is_adapter, lineage, merged, resolve
from cxrlab.models.hf.source import locate
from cxrlab.models.loading import Loading
from cxrlab.models.local_files import DUAL_ENCODERS, first_line, load_image_processor, quiet_loading, refused_code

_POOLING = frozenset({"pooler", "head"})  # whole parts of a name: lm_head is another thing


def folder_of(name: str) -> Path:
    """The local folder of `hf:FOLDER_OR_ID` or `builtin:NAME`; of a run folder, the checkpoint in it."""
    require("models")
    return locate(resolve(name, Path()), Loading(), may_fetch=False)


def base_folder(folder: Path) -> Path:
    """The folder itself, or what an adapter stands on, where it has no tokenizer of its own."""
    line = lineage(folder, Loading())
    return next((each for each in line if (each / "tokenizer_config.json").is_file()), line[-1])


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


def vision_encoder_of(folder: Path, kind: str) -> Any:
    """The vision encoder of a dual encoder, a LLaVA, a CLIP or a vision model; None for another kind."""
    from transformers import AutoConfig, AutoModel, CLIPVisionModel

    if kind in DUAL_ENCODERS:
        from cxrlab.models.projected_encoder import dual_encoder_class

        return loaded(dual_encoder_class(folder), folder).vision_model
    if kind == "llava":
        return _llava(folder).model.vision_tower
    if kind == "clip":
        return loaded(CLIPVisionModel, folder)
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    plain = hasattr(config, "image_size") and hasattr(config, "patch_size") and not hasattr(config, "text_config")
    return loaded(AutoModel, folder) if plain else None


def language_of(folder: Path, kind: str) -> Any:
    """The language model of a LLaVA or a causal model; None for another kind."""
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    if kind == "llava":
        return _causal(_llava(folder))
    if kind in CAUSAL:
        return loaded(AutoModelForCausalLM, folder)
    return None


def loaded(kind: Any, folder: Path) -> Any:
    """A model whose tensors all come from the folder; a pooling head, which no part needs trained, may be missing."""
    settings = {"local_files_only": True, "trust_remote_code": False, "output_loading_info": True}
    with refused_code(folder):
        model, told = kind.from_pretrained(folder, **settings)
    missing = sorted(name for name in told["missing_keys"] if _POOLING.isdisjoint(name.split(".")))
    if missing:
        raise DataError(
            f"{folder} lacks {len(missing)} of the model's tensors (for example {missing[0]}), which would be random; "
            "copy or fetch it again."
        )
    return model


def _llava(folder: Path) -> Any:
    """The LLaVA of a folder, adapters merged into its weights."""
    from transformers import LlavaForConditionalGeneration

    *above, whole = lineage(folder, Loading())
    model = loaded(LlavaForConditionalGeneration, whole)
    for adapter in reversed(above):
        model = merged(model, adapter)
    return model


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
    """The image processor of a folder; of an adapter, what belongs to its vision encoder."""
    return load_image_processor(base_folder(folder) if is_adapter(folder) else folder)

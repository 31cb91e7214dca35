"""Open an image-text-to-text checkpoint, adapters included, and report everything that is wrong with it before it is loaded."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import read_json
from cxrlab.core.memory import raise_if_out_of_memory
from cxrlab.models.hf import adapters
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import (
    DUAL_ENCODERS,
    auto_map,
    check_remote_code,
    first_line,
    locate,
    pickled_code_refused,
    quiet_loading,
    remote_code_files,
    stored_weights,
)
from cxrlab.models.model_card import ModelCard, read_model_card

if TYPE_CHECKING:
    import torch

__all__ = ["Checkpoint", "device_of", "dtype_of", "locate", "open_checkpoint", "open_processor"]

# In this order, what a checkpoint that brings its own code may call itself.
_OWN_CLASSES = ("AutoModelForImageTextToText", "AutoModelForVision2Seq", "AutoModelForCausalLM", "AutoModel")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model in evaluation mode with everything beside its weights.

    Args:
        model: On its device; for an adapter, the base with the adapter's layers in it.
        processor: With `tokenizer` and `image_processor`.
        tokenizer: Of the processor.
        card: What `cxrlab.json` says; None where there is none.
        folder: Where it lies on this machine; the adapter's own folder for an adapter.
    """

    model: Any
    processor: Any
    tokenizer: Any
    card: ModelCard | None
    folder: Path


def open_checkpoint(path_or_id: str | Path, loading: LoadSettings | None = None, *, merge: bool = False) -> Checkpoint:
    """Open a checkpoint; every reason why it cannot be used is one sentence.

    Args:
        path_or_id: Folder or hub id of an image-text-to-text model, or of a PEFT adapter of one.
        loading: Where and how.
        merge: Add an adapter into the weights it stands on, instead of keeping its layers beside them.
    """
    require("models")
    settings = loading or LoadSettings()
    *above, whole = adapters.lineage(locate(path_or_id, settings), settings)
    found = _open_whole(whole, settings)
    for adapter in reversed(above):
        # Of two adapters in one model PEFT keeps the numbers of the later; so all but the uppermost are merged.
        put_on = adapters.attach if adapter == above[0] and not merge else adapters.merged
        processor = processor_beside(adapter, settings) or found.processor
        model = put_on(found.model, adapter).eval()
        found = Checkpoint(model, processor, processor.tokenizer, read_model_card(adapter), adapter)
    return found


def _open_whole(folder: Path, loading: LoadSettings) -> Checkpoint:
    check_model_type(folder, loading)
    processor = open_processor(folder, loading)
    device = device_of(loading)
    check_memory(folder, loading, device)
    model = load_weights(folder, loading, device)
    return Checkpoint(model, processor, processor.tokenizer, read_model_card(folder), folder)


def check_model_type(folder: Path, loading: LoadSettings) -> None:
    """Raise when the folder holds no image-text-to-text model that writes from left to right."""
    from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoConfig

    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json, so it holds no model; name a folder that save_pretrained wrote.")
    check_remote_code(folder, loading)
    stored = read_json(folder / "config.json")
    if isinstance(stored, dict) and stored.get("model_type") in DUAL_ENCODERS:
        raise DataError(
            f"{folder} holds a dual encoder ('{stored['model_type']}'), not a model that reads an image and writes text; "
            "give it to 'cxrlab retrieve', or to 'cxrlab train align' as --encoder."
        )
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=loading.trust_remote_code)
    except Exception as error:  # of a config that others wrote, or of their code
        raise DataError(f"{folder}/config.json cannot be read by transformers ({first_line(error)}).") from error
    if _own_class(folder, loading) is not None:
        return
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        raise DataError(
            f"{folder} holds {_kind(config)} ('{config.model_type}'), not a model that reads an image and writes text; "
            "name an image-text-to-text checkpoint such as a LLaVA."
        )
    if getattr(config, "is_encoder_decoder", False):
        raise DataError(
            f"{folder} holds an encoder-decoder ('{config.model_type}'), whose reports are not scored here; "
            "name a model that continues its prompt, such as a LLaVA."
        )


def open_processor(folder: Path, loading: LoadSettings) -> Any:
    """The processor of a folder: it must have both halves, for words and for images."""
    from transformers import AutoProcessor

    needs = "it needs processor_config.json (or preprocessor_config.json), tokenizer.json and tokenizer_config.json"
    try:
        processor = (still_class(folder) or AutoProcessor).from_pretrained(
            folder, local_files_only=True, trust_remote_code=loading.trust_remote_code
        )
    except Exception as error:  # missing files, missing packages and foreign code fail in many ways
        raise DataError(
            f"{folder} has no processor that transformers can load ({first_line(error)}); {needs}."
        ) from error
    lacking = [part for part in ("tokenizer", "image_processor") if getattr(processor, part, None) is None]
    if lacking:
        raise DataError(f"{folder} has no {' and no '.join(lacking).replace('_', ' ')} beside its weights; {needs}.")
    return processor


def processor_beside(folder: Path, loading: LoadSettings) -> Any:
    """The processor that an adapter brings, which then goes before its base's; None where it brings none."""
    names = ("processor_config.json", "preprocessor_config.json")
    return open_processor(folder, loading) if any((folder / name).is_file() for name in names) else None


def load_weights(folder: Path, loading: LoadSettings, device: Any, kind: Any = None) -> Any:
    """The model of a folder on its device, in evaluation mode; weights that do not make it up are a `DataError`.

    Args:
        folder: Of a whole model.
        loading: Precision and attention.
        device: Where it goes.
        kind: Auto class that opens it; the one of image-text-to-text models when None.
    """
    from transformers import AutoModelForImageTextToText

    loader: Any = kind or _own_class(folder, loading) or AutoModelForImageTextToText
    try:
        with quiet_loading(), pickled_code_refused(folder):
            model, told = loader.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=loading.trust_remote_code,
                dtype=dtype_of(loading, device),
                attn_implementation=loading.attention,
                output_loading_info=True,
            )
    except DataError:
        raise
    except Exception as error:  # shapes that do not fit, kinds of attention that a family has not, damaged files
        raise_if_out_of_memory(error, folder)
        raise DataError(f"the weights in {folder} cannot be loaded ({first_line(error)}).") from error
    if missing := sorted(told["missing_keys"]):
        raise DataError(
            f"{folder} lacks {len(missing)} of the model's tensors (for example {missing[0]}), which would be random; "
            "copy or fetch it again."
        )
    if model.config.is_encoder_decoder:
        raise DataError(f"{folder} holds an encoder-decoder, whose reports are not scored here.")
    try:
        return model.to(device).eval()
    except RuntimeError as error:
        raise_if_out_of_memory(error, folder)
        raise ConfigError(f"{folder} cannot be moved to {device} ({first_line(error)}).") from error


def _own_class(folder: Path, loading: LoadSettings) -> Any:
    """The class of a checkpoint that brings its own code, when that is trusted and transformers has none."""
    if not loading.trust_remote_code or not remote_code_files(folder):
        return None
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    named = auto_map(folder)
    reference = next((named[name] for name in _OWN_CLASSES if name in named), None)
    if reference is None:
        raise DataError(f"{folder} brings code of its own but names no model class in auto_map of config.json.")
    return get_class_from_dynamic_module(reference, folder, local_files_only=not loading.download)


def _kind(config: Any) -> str:
    """A config in plain words."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if hasattr(config, "vision_config") and hasattr(config, "text_config"):
        return "a dual encoder"
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and not hasattr(config, "image_size"):
        return "a language model"
    if hasattr(config, "image_size") or hasattr(config, "patch_size"):
        return "a vision encoder"
    return "another kind of model"


_VIDEO = "video_processor"
_NAMING = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")


def still(processor_class: Any) -> Any:
    """The class of a processor without its part for videos."""

    def parts(cls: Any) -> list[str]:
        return [name for name in processor_class.get_attributes() if name != _VIDEO]

    # Its own name: others, and the file that it is saved in, know a processor by it.
    return type(processor_class.__name__, (processor_class,), {"get_attributes": classmethod(parts)})


def still_class(folder: Path) -> Any:
    """What opens the processor of a folder that asks for a part for videos; None where it does not ask.

    Args:
        folder: A checkpoint, local.
    """
    found = _class_of(folder)
    return still(found) if found is not None and _VIDEO in found.get_attributes() else None


def _class_of(folder: Path) -> Any:
    """As the folder's own files name it, or as its family has it; None when neither tells."""
    import transformers
    from transformers.models.auto import processing_auto as typed

    families: dict[Any, Any] = vars(typed)["PROCESSOR_MAPPING_NAMES"]
    told = [_read(folder / name).get("processor_class") for name in _NAMING]
    told.append(families.get(_read(folder / "config.json").get("model_type")))
    name = next((each for each in told if isinstance(each, str)), None)
    return getattr(transformers, name, None) if name else None


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where the file is missing or no object: the loading that follows complains."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


_GIB = 1 << 30


def device_of(loading: LoadSettings) -> torch.device:
    """The device that is asked for; one that this machine does not have is a `ConfigError`."""
    import torch

    if loading.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(loading.device)
    except RuntimeError:
        raise ConfigError(f"device={loading.device!r} is no device; give auto, cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={loading.device!r} is not on this machine, which has {torch.cuda.device_count()} GPUs; "
            "give another one, or auto."
        )
    return device


def dtype_of(loading: LoadSettings, device: torch.device) -> Any:
    """What `from_pretrained` takes as `dtype`: a torch type, or `auto` for the checkpoint's own."""
    import torch

    return getattr(torch, name) if (name := dtype_name(loading, device)) != "auto" else "auto"


def dtype_name(loading: LoadSettings, device: torch.device) -> str:
    """float32, bfloat16 or auto; processors compute half precision slowly, so auto means float32 there."""
    return "float32" if loading.dtype == "auto" and device.type == "cpu" else loading.dtype


def check_memory(folder: Path, loading: LoadSettings, device: torch.device) -> None:
    """A `RunError` with figures when the weights alone exceed what is free; unknown sizes pass."""
    stored, free = stored_weights(folder), free_bytes(device)
    if stored is None or free is None:
        return
    dtype = dtype_name(loading, device)
    needed = stored.in_memory(dtype)
    if needed > free:
        as_what = "as stored" if dtype == "auto" else f"in {dtype}"
        half = stored.in_memory("bfloat16")
        remedy = "use --loading.dtype bfloat16" if half < min(needed, free) else "use a machine with more memory"
        raise RunError(
            f"{folder} has {stored.parameters / 1e6:,.1f} million parameters, which take {needed / _GIB:.2f} GiB "
            f"{as_what}, and {free / _GIB:.2f} GiB are free on {device}; {remedy}."
        )


def free_bytes(device: torch.device) -> int | None:
    """Memory that a new model may take on a device; None where the system does not tell."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    found = [size for size in (_available(), _left_in_group()) if size is not None]
    return min(found, default=None)


def _available() -> int | None:
    """What the kernel calls available; where it does not tell (not Linux), all there is: a looser check."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _left_in_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container may still take; None outside of one."""
    for most, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = int((root / most).read_text())
            taken = int((root / used).read_text())
            lines = (root / used).with_name("memory.stat").read_text().splitlines()
        except (OSError, ValueError):  # no such file, or "max" for no limit
            continue
        # Files that are only kept in memory in case they are read again make room when asked.
        spare = next((int(line.split()[1]) for line in lines if line.startswith(f"{cache} ")), 0)
        return max(limit - taken + spare, 0)
    return None

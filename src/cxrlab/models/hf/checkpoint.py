"""Open an image-text-to-text checkpoint, adapters included, after checking all that can be checked before loading."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.out_of_memory import raise_if_out_of_memory
from cxrlab.models.hf import adapters
from cxrlab.models.hf.families import find_family_of_processor
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

# Auto classes that a checkpoint with its own code may name, in order of preference.
_OWN_CLASSES = ("AutoModelForImageTextToText", "AutoModelForVision2Seq", "AutoModelForCausalLM", "AutoModel")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model in evaluation mode with its processor."""

    model: Any  # on its device; for an adapter, the base with the adapter's layers in it
    processor: Any  # with `tokenizer` and `image_processor`
    tokenizer: Any
    card: ModelCard | None  # contents of `cxrlab.json`, if any
    folder: Path  # its local folder; for an adapter, the adapter's own


def open_checkpoint(path_or_id: str | Path, loading: LoadSettings | None = None, *, merge: bool = False) -> Checkpoint:
    """Open a checkpoint; every reason why it cannot be used is a one-sentence error.

    Args:
        path_or_id: Folder or hub id of an image-text-to-text model, or of a PEFT adapter of one.
        merge: Merge an adapter into the weights of its base, instead of keeping its layers apart.
    """
    require("models")
    settings = loading or LoadSettings()
    *above, base = adapters.lineage(locate(path_or_id, settings), settings)
    check_model_type(base, settings)
    processor = open_processor(base, settings)
    device = device_of(settings)
    check_memory(base, settings, device)
    model = load_weights(base, settings, device)
    for adapter in reversed(above):
        # PEFT keeps the numbers of one adapter per model, so all but the uppermost are merged.
        attach = adapters.attach if adapter == above[0] and not merge else adapters.merged
        processor = processor_beside(adapter, settings) or processor
        model = attach(model, adapter).eval()
    folder = above[0] if above else base
    return Checkpoint(model, processor, processor.tokenizer, read_model_card(folder), folder)


def check_model_type(folder: Path, loading: LoadSettings) -> None:
    """Raise unless the folder holds a decoder-only image-text-to-text model."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    stored = _read(folder / "config.json")
    if stored.get("model_type") in DUAL_ENCODERS:
        raise DataError(
            f"{folder} holds a dual encoder ('{stored['model_type']}'), not an image-text-to-text model; use it with "
            "'cxrlab retrieve', or with 'cxrlab train align' as --encoder."
        )
    config = read_config(folder, loading)
    if _own_class(folder, loading) is not None:
        return
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        visual = hasattr(config, "image_size")
        if hasattr(config, "vision_config") and hasattr(config, "text_config"):
            kind = "a dual encoder"
        elif type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and not visual:
            kind = "a language model"
        else:
            kind = "a vision encoder" if visual or hasattr(config, "patch_size") else "another kind of model"
        raise DataError(
            f"{folder} holds {kind} ('{config.model_type}'), not an image-text-to-text model; name a checkpoint such as "
            "a LLaVA."
        )
    if getattr(config, "is_encoder_decoder", False):
        raise DataError(
            f"{folder} holds an encoder-decoder ('{config.model_type}'), which is not supported; name a decoder-only "
            "model, such as a LLaVA."
        )


def read_config(folder: Path, loading: LoadSettings) -> Any:
    """The transformers config of a checkpoint, whose own code is refused unless it is trusted."""
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json, so it holds no model; name a folder that save_pretrained wrote.")
    check_remote_code(folder, loading)
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=loading.trust_remote_code)
    except Exception as error:  # a config or code of others may fail in any way
        raise DataError(f"{folder}/config.json cannot be read by transformers ({first_line(error)}).") from error


def open_processor(folder: Path, loading: LoadSettings) -> Any:
    """The processor of a folder, which must have a tokenizer and an image processor."""
    from transformers import AutoProcessor

    needs = "it needs processor_config.json (or preprocessor_config.json), tokenizer.json and tokenizer_config.json"
    try:
        processor = (processor_without_video(folder) or AutoProcessor).from_pretrained(
            folder, local_files_only=True, trust_remote_code=loading.trust_remote_code
        )
    except Exception as error:  # missing files, missing packages and foreign code fail in many ways
        raise DataError(
            f"{folder} has no processor that transformers can load ({first_line(error)}); {needs}."
        ) from error
    if find_family_of_processor(processor).image_text is not None:
        processor.chat_template = processor.tokenizer.chat_template  # IdeficsProcessor drops it when it is loaded
    lacking = [part for part in ("tokenizer", "image_processor") if getattr(processor, part, None) is None]
    if lacking:
        raise DataError(f"{folder} has no {' and no '.join(lacking).replace('_', ' ')} beside its weights; {needs}.")
    return processor


def processor_beside(folder: Path, loading: LoadSettings) -> Any:
    """The processor in an adapter's folder, which replaces its base's; None if there is none."""
    names = ("processor_config.json", "preprocessor_config.json")
    return open_processor(folder, loading) if any((folder / name).is_file() for name in names) else None


def load_weights(folder: Path, loading: LoadSettings, device: Any, kind: Any = None) -> Any:
    """The model of a folder on its device, in evaluation mode; `DataError` if weights are missing or do not fit.

    Args:
        kind: Auto class that opens it; default: that of image-text-to-text models.
    """
    from transformers import AutoModelForImageTextToText

    loader: Any = kind or _own_class(folder, loading) or AutoModelForImageTextToText
    try:
        with quiet_loading(), pickled_code_refused(folder):
            model, report = loader.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=loading.trust_remote_code,
                dtype=dtype_of(loading, device),
                attn_implementation=loading.attention,
                output_loading_info=True,
            )
    except DataError:
        raise
    except Exception as error:  # mismatched shapes, unsupported attention, damaged files
        raise_if_out_of_memory(error, folder)
        raise DataError(f"the weights in {folder} cannot be loaded ({first_line(error)}).") from error
    if missing := sorted(report["missing_keys"]):
        raise DataError(
            f"{folder} lacks {len(missing)} of the model's tensors (for example {missing[0]}), which would be random; "
            "copy or fetch it again."
        )
    if model.config.is_encoder_decoder:
        raise DataError(f"{folder} holds an encoder-decoder, which is not supported.")
    try:
        return model.to(device).eval()
    except RuntimeError as error:
        raise_if_out_of_memory(error, folder)
        raise ConfigError(f"{folder} cannot be moved to {device} ({first_line(error)}).") from error


def _own_class(folder: Path, loading: LoadSettings) -> Any:
    """The class of a checkpoint with its own code, if that is trusted and transformers has none."""
    if not loading.trust_remote_code or not remote_code_files(folder):
        return None
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    named = auto_map(folder)
    reference = next((named[name] for name in _OWN_CLASSES if name in named), None)
    if reference is None:
        raise DataError(f"{folder} has its own code but names no model class in auto_map of config.json.")
    return get_class_from_dynamic_module(reference, folder, local_files_only=not loading.download)


_VIDEO = "video_processor"
_NAMING = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")


def without_video(processor_class: Any) -> Any:
    """The class of a processor without its video part."""
    from transformers import ProcessorMixin

    def parts(cls: Any) -> list[str]:
        return [name for name in processor_class.get_attributes() if name != _VIDEO]

    own = {
        "get_attributes": classmethod(parts),
        "__init__": _video_is_optional(processor_class.__init__),
        "apply_chat_template": ProcessorMixin.apply_chat_template,  # SmolVLM's own looks at the settings for videos
    }
    # The same name: others, and the saved file, identify a processor by it.
    return type(processor_class.__name__, (processor_class,), own)


def _video_is_optional(start: Any) -> Any:
    """A processor's `__init__` without need of a video part, nor of a package that SmolVLM spells numbers of frames with.

    A copy of the function, since transformers finds the settings of a processor in its code.
    """
    code, defaults = start.__code__, start.__defaults__ or ()
    required = code.co_varnames[1 : code.co_argcount - len(defaults)]
    missing = len(required) - required.index(_VIDEO) if _VIDEO in required else 0
    known = {**start.__globals__, "num2words": str}
    return FunctionType(code, known, start.__name__, (*[None] * missing, *defaults), start.__closure__)


def processor_without_video(folder: Path) -> Any:
    """The class without video of a processor that has a video part; None for other processors."""
    import transformers
    from transformers.models.auto import processing_auto as typed

    # The class that the folder's own files name, or that of its family.
    families: dict[Any, Any] = vars(typed)["PROCESSOR_MAPPING_NAMES"]
    named = [_read(folder / name).get("processor_class") for name in _NAMING]
    named.append(families.get(_read(folder / "config.json").get("model_type")))
    name = next((each for each in named if isinstance(each, str)), None)
    found = getattr(transformers, name, None) if name else None
    return without_video(found) if found is not None and _VIDEO in found.get_attributes() else None


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty if the file is missing or invalid, which the loading that follows reports."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


_GIB = 1 << 30


def device_of(loading: LoadSettings) -> torch.device:
    """The requested device; `ConfigError` if this machine does not have it."""
    import torch

    if loading.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(loading.device)
    except RuntimeError:
        raise ConfigError(f"device={loading.device!r} is not a device; give auto, cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={loading.device!r} is not on this machine, which has {torch.cuda.device_count()} GPUs; "
            "give another one, or auto."
        )
    return device


def dtype_of(loading: LoadSettings, device: torch.device) -> Any:
    """`dtype` for `from_pretrained`: a torch dtype, or `auto` for the checkpoint's own."""
    import torch

    return getattr(torch, name) if (name := dtype_name(loading, device)) != "auto" else "auto"


def dtype_name(loading: LoadSettings, device: torch.device) -> str:
    """float32, bfloat16, float16 or auto (as stored); on a CPU, where half precision is slow, auto means float32."""
    if loading.dtype == "stored":
        return "auto"
    return "float32" if loading.dtype == "auto" and device.type == "cpu" else loading.dtype


def check_memory(folder: Path, loading: LoadSettings, device: torch.device) -> None:
    """Raise `RunError` if the weights exceed the free memory; unknown sizes pass."""
    stored, free = stored_weights(folder), free_bytes(device)
    if stored is None or free is None:
        return
    dtype = dtype_name(loading, device)
    needed = stored.in_memory(dtype)
    if needed > free:
        as_what = "as stored" if dtype == "auto" else f"in {dtype}"
        half = stored.in_memory("bfloat16")
        narrow = "bfloat16" if device.type == "cpu" or _has_bfloat16() else "float16"
        remedy = f"use --loading.dtype {narrow}" if half < min(needed, free) else "use a machine with more memory"
        raise RunError(
            f"{folder} has {stored.parameters / 1e6:,.1f} million parameters, which take {needed / _GIB:.2f} GiB "
            f"{as_what}, and {free / _GIB:.2f} GiB are free on {device}; {remedy}."
        )


def _has_bfloat16() -> bool:
    """Whether the GPU computes in bfloat16; one before Ampere, such as a V100, only emulates it."""
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def free_bytes(device: torch.device) -> int | None:
    """Free memory of a device; None if unknown. Without /proc/meminfo (not Linux) all memory of the machine counts."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    available: int | None = None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        with suppress(ValueError, OSError, AttributeError):
            available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min((size for size in (available, _left_in_group()) if size is not None), default=None)


def _left_in_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory left to a container by its limit; None outside of one."""
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
        # The page cache of files is freed on demand.
        spare = next((int(line.split()[1]) for line in lines if line.startswith(f"{cache} ")), 0)
        return max(limit - taken + spare, 0)
    return None

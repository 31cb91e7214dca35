"""Processors of families that also read images in motion, without the half that does.

Qwen-VL, LLaVA-OneVision, SmolVLM and others cannot be opened by transformers where torchvision is missing, because
their processors insist on a part for videos. A radiograph stands still: here that part is left out, on every machine
alike, and everything else is the family's own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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

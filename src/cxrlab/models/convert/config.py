"""Settings of a conversion."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Dtype = Literal["auto", "float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class ConvertConfig:
    """What a conversion may need beside the published files.

    Args:
        base: Folder of the language model that a LoRA stands on, for LLaVA-Rad that of Vicuna 7B v1.5.
        vision_encoder: Folder of the open_clip encoder whose vision encoder is used; else looked for beside the LoRA.
        text: Folder with config.json and tokenizer of an encoder's text model; else looked for beside its weights.
        keep_adapter: Keep the LoRA apart, as an adapter folder with its base inside, instead of merging it.
        collections: Collections of images that the model has learnt from, as cards of corpora name them;
            those of LLaVA-Rad are known.
        dtype: Number format of the weights written; auto keeps that of the source.
    """

    base: Path | None = None
    vision_encoder: Path | None = None
    text: Path | None = None
    keep_adapter: bool = False
    collections: tuple[str, ...] = ()
    dtype: Dtype = "auto"

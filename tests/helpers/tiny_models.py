"""Tiny models with random weights, built on the spot: the true classes and file layouts in a few hundred kilobytes."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

from cxrlab.models.random_init import (
    TINY,
    Size,
    assemble_llava,
    build_dual_encoder,
    build_image_processor,
    build_language_model,
    build_text_encoder,
    build_vision_encoder,
    train_tokenizer,
)

TEXTS = (
    "The heart is normal in size. Both lungs are clear. No pleural effusion, no pneumothorax.",
    "Small left pleural effusion with adjacent atelectasis. Right lower lobe consolidation.",
    "Moderate cardiomegaly. Endotracheal tube with the tip above the carina.",
    "Provide a description of the findings in the radiology image given the following indication: dyspnea.",
    "Is there a pleural effusion? Answer with yes or no. Yes. No. yes no",
)


@cache
def _trained() -> Any:
    return train_tokenizer(TEXTS * 4, TINY.vocabulary)


def tiny_tokenizer() -> Any:
    """A copy for each caller, who may change its padding side or add tokens."""
    return copy.deepcopy(_trained())


def tiny_llava(seed: int = 0, size: Size = TINY) -> tuple[Any, Any]:
    """(model, processor), evaluation mode."""
    tokenizer = tiny_tokenizer()
    model, processor = assemble_llava(
        build_vision_encoder(size, seed),
        build_language_model(tokenizer, size, seed + 1),
        tokenizer,
        build_image_processor(size.image),
        seed + 2,
    )
    return model.eval(), processor


def save_tiny_llava(folder: Path, seed: int = 0, size: Size = TINY) -> Path:
    """A checkpoint folder that AutoModelForImageTextToText and AutoProcessor load."""
    model, processor = tiny_llava(seed, size)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def save_causal(folder: Path, seed: int = 0, template: str | None = None) -> Path:
    """The language model alone, as a folder that AutoModelForCausalLM loads."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    build_language_model(tokenizer, TINY, seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_dual_encoder(seed: int = 0, size: Size = TINY) -> tuple[Any, Any, Any]:
    """(model, tokenizer, image processor), evaluation mode."""
    tokenizer = tiny_tokenizer()
    model = build_dual_encoder(
        build_vision_encoder(size, seed), build_text_encoder(tokenizer, size, seed + 1), size.shared, seed
    )
    return model.eval(), tokenizer, build_image_processor(size.image)

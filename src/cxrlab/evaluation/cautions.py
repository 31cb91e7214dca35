"""Cautions about a model's reports: sentences that generation, the server and the page show alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.data.corpus import load_corpus
from cxrlab.models.model_card import SYNTHETIC

if TYPE_CHECKING:
    from cxrlab.core.protocols import ImageToText


def domain_caution(model: ImageToText, *, synthetic: bool, name: str | None = None) -> str | None:
    """The caution where a model of synthetic images meets others; None where it does not, or nobody knows.

    Args:
        model: The model; what it was trained on stands in its card, or in that of the corpus that it looks among.
        synthetic: Whether a card says that the images are synthetic.
        name: What to call the model.
    """
    if synthetic or not _synthetic_alone(model):
        return None
    return (
        f"{name or model.name} was trained on synthetic images only; its reports of real radiographs are unreliable, "
        "however confident it is."
    )


def _synthetic_alone(model: ImageToText) -> bool:
    kind, _, argument = model.name.partition(":")
    if kind == "retrieval":
        return load_corpus(Path(argument)).card.synthetic
    return getattr(model, "trained_on", None) == SYNTHETIC


def input_side(model: ImageToText) -> int | None:
    """The shorter side of a model's input in pixels; None where it has none of its own."""
    side: int | None = getattr(model, "input_side", None)
    return side


def size_caution(small: int, images: int, side: int | None) -> str | None:
    """The caution where images are smaller than the model's input; None where none is.

    Args:
        small: How many are.
        images: Of how many.
        side: The shorter side of the input.
    """
    if not small:
        return None
    return (
        f"{small:,} of {images:,} images {'is' if small == 1 else 'are'} smaller than the model's input of {side} px."
    )


def of_server(answers: Iterable[Any]) -> list[str]:
    """Cautions that a server gave with its answers, each with how many answers had it.

    Args:
        answers: For each prediction what stands under `cautions`, or None.
    """
    told = list(answers)
    counts = Counter(sentence for some in told for sentence in some or ())
    return [f"The server's caution on {count:,} of {len(told):,} reports: {text}" for text, count in counts.items()]

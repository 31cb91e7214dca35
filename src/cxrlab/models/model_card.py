"""What a model folder says about itself beyond its weights: `cxrlab.json` beside them.

A folder made elsewhere has none; it is then loaded with the defaults, and what it has learnt from is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cxrlab.core import fields
from cxrlab.core.fields import Record
from cxrlab.core.files import read_json, write_json

MODEL_CARD = "cxrlab.json"
SYNTHETIC, PATIENTS = "synthetic", "patients"
_MADE_HERE = frozenset({"phantom", "scenes"})  # collections of corpora that `cxrlab data make` draws


@dataclass(frozen=True)
class ModelCard(Record):
    """One model folder.

    Args:
        stage: What made it: encoder, align, finetune, language, convert …
        prompts: Name and version of the prompts that it was trained with, a row of `models/prompts.yaml`.
        collections: Collections whose images or reports it has learnt from, as cards of corpora name them.
        base: Name of the model that an adapter stands on, such as `builtin:aligned` or `hf:../align/checkpoint`
            (a relative path counts from this folder).
        trained_on: `synthetic` where every corpus that it was trained on is, `patients` where one may not be; see
            `learnt_from`.
        extra: What else should be known: seed, steps, corpus, versions.
    """

    what = "a model card"
    checks = {
        "stage": fields.non_empty_text,
        "prompts": fields.text,
        "collections": fields.list_of(fields.non_empty_text),
        "base": fields.text,
        "trained_on": fields.one_of(SYNTHETIC, PATIENTS),
    }

    stage: str
    prompts: str | None = None
    collections: tuple[str, ...] = ()
    base: str | None = None
    trained_on: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def learnt_from(self) -> str | None:
        """`trained_on`; of a card that was written before there was such a key, what its collections tell."""
        if self.trained_on is not None or not self.collections:
            return self.trained_on
        return SYNTHETIC if _MADE_HERE.issuperset(self.collections) else PATIENTS


def trained_on(parts: Iterable[str | None]) -> str | None:
    """What a model was trained on whose parts and corpora are these; a part of which nobody knows has no say."""
    known = set(parts)
    return PATIENTS if PATIENTS in known else SYNTHETIC if SYNTHETIC in known else None


def of_corpora(synthetic: Iterable[bool]) -> str:
    """The same for corpora, by what their cards say."""
    return SYNTHETIC if all(synthetic) else PATIENTS


def read_model_card(folder: Path) -> ModelCard | None:
    """The card of a model folder; None when it has none."""
    path = folder / MODEL_CARD
    return ModelCard.from_json(read_json(path)) if path.is_file() else None


def write_model_card(card: ModelCard, folder: Path) -> None:
    """Write the card beside the weights."""
    write_json(folder / MODEL_CARD, card.to_json())

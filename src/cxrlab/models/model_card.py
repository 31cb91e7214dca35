"""The model card `cxrlab.json` beside a model's weights; a folder from elsewhere has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cxrlab.core import record_fields as fields
from cxrlab.core.files import read_json, write_json
from cxrlab.core.record_fields import Record

MODEL_CARD = "cxrlab.json"
SYNTHETIC, PATIENTS = "synthetic", "patients"
_MADE_HERE = frozenset({"phantom", "scenes"})  # collections of corpora that `cxrlab data make` generates


@dataclass(frozen=True)
class ModelCard(Record):
    """Card of a model folder."""

    what = "a model card"
    checks = {
        "stage": fields.non_empty_text,
        "prompts": fields.text,
        "collections": fields.list_of(fields.non_empty_text),
        "base": fields.text,
        "trained_on": fields.one_of(SYNTHETIC, PATIENTS),
    }

    stage: str  # what made it: encoder, align, finetune, language, convert …
    prompts: str | None = None  # prompts that it was trained with, a row of `models/prompts.yaml`
    collections: tuple[str, ...] = ()  # collections that it was trained on, as named in corpus cards
    # Base model of an adapter, such as `builtin:aligned` or `hf:../align/checkpoint` (relative to this folder).
    base: str | None = None
    trained_on: str | None = None  # `synthetic` if all its corpora are, else `patients`; see `learnt_from`
    extra: Mapping[str, Any] = field(default_factory=dict)  # seed, steps, corpus, versions …

    @property
    def learnt_from(self) -> str | None:
        """`trained_on`; for older cards without this key, derived from the collections."""
        if self.trained_on is not None or not self.collections:
            return self.trained_on
        return SYNTHETIC if _MADE_HERE.issuperset(self.collections) else PATIENTS


def trained_on(parts: Iterable[str | None]) -> str | None:
    """`trained_on` of a model with these parts; parts with unknown data are ignored."""
    known = set(parts)
    return PATIENTS if PATIENTS in known else SYNTHETIC if SYNTHETIC in known else None


def of_corpora(synthetic: Iterable[bool]) -> str:
    """`trained_on` for corpora, by whether each is synthetic."""
    return SYNTHETIC if all(synthetic) else PATIENTS


def read_model_card(folder: Path) -> ModelCard | None:
    """The card of a model folder, if any."""
    path = folder / MODEL_CARD
    return ModelCard.from_json(read_json(path)) if path.is_file() else None


def write_model_card(card: ModelCard, folder: Path) -> None:
    """Write the card beside the weights."""
    write_json(folder / MODEL_CARD, card.to_json())

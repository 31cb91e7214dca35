"""Which parts of the whole are there in this version, told by looking."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

# From a seed to a served model, in the order in which a user meets them.
PARTS = (
    ("data", "images and reports: corpora, DICOM, phantoms, scenes"),
    ("findings", "plausible findings, and reports that say them in varied words"),
    ("models", "models by name"),
    ("evaluation", "predictions of a model on a corpus"),
    ("metrics", "predictions against references, in numbers"),
    ("training", "a model from images and reports"),
    ("preference", "a model aligned to a judge"),
    ("attacks", "perturbed images"),
    ("robustness", "how a model breaks"),
    ("extraction", "how cheaply a model can be copied"),
    ("serving", "a model behind an address, guarded"),
    ("render", "a page from run folders"),
)


@dataclass(frozen=True)
class Part:
    """One part: its room, what it does, and whether this version has it."""

    part: str
    purpose: str
    here: bool


def chain() -> tuple[Part, ...]:
    """Every part of the plan; a room is there when it can be imported and is more than an empty folder."""
    return tuple(Part(room, purpose, _exists(room)) for room, purpose in PARTS)


def _exists(room: str) -> bool:
    spec = importlib.util.find_spec(f"cxrlab.{room}")
    return spec is not None and spec.origin is not None

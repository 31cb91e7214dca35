"""Clean image, difference × 10, perturbed image, and both reports with what changed: what a person looks at."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.runs import Run
from cxrlab.findings.excerpts import changed_spans
from cxrlab.robustness.evidence import Answer, StudyTruth

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.robustness.cases import Case


TRIPTYCHS, FOLDER = "triptychs.jsonl", "triptychs"
_LONG = 80  # letters of a study id in a file name
GAIN = 10.0  # times that a difference is enlarged; mid grey is no change


def keep_image(
    run: Run, kept: set[str], condition: str, key: str, cases: Sequence[Case], clean: Tensor, perturbed: Tensor
) -> None:
    """Write the pictures of the chosen studies; the same bytes when it is done again."""
    for place, case in enumerate(cases):
        if case.id not in kept:
            continue
        before, after = (image[place].detach().cpu().numpy() for image in (clean, perturbed))
        for name, image in (
            (_name(case.id, key, CLEAN_IMAGE), before),
            (_name(case.id, key, f"x10 {condition}"), np.clip(0.5 + GAIN * (after - before), 0, 1)),
            (_name(case.id, key, condition), after),
        ):
            if not run.path(name).is_file():
                plain = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
                run.write(name, encode_png(to_uint8(plain)))


CLEAN_IMAGE = "clean"


def _name(study: str, key: str, what: str) -> str:
    """A file name that no study id can lead astray, nor bring two studies under one name."""
    who, rest = (
        "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)
        for text in (study, f"{key}_{what}")
    )
    if who != study or len(who) > _LONG:
        who = f"{who[:_LONG]}-{hashlib.sha256(study.encode()).hexdigest()[:8]}"
    return f"{FOLDER}/{who}_{rest}.png"


def triptych(run: Run, truth: StudyTruth, before: Answer, after: Answer) -> Mapping[str, Any] | None:
    """A line of triptychs.jsonl; None where the images were not kept."""
    crafted = after.crafted_on or "a"
    files = {
        "clean": _name(truth.id, crafted, CLEAN_IMAGE),
        "difference": _name(truth.id, crafted, f"x10 {after.condition}"),
        "perturbed": _name(truth.id, crafted, after.condition),
    }
    if not all(run.path(name).is_file() for name in files.values()):
        return None
    flips = [
        {"label": name, "before": old, "after": after.image.label_probs[name], "truth": truth.labels.get(name)}
        for name, old in before.image.label_probs.items()
        if name in after.image.label_probs and (old > 0.5) != (after.image.label_probs[name] > 0.5)
    ]
    return {
        "id": truth.id,
        "model": after.model,
        "condition": after.condition,
        **files,
        "reference": truth.reference,
        "before": before.image.report,
        "after": after.image.report,
        "spans": changed_spans(before.image.report or "", after.image.report or ""),
        "label_flips": flips,
        "eps": after.condition.partition("@")[2],
        "linf": after.attack.linf if after.attack else None,
    }

"""Triptychs for the page: clean image, difference × 10, perturbed image, and both reports with their changes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.attacks.config import ATTACKS
from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.runs import Run
from cxrlab.findings.finding_sentences import changed_spans
from cxrlab.robustness.audit_records import TRUTH_FILE, Answer, StudyTruth, parse_condition, read_truth

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.robustness.audited_studies import Case
    from cxrlab.robustness.config import RobustnessConfig

TRIPTYCHS, FOLDER = "triptychs.jsonl", "triptychs"
GAIN = 10.0  # differences are enlarged by this; mid grey is no change
_LONGEST = 80  # letters of a study id in a file name
_STRONGEST_FIRST = ("apgd", "ensemble", "pgd", "mi-fgsm", "fgsm")


def save_images(
    run: Run, studies: set[str], condition: str, key: str, cases: Sequence[Case], clean: Tensor, perturbed: Tensor
) -> None:
    """Write the images of the chosen studies; writing them again gives the same bytes.

    Args:
        studies: Ids of the chosen studies.
        key: Of the model that was attacked.
    """
    for place, case in enumerate(cases):
        if case.id not in studies:
            continue
        before, after = (image[place].detach().cpu().numpy() for image in (clean, perturbed))
        images = {"clean": before, "difference": np.clip(0.5 + GAIN * (after - before), 0, 1), "perturbed": after}
        for what, name in _file_names(case.id, key, condition).items():
            if not run.path(name).is_file():
                image = images[what]
                run.write(name, encode_png(to_uint8(image[0] if len(image) == 1 else image.transpose(1, 2, 0))))


def _file_names(study: str, key: str, condition: str) -> dict[str, str]:
    """Safe file names; two studies never share one, whatever their ids."""
    names = {}
    for what, rest in (("clean", "clean"), ("difference", f"x10 {condition}"), ("perturbed", condition)):
        safe_study, safe_rest = (
            "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)
            for text in (study, f"{key}_{rest}")
        )
        if safe_study != study or len(safe_study) > _LONGEST:
            safe_study = f"{safe_study[:_LONGEST]}-{hashlib.sha256(study.encode()).hexdigest()[:8]}"
        names[what] = f"{FOLDER}/{safe_study}_{safe_rest}.png"
    return names


def write_triptychs(
    run: Run, answers: Sequence[Answer], clean: Mapping[tuple[str, str], Answer], config: RobustnessConfig
) -> None:
    """Describe the images of some studies in triptychs.jsonl, those with changed findings first.

    They are taken from the strongest attack with the first aim, at the middle radius.

    Args:
        clean: (model, study) → answer to the clean image.
    """
    order = (*_STRONGEST_FIRST, *ATTACKS.names())
    middle = config.budgets[len(config.budgets) // 2].label if config.budgets else None
    attacked = {parse_condition(one.condition) for one in answers if one.model == "a" and one.attack is not None}
    found = [one for one in attacked if one.eps_text == middle and one.objective is None]
    if not found or not config.triptychs:
        return
    condition = min(found, key=lambda one: order.index(one.name)).text
    truths = {one.id: one for one in read_truth(run.path(TRUTH_FILE))}
    lines = [
        line
        for one in answers
        if one.condition == condition and one.model == "a" and one.crafted_on in ("a", None)
        if (line := triptych(run, truths[one.study], clean[one.model, one.study], one)) is not None
    ]
    lines.sort(key=lambda line: -len(line["spans"]["before"]) - len(line["spans"]["after"]) - len(line["label_flips"]))
    done = run.done(TRIPTYCHS)
    for line in lines[: config.triptychs]:
        if line["id"] not in done:
            run.append(TRIPTYCHS, line)


def triptych(run: Run, truth: StudyTruth, before: Answer, after: Answer) -> Mapping[str, Any] | None:
    """A line of triptychs.jsonl; None where the images were not kept."""
    files = _file_names(truth.id, after.crafted_on or "a", after.condition)
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

"""Hand-written evidence of a robustness audit with a few studies and images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cxrlab.robustness.audit_metrics import Evidence, gather
from cxrlab.robustness.audit_records import (
    Answer,
    AttackTrace,
    ImageAnswer,
    StudyTruth,
    answer_id,
    parse_condition,
)
from cxrlab.robustness.condition_results import Outcomes

NORMAL = "The lungs are clear. The heart is normal in size."
LEFT = "There is a moderate left pleural effusion."
RIGHT = "There is a moderate right pleural effusion."
AIR = "There is a large right pneumothorax."
BABBLE = "Lorem ipsum dolor sit amet."

EFFUSION, OEDEMA = "pleural effusion", "edema"


def truth(study: str, reference: str | None = None, patient: str = "", **labels: int) -> StudyTruth:
    """A study of its own patient; labels by the first letter of their names: e effusion, o oedema."""
    names = {"e": EFFUSION, "o": OEDEMA}
    return StudyTruth(study, patient or f"p-{study}", reference, None, {names[key]: labels[key] for key in labels})


def image(report: str | None = None, e: float | None = None, o: float | None = None, **more: Any) -> ImageAnswer:
    """Answer for one image; `e` and `o` are the probabilities of effusion and oedema."""
    given = {EFFUSION: e, OEDEMA: o}
    probs = {name: value for name, value in given.items() if value is not None}
    return ImageAnswer(report=report, label_probs=probs, **more)


def lines(
    model: str, condition: str, images: Mapping[str, ImageAnswer], crafted_on: str | None = None, **more: Any
) -> list[Answer]:
    """One line per study; an attack is crafted on the model itself by default."""
    made = crafted_on or (model if parse_condition(condition).kind == "attack" else None)
    return [
        Answer(answer_id(model, condition, study, made), model, condition, study, answer, made, **more)
        for study, answer in images.items()
    ]


def trace(linf: float = 0.0, broken: bool = True) -> AttackTrace:
    """An attack of twenty passes."""
    return AttackTrace(start=0.0, end=1.0, broken=broken, linf=linf, l2=2 * linf, passes=20, zero_gradients=0.0)


def evidence(truths: Iterable[StudyTruth], *answers: Iterable[Answer]) -> Evidence:
    """Lines into columns."""
    return gather(truths, [line for several in answers for line in several])


def audit(truths: Iterable[StudyTruth], *answers: Iterable[Answer], trials: int = 200) -> Outcomes:
    """An audit of these lines."""
    return Outcomes(evidence(truths, *answers), trials=trials)

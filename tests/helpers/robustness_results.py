"""A small robustness audit in the form of robustness.json, with values that are exact in binary."""

from __future__ import annotations

from typing import Any


def measure(value: float | None, difference: float | None = None) -> dict[str, Any]:
    """A measurement whose interval reaches 1/16 to either side."""
    ends = {"low": None, "high": None} if value is None else {"low": value - 0.0625, "high": value + 0.0625}
    found: dict[str, Any] = {"value": value, **ends, "n": 40}
    if difference is not None:
        found["difference"] = {"value": difference, "low": difference - 0.0625, "high": difference + 0.0625}
    return found


def condition(accuracy: float, **more: Any) -> dict[str, Any]:
    return {
        "closed_questions.accuracy": measure(accuracy, accuracy - 0.875),
        "findings.f1": measure(0.3125, -0.25),
        "flip_rate": measure(0.75),
        "uint8": {"closed_questions.accuracy": measure(accuracy + 0.0625)},
        "realised": {"linf": {"mean": 2 / 255, "max": 2 / 255}, "l2": {"mean": 0.5, "max": 0.75}},
        "passes": 20,
        "broken": 0.25,
        **more,
    }


def label_row() -> dict[str, Any]:
    sides = {"original": measure(0.875), "perturbed": measure(0.375), "difference": measure(-0.5)}
    return {
        "n": 40,
        "positives": 13,
        "closed_questions": {"accuracy": sides, "confidence": {**sides, "perturbed": measure(0.8125)}},
    }


def model(key: str = "a", **changed: Any) -> dict[str, Any]:
    curve = [[0.0, 0.875, 0.75, 1.0], [4 / 255, 0.5, 0.25, 0.75]]
    attacks = {
        "pgd@4/255": condition(0.5),
        "pgd@2/255": condition(0.375),
        "fgsm@2/255": condition(0.625),
        "noise@2/255": condition(0.25),
        "pgd@1/255": condition(0.75),
    }
    return {
        "key": key,
        "clean": {"closed_questions.accuracy": measure(0.875), "findings.f1": measure(0.5625)},
        "attacks": attacks,
        "corruptions": {"blur@1": condition(0.875), "blur@3": condition(0.65625)},
        "worst": {"2/255": condition(0.125)},
        "labels": {name: {"edema": label_row(), "all": label_row()} for name in attacks},
        "smallest_eps": {"report": {"harmed": {"2/255": measure(0.71875)}, "median": "2/255"}},
        "curves": {"closed_questions.accuracy": {"noise": [[4 / 255, 0.875, 0.8125, 0.9375]], "pgd": curve}},
        **changed,
    }


def comparison() -> dict[str, Any]:
    drop = {"value": 0.1875, "low": 0.125, "high": 0.25, "p_holm": 0.0004}
    one = {"a": 0.375, "b": 0.5, "difference": 0.125, "low": 0.0625, "high": 0.1875, "p_holm": 0.25, "drop": drop}
    way = {
        "closed_questions.accuracy": measure(0.6875),
        "flip_rate": measure(0.5),
        "ratios": {"closed_questions.accuracy": measure(0.4375)},
    }
    return {
        "sentence": "On clean images the two are equal.",
        "equal_clean": True,
        "n": 40,
        "patients": 31,
        "conditions": {"pgd@2/255": {"closed_questions.accuracy": {**one, "smallest_detectable": 0.09375}}},
        "flips": {"pgd@2/255": {"of": "reports", "only_a": 17, "only_b": 3, "both": 8, "n": 40, "p": 0.003}},
        "transfer": {"pgd@2/255": {"a_to_b": way}},
        "matched": None,
    }


def audit(**changed: Any) -> dict[str, Any]:
    return {
        "models": {"builtin:reporter": model()},
        "threat": "The attacker reads gradients.",
        "warnings": ["Few patients."],
        "controls": {"image_dependence": {"a": {"verdict": "uses_image", "sentence": "Right images are better."}}},
        "protocol": {"norm": "linf"},
        **changed,
    }

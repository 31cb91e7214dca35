"""What the parts of a robustness page share: names of metrics, reading a condition, and cells of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.headlines import ARROWS
from cxrlab.render.folder import shortened
from cxrlab.render.html import UNKNOWN, figure, text

CONTROL, WORST, CLEAN = "noise", "worst", "clean"
# Attacks that read the model's gradients; a page cannot ask the attacks themselves, which need torch.
WHITE_BOX = ("fgsm", "pgd", "mi-fgsm", "apgd", "ensemble")
# Models whose every condition stands on the page; of further ones the page shows the headline, the file the rest.
FULL = 3
# Title, better direction ("" where neither way is better), and whether it lies between 0 and 1.
_METRICS = {
    "asked.accuracy": ("accuracy, asked", "higher", True),
    "asked.confidence": ("confidence, asked", "", True),
    "asked.truth": ("probability of the truth", "higher", True),
    "asked.brier": ("Brier score", "lower", True),
    "asked.ece": ("calibration error", "lower", True),
    "asked.auroc": ("AUROC", "higher", True),
    "written.accuracy": ("accuracy, written", "higher", True),
    "report.confidence": ("confidence, report", "", True),
    "report.loss": ("loss of the reference", "lower", False),
    "findings.f1": ("findings F1", "higher", True),
    "findings.f1.side": ("findings F1 with side", "higher", True),
    "chexpert14.micro.f1:uncertain-positive": ("CheXpert F1", "higher", True),
    "errors.significant": ("significant errors", "lower", False),
    "errors.added": ("errors added", "lower", False),
    "flip_rate": ("reports flipped", "lower", True),
    "flips.normal_to_abnormal": ("normal → abnormal", "lower", True),
    "flips.abnormal_to_normal": ("abnormal → normal", "lower", True),
    "flips.side_swapped": ("side swapped", "lower", True),
    "flips.to_silence": ("report → silence", "lower", True),
    "asked.flips": ("answers flipped", "lower", True),
    "asked.flips.yes_to_no": ("answers yes → no", "lower", True),
    "asked.flips.no_to_yes": ("answers no → yes", "lower", True),
    "confidence": ("confidence", "", True),
}


@dataclass(frozen=True)
class Audited:
    """One model of an audit.

    Args:
        key: Short key, as comparisons and images name it.
        name: Name for people; of a long path only the end.
        full: Name as the file has it.
        found: What was measured.
    """

    key: str
    name: str
    full: str
    found: Mapping[str, Any]


def models_of(audit: Mapping[str, Any]) -> list[Audited]:
    """The models in the order of their keys."""
    told = part(audit, "models")
    made = [
        Audited(str(found.get("key") or name), shortened(str(name)), str(name), found)
        for name in told
        if (found := part(told, name))
    ]
    return sorted(made, key=lambda model: (len(model.key), model.key))


def named(models: Iterable[Audited], key: Any) -> str:
    """The name of the model with this key, as inert text; the key itself where no model has it."""
    return text(next((model.name for model in models if model.key == str(key)), key))


def title(metric: str) -> str:
    """What people call a metric."""
    return _METRICS[metric][0] if metric in _METRICS else metric


def direction(metric: str) -> str:
    """`higher` or `lower` is better, or nothing."""
    return _METRICS[metric][1] if metric in _METRICS else ""


def in_unit(metric: str) -> bool:
    """Whether a metric lies between 0 and 1 by its definition."""
    return metric in _METRICS and _METRICS[metric][2]


def heading(metric: str) -> str:
    """Title with the arrow of the better direction, as a heading of a column."""
    return f"{text(title(metric))}&nbsp;{ARROWS.get(direction(metric), '')}".removesuffix("&nbsp;")


def part(found: Any, *keys: str) -> Mapping[str, Any]:
    """The object under these keys; an empty one where anything on the way is absent or no object."""
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def number(found: Any) -> float | None:
    """A finite number, or the `value` of a measurement; None where there is none."""
    value = found.get("value") if isinstance(found, Mapping) else found
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def split(condition: str) -> tuple[str, str]:
    """Attack or corruption, and its radius or severity: `pgd@2/255` is `pgd` and `2/255`."""
    name, _, size = condition.rpartition("@")
    return (name, size) if name else (condition, "")


def radius(size: str) -> float | None:
    """The number that `2/255` or `0.01` stands for; None where it is neither."""
    above, _, below = size.partition("/")
    try:
        value = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) else None


def is_control(condition: str) -> bool:
    """Whether a condition is the noise control."""
    return split(condition)[0].partition(":")[0] == CONTROL


def ordered(conditions: Iterable[str]) -> list[str]:
    """Conditions of one attack together, its radii rising; attacks in the order of the file, noise last."""
    found = list(conditions)
    families = list(dict.fromkeys(split(name)[0] for name in found))

    def place(condition: str) -> tuple[bool, int, float]:
        name, size = split(condition)
        return is_control(condition), families.index(name), radius(size) or 0.0

    return sorted(found, key=place)


def middle(conditions: Iterable[str]) -> float | None:
    """The middle one of the radii that occur; of an even number the upper."""
    radii = sorted({found for name in conditions if (found := radius(split(name)[1])) is not None})
    return radii[len(radii) // 2] if radii else None


def headline(found: Mapping[str, Any]) -> str | None:
    """The condition of a model that a page shows first: the strongest white-box attack at the middle radius.

    Strongest is the lowest accuracy of answers, then the lowest findings F1, then the most flipped reports. Without
    white-box attacks any other stands in, and the noise control only where there is nothing else.
    """
    attacks = part(found, "attacks")
    known = [name for name in attacks if part(found, "labels", name)] or list(attacks)
    size = middle(known)
    here = [name for name in known if radius(split(name)[1]) == size]
    white = [name for name in here if split(name)[0].partition(":")[0] in WHITE_BOX]
    chosen = white or [name for name in here if not is_control(name)] or here

    def left(name: str) -> tuple[float, ...]:
        values = [number(part(attacks, name).get(metric)) for metric in ("asked.accuracy", "findings.f1")]
        flips = number(part(attacks, name).get("flip_rate"))
        return (*(math.inf if value is None else value for value in values), 0.0 if flips is None else -flips)

    return min(chosen, key=left) if chosen else None


def cell(found: Any, sign: str = "", digits: int = 3) -> str:
    """A value with its interval beneath.

    Args:
        found: A measurement, or a number.
        sign: `+` writes the sign of a difference.
        digits: Decimals of the interval; fewer make a narrow column.
    """
    low, high = (number(part(found).get(side)) for side in ("low", "high"))
    told = figure(number(found), sign)
    if low is None or high is None:
        return told
    return f"{told}<br><span class=small>{low:{sign}.{digits}f} to {high:{sign}.{digits}f}</span>"


def change(found: Any, better: str, sure: bool | None = None, digits: int = 3) -> str:
    """A difference with its interval beneath, and a mark where it is surely worse or better.

    Args:
        found: The difference.
        better: Which way is better; nothing is marked where neither is.
        sure: Whether a test says that it is there; without a test, whether the interval leaves out zero.
        digits: Decimals of the interval.
    """
    low, high, value = (number(part(found).get(side)) for side in ("low", "high", "value"))
    told = cell(found, "+", digits)
    if sure is None:
        sure = low is not None and high is not None and not low <= 0 <= high
    if not better or not sure or not value:
        return told
    worse = (value < 0) == (better == "higher")
    return f"<span class={'bad' if worse else 'here'}>{'▼' if worse else '▲'}&nbsp;{told}</span>"


def p_value(value: Any) -> str:
    """A p value as people write it."""
    known = number(value)
    if known is None:
        return UNKNOWN
    return "&lt; 0.001" if known < 0.001 else f"{known:.3f}"


def dense(inside: str) -> str:
    """A table of many columns in small letters."""
    return f"<div class=dense>{inside}</div>" if inside else ""


def folded(name: str, inside: str) -> str:
    """What stands on the page but is looked up rather than read; nothing where it is empty."""
    return f"<details><summary>{text(name)}</summary>{inside}</details>" if inside else ""


def first_open(models: Sequence[Audited], parts: Sequence[str]) -> str:
    """The part of the first model that has one in the open, those of the others folded under their names."""
    shown = [(model, made) for model, made in zip(models, parts, strict=True) if made]
    if not shown:
        return ""
    head = f"<p class=small><b>{text(shown[0][0].key)}</b> {text(shown[0][0].name)}</p>" if len(models) > 1 else ""
    rest = [folded(f"{model.key} {model.name}", made) for model, made in shown[1:]]
    return (
        head + shown[0][1] + (folded(f"{len(rest)} other models", "".join(rest)) if len(rest) > FULL else "".join(rest))
    )

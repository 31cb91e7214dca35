"""Under which condition an image was examined: as it is, changed by an attack of some size, or corrupted.

`clean` · `pgd@2/255`, `pgd:answers@0.01` (an attack, its objective where it has several, and its radius) · `blur@3`
(a corruption and its severity).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from cxrlab.core.errors import DataError

CLEAN = "clean"
WORST = "worst"  # the most harmful of all attacks of at most this size, study by study
SEVERITIES = range(1, 6)

_SHAPE = re.compile(r"(?P<name>[^@:|\s]+)(:(?P<objective>[^@:|\s]+))?@(?P<strength>[^@|\s]+)")
_FRACTION = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")
_DECIMAL = re.compile(r"\d*\.\d+(e-?\d+)?|\d+e-\d+")


@dataclass(frozen=True)
class Condition:
    """One condition, taken apart.

    Args:
        text: As it stands on file.
        kind: clean, attack or corruption.
        name: Of the attack (`pgd`) or the corruption (`blur`); "clean".
        objective: What the attack aims at, where it has several aims; else None.
        eps: Radius, on the scale of pixels from 0 to 1; None where it is no attack.
        eps_text: As it was written, such as 2/255.
        severity: 1 to 5; None where it is no corruption.
    """

    text: str
    kind: Literal["clean", "attack", "corruption"]
    name: str
    objective: str | None = None
    eps: float | None = None
    eps_text: str | None = None
    severity: int | None = None

    @property
    def attack(self) -> str:
        """Attack and objective without the size: what one curve is drawn of."""
        return self.name if self.objective is None else f"{self.name}:{self.objective}"


@cache
def parse_condition(text: str) -> Condition:
    """Take a condition apart; a whole number after the @ is a severity, a fraction or decimal a radius."""
    if text == CLEAN:
        return Condition(text, "clean", CLEAN)
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise _wrong(text, "it is neither 'clean' nor a name, an @ and a strength")
    name, objective, strength = shape["name"], shape["objective"], shape["strength"]
    if strength.isdecimal():
        if objective is not None or int(strength) not in SEVERITIES:
            raise _wrong(text, "a whole number is the severity of a corruption, from 1 to 5, which has no objective")
        return Condition(text, "corruption", name, severity=int(strength))
    eps = _eps(strength)
    if eps is None:
        raise _wrong(text, "the size of an attack is a fraction or a decimal of at least 0")
    return Condition(text, "attack", name, objective, eps, strength)


def _eps(strength: str) -> float | None:
    if fraction := _FRACTION.fullmatch(strength):
        below = float(fraction[2])
        return float(fraction[1]) / below if below else None
    return float(strength) if _DECIMAL.fullmatch(strength) else None


def _wrong(text: str, why: str) -> DataError:
    return DataError(f"the condition '{text}' cannot be read: {why}; write it like clean, pgd@2/255 or blur@3.")

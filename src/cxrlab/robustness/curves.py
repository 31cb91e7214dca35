"""Quantities against the size of an attack, one curve an attack, with the clean images at size 0."""

from __future__ import annotations

from collections.abc import Iterable

from cxrlab.robustness.outcomes import Outcome, Quantities
from cxrlab.robustness.quantities import Quantity, ends

Curves = dict[str, dict[str, list[list[float]]]]


def curves(clean: Quantities, outcomes: Iterable[Outcome]) -> Curves:
    """Quantity → attack → [[eps, value, low, high], …] from the smallest size.

    A quantity that clean images have begins with them at size 0; flips, which are counted against clean, do not.
    A quantity that the model does not have (reports of an encoder) has no curves.

    Args:
        clean: Quantities of the clean images.
        outcomes: Of any conditions; those that are no attacks are passed over.
    """
    attacks = [one for one in outcomes if one.table.condition.kind == "attack"]
    attacks.sort(key=lambda one: (one.table.condition.attack, one.table.condition.eps or 0))
    found: Curves = {}
    for one in attacks:
        condition = one.table.condition
        for name, quantity in one.image.items():
            if not quantity.n:
                continue
            start = [_point(0.0, clean[name])] if name in clean else []
            curve = found.setdefault(name, {}).setdefault(condition.attack, start)
            curve.append(_point(condition.eps or 0.0, quantity))
    return found


def _point(eps: float, quantity: Quantity) -> list[float]:
    return [eps, *ends(quantity).values()]

"""Doubts about the attacks themselves, in sentences: a model that only hides its gradients must not pass as robust.

The idea is AutoAttack's: look for signs that an evaluation was too weak before its numbers are believed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from cxrlab.attacks.config import ATTACKS
from cxrlab.robustness.conditions import CLEAN, parse_condition
from cxrlab.robustness.evidence import Answer, AttackTrace

if TYPE_CHECKING:
    from cxrlab.robustness.cases import Case
    from cxrlab.robustness.targets import Target

_ZERO = 0.1  # share of gradients that may be 0 everywhere
_SLACK = 1e-3  # of a mean loss, relative to what the strongest attack gained
_NOT_COMPARED = ("ensemble", "universal")


def attack_doubts(answers: Sequence[Answer], names: Mapping[str, str]) -> Iterator[str]:
    """A sentence for every sign that the attacks on a model were too weak.

    Args:
        answers: All lines of an audit.
        names: Key of a model → its name.
    """
    for key, name in names.items():
        told = [one for one in answers if one.model == key and one.attack and one.crafted_on in (key, None)]
        groups: dict[str, list[Answer]] = defaultdict(list)
        for one in told:
            groups[one.condition].append(one)
        yield from _undefined(name, groups)
        yield from _zero_gradients(name, groups)
        yield from _beaten(name, groups)
        yield from _not_monotone(name, groups)


def refusals(answers: Sequence[Answer], names: Mapping[str, str]) -> Iterator[str]:
    """A sentence for every model that refused to write on images: they count as not answered, not as harmless or harmed.

    Args:
        answers: All lines of an audit.
        names: Key of a model → its name.
    """
    for key, name in names.items():
        asked = [one for one in answers if one.model == key]
        refused = [one for one in asked if one.image.refused]
        clean = sum(one.condition == CLEAN for one in refused)
        if refused:
            yield (
                f"{name} refused to write on {len(refused)} of {len(asked)} images ({clean} of them clean); these are "
                "left out of every number about reports, and no attack has succeeded on them."
            )


def _zero_gradients(name: str, groups: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    shares = {}
    for condition, lines in groups.items():
        known = [one.attack.zero_gradients for one in lines if one.attack and _tried(one.attack)]
        if known and sum(known) / len(known) > _ZERO:
            shares[condition] = sum(known) / len(known)
    if shares:
        condition, share = max(shares.items(), key=lambda item: item[1])
        yield (
            f"{name}: {share:.0%} of the gradients under {condition} are 0 in every pixel ({len(shares)} conditions in "
            "all); gradients are masked, and white-box attacks do not show how robust it is."
        )


def _undefined(name: str, groups: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    lost = {
        condition: count
        for condition, lines in groups.items()
        if (count := sum(one.attack is not None and not math.isfinite(one.attack.end) for one in lines))
    }
    if lost:
        condition, count = max(lost.items(), key=lambda item: item[1])
        yield (
            f"{name}: under {condition} {count} images have a loss that is no number ({len(lost)} conditions in all); "
            "they were not attacked in earnest, and that they held says nothing."
        )


def _tried(trace: AttackTrace) -> bool:
    """Whether there were gradients, and something to gain: a wish that makes no sense on an image has a loss of 0."""
    return not math.isnan(trace.zero_gradients) and not trace.start == trace.end == 0


def _beaten(name: str, groups: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    """A black-box attack, or noise, that reaches more than every attack with gradients at the same radius and aim."""
    white: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    black: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for condition, lines in groups.items():
        found = parse_condition(condition)
        where = (found.eps_text or "", found.objective or "")
        kind = ATTACKS.load(found.name)
        if found.name in _NOT_COMPARED or kind.text_only:  # made with gradients, or by another measure than a loss
            continue
        (white if kind.white_box else black)[where][condition] = _mean_end(lines)
    for where, values in black.items():
        if where not in white:
            continue
        best = max(white[where], key=lambda one: white[where][one])
        for condition, value in values.items():
            start = _mean_start(groups[condition])
            gained = max(white[where][best], value) - start
            if value > white[where][best] + max(_SLACK * abs(gained), 1e-6):
                control = ATTACKS.load(parse_condition(condition).name).is_control
                what = condition if control else f"the black-box attack {condition}"
                yield (
                    f"{name}: {what} reaches a higher loss ({value:.3f}) than {best} with "
                    f"gradients ({white[where][best]:.3f}); gradients are masked or the white-box attack is too weak."
                )


def _not_monotone(name: str, groups: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    curves: dict[str, list[tuple[float, str, float]]] = defaultdict(list)
    for condition, lines in groups.items():
        found = parse_condition(condition)
        kind = ATTACKS.load(found.name)
        if kind.white_box and found.eps is not None:
            curves[found.attack].append((found.eps, condition, _mean_end(lines)))
    for attack, points in curves.items():
        if attack.partition(":")[0] == "fgsm":  # one long step may overshoot; that is known and no sign of anything
            continue
        ordered = sorted(points)
        for (_, small, low), (_, large, high) in zip(ordered, ordered[1:], strict=False):
            if high < low - max(_SLACK * abs(low), 1e-6):
                yield (
                    f"{name}: {large} reaches a lower loss ({high:.3f}) than {small} ({low:.3f}), although its ball is "
                    "larger; the attack does not find its way: give it more steps or restarts."
                )


def randomness_doubt(target: Target, cases: Sequence[Case], images: torch.Tensor) -> str | None:
    """A sentence when the same images get different answers: an attack then needs an average over draws."""
    target.forget()
    said = target.examine(images, cases)
    if target.scores and target.aims:
        objective = target.objective(target.aims[0], cases, said, images)
        with torch.no_grad():
            first, second = (objective.losses(images, range(len(images))) for _ in range(2))
        same = torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))
        return None if same else _random(target.name, float((first - second).abs().nan_to_num().max()))
    target.forget()
    return None if said == target.examine(images, cases) else _random(target.name, math.nan)


def _random(name: str, most: float) -> str:
    by = "" if math.isnan(most) else f" (losses differ by up to {most:.2g})"
    return (
        f"{name}: the same image gets different answers{by}; the model is random, and an attack that follows one draw "
        "of it is too weak."
    )


def _mean_end(lines: Sequence[Answer]) -> float:
    return _mean(one.attack.end for one in lines if one.attack)


def _mean_start(lines: Sequence[Answer]) -> float:
    return _mean(one.attack.start for one in lines if one.attack)


def _mean(values: Iterable[float]) -> float:
    """Over the values that are numbers."""
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / max(len(known), 1)

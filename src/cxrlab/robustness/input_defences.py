"""A model behind an input transformation: its clean cost, and attacks with and without knowledge of the transformation.

The non-adaptive attack perturbs images for the undefended model; the adaptive one differentiates through the
transformation. A defence that only hides gradients looks strong against the first and falls to the second, so both are
reported side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cxrlab.robustness.audit_metrics import FLIP_RATE, Quantity, change, ends
from cxrlab.robustness.audit_records import parse_condition
from cxrlab.robustness.condition_results import Outcomes
from cxrlab.robustness.config import ANSWERS, REPORT, parse_defended
from cxrlab.robustness.sweep import follows_gradients

LOSS, ACCURACY = "report.loss", "closed_questions.accuracy"
MEASURES = ("findings.f1", "errors.significant", LOSS, ACCURACY)
_TOLERANCE = 1e-3  # of a mean, relative to what the stronger attack gained


def input_defence_results(outcomes: Outcomes, names: Mapping[str, str]) -> dict[str, Any]:
    """Name of each model behind a transformation → its results beside those of the first model, which it defends.

    Args:
        names: Key of each model → its name, the model under audit first.
    """
    first, *others = names
    found = {}
    for key in others:
        behind = parse_defended(names[key])
        if behind is None or behind[1] != names[first]:
            continue
        before, clean = outcomes.clean(first).image, outcomes.clean(key).image
        own, foreign = outcomes.evidence.own(key), outcomes.evidence.transferred(key, first)
        undefended = outcomes.evidence.own(first)
        conditions = {}
        for condition, table in foreign.items():
            if not follows_gradients(parse_condition(condition).name):
                continue
            ignorant = outcomes.measure(table.image, outcomes.evidence.clean(key).image, (*MEASURES, FLIP_RATE))
            knowing = outcomes.outcome(own[condition]).image if condition in own else None
            conditions[condition] = {
                name: {
                    "undefended": outcomes.outcome(undefended[condition]).image[name].to_json(),
                    "non_adaptive": ignorant[name].to_json(),
                    "adaptive": knowing[name].to_json() if knowing is not None else None,
                    # Adaptive minus non-adaptive, on the same studies
                    "difference": ends(change(knowing[name], ignorant[name])) if knowing is not None else None,
                }
                for name in (*MEASURES, FLIP_RATE)
                if ignorant[name].n
            }
        cost = {name: _paired(before[name], clean[name]) for name in MEASURES if clean[name].n and before[name].n}
        found[names[key]] = {
            "of": names[first],
            "transformation": str(behind[0]),
            "clean": cost,
            "conditions": conditions,
        }
    return found


def _paired(before: Quantity, after: Quantity) -> dict[str, Any]:
    return {"undefended": before.value, "defended": after.value, "difference": ends(change(after, before))}


def input_defence_warnings(found: Mapping[str, Any], first_aim: str) -> Iterator[str]:
    """A sentence where the adaptive attack is missing or weaker than the other: the defence is then not tested.

    Args:
        found: `input_defence_results`.
        first_aim: Aim of the conditions that name none.
    """
    for name, row in found.items():
        missing, weaker = [], []
        for condition, measures in row["conditions"].items():
            aim = parse_condition(condition).objective or first_aim
            # What the attack itself follows, with the sign of harm
            measure, sign = (ACCURACY, -1.0) if aim == ANSWERS else (LOSS, 1.0)
            one = measures.get(measure)
            if any(each["adaptive"] is None for each in measures.values()):
                missing.append(condition)
            elif one and aim in (REPORT, ANSWERS):
                clean = row["clean"][measure]["defended"]
                ignorant, knowing = (sign * (one[kind]["value"] - clean) for kind in ("non_adaptive", "adaptive"))
                if knowing < ignorant - _TOLERANCE * abs(ignorant):
                    weaker.append((condition, measure, one["non_adaptive"]["value"], one["adaptive"]["value"]))
        if missing:
            yield (
                f"{name}: only attacks that do not know the transformation were run ({', '.join(missing)}); a defence "
                "that hides gradients looks strong against them. Its robustness is not known."
            )
        for condition, measure, ignorant, knowing in weaker:
            yield (
                f"{name}: under {condition} the attack that knows the transformation does less than the one that does "
                f"not ({measure} {knowing:.3f} against {ignorant:.3f}); its gradients are masked or too noisy. Give it "
                "more --attack.steps, or more --eot-draws for a random transformation, and take the greater harm of both."
            )

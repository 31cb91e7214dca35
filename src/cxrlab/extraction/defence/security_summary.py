"""The summary for a security reviewer: severity, technique, cost of a copy, and the recommended control."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cxrlab.attacks.input_transformations import TRANSFORMATIONS

METRIC = "findings.f1"
LEVELS = ("low", "medium", "high", "critical")
# Share of the victim's score that the copy reaches → severity.
STEPS = ((0.9, "critical"), (0.75, "high"), (0.5, "medium"), (0.0, "low"))
DEAR = 10_000.0  # cost above which the severity is one step lower
# Fewer queries, or a measurement on fewer studies, do not show how well the victim can be copied.
MINIMUM_QUERIES, MINIMUM_STUDIES = 500, 100
NOT_ESTABLISHED = "not established"
RULE = (
    "severity follows the best copy without a defence: critical from 0.9 of the victim's findings F1, high from 0.75, "
    f"medium from 0.5, low below; one step lower where that copy costs more than {DEAR:,.0f} of the price's currency"
)
# MITRE ATLAS, by name too, since the names of entries change between its editions.
TECHNIQUES = (
    {"id": "AML.T0024.002", "name": "Extract AI Model", "part": "what the attack achieves"},
    {"id": "AML.T0040", "name": "AI Model Inference API Access", "part": "what it needs"},
    {"id": "AML.T0043", "name": "Craft Adversarial Data", "part": "perturbed images, and images with a blended chest"},
)
MITIGATIONS: Mapping[str, Mapping[str, str]] = {
    "gate": {"id": "AML.M0015", "name": "Adversarial Input Detection"},
    "quota": {"id": "AML.M0004", "name": "Restrict Number of AI Model Queries"},
    "coarse": {"id": "AML.M0002", "name": "Passive AI Output Obfuscation"},
    "plain": {"id": "AML.M0002", "name": "Passive AI Output Obfuscation"},
    **{name: {"id": "AML.M0010", "name": "Input Restoration"} for name in TRANSFORMATIONS},
}


def security_summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Severity, technique, cost to copy and the recommended control.

    Args:
        found: `undefended`, `defences`, `price` and `minimum` of defence.json; the default minimum if it has none.
    """
    undefended = found["undefended"]
    copied = _copied(undefended)
    cost = _cost(undefended, found["price"])
    least = {"queries": MINIMUM_QUERIES, "studies": MINIMUM_STUDIES, **(found.get("minimum") or {})}
    missing = []  # what would establish the severity
    if cost["queries"] < least["queries"]:
        missing.append(
            f"the attack spent {cost['queries']:,} queries: give --budget {least['queries']} or more, or accept fewer "
            f"with --minimum-queries {cost['queries']}"
        )
    studies = copied["n"]
    if studies is None or studies < least["studies"]:
        known = "an unknown number of" if studies is None else f"{studies:,}"
        missing.append(
            f"the copy was measured on {known} studies: give at least {least['studies']:,} (the test split of --data, "
            f"and n in the file of --attack), or accept fewer with --minimum-studies {studies or 1}"
        )
    level = None
    if copied["ratio"] is not None:
        # 0.6 of 0.8 is 0.75, also where rounding makes the quotient slightly smaller.
        level = next(name for step, name in STEPS if copied["ratio"] >= step - 1e-9)
        if cost["money"] is not None and cost["money"] > DEAR:
            level = LEVELS[max(0, LEVELS.index(level) - 1)]
    return {
        "severity": NOT_ESTABLISHED if level and missing else level,
        "missing": "; ".join(missing) if level and missing else None,
        "minimum": least,
        "rule": f"{RULE}; {NOT_ESTABLISHED} below {least['queries']:,} queries or {least['studies']:,} studies",
        "copied": copied,
        "techniques": [dict(row) for row in TECHNIQUES],
        "cost_to_copy": cost,
        "recommended": _recommended(found["defences"]),
    }


def _copied(attack: Mapping[str, Any]) -> dict[str, Any]:
    """How much of the victim's score the copy reaches, with the interval of the audit if it has one."""
    ratio = (attack.get("ratio") or {}).get(METRIC)
    if ratio and ratio.get("value") is not None:
        return {"metric": METRIC, "ratio": ratio["value"], **{key: ratio.get(key) for key in ("low", "high", "n")}}
    copy, victim = ((attack.get(name) or {}).get(METRIC) or {} for name in ("surrogate", "victim"))
    known = copy.get("value") is not None and victim.get("value")
    value = copy["value"] / victim["value"] if known else None
    return {"metric": METRIC, "ratio": value, "low": None, "high": None, "n": copy.get("n")}


def _cost(attack: Mapping[str, Any], price: Mapping[str, Any]) -> dict[str, Any]:
    """Queries and money of the copy; money is None without a price, or if tokens are charged but not counted.

    `least_queries` are the fewest queries of the curve with which the copy is within 10 % of its final score.
    """
    queries = attack["spent"]
    booked = attack.get("cost") or {}
    money: float | None = None
    if booked.get("amount") is not None and (price["per_query"] or price["per_1k_tokens"]):
        money = float(booked["amount"])
    elif price["per_query"] and not price["per_1k_tokens"]:
        money = queries * price["per_query"]
    curve = {int(budget): (row.get(METRIC) or {}).get("value") for budget, row in (attack.get("curve") or {}).items()}
    known = {budget: value for budget, value in curve.items() if value is not None}
    least = min((budget for budget, value in known.items() if value >= 0.9 * known[max(known)]), default=None)
    return {"queries": queries, "money": money, "currency": price["currency"], "least_queries": least}


def _recommended(defences: Mapping[str, Any]) -> dict[str, Any]:
    """The defence that weakens the copy of an attacker who knows it most, of those without measured harm."""
    losses = {name: worst_loss(row) for name, row in defences.items() if not row["harms"]}
    known = {name: one for name, one in losses.items() if one["difference"] is not None}
    harmful = {name: row["harms"] for name, row in defences.items() if row["harms"]}
    aside = "".join(f" '{name}' was left out: it {'; '.join(why)}." for name, why in harmful.items())
    if not known:
        return {"control": None, "reason": f"no defence without measured harm was attacked.{aside}", "mitigation": None}
    name = min(known, key=lambda key: known[key]["difference"])
    one = known[name]
    ends = "" if one["high"] is None else f" [{one['low']:+.3f}, {one['high']:+.3f}]"
    most = f"most of the {len(known)} defences" if len(known) > 1 else "the only defence"
    reason = (
        f"'{name}' changes the findings F1 of the copy by {one['difference']:+.3f}{ends} against the attacker "
        f"that does best against it, {most} without measured harm to benign images (refusals, findings, errors)."
    )
    if accounts := ((defences[name].get("benign") or {}).get("quota") or {}).get("accounts_needed"):
        reason += f" An attacker with {accounts:,} accounts gets every answer: tie accounts to people."
    if one["difference"] >= 0 or one["high"] is None or one["high"] >= 0:
        knowing = " once the attacker knows it" if any(len(row["attacks"]) > 1 for row in defences.values()) else ""
        reason = f"no defence was shown to weaken the copy{knowing}; the nearest: {reason}"
        return {"control": None, "nearest": name, "reason": reason + aside, "mitigation": None}
    return {"control": name, "reason": reason + aside, "mitigation": MITIGATIONS.get(name)}


def worst_loss(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The loss with the attacker that does best against a defence: the smallest of plain and adaptive."""
    losses: list[Mapping[str, Any]] = [one["loss"] for one in row["attacks"].values()]
    known = [one for one in losses if one["difference"] is not None]
    nothing = {"difference": None, "low": None, "high": None}
    return max(known, key=lambda one: float(one["difference"])) if known else nothing

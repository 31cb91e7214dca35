"""Attacks on a defended model: which are made, and how one is handed to the extraction audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.config import config_from
from cxrlab.core.tables import load_reference
from cxrlab.extraction.defence.adaptive import Adaptation
from cxrlab.extraction.defence.config import DefenceSettings, DefendConfig
from cxrlab.models.loading import Loading

# The audit itself imports defences for its victim; so it is looked up only when an attack is made.
EXTRACT, CONFIG = "cxrlab.extraction.audit:extract", "cxrlab.extraction.config:ExtractConfig"


@dataclass(frozen=True)
class Plan:
    """One attack.

    Args:
        defence: What the victim stands behind; None for nothing.
        settings: Of the defence.
        adaptation: What the attacker does about it.
    """

    defence: str | None
    settings: DefenceSettings
    adaptation: Adaptation = Adaptation()


Attack = Callable[[Plan, Path], Mapping[str, Any]]


def audit_attack(config: DefendConfig) -> Attack:
    """Plans as runs of the extraction audit with the attack file of the config; returns the content of its result.

    An attack file that cannot be used is refused here, before anything is asked.
    """

    def wanted(plan: Plan) -> Any:
        return config_from(load_reference(CONFIG), config.attack, overrides(config, plan))

    def attack(plan: Plan, out: Path) -> Mapping[str, Any]:
        found: Mapping[str, Any] = load_reference(EXTRACT)(wanted(plan), out)
        return found

    wanted(Plan(None, config.settings))
    return attack


def overrides(config: DefendConfig, plan: Plan) -> list[str]:
    """The settings of an extraction that a plan decides, as `key=value`."""
    values: dict[str, Any] = {
        "victim": config.victim,
        "data": config.data,
        "surrogate": config.surrogate,
        "method": config.method,
        "pool": config.pool,
        "budget": config.budget,
        "seed": config.seed,
        "i_am_authorised": config.i_am_authorised,
        "defence": plan.defence,
        "dress": plan.adaptation.dress,
        "chest": plan.adaptation.chest,
        "rewrite": str(plan.adaptation.rewrite).lower(),
        "accounts": plan.adaptation.accounts,
        "price.per_query": config.price.per_query,
        "price.per_1k_tokens": config.price.per_1k_tokens,
        "price.currency": config.price.currency,
    }
    if plan.defence is not None:
        names = ("benign", "benign_split", "benign_films", "gate_bound", "quota", "window", "key_file")
        values |= {f"defence_settings.{name}": getattr(plan.settings, name) for name in names}
    values |= _changed(config.loading)
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def _changed(loading: Loading) -> dict[str, Any]:
    """How the victim is loaded, where that was said; the attack file has its say on the rest."""
    given, usual = asdict(loading), asdict(Loading())
    told = {name: value for name, value in given.items() if value != usual[name]}
    return {f"loading.{name}": str(value).lower() if isinstance(value, bool) else value for name, value in told.items()}


def loss(defended: Mapping[str, Any], open_: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """What a defence takes from the copy: its score behind the defence minus its score without.

    Args:
        defended: Value with its ends of the copy made behind the defence.
        open_: The same without a defence.
        metric: Its name.

    The interval is made of the ends of both and is wider than a paired one: what lies outside zero here would there.
    """
    one, two = defended["surrogate"].get(metric) or {}, open_["surrogate"].get(metric) or {}
    ends = [one.get("low"), one.get("high"), two.get("low"), two.get("high")]
    known = one.get("value") is not None and two.get("value") is not None
    whole = known and None not in ends
    return {
        "metric": metric,
        "with": one.get("value"),
        "without": two.get("value"),
        "difference": one["value"] - two["value"] if known else None,
        "low": one["low"] - two["high"] if whole else None,
        "high": one["high"] - two["low"] if whole else None,
        "n": one.get("n"),
    }

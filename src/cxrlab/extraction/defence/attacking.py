"""Attacks on a defended model: which are made, and how one is handed to the extraction audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cxrlab.core.config import config_from, flatten
from cxrlab.core.tables import load_reference
from cxrlab.extraction.defence.adaptive import Adaptation
from cxrlab.extraction.defence.config import DefenceSettings, DefendConfig
from cxrlab.extraction.fidelity import compare_surrogates
from cxrlab.extraction.fidelity_config import FidelityConfig
from cxrlab.extraction.paper_decoding import PaperDecoding
from cxrlab.models.load_settings import LoadSettings

# The audit itself imports defences for its victim; so it is looked up only when an attack is made.
FOLDER, PREDICTIONS = "folder", "predictions"  # of a result: its run folder, and the copy's reports in it
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

    def attack(plan: Plan, out: Path) -> Mapping[str, Any]:
        # One folder for what the victim writes on the corpus, which is the same in every attack.
        wanted = replace(attack_config(config, plan), victim_run=out.parent / "victim")
        return {**load_reference(EXTRACT)(wanted, out), FOLDER: out}

    attack_config(config, Plan(None, config.settings))
    return attack


def attack_config(config: DefendConfig, plan: Plan) -> Any:
    """The settings of the extraction audit that a plan comes to: the attack file, and what a plan decides."""
    return config_from(load_reference(CONFIG), config.attack, overrides(config, plan))


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
        "probes": plan.adaptation.probes,
        "chest": plan.adaptation.chest,
        "rewrite": str(plan.adaptation.rewrite).lower(),
        "accounts": plan.adaptation.accounts,
        "price.per_query": config.price.per_query,
        "price.per_1k_tokens": config.price.per_1k_tokens,
        "price.currency": config.price.currency,
    }
    if plan.defence is not None:
        names = ("benign", "benign_split", "benign_images", "gate_bound", "quota", "window", "key_file")
        values |= {f"defence_settings.{name}": getattr(plan.settings, name) for name in names}
    values |= _changed("loading", config.loading, LoadSettings())
    values |= _changed("victim_decoding", config.decoding, PaperDecoding())
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def _changed(name: str, given: Any, usual: Any) -> dict[str, Any]:
    """How the victim is loaded or writes, where that was said; the attack file has its say on the rest."""
    had = flatten(asdict(usual))
    told = {key: value for key, value in flatten(asdict(given)).items() if value != had[key]}
    return {f"{name}.{key}": str(value).lower() if isinstance(value, bool) else value for key, value in told.items()}


def paired_loss(
    config: DefendConfig, defended: Mapping[str, Any], open_: Mapping[str, Any], metric: str, out: Path
) -> dict[str, Any]:
    """The same as `loss`, study by study where the reports of both copies are at hand.

    Args:
        config: Settings.
        defended: Result of the attack behind the defence, with its `FOLDER`.
        open_: The same without a defence.
        metric: Its name.
        out: Run folder of the comparison.
    """
    found = loss(defended, open_, metric)
    if not all(FOLDER in one and one.get(PREDICTIONS) for one in (defended, open_)):
        return {**found, "paired": False}
    runs = {name: one[FOLDER] / one[PREDICTIONS] for name, one in (("without", open_), ("with", defended))}
    settings = FidelityConfig(metrics=(metric,), section=config.section, seed=config.seed)
    gap = compare_surrogates(runs, config.data, out, settings)["difference"]["with"][metric]
    return {**found, **{key: gap[key] for key in ("difference", "low", "high", "p")}, "paired": True}


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

"""Dose and response: how far a tuned model has drifted from its start, and how much more or less it loses under attack.

The response is the change of the drop: perturbed minus clean, of the tuned model minus that of its start. Each is tested
for equivalence over seeds and patients; positive controls, which must show an effect, are measured in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.attacks.config import ATTACKS
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.json_values import plain
from cxrlab.core.randomness import generator
from cxrlab.metrics.base import Matrix, Tally
from cxrlab.metrics.statistics.equivalence import equivalent, over_seeds_and_patients
from cxrlab.metrics.statistics.intervals import ResampledValue, Resamples, check_share, t_quantile
from cxrlab.metrics.statistics.paired_tests import check_margin
from cxrlab.robustness.audit_metrics import HEADLINE, Evidence, read_evidence
from cxrlab.robustness.audit_records import WORST, Condition, parse_condition
from cxrlab.robustness.comparison import drop_tally
from cxrlab.robustness.condition_results import Outcomes
from cxrlab.robustness.config import ANSWERS, REPORT

TRIALS = 1000
START = "a"  # key of the start in every audit


@dataclass(frozen=True)
class EquivalenceSettings:
    """The claim that tuning leaves robustness as it is, and how it is tested.

    Args:
        margin: Largest change of a drop that still counts as none, in the unit of the metric.
        metrics: Quantities whose drops are tested: of answers under attacks with the goal answers, of reports under
            attacks with the goal report.
        alpha: Probability of calling a change equivalent that is as large as the margin.
    """

    margin: float = 0.05
    metrics: tuple[str, ...] = ("findings.f1", "closed_questions.accuracy")
    alpha: float = 0.05

    def __post_init__(self) -> None:
        check_margin("the drops", self.margin)
        check_share("alpha", self.alpha)
        known = [name for name in HEADLINE if name != "flip_rate"]
        for name in self.metrics:
            if name not in known:
                raise ConfigError(
                    f"equivalence.metrics has '{name}', whose drop is not tested.{did_you_mean(name, known)} "
                    f"Known: {', '.join(known)}."
                )


@dataclass(frozen=True)
class Drops:
    """Drops of one model in the audit of one seed, for one condition and metric: counts by study, and their patients."""

    tally: Tally
    patients: tuple[str, ...]


def dose_response(
    audits: Mapping[int, Path],
    keys: Mapping[str, str],
    controls: Sequence[str],
    drift: Mapping[str, Sequence[float]],
    aims: Sequence[str],
    settings: EquivalenceSettings,
) -> dict[str, Any]:
    """Rows of the dose-response table, the bound, and whether the positive controls show an effect.

    Args:
        audits: Seed → run folder of the audit of its start and of all models made from it.
        keys: Name of a variant or control → its key in every audit.
        controls: Names of the positive controls.
        drift: Variant → nats per token of each seed.
        aims: Attack goals of the audits, in order.
    """
    evidence = {seed: read_evidence(folder) for seed, folder in audits.items()}
    outcomes = {seed: Outcomes(one, trials=1, seed=seed) for seed, one in evidence.items()}
    rows = []
    for metric in settings.metrics:
        for condition in conditions_of(metric, evidence.values(), aims):
            drops = {
                (seed, key): _drops(found, key, condition, metric)
                for seed, found in outcomes.items()
                for key in (START, *keys.values())
            }
            for name, key in keys.items():
                effects, error, patients = _effects(drops, list(audits), key, settings.alpha)
                both = over_seeds_and_patients(effects, error, patients)
                tested = equivalent(both.value, both.error, both.freedom, settings.margin, alpha=settings.alpha)
                wide = equivalent(both.value, both.error, both.freedom, settings.margin, alpha=0.025)
                rows.append(
                    {
                        "name": name, "control": name in controls, "metric": metric, "condition": condition.text,
                        "drift": _mean(drift.get(name, ())), "by_seed": list(effects), **asdict(tested),
                        "low_95": wide.low, "high_95": wide.high, "seeds_error": both.seeds,
                        "patients_error": both.patients, "patients": patients,
                    }
                )  # fmt: skip
    judged = [_judge(metric, rows, settings) for metric in settings.metrics]
    found = {
        "margin": settings.margin,
        "alpha": settings.alpha,
        "rows": rows,
        "metrics": [one for one in judged if one],
    }
    return dict(plain(found))


def conditions_of(metric: str, evidence: Any, aims: Sequence[str]) -> list[Condition]:
    """Attacks that pursue the goal of a metric, and that every audit has; without controls and worst cases."""
    goal = ANSWERS if metric.startswith("closed_questions.") else REPORT
    own: list[set[str]] = [set(one.own(START)) for one in evidence]
    found = []
    for text in next(iter(evidence)).own(START):
        condition = parse_condition(text)
        control = condition.kind != "attack" or condition.name == WORST or ATTACKS.load(condition.name).is_control
        if not control and (condition.objective or aims[0]) == goal and all(text in one for one in own):
            found.append(condition)
    return found


def _drops(found: Outcomes, key: str, condition: Condition, metric: str) -> Drops:
    """Perturbed minus clean, study by study."""
    evidence: Evidence = found.evidence
    clean, now = evidence.clean(key).image, evidence.tables[key, condition.text, key].image
    before, after = (found.measure(one, None, {metric})[metric] for one in (clean, now))
    tally = drop_tally(before, after)
    if tally is None:
        raise ConfigError(f"{metric} has no drop that could be tested by patient.")
    return Drops(tally, tuple(study.patient for study in evidence.studies))


def _effects(
    drops: Mapping[tuple[int, str], Drops], seeds: Sequence[int], key: str, alpha: float
) -> tuple[list[float], float, int]:
    """The change of the drop of each seed, the error of their mean over patients, and the number of patients.

    Patients are drawn with replacement, the same ones in every seed that has them. The error is that whose t interval
    is the project's bootstrap interval, which is wider with few patients and has a width where no patient differs.
    """
    patients = sorted({one for seed in seeds for one in drops[seed, key].patients})
    effects = [drops[seed, key].tally.value - drops[seed, START].tally.value for seed in seeds]
    if any(math.isnan(effect) for effect in effects):
        return effects, math.nan, 0
    resamples = Resamples(patients, trials=TRIALS, rng=generator(seeds[0], "study", "dose response"))
    drawn = [
        np.mean([_value(drops[seed, key], patients, weights) - _value(drops[seed, START], patients, weights)
                 for seed in seeds], axis=0)
        for _, weights in resamples.weights()
    ]  # fmt: skip
    low, high = drops[seeds[0], key].tally.metric.range
    span = 2 * (high - low)  # of a difference of two drops
    mean = ResampledValue(float(np.mean(effects)), np.concatenate(drawn), np.empty(0), len(patients), (-span, span))
    ends = mean.estimate(1 - 2 * alpha).ends
    reach = max(mean.value - ends[0], ends[1] - mean.value)
    return effects, reach / t_quantile(1 - alpha, max(1, len(patients) - 1)), len(patients)


def _value(drops: Drops, patients: Sequence[str], weights: Matrix) -> Matrix:
    """The drop in every resample; patients without a study in this seed add nothing."""
    sums = np.zeros((len(patients), drops.tally.rows.shape[1]))
    np.add.at(sums, np.searchsorted(patients, drops.patients), drops.tally.rows)
    return drops.tally.value_of(weights @ sums)


def _judge(metric: str, rows: Sequence[Mapping[str, Any]], settings: EquivalenceSettings) -> dict[str, Any] | None:
    """The bound over all tuned models and radii of one metric, and what the positive controls show."""
    own = [row for row in rows if row["metric"] == metric]
    tuned = [row for row in own if not row["control"]]
    if not tuned:
        return None
    bound = max((row["smallest_margin"] for row in tuned), key=lambda value: math.inf if math.isnan(value) else value)
    farthest = next((row for row in tuned if row["smallest_margin"] == bound), tuned[0])
    shown = [row for row in _strongest(own) if row["control"] and row["low_95"] * row["high_95"] > 0]
    controls = any(row["control"] for row in own)
    return {
        "metric": metric,
        "bound": bound,
        "at": {"name": farthest["name"], "condition": farthest["condition"]},
        "established": all(row["established"] for row in tuned),
        "sensitive": bool(shown) if controls else None,
        "sentence": _sentence(metric, bound, tuned, shown, settings, controls=controls),
    }


def _strongest(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Those at the largest radius of their attack."""
    largest: dict[str, float] = {}
    for row in rows:
        one = parse_condition(row["condition"])
        largest[one.attack] = max(largest.get(one.attack, 0.0), one.eps or 0.0)
    return (row for row in rows if (one := parse_condition(row["condition"])).eps == largest[one.attack])


def _sentence(
    metric: str, bound: float, tuned: Sequence[Mapping[str, Any]], shown: Sequence[Mapping[str, Any]],
    settings: EquivalenceSettings, *, controls: bool,
) -> str:  # fmt: skip
    """The bound in one sentence, and what the positive controls say about it in another."""
    conditions = ", ".join(dict.fromkeys(str(row["condition"]) for row in tuned))
    drifts = [row["drift"] for row in tuned if row["drift"] is not None]
    dose = f" (drift {min(drifts):.3f} to {max(drifts):.3f} nats per token)" if drifts else ""
    models, seeds = len({row["name"] for row in tuned}), len(tuned[0]["by_seed"])
    who = f"{models} tuned models{dose}, {seeds} starts, {tuned[0]['patients']} patients"
    if math.isnan(bound):
        return f"{metric}: no bound ({who}): two starts and two patients with a value are the least."
    level = f"two one-sided tests at {100 * settings.alpha:g} %"
    verdict = "is met" if bound < settings.margin else "is not met"
    first = (
        f"{metric}: tuning changes the drop under {conditions} by less than {bound:.3f} ({who}; {level}); "
        f"the margin of {settings.margin:g} {verdict}."
    )
    if not controls:
        return f"{first} There is no positive control: whether the study would see an effect is not known."
    if not shown:
        return f"{first} No positive control shows an effect: the study is not sensitive, and its bound is no evidence."
    best = max(shown, key=lambda row: abs(row["value"]))
    return (
        f"{first} The positive control '{best['name']}' changes it by {best['value']:+.3f} [{best['low_95']:+.3f}, "
        f"{best['high_95']:+.3f}] at {best['condition']}, so the study is sensitive."
    )


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None

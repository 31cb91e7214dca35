"""Sections on preference alignment: one model before and after, and alignment variants over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.headline_metrics import ARROWS, is_error_count
from cxrlab.render.components import (
    UNKNOWN,
    Cell,
    Table,
    figure,
    interval,
    number,
    over_seeds,
    part,
    percent,
    published_table,
    tally,
)
from cxrlab.render.drawing import Curve, Drawing, Layout, draw_curves
from cxrlab.render.metric_titles import with_arrow
from cxrlab.render.run_folder import PREFERENCE, PREFERENCES, RunFolder, per_run

_FIRST = 3  # metrics of the first table over seeds
_REWARDS = (("reward", "plain judgement", "#2b6cb0"), ("reward_length_controlled", "length-controlled", "#b7791f"))


# One aligned model --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alignment:
    """A model before and after alignment."""

    name: str  # Of the run
    counts: Mapping[str, Any]  # Studies and patients measured, and the step that was kept
    gain: Table  # Metrics before and after
    kinds: Table  # The same for each kind of error
    cost: Table  # Length, certainty, closed questions, retrieval
    reference_words: str  # Words per reference report
    drift: str  # KL divergence from the start
    no_gain: str  # A sentence where no step was better than the start
    curve: Drawing | None  # Reward against length, step after step


@per_run(PREFERENCE)
def alignment(run: RunFolder, found: Mapping[str, Any]) -> Alignment:
    """A model before and after alignment: gain, cost, and the reward during training."""
    head = ["metric", "", "before", "after", "difference", "interval", "verdict", "win / tie / lose"]
    metrics: list[list[Any]] = []
    kinds: list[list[Any]] = []
    for metric, gap in part(found, "difference").items():
        sides = [part(found, side, metric).get("value") for side in ("before", "after")]
        if any(sides):  # errors that never occur are left out
            change = Cell(figure(gap.get("difference"), "+"), strong=True)
            row = [metric, ARROWS.get(str(gap.get("direction")), ""), *map(figure, sides), change]
            row += [interval(gap, "+"), gap.get("verdict")]
            (kinds if is_error_count(metric) else metrics).append([*row, tally(gap.get("by_study") or {})])
    chosen, drift, length = part(found, "selection"), part(found, "drift"), part(found, "length")
    questions, retrieval = part(found, "questions"), part(found, "retrieval")
    costs = {
        "words per report": part(length, "words"),
        "mean log-probability of its words": part(length, "mean_logprob"),
        "closed questions answered correctly": part(questions, "accuracy"),
        "squared error of P(yes)": part(questions, "squared_error"),
    }
    recalls = (name for name in retrieval if name.startswith("recall@"))
    costs |= {f"report finds its image, {name}": part(retrieval, name) for name in recalls}
    cost = [
        [name, figure(one.get("before")), figure(one.get("after")), figure(one.get("difference"), "+"), interval(one)]
        for name, one in costs.items()
        if one
    ]
    if errors := part(questions, "calibration_error"):
        cost.append(["calibration error", figure(errors.get("before")), figure(errors.get("after")), UNKNOWN, UNKNOWN])
    drift_words = ""
    if drift:
        drift_words = f"{figure(drift.get('kl_report'))} nats per report ({interval(drift)}), "
        drift_words += f"{figure(drift.get('kl_token'))} per token"
    return Alignment(
        name=run.name,
        counts={
            **{key: found.get(key) for key in ("n", "patients")},
            **{key: chosen.get(key) for key in ("step", "of", "select")},
        },
        gain=Table(head, metrics),
        kinds=Table(head, kinds),
        cost=Table(["what it cost", "before", "after", "difference", "interval"], cost),
        reference_words=figure(length.get("reference")),
        drift=drift_words,
        no_gain=no_better_than_start(chosen),
        curve=_reward_curve(found.get("watched") or ()),
    )


def no_better_than_start(selection: Mapping[str, Any]) -> str:
    """A sentence where the step that was kept scores no higher than the start; empty where it does."""
    score, start = selection.get("score"), selection.get("start_score")
    if score is None or start is None or score > start:
        return ""
    return f"No training step scored higher than the start on the validation images: {score:.3f}, {start:.3f}."


def _reward_curve(watched: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """Judgement against words, step after step; None where fewer than two steps were watched."""
    steps = [one for one in watched if number(one.get("words")) is not None]
    if len(steps) < 2:
        return None
    curves = []
    for marker, (key, label, colour) in enumerate(_REWARDS):
        known = [one for one in steps if number(one.get(key)) is not None]
        points = tuple((float(one["words"]), float(one[key]), None, None) for one in known)
        notes = tuple(f"step {one.get('step')}" for one in known)
        if points:
            curves.append(Curve(label, points, colour, marker, notes=notes))
    layout = Layout(per=1.0, across="words per report", over="words per report", from_zero=False)
    return draw_curves(curves, "reward", layout, note="each marker is a step") if curves else None


# Alignment variants over seeds ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlignmentSeeds:
    """Alignment variants, each with several seeds."""

    first: Table  # The first metrics, length and drift of each variant
    seeds: Sequence[Any]  # All of them
    n: Any  # Test studies of a seed
    patients: Any  # Of a seed, at most
    published: Table | None  # Figures of others, where the study gives them
    costs: Table  # Training data and cost of each variant
    metrics: tuple[tuple[str, Table], ...]  # Every metric with its table


@per_run(PREFERENCES)
def alignment_seeds(run: RunFolder, found: Mapping[str, Any]) -> AlignmentSeeds | None:
    """One row per variant, then every metric and every seed."""
    if not found.get("metrics") or not found.get("variants"):
        return None
    variants, ways = found["variants"], part(found, "directions")
    titles = {str(name): with_arrow(str(name), ways.get(name)) for name in found["metrics"]}
    first = list(titles)[:_FIRST]
    rows = []
    for name, row in variants.items():
        changes = []
        for metric in first:
            one = part(row, "metrics", metric)
            gap = over_seeds(part(one, "difference"))
            known = [one.get("excludes_zero") for one in one.get("by_seed") or ()]
            known = [clear for clear in known if clear is not None]
            clear = f"clear in {sum(known)} of {len(known)}" if known else UNKNOWN
            changes.append(Cell(figure(gap, "+"), strong=True, css="figure", below=(interval(gap, "+"), clear)))
        before, after, reference = (_mean(row, "words", side, digits=1) for side in ("before", "after", "reference"))
        times = f"{_mean(row, 'length_ratio', 'after', digits=2)} of that"
        rows.append(
            [
                Cell(name, strong=True, lines=(Cell(row.get("changes"), tone="later"),)),
                *changes,
                Cell(f"{before} → {after}", css="figure", below=(f"reference {reference}", times)),
                _mean(row, "drift", "kl_report", digits=2),
            ]
        )
    head = ["method", "before", "after", "change", "interval over seeds", "each seed, bold if clear"]
    tables = []
    for metric, title in titles.items():
        body = []
        for variant, row in variants.items():
            one = part(row, "metrics", metric)
            gap = over_seeds(part(one, "difference"))
            seeds = tuple(
                Cell(
                    figure(seed.get("difference"), "+"),
                    aside=interval(seed, "+"),
                    strong=seed.get("excludes_zero") is True,
                    css="figure",
                )
                for seed in one.get("by_seed") or ()
            )
            cells = [_mean(one, "before"), _mean(one, "after"), Cell(figure(gap, "+"), strong=True), interval(gap, "+")]
            body.append([variant, *cells, Cell(lines=seeds) if seeds else None])
        tables.append((title, Table(head, body)))
    return AlignmentSeeds(
        first=Table(["method", *(titles[name] for name in first), "words per report", "drift"], rows),
        seeds=found.get("seeds") or (),
        n=found.get("n"),
        patients=found.get("patients"),
        published=published_table(variants, ["method"]),
        costs=_costs(variants),
        metrics=tuple(tables),
    )


def _costs(variants: Mapping[str, Any]) -> Table:
    """Pairs, the step that was kept, length, drift per token, closed questions: means over seeds."""
    head = [
        *("method", "pairs", "chosen is longer", "step kept", "words relative to the reference"),
        *("drift per token", "closed questions correct", "calibration error"),
    ]
    rows = []
    for name, row in variants.items():
        ratio = [_mean(row, "length_ratio", side, digits=2) for side in ("before", "after")]
        rows.append(
            [
                name,
                _mean(row, "pairs", digits=0),
                percent(part(row, "chosen_longer").get("mean")),
                Cell(f"{_mean(row, 'step', digits=0)} of {_mean(row, 'steps', digits=0)}", css="figure"),
                Cell(" → ".join(ratio), css="figure"),
                _mean(row, "drift", "kl_token"),
                _moved(part(row, "accuracy")),
                _moved(part(row, "calibration_error")),
            ]
        )
    return Table(head, rows)


def _moved(found: Mapping[str, Any]) -> Cell:
    """Before → after, and the change with its interval over seeds."""
    gap = over_seeds(part(found, "difference"))
    sides = " → ".join(_mean(found, side) for side in ("before", "after"))
    return Cell(sides, css="figure", below=(f"{figure(gap, '+')}, {interval(gap, '+')}",))


def _mean(row: Mapping[str, Any], *keys: str, digits: int = 3) -> str:
    """The mean over seeds of a figure."""
    return figure(part(row, *keys).get("mean"), digits=digits)

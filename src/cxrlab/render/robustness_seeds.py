"""Section on audits over seeds: does alignment change how a model withstands perturbed images?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.components import (
    UNKNOWN,
    Cell,
    Table,
    figure,
    grouped_table,
    interval,
    measured,
    number,
    over_seeds,
    p_value,
    part,
    readable,
)
from cxrlab.render.drawing import Drawing
from cxrlab.render.metric_names import CLEAN, FINDINGS, heading, metric_title, ordered
from cxrlab.render.result_files import ROBUSTNESS_SEEDS
from cxrlab.render.robustness_figures import (
    ALIGNED,
    START,
    answer_curves,
    drops_forest,
    has_answers,
    is_attack,
    radii,
    strongest,
)
from cxrlab.render.run_folder import RunFolder, shortened

_ALPHA = 0.05


@dataclass(frozen=True)
class Alarm:
    """Warnings of several audits that say the same."""

    blind: bool  # Whether they say that a model does not look at the image
    aligned: bool  # Whether they are about aligned models, not the start
    count: str  # In how many audits
    models: tuple[str, ...]  # Whose audits
    first: str  # The first line; of a blind model what was measured
    lines: tuple[str, ...]  # Each different line


@dataclass(frozen=True)
class UnderAttack:
    """One row for each variant: clean images, then the strongest attack at the middle and at the largest radius."""

    title: str
    table: Table


@dataclass(frozen=True)
class AuditSeeds:
    """Audits of aligned models over seeds."""

    threat: Any  # The threat model
    alarms: tuple[Alarm, ...]  # What the audits warned of, blind models first
    seeds: Sequence[Any]  # All of them
    counts: tuple[Any, Any]  # Studies and patients of the first audit
    headlines: tuple[UnderAttack, ...]  # Findings, answers or errors, and flips under attack
    curves: Drawing | None  # Over the radius
    forest: Drawing | None  # Differences of drops
    clean: Table  # Every quantity on clean images
    every: tuple[tuple[str, Table], ...]  # Every condition
    flips: Table  # Studies that flip under one model only
    transfer: Table  # Between start and aligned model


def robustness_seeds(runs: Sequence[RunFolder]) -> tuple[AuditSeeds, ...]:
    """Every study that audited its models."""
    found = [run.result(ROBUSTNESS_SEEDS) for run in runs]
    return tuple(_study(one) for one in found if part(one, "variants"))


def _study(found: Mapping[str, Any]) -> AuditSeeds:
    asked, variants = has_answers(found), part(found, "variants")
    headlines = (
        _headline(found, FINDINGS, ("asked.accuracy", "asked.confidence") if asked else ()),
        _headline(found, "asked.accuracy" if asked else "errors.significant"),
        _headline(found, "flip_rate"),
    )
    conditions = ordered(dict.fromkeys(name for one in variants.values() for name in part(one, "conditions")))
    every = ((name, _condition(variants, name)) for name in conditions)
    return AuditSeeds(
        threat=found.get("threat"),
        alarms=alarms(found),
        seeds=found.get("seeds") or (),
        counts=(found.get("n"), found.get("patients")),
        headlines=tuple(one for one in headlines if one),
        curves=answer_curves(found),
        forest=drops_forest(found, FINDINGS if asked else "flip_rate"),
        clean=_clean(variants),
        every=tuple((name, table) for name, table in every if table),
        flips=_flips(variants),
        transfer=_transfer(variants),
    )


def _headline(found: Mapping[str, Any], metric: str, beside: Sequence[str] | None = None) -> UnderAttack | None:
    """One quantity under attack; None where it was not measured.

    Args:
        found: Content of robustness_seeds.json.
        metric: What is shown under attack, and on clean images where it is known there.
        beside: What else is shown on clean images, with what the variants change; None leaves both to another table.
    """
    attack, variants = strongest(found, metric), part(found, "variants")
    known = radii(found, attack)
    under = {
        (name, size): part(row, "conditions", f"{attack}@{size}", metric)
        for name, row in variants.items()
        for size in known
    }
    if all(number(_change_of(one).get("mean")) is None for one in under.values()):
        return None
    sizes = list(dict.fromkeys([known[(len(known) - 1) // 2], known[-1]]))
    clean = [name for name in (metric, *(beside or ())) if any(part(row, CLEAN, name) for row in variants.values())]
    change = "difference of drops" if metric in clean else "difference"
    groups: list[tuple[str, Sequence[str]]] = [("", ["way to align"])]
    groups.append(("clean: start → aligned", [*map(heading, clean), "alike, by seed"]))
    groups += [(f"{attack}@{size}: {metric_title(metric)}", ["start → aligned", change]) for size in sizes]
    rows = []
    for name, row in variants.items():
        changes = () if beside is None else (Cell(row.get("changes"), tone="later"),)
        cells: list[Any] = [Cell(name, strong=True, lines=changes), *(_sides(part(row, CLEAN, one)) for one in clean)]
        cells.append(_alike(row.get("equal_clean")))
        for size in sizes:
            cells += [_sides(under[name, size]), _change(_change_of(under[name, size]))]
        rows.append(cells)
    return UnderAttack(f"Under {attack}: {metric_title(metric)}", grouped_table(groups, rows))


def _alike(found: Any) -> str:
    """Whether both models do equally well on clean images, seed by seed: ✓, ✗, or a dash where it is not known."""
    marks = {True: "✓", False: "✗"}
    seeds = found if isinstance(found, list) else []
    return " ".join(marks.get(one, UNKNOWN) if isinstance(one, bool) else UNKNOWN for one in seeds) or UNKNOWN


def _sides(found: Mapping[str, Any]) -> str:
    return " → ".join(figure(part(found, side).get("mean")) for side in (START, ALIGNED))


def _change_of(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The difference of drops, and the plain one of a quantity that clean images do not have."""
    return part(found, "drop") or part(found, "difference")


def _change(gap: Mapping[str, Any]) -> Cell:
    """Mean, Student's interval, and the seeds in which it is clear."""
    if number(gap.get("mean")) is None:
        return Cell(None)
    lines = [interval(gap, "+")] if gap.get("low") is not None else []
    if seeds := len(_measured_seeds(gap)):
        opposed = "" if gap.get("same_way", True) else ", not the same way"
        lines.append(f"clear in {gap.get('clear') or 0} of {seeds} seeds{opposed}")
    return Cell(figure(over_seeds(gap), "+"), strong=True, below=tuple(lines))


def _measured_seeds(gap: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = [part(one) for one in gap.get("by_seed") or ()]
    return [one for one in rows if number(one) is not None]


def _each_seed(gap: Mapping[str, Any]) -> Cell:
    """Each seed with its own interval, bold where clear."""
    seeds = tuple(
        Cell(figure(one, "+"), aside=interval(one, "+"), strong=p is not None and p < _ALPHA)
        for one in _measured_seeds(gap)
        for p in [number(one.get("p_holm"))]
    )
    return Cell(lines=seeds) if seeds else Cell(None)


def _clean(variants: Mapping[str, Any]) -> Table:
    metrics = dict.fromkeys(metric for row in variants.values() for metric in part(row, CLEAN))
    rows = [[heading(metric), *(_sides(part(row, CLEAN, metric)) for row in variants.values())] for metric in metrics]
    known = [row for row in rows if any(cell.strip(f"{UNKNOWN} →") for cell in row[1:])]
    return Table(["start → aligned", *variants], known, words=1, dense=True)


def _condition(variants: Mapping[str, Any], condition: str) -> Table:
    """One row for each quantity and variant."""
    metrics = dict.fromkeys(metric for row in variants.values() for metric in part(row, "conditions", condition))
    rows = []
    for metric in metrics:
        for variant, row in variants.items():
            found = part(row, "conditions", condition, metric)
            if number(_change_of(found).get("mean")) is None:
                continue
            gap, drop = part(found, "difference"), part(found, "drop")
            least = figure(part(found, "smallest_detectable").get("mean"))
            cells = [_change(gap), _each_seed(gap), least, _change(drop), _each_seed(drop)]
            rows.append([heading(metric), variant, _sides(found), *cells])
    groups: list[tuple[str, Sequence[str]]] = [
        ("", ["quantity", "way to align", "start → aligned"]),
        ("difference", ["over seeds", "each seed, bold where clear", "smallest detectable"]),
        ("difference of drops", ["over seeds", "each seed, bold where clear"]),
    ]
    return grouped_table(groups, rows, words=2)


def _flips(variants: Mapping[str, Any]) -> Table:
    """How many studies flip under the start only, under the aligned model only, and Holm's p, seed by seed."""
    rows = []
    for variant, row in variants.items():
        found = part(row, "flips")
        for name in ordered(found):
            seeds = [part(one) for one in found[name] or ()] if isinstance(found[name], list) else []
            if any(seeds):
                rows.append([variant, name, Cell(lines=tuple(Cell(_flip(one)) for one in seeds))])
    head = "each seed: only start / only aligned / both, of all; Holm p of McNemar's test"
    return Table(["way to align", "condition", head], rows, dense=True)


def _flip(one: Mapping[str, Any]) -> str:
    if not one:
        return UNKNOWN
    counts = " / ".join(readable(one.get(key)) for key in ("only_a", "only_b", "both"))
    return f"{counts}, of {readable(one.get('n'))}; p {p_value(one.get('p_holm'))}"


def _transfer(variants: Mapping[str, Any]) -> Table:
    """Harm of images made for the one on the other, as a share of what images made for that other do to it."""
    rows = []
    for variant, row in variants.items():
        found = part(row, "transfer")
        for name in ordered(found):
            ways = [part(found, name, way) for way in ("start_to_aligned", "aligned_to_start")]
            if is_attack(name) and any(number(way.get("mean")) is not None for way in ways):
                rows.append([variant, name, *(measured(over_seeds(way)) for way in ways)])
    made = ("made for the start, shown to the aligned", "made for the aligned, shown to the start")
    return Table(["way to align", "condition", *made], rows, words=2, dense=True)


# Warnings of several audits -----------------------------------------------------------------------------------------

_MODEL = re.compile(r"\b(?:hf|builtin|stub|retrieval|https?):[^\s,;]*[^\s,;:.]")
# What differs between two audits that warn of the same; a radius, which stands after @, distinguishes two warnings.
_FIGURE = re.compile(r"(?<![@\w])\d+\.\d+(?:e-?\d+)?|\d+ ?%")
_BLIND = "does not look at the image"


def alarms(found: Mapping[str, Any]) -> tuple[Alarm, ...]:
    """Each kind of warning once, with the number of audits that gave it; blind models first."""
    audits = len(part(found, "variants")) * len(found.get("seeds") or ())
    variants, lines = set(part(found, "variants")), [str(line) for line in found.get("warnings") or ()]
    groups: dict[tuple[bool, str], list[str]] = {}
    for line in lines:
        aligned = not variants.isdisjoint((_model(line) or "").split("/"))
        groups.setdefault((aligned, _FIGURE.sub("…", _MODEL.sub("…", line))), []).append(line)
    # A file that names a line once, whoever gave it, leaves open how many audits of the one start did.
    repeated = len(set(lines)) < len(lines)
    made = [_alarm(several, aligned, aligned or repeated, audits) for (aligned, _), several in groups.items()]
    return tuple(sorted(made, key=lambda alarm: not alarm.blind))


def _alarm(lines: list[str], aligned: bool, exact: bool, audits: int) -> Alarm:
    models = list(dict.fromkeys(name for line in lines if (name := _model(line))))
    given = len(models) if aligned else len(lines)
    count = f"in {'' if exact else 'at least '}{given} of {audits} audits" if given <= audits else ""
    blind = _BLIND in lines[0]
    _, _, measured = lines[0].partition("fooled by them. ")
    first = (measured or lines[0]) if blind else lines[0]
    return Alarm(blind, aligned, count, tuple(map(_short, models)), first, tuple(dict.fromkeys(lines)))


def _model(line: str) -> str | None:
    named = _MODEL.search(line)
    return named.group() if named else None


def _short(name: str) -> str:
    """A model's folder from the seed on, where it has one."""
    parts = name.split("/")
    seeds = [place for place, one in enumerate(parts) if re.fullmatch(r"seed\d+", one)]
    return "/".join(parts[seeds[-1] :]) if seeds else shortened(name)

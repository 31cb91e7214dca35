"""Section on robustness audits over seeds: models before and after preference alignment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from cxrlab.render.drawing import (
    GREY,
    INK,
    Curve,
    Drawing,
    Group,
    Layout,
    Panel,
    Point,
    Row,
    difference_forest,
    draw_curves,
    draw_panels,
    spread_of,
)
from cxrlab.render.metric_titles import (
    CLEAN,
    CONTROL,
    FINDINGS,
    WORST,
    direction,
    heading,
    is_control,
    is_share,
    metric_title,
    ordered,
    radius,
    split,
)
from cxrlab.render.run_folder import ROBUSTNESS_SEEDS, RunFolder, per_run, short_name

_ANSWERS = (FINDINGS, "closed_questions.accuracy", "closed_questions.confidence")
_REPORTS = ("flip_rate", "report.confidence", "errors.significant")
START, ALIGNED = "start", "aligned"
# Okabe and Ito's colours, distinguishable with any colour vision; black is the start.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_DRAWN = len(_COLOURS)  # ways to align in one drawing; more could not be distinguished
_APART = 4.5  # pixels between the seeds of two lines
_DECIDING = {"closed_questions": "closed_questions.accuracy", "report": FINDINGS}
_ALPHA = 0.05


@dataclass(frozen=True)
class Alarm:
    """One warning that several audits gave."""

    ignores_image: bool  # Whether the warning is that a model does not use the image
    aligned: bool  # Whether they are about aligned models, not the start
    count: str  # In how many audits
    models: tuple[str, ...]  # Whose audits
    first: str  # The first line; of a model that ignores the image what was measured
    lines: tuple[str, ...]  # Each different line


@dataclass(frozen=True)
class UnderAttack:
    """One row for each variant: clean images, then the strongest attack at the middle and at the largest radius."""

    title: str
    table: Table


@dataclass(frozen=True)
class Doses:
    """How the change of the drop in one metric depends on the drift."""

    title: str
    sentence: str  # The bound, and what the positive controls show
    established: bool
    sensitive: Any  # Whether a positive control shows an effect; None without controls
    table: Table
    curve: Drawing | None


@dataclass(frozen=True)
class AuditSeeds:
    """Audits of aligned models over seeds."""

    threat: Any  # The threat model
    alarms: tuple[Alarm, ...]  # What the audits warned of, models that ignore the image first
    seeds: Sequence[Any]  # All of them
    counts: tuple[Any, Any]  # Studies and patients of the first audit
    headlines: tuple[UnderAttack, ...]  # Findings, answers or errors, and flips under attack
    curves: Drawing | None  # Over the radius
    forest: Drawing | None  # Differences of drops
    clean: Table  # Every quantity on clean images
    every: tuple[tuple[str, Table], ...]  # Every condition
    flips: Table  # Studies that flip under one model only
    transfer: Table  # Between start and aligned model
    doses: tuple[Doses, ...]  # Changes of drops over the drift, one for each metric
    calibration: Table  # Of closed answers, before and after temperature scaling
    blanks: Table  # Accuracy with blank labels as unknown and as negative


@per_run(ROBUSTNESS_SEEDS)
def robustness_seeds(run: RunFolder, found: Mapping[str, Any]) -> AuditSeeds | None:
    """A study that audited its models."""
    if not part(found, "variants"):
        return None
    asked, variants = has_answers(found), part(found, "variants")
    headlines = (
        _headline(found, FINDINGS, ("closed_questions.accuracy", "closed_questions.confidence") if asked else ()),
        _headline(found, "closed_questions.accuracy" if asked else "errors.significant"),
        _headline(found, "flip_rate"),
    )
    conditions = ordered(dict.fromkeys(name for one in variants.values() for name in part(one, "conditions")))
    every = ((name, _condition(variants, name)) for name in conditions)
    clean = []
    for metric in dict.fromkeys(metric for row in variants.values() for metric in part(row, CLEAN)):
        cells = [_sides(part(row, CLEAN, metric)) for row in variants.values()]
        if any(cell.strip(f"{UNKNOWN} →") for cell in cells):
            clean.append([heading(metric), *cells])
    # How many studies flip under the start only, under the aligned model only, and Holm's p, seed by seed.
    flips = []
    flip_head = "each seed: only start / only aligned / both, of all; Holm p of McNemar's test"
    for variant, row in variants.items():
        by_condition = part(row, "flips")
        for name in ordered(by_condition):
            seeds = [part(one) for one in by_condition[name] or ()] if isinstance(by_condition[name], list) else []
            if any(seeds):
                lines = []
                for one in seeds:
                    counts = " / ".join(readable(one.get(key)) for key in ("only_a", "only_b", "both"))
                    line = f"{counts}, of {readable(one.get('n'))}; p {p_value(one.get('p_holm'))}"
                    lines.append(Cell(line if one else UNKNOWN))
                flips.append([variant, name, Cell(lines=tuple(lines))])
    # Harm of images made for one model on the other, as a share of what images made for that other do to it.
    transfer = []
    made = ("made for the start, tested on the aligned", "made for the aligned, tested on the start")
    for variant, row in variants.items():
        for name in ordered(part(row, "transfer")):
            ways = [part(row, "transfer", name, way) for way in ("start_to_aligned", "aligned_to_start")]
            if is_attack(name) and any(number(way.get("mean")) is not None for way in ways):
                transfer.append([variant, name, *(measured(over_seeds(way)) for way in ways)])
    return AuditSeeds(
        threat=found.get("threat"),
        alarms=alarms(found),
        seeds=found.get("seeds") or (),
        counts=(found.get("n"), found.get("patients")),
        headlines=tuple(one for one in headlines if one),
        curves=answer_curves(found),
        forest=drops_forest(found, FINDINGS if asked else "flip_rate"),
        clean=Table(["start → aligned", *variants], clean, words=1, dense=True),
        every=tuple((name, table) for name, table in every if table),
        flips=Table(["method", "condition", flip_head], flips, dense=True),
        transfer=Table(["method", "condition", *made], transfer, words=2, dense=True),
        doses=tuple(_doses(found, one) for one in part(found, "dose_response").get("metrics") or ()),
        calibration=_calibration(found),
        blanks=_blanks(found),
    )


def _doses(found: Mapping[str, Any], judged: Mapping[str, Any]) -> Doses:
    """Tuned models by drift, then the positive controls."""
    metric, response = str(judged.get("metric")), part(found, "dose_response")
    rows = [part(row) for row in response.get("rows") or () if part(row).get("metric") == metric]
    rows.sort(key=lambda row: (bool(row.get("control")), row.get("drift") or 0.0))
    changes = {**part(found, "variants"), **part(found, "controls")}
    lines = []
    for row in rows:
        name = str(row.get("name"))
        what = Cell(name, strong=True, lines=(Cell(part(changes, name).get("changes"), tone="later"),))
        effect = {"value": row.get("value"), "low": row.get("low_95"), "high": row.get("high_95")}
        seeds = ", ".join(figure(value, "+") for value in row.get("by_seed") or ())
        bound, p = figure(row.get("smallest_margin")), p_value(row.get("p"))
        dose = "control" if row.get("control") else figure(row.get("drift"))
        lines.append([what, dose, row.get("condition"), measured(effect, "+"), seeds, bound, p])
    margin = figure(response.get("margin"))
    heads = ["tuned by", "drift, nats per token", "condition", "change of the drop (95 %)", "each seed",
             "smallest margin", f"p of being within {margin}"]  # fmt: skip
    return Doses(
        f"{metric_title(metric)}: change of the drop over the drift",
        str(judged.get("sentence")),
        bool(judged.get("established")),
        judged.get("sensitive"),
        Table(heads, lines, words=3),
        dose_curve(found, metric),
    )


def dose_curve(found: Mapping[str, Any], metric: str = FINDINGS, width: int = 620, height: int = 320) -> Drawing | None:
    """The change of the drop over the drift, one curve for each condition, with intervals over seeds and patients.

    Positive controls have no drift and stand at 0, dashed. None where nothing was measured.
    """
    rows = [part(row) for row in part(found, "dose_response").get("rows") or ()]
    rows = [row for row in rows if row.get("metric") == metric and number(row.get("value")) is not None]
    curves = []
    for place, condition in enumerate(dict.fromkeys(str(row.get("condition")) for row in rows)):
        for control in (False, True):
            own = [row for row in rows if row.get("condition") == condition and bool(row.get("control")) is control]
            placed = [(0.0 if control else number(row.get("drift")), row) for row in own]
            known = sorted(((at, row) for at, row in placed if at is not None), key=lambda one: one[0])
            if not known:
                continue
            points = tuple(
                (at, row["value"], number(row.get("low_95")), number(row.get("high_95"))) for at, row in known
            )
            drifts = [part(found, "variants", str(row.get("name")), "drift").get("values") or () for _, row in known]
            dots = [
                (drift, value)
                for (_, row), values in zip(known, drifts, strict=True)
                for drift, value in zip(values, row.get("by_seed") or (), strict=False)
                if number(drift) is not None and number(value) is not None
            ]
            name = f"{condition}, positive control" if control else condition
            notes = tuple(str(row["name"]) for _, row in known)
            colour = _COLOURS[place % _DRAWN]
            curves.append(Curve(name, points, colour, place, dashed=control, dots=tuple(dots), notes=notes))
    if not curves:
        return None
    layout = Layout(width, height, 1.0, "drift from the start, nats per token", "the drift", "drift")
    return draw_curves(curves, f"{metric_title(metric)}: change of the drop, tuned minus start", layout)


def _calibration(found: Mapping[str, Any]) -> Table:
    """Start and aligned model under every condition, and the temperature that val gave them."""
    variants = part(found, "variants")
    rows = []
    for variant, row in variants.items():
        clean = part(row, CLEAN)
        metrics = [name for one in part(row, "calibration").values() for name in one]
        for metric in dict.fromkeys(metrics):
            conditions = {CLEAN: clean, **part(row, "calibration")}
            rows += [
                [variant, heading(metric), condition, _sides(part(one, metric))]
                for condition, one in conditions.items()
                if number(part(one, metric, START).get("mean")) is not None
            ]
        if number(part(row, "temperature", START).get("mean")) is not None:
            rows.append([variant, "temperature", "fitted on val", _sides(part(row, "temperature"))])
    return Table(["method", "quantity", "condition", "start → aligned"], rows, words=3, dense=True)


def _blanks(found: Mapping[str, Any]) -> Table:
    """Accuracy of closed answers where blank labels are unknown, and where they count as absent."""
    rows = []
    for variant, row in part(found, "variants").items():
        known = {CLEAN: part(row, CLEAN), **part(row, "conditions")}
        for condition, one in part(row, "blanks_negative").items():
            unknown = _sides(part(known, condition, "closed_questions.accuracy"))
            rows.append([variant, condition, unknown, _sides(part(one, "closed_questions.accuracy"))])
    heads = ["method", "condition", "blanks unknown: start → aligned", "blanks absent: start → aligned"]
    return Table(heads, rows, words=2, dense=True)


def _headline(found: Mapping[str, Any], metric: str, beside: Sequence[str] | None = None) -> UnderAttack | None:
    """One metric under attack, and on clean images where it is known there; None where it was not measured.

    `beside` are further metrics on clean images; with them the changes of each variant are shown too.
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
    groups: list[tuple[str, Sequence[str]]] = [("", ["method"])]
    groups.append(("clean: start → aligned", [*map(heading, clean), "alike, by seed"]))
    groups += [(f"{attack}@{size}: {metric_title(metric)}", ["start → aligned", change]) for size in sizes]
    rows = []
    for name, row in variants.items():
        changes = () if beside is None else (Cell(row.get("changes"), tone="later"),)
        cells: list[Any] = [Cell(name, strong=True, lines=changes), *(_sides(part(row, CLEAN, one)) for one in clean)]
        alike = row.get("equal_clean")  # seed by seed; a dash where it is not known
        marks = [{True: "✓", False: "✗"}.get(one, UNKNOWN) for one in alike] if isinstance(alike, list) else []
        cells.append(" ".join(marks) or UNKNOWN)
        for size in sizes:
            cells += [_sides(under[name, size]), _change(_change_of(under[name, size]))]
        rows.append(cells)
    return UnderAttack(f"Under {attack}: {metric_title(metric)}", grouped_table(groups, rows))


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
        ("", ["quantity", "method", "start → aligned"]),
        ("difference", ["over seeds", "each seed, bold if clear", "smallest detectable"]),
        ("difference of drops", ["over seeds", "each seed, bold if clear"]),
    ]
    return grouped_table(groups, rows, words=2)


# Warnings of several audits -----------------------------------------------------------------------------------------

_MODEL = re.compile(r"\b(?:hf|builtin|stub|retrieval|https?):[^\s,;]*[^\s,;:.]")
# Numbers that differ between two audits with the same warning; a radius (after @) distinguishes two warnings.
_FIGURE = re.compile(r"(?<![@\w])\d+\.\d+(?:e-?\d+)?|\d+ ?%")
_IGNORES_IMAGE = "does not use the image"


def alarms(found: Mapping[str, Any]) -> tuple[Alarm, ...]:
    """Each kind of warning once, with the number of audits that gave it; models that ignore the image first."""
    variants, lines = (
        {*part(found, "variants"), *part(found, "controls")},
        [str(line) for line in found.get("warnings") or ()],
    )
    models = len(variants) * len(found.get("seeds") or ())
    # One audit per seed holds the start and everything made from it; older files have one for each aligned model.
    audits = len(found.get("seeds") or ()) if part(found, "dose_response") else models
    groups: dict[tuple[bool, str], list[str]] = {}
    for line in lines:
        aligned = not variants.isdisjoint((_model(line) or "").split("/"))
        groups.setdefault((aligned, _FIGURE.sub("…", _MODEL.sub("…", line))), []).append(line)
    # A file that lists each line only once does not show how many audits of the start gave it.
    repeated = len(set(lines)) < len(lines)
    made = []
    for (aligned, _), several in groups.items():
        named = list(dict.fromkeys(name for line in several if (name := _model(line))))
        given, among = (len(named), models) if aligned else (len(several), audits)
        least = "" if aligned or repeated else "at least "
        what = "models" if aligned and audits < models else "audits"
        count = f"in {least}{given} of {among} {what}" if given <= among else ""
        ignores_image = _IGNORES_IMAGE in several[0]
        first = several[0].partition("fooled by them. ")[2] if ignores_image else ""
        names = []
        for name in named:  # a model's folder from the seed on, where it has one
            parts = name.split("/")
            seeds = [place for place, one in enumerate(parts) if re.fullmatch(r"seed\d+", one)]
            names.append("/".join(parts[seeds[-1] :]) if seeds else short_name(name))
        made.append(
            Alarm(ignores_image, aligned, count, tuple(names), first or several[0], tuple(dict.fromkeys(several)))
        )
    return tuple(sorted(made, key=lambda alarm: not alarm.ignores_image))


def _model(line: str) -> str | None:
    named = _MODEL.search(line)
    return named.group() if named else None


# What was measured --------------------------------------------------------------------------------------------------


def has_answers(found: Mapping[str, Any]) -> bool:
    """Whether closed questions were asked, so that there are answers to show."""
    rows = part(found, "variants")
    return any(
        number(part(rows, name, CLEAN, "closed_questions.accuracy", START).get("mean")) is not None for name in rows
    )


def radii(found: Mapping[str, Any], attack: str | None = None) -> list[str]:
    """Radii of the attacks that every variant was given, as the file writes them, rising; of one attack only."""
    known: dict[float, str] = {}
    for name in _conditions(found):
        family, size = split(name)
        value = radius(size)
        if value is not None and attack in (None, family):
            known.setdefault(value, size)
    return [known[value] for value in sorted(known)]


def is_attack(condition: str) -> bool:
    """Whether a condition is an attack, not the noise control or the worst case of several."""
    return not is_control(condition) and split(condition)[0] != WORST


def strongest(found: Mapping[str, Any], metric: str) -> str | None:
    """The attack that harms the start's `metric` most at the largest radius.

    For a confidence, which has no better direction, it is the attack that harms accuracy or findings most.
    """
    deciding = metric if direction(metric) else _DECIDING.get(metric.partition(".")[0], FINDINGS)
    attacks = list(filter(is_attack, _conditions(found)))
    known = [value for name in attacks if (value := radius(split(name)[1])) is not None]
    here = [name for name in attacks if radius(split(name)[1]) == max(known)] if known else []
    first, sign = _first(found), -1.0 if direction(deciding) == "lower" else 1.0
    values = {name: number(part(first, "conditions", name, deciding, START).get("mean")) for name in here}
    ranked = {name: sign * value for name, value in values.items() if value is not None}
    chosen = min(ranked, key=lambda name: ranked[name]) if ranked else next(iter(here), None)
    return None if chosen is None else split(chosen)[0]


def _conditions(found: Mapping[str, Any]) -> list[str]:
    """Conditions that every variant has."""
    rows = part(found, "variants")
    return [
        name for name in part(_first(found), "conditions") if all(name in part(rows, one, "conditions") for one in rows)
    ]


def _first(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return part(found, "variants", next(iter(part(found, "variants")), ""))


# Curves -------------------------------------------------------------------------------------------------------------


def answer_curves(
    found: Mapping[str, Any], metrics: Sequence[str] | None = None, width: int = 900, height: int = 350
) -> Drawing | None:
    """Quantities over the radius, one panel each: the start and every variant under the attack that harms it most.

    Lines are means over seeds, small dots the seeds; the clean image is radius 0; dashed is noise of the same size on
    the start. None where no quantity was measured.

    Args:
        metrics: Findings and answers when left out, or quantities of the reports where no questions were asked.
        height: Without the legend beneath.
    """
    chosen = metrics if metrics is not None else _ANSWERS if has_answers(found) else _REPORTS
    names = list(part(found, "variants"))[:_DRAWN]
    first = -_APART * len(names) / 2
    panels = []
    for metric in chosen:
        attack = strongest(found, metric)
        if attack is None or not names:
            continue
        curves = [_curve(found, metric, names[0], START, attack, Curve("start", (), INK, 0, thick=True, shift=first))]
        for place, name in enumerate(names, 1):
            shift = round(first + _APART * place, 2)
            style = Curve(name, (), _COLOURS[place - 1], place, shift=shift)
            curves.append(_curve(found, metric, name, ALIGNED, attack, style))
        curves = [curve for curve in curves if len(curve.points) > 1]
        style = Curve(f"start under {CONTROL} of that size (control)", (), GREY, 0, dashed=True, shift=first)
        noise = _curve(found, metric, names[0], START, CONTROL, style)
        across = f"ε of {attack}, {'in 255ths ' if _in_255ths(found) else ''}(0: clean)"
        if curves:
            drawn = [*curves, *([noise] if len(noise.points) > 1 else [])]
            panels.append(Panel(metric_title(metric), drawn, across, is_share(metric)))
    if not panels:
        return None
    variants = len(part(found, "variants"))
    note = f"{_DRAWN} of {variants} methods drawn" if variants > _DRAWN else ""
    return draw_panels(panels, Layout(width, height, 255.0 if _in_255ths(found) else 1.0), note)


def _curve(found: Mapping[str, Any], metric: str, variant: str, side: str, attack: str, style: Curve) -> Curve:
    """The curve of one side of a variant under an attack, with the label and looks of `style`."""
    row = part(found, "variants", variant)
    values = {0.0: part(row, CLEAN, metric, side)}
    for size in radii(found, attack):
        values[radius(size) or 0.0] = part(row, "conditions", f"{attack}@{size}", metric, side)
    if metric == "flip_rate":
        values[0.0] = {"mean": 0.0}  # a report is compared with the model's own on the clean image
    points: list[Point] = [
        (eps, mean, None, None) for eps, one in values.items() if (mean := number(one.get("mean"))) is not None
    ]
    dots = [(eps, number(seed)) for eps, one in values.items() for seed in one.get("values") or ()]
    known = () if style.dashed else tuple((eps, value) for eps, value in dots if value is not None)
    return replace(style, points=tuple(points), dots=known)


def _in_255ths(found: Mapping[str, Any]) -> bool:
    return all(size.endswith("/255") for size in radii(found))


# Forest -------------------------------------------------------------------------------------------------------------


def drops_forest(found: Mapping[str, Any], metric: str = FINDINGS, width: int = 900) -> Drawing | None:
    """The difference of drops (aligned minus start) of every variant and radius, under the strongest attack.

    Thin lines are the seeds with their own intervals, the dot is the mean over seeds with Student's interval. A
    quantity without a drop, such as flips, is shown by its plain difference. None where nothing was measured.
    """
    attack = strongest(found, metric)
    groups, plain = [], False
    for name in part(found, "variants"):
        rows = []
        for size in radii(found, attack):
            one = part(found, "variants", name, "conditions", f"{attack}@{size}", metric)
            plain = plain or "drop" not in one
            gap = part(one, "drop") or part(one, "difference")
            if mean := spread_of(over_seeds(gap)):
                alone = tuple(filter(None, map(spread_of, gap.get("by_seed") or ())))
                note = f"{gap.get('clear') or 0} of {len(alone)}" if alone else ""
                rows.append(Row(f"ε {size}", mean, alone, note))
        if rows:
            groups.append(Group(name, rows))
    if not groups:
        return None
    what, ends = "difference of drops", ("aligned suffers more", "aligned suffers less")
    if plain:
        what, ends = "difference", ("aligned is worse", "aligned is better")
    if direction(metric) != "higher":
        ends = ends[::-1] if direction(metric) else ("aligned lower", "aligned higher")
    heading = f"{metric_title(metric)} under {attack}: {what}, aligned minus start"
    return difference_forest(groups, heading, ends, ("mean (95 % over seeds)", "clear seeds"), width)

"""Section on a robustness audit: accuracy by label, curves over the radius, every condition, models compared, images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.components import (
    UNKNOWN,
    Cell,
    Picture,
    Report,
    Table,
    change_marks,
    changed,
    difference,
    figure,
    grouped_table,
    interval,
    measured,
    number,
    p_value,
    part,
    percent,
    picture,
    report,
)
from cxrlab.render.drawing import COLOURS, GREY, INK, Curve, Drawing, Layout, Point, draw_curves
from cxrlab.render.metric_titles import (
    CLEAN,
    CONTROL,
    FINDINGS,
    WORST,
    by_radius,
    direction,
    heading,
    is_control,
    is_share,
    metric_title,
    middle_radius,
    ordered,
    radius,
    split,
    with_arrow,
)
from cxrlab.render.run_folder import ROBUSTNESS, TRIPTYCHS, RunFolder, per_run, short_name

# Attacks that use the model's gradients; importing the attacks themselves would need torch.
_WHITE_BOX = ("fgsm", "pgd", "mi-fgsm", "apgd", "ensemble")
# Models that are shown with every condition; further ones have only their headline on the page.
_FULL = 3
_COLUMNS = (
    ("reports", (FINDINGS, "chexpert14.micro.f1:uncertain-positive", "report.loss", "errors.added")),
    (
        "answers",
        ("closed_questions.accuracy", "closed_questions.auroc", "closed_questions.ece", "closed_questions.brier"),
    ),
    ("flips", ("flip_rate", "flips.normal_to_abnormal", "flips.abnormal_to_normal", "flips.side_swapped")),
)
_SHORT = {
    "report.loss": "loss",
    "closed_questions.ece": "ECE",
    "closed_questions.brier": "Brier",
    "closed_questions.accuracy": "accuracy",
    "flip_rate": "reports",
    "chexpert14.micro.f1:uncertain-positive": "CheXpert F1",
}
_NOT_METRICS = ("uint8", "realised", "passes", "broken", "confidence", "zero_gradients", "n")
_SLACK = 1e-4  # of a radius, lost to rounding in single precision
_GREYS = 255
_ALPHA = 0.05
_COMPARED = ("closed_questions.accuracy", FINDINGS, "flip_rate")
MOST_TRIPTYCHS = 12  # studies whose images are shown; three images each make a page heavy
_VERDICTS = {"uses_image": ("here", "✓ uses the image"), "unclear": ("doubt", "? not clear that it uses the image")}


@dataclass(frozen=True)
class ImageUse:
    """Whether a model uses the image: tone and words of the verdict, and the sentence behind it."""

    model: str
    ignores_image: bool
    tone: str
    verdict: str
    sentence: Any


@dataclass(frozen=True)
class ByLabel:
    """Accuracy and confidence of one model by label, under its strongest attack."""

    condition: str  # The attack
    why: str  # Why this attack
    table: Table  # One row for each label, or for whole metrics where nothing is known by label
    others: tuple[tuple[str, Table], ...]  # The same table for other conditions, where they are shown
    left_out: int  # Number of other conditions, which only the file holds


@dataclass(frozen=True)
class Certified:
    """What randomised smoothing certifies of a model's closed answers."""

    model: str
    sentence: Any
    shares: Table


@dataclass(frozen=True)
class Flip:
    """An answer that flipped under attack; `verdict` states whether it is wrong or right now."""

    label: Any
    shares: str
    truth: str = ""
    verdict: str = ""
    wrong: bool = False


@dataclass(frozen=True)
class Triptych:
    """A study before and after an attack: three images, the reports, and the answers that flipped."""

    id: Any
    model: str
    condition: Any
    size: str
    images: tuple[Picture, ...]
    reports: tuple[Report, ...]
    flips: tuple[Flip, ...]


@dataclass(frozen=True)
class Audit:
    """One robustness audit."""

    threat: Any  # The threat model
    image_use: tuple[ImageUse, ...]  # Whether each model uses the image
    warnings: Sequence[str]  # Of the run
    summary: Table  # One row for each of several models
    # The fields that are lists have one entry for each of these, None or empty where nothing was measured
    models: list[Audited]
    by_label: list[ByLabel | None]  # Accuracy and confidence by label
    curves: tuple[Drawing, ...]  # Over the radius, for all models together
    model_curves: tuple[tuple[str, tuple[Drawing, ...]], ...]  # The same for each of several models
    smallest: list[Table]  # Smallest harmful radius
    certified: tuple[Certified, ...]  # Certified answers
    conditions: list[Conditions | None]  # Every condition
    realised: list[Table]  # What the perturbations really were
    corruptions: list[Corruptions | None]  # Natural corruptions
    comparisons: Comparisons | None  # Models against each other
    triptychs: tuple[Triptych, ...]  # Images and reports
    more_triptychs: int  # How many the page leaves out
    protocol: Mapping[str, Any]  # Settings


@per_run(ROBUSTNESS)
def robustness(run: RunFolder, found: Mapping[str, Any]) -> Audit | None:
    """An audit; one whose models have no figures is left out."""
    models = models_of(found)
    if not any(one.found.keys() - {"key"} for one in models):
        return None
    norm = str(part(found, "protocol").get("norm") or "linf")
    image_use = []
    for key, one in part(found, "controls", "image_dependence").items():
        verdict = str(one.get("verdict"))
        tone, words = _VERDICTS.get(verdict, ("doubt", "? not tested whether it uses the image"))
        image_use.append(
            ImageUse(name_of(models, str(key)), verdict == "ignores_image", tone, words, one.get("sentence"))
        )
    ignores_image = [str(one.sentence) for one in image_use if one.ignores_image and one.sentence]
    certified = []
    for model in models:
        promised = part(model.found, "certified")
        if shares := part(promised, "right_within"):
            every = {**{str(size): part(shares, size) for size in shares}, "no answer": part(promised, "abstained")}
            rows = [[name, figure(one), interval(one)] for name, one in every.items()]
            table = Table(["Euclidean length", "share of answers", "95 % interval"], rows, words=2)
            certified.append(Certified(model.name, promised.get("sentence"), table))
    records = run.records(TRIPTYCHS)
    return Audit(
        threat=found.get("threat"),
        image_use=tuple(image_use),
        # A model that ignores the image has an alarm of its own.
        warnings=[
            line for line in found.get("warnings") or () if not any(sentence in line for sentence in ignores_image)
        ],
        summary=_summary(models),
        models=models,
        by_label=[_by_label(model, full=place < _FULL) for place, model in enumerate(models)],
        curves=_panels(found, None),
        model_curves=tuple((one.name, _panels(found, [one.key])) for one in models[:_FULL] if len(models) > 1),
        smallest=list(map(smallest_radius, models)),
        certified=tuple(certified),
        conditions=[conditions(model, place < _FULL) for place, model in enumerate(models)],
        realised=[realised(model, norm) for model in models],
        corruptions=list(map(corruptions, models)),
        comparisons=comparisons(found, models),
        triptychs=tuple(_triptych(run, record, models) for record in records[:MOST_TRIPTYCHS]),
        more_triptychs=max(0, len(records) - MOST_TRIPTYCHS),
        protocol=part(found, "protocol"),
    )


# The models of an audit ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Audited:
    """One model of an audit."""

    key: str  # Short key, as comparisons and images name it
    name: str  # Short name: of a long path only the end
    full: str  # Name as the file has it
    found: Mapping[str, Any]  # What was measured

    @property
    def clean(self) -> Mapping[str, Any]:
        """What was measured on clean images, also rounded to 8 bits."""
        return {**part(self.found, CLEAN), "uint8": part(self.found, "clean_uint8")}


def models_of(audit: Mapping[str, Any]) -> list[Audited]:
    """The models in the order of their keys."""
    made = [
        Audited(str(found.get("key") or name), short_name(str(name)), str(name), found)
        for name, found in part(audit, "models").items()
        if found
    ]
    return sorted(made, key=lambda model: (len(model.key), model.key))


def name_of(models: Iterable[Audited], key: Any) -> str:
    """The name of the model with this key; the key itself if no model has it."""
    return next((model.name for model in models if model.key == str(key)), str(key))


def white_box(condition: str) -> bool:
    """Whether the attack of a condition uses gradients."""
    return split(condition)[0].partition(":")[0] in _WHITE_BOX


def strongest_attack(found: Mapping[str, Any]) -> str | None:
    """The condition of a model that a page shows first: the strongest white-box attack at the middle radius.

    Strongest is the lowest accuracy of answers, then the lowest findings F1, then the most flipped reports. Without
    white-box attacks any other is taken, and the noise control only where there is nothing else.
    """
    attacks = part(found, "attacks")
    known = [name for name in attacks if part(found, "labels", name)] or list(attacks)
    size = middle_radius(known)
    here = [name for name in known if radius(split(name)[1]) == size]
    chosen = list(filter(white_box, here)) or [name for name in here if not is_control(name)] or here

    def left(name: str) -> tuple[float, ...]:
        values = [number(part(attacks, name).get(metric)) for metric in ("closed_questions.accuracy", FINDINGS)]
        flips = number(part(attacks, name).get("flip_rate"))
        return (*(math.inf if value is None else value for value in values), 0.0 if flips is None else -flips)

    return min(chosen, key=left) if chosen else None


# Accuracy and confidence by label -----------------------------------------------------------------------------------

# Group of columns, keys of the values of a label, and which way is better.
_GROUPS = (
    ("accuracy of answers ↑", ("closed_questions", "accuracy"), "higher"),
    ("confidence of answers", ("closed_questions", "confidence"), ""),
    ("accuracy of reports ↑", ("reports", "accuracy"), "higher"),
)
_SIDES = ("original", "perturbed", "difference")
_ALL = ("all", "all labels", "overall", "together")
_SUMMARY = ("closed_questions.accuracy", "closed_questions.confidence", FINDINGS, "flip_rate")


def _by_label(model: Audited, full: bool) -> ByLabel | None:
    chosen = strongest_attack(model.found)
    if chosen is None:
        return None
    labels = part(model.found, "labels")
    table = label_table(part(labels, chosen))
    if not table:  # the same columns for whole metrics
        found, clean = part(model.found, "attacks", chosen), model.clean
        rows = [
            [
                heading(metric),
                part(found, metric).get("n"),
                measured(clean.get(metric)),
                measured(found.get(metric)),
                changed(part(found, metric).get("difference"), direction(metric)),
            ]
            for metric in _SUMMARY
            if number(found.get(metric)) is not None
        ]
        if not rows:
            return None
        table = grouped_table([("", ["metric", "n", *_SIDES])], rows, dense=False)
    rest = [name for name in ordered(labels) if name != chosen]
    others = tuple((name, one) for name in rest if (one := label_table(part(labels, name)))) if full else ()
    kind = "with the model's gradients" if white_box(chosen) else "of those tried, none of which uses gradients,"
    why = f"the strongest attack {kind} at the middle radius, {split(chosen)[1]}."
    if is_control(chosen):
        why = "noise only; no attack was tried."
    return ByLabel(chosen, why, table, others, 0 if full else len(rest))


def label_table(labels: Mapping[str, Any]) -> Table:
    """One row for each label, that of all together first; groups that no label has are left out."""
    rows = {name: part(labels, name) for name in sorted(labels, key=lambda name: name.lower() not in _ALL)}
    groups = [
        group
        for group in _GROUPS
        if any(number(part(row, *group[1]).get(side)) is not None for row in rows.values() for side in _SIDES)
    ]
    body = []
    for name, row in rows.items() if groups else ():
        cells: list[Any] = [Cell(name, strong=name.lower() in _ALL), row.get("n"), row.get("positives")]
        for _, way, better in groups:
            found = part(row, *way)
            cells += [measured(found.get(side), digits=2) for side in _SIDES[:2]]
            cells.append(changed(found.get("difference"), better, digits=2))
        body.append(cells)
    return grouped_table([("", ["label", "n", "present"]), *((name, _SIDES) for name, _, _ in groups)], body)


def _summary(models: Sequence[Audited]) -> Table:
    """One row for each of several models: clean and under its own strongest attack."""
    rows = []
    for model in models if len(models) > 1 else ():
        chosen = strongest_attack(model.found)
        found = part(model.found, "attacks", chosen or "")
        cells: list[Any] = [Cell(f"{model.key} {model.name}", strong=True), chosen]
        for metric in _SUMMARY[:-1]:
            cells += [measured(side.get(metric), digits=2) for side in (model.clean, found)]
        rows.append([*cells, measured(found.get("flip_rate"), digits=2)])
    pairs = [(metric_title(metric), ("clean", "attacked")) for metric in _SUMMARY[:-1]]
    groups = [("", ["model", "attack"]), *pairs, (metric_title("flip_rate"), ["attacked"])]
    return grouped_table(groups, rows, words=2)


# Curves over the radius ---------------------------------------------------------------------------------------------

_PANELS = ("closed_questions.accuracy", "closed_questions.confidence", FINDINGS, "flip_rate")
_DRAWN = 6  # models in one drawing; more could not be distinguished
_WORSE = {"higher": "lower is worse", "lower": "higher is worse"}


def _panels(audit: Mapping[str, Any], models: Sequence[str] | None) -> tuple[Drawing, ...]:
    return tuple(one for metric in _PANELS if (one := radius_curve(audit, metric, models)))


def radius_curve(
    audit: Mapping[str, Any],
    metric: str,
    models: Sequence[str] | None = None,
    attacks: Sequence[str] | None = None,
    size: tuple[int, int] = (520, 300),
) -> Drawing | None:
    """One metric over the radius; None where there is no such curve.

    Args:
        models: Keys or names of the models to draw, at most six; all when left out.
        attacks: Attacks to draw; when left out, all for one model, and the strongest and the noise control for several.
        size: Pixels, without the legend beneath.
    """
    known = models_of(audit)
    chosen = [one for one in known if models is None or not {one.key, one.name, one.full}.isdisjoint(models)]
    if len(chosen) > 1 and attacks is None:
        first = next((name for model in chosen if (name := strongest_attack(model.found))), None)
        attacks = [CONTROL] if first is None else [split(first)[0], CONTROL]
    under = [name for name in attacks or () if not is_control(name)]
    several, one_attack = len(chosen) > 1, len(chosen) > 1 and len(under) == 1
    curves = []
    for place, model in enumerate(chosen[:_DRAWN]):
        lines = part(model.found, "curves", metric)
        names = [name for name in lines if attacks is None or name in attacks]
        for turn, name in enumerate(sorted(names, key=lambda one: (is_control(one), one == WORST))):
            points = _points(lines[name], number(model.clean.get(metric)))
            label, colour = name, COLOURS[(place if several else turn) % len(COLOURS)]
            if is_control(name):  # one entry of the legend for the controls of all models
                label, colour = f"{name} (control)", GREY
            elif several:
                known_as = model.name if len(model.name) <= 52 else f"{model.name[:24]}…{model.name[-27:]}"
                label = f"{model.key}: {known_as}" + ("" if one_attack else f", {name}")
            elif name == WORST:
                colour = INK
            if points:
                marker = place if one_attack else turn
                curves.append(Curve(label, points, colour, marker, dashed=is_control(name), thick=colour == INK))
    if not curves:
        return None
    curves.sort(key=lambda curve: curve.dashed)
    worse = f" ({_WORSE[direction(metric)]})" if direction(metric) in _WORSE else ""
    shared = f" under {under[0]}" if one_attack else ""
    note = f"{_DRAWN} of {len(chosen)} models drawn" if len(chosen) > _DRAWN else ""
    layout = Layout(*size)
    if part(audit, "protocol").get("norm") == "l2":
        layout = Layout(*size, 1.0, "radius ε, length of the whole change (0: clean image)")
    return draw_curves(curves, f"{metric_title(metric)}{shared}{worse}", layout, is_share(metric), note)


def _points(rows: Any, clean: float | None) -> tuple[Point, ...]:
    """Points with a value, by rising radius; the clean image is radius 0."""
    found: dict[float, Point] = {}
    for row in rows if isinstance(rows, (list, tuple)) else ():
        values = [number(one) for one in row] if isinstance(row, (list, tuple)) else []
        eps, value, low, high = (*values, None, None, None, None)[:4]
        if eps is not None and value is not None and eps >= 0:
            found[eps] = (eps, value, low, high)
    if clean is not None and found:
        found.setdefault(0.0, (0.0, clean, None, None))
    return tuple(found[eps] for eps in sorted(found))


# Every condition ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conditions:
    """One row for each condition, and every metric with its interval where that is shown."""

    table: Table
    intervals: tuple[tuple[str, Table], ...]


def conditions(model: Audited, full: bool) -> Conditions | None:
    """Every condition: values for the image as generated and, beneath, rounded to 8 bits as in a file.

    When `full`, every metric is also listed with its interval.
    """
    attacks, worst = part(model.found, "attacks"), part(model.found, "worst")
    every = [(CLEAN, model.clean)]
    every += [(name, part(attacks, name)) for name in ordered(attacks)]
    every += [(f"{WORST}@{size}", part(worst, size)) for size in by_radius(worst)]
    table = _condition_table(every)
    if len(every) < 2 or not table:
        return None
    head, intervals = ["metric", "n", "value", "difference from clean", "8 bits"], []
    for name, found in every if full else ():
        rows = [
            [
                heading(metric),
                part(found, metric).get("n"),
                measured(found[metric]),
                changed(part(found, metric).get("difference"), direction(metric)),
                measured(part(found, "uint8").get(metric)),
            ]
            for metric in found
            if metric not in _NOT_METRICS and number(found[metric]) is not None
        ]
        if rows:
            intervals.append((_plain(name), Table(head, rows, words=1)))
    return Conditions(table, tuple(intervals))


def _condition_table(every: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Columns without any figure are left out."""
    known = {metric for _, found in every for metric in found if number(found[metric]) is not None}
    groups = [(name, [metric for metric in metrics if metric in known]) for name, metrics in _COLUMNS]
    groups = [(name, metrics) for name, metrics in groups if metrics]
    rows = []
    for name, found in every:
        cells, rounded = [_label(name)], part(found, "uint8")
        for metric in (metric for _, metrics in groups for metric in metrics):
            below = (figure(rounded.get(metric)),) if rounded else ()  # of the image rounded to 8 bits
            cells.append(Cell(figure(found.get(metric)), below=below))
        rows.append(cells)
    heads = [
        (name, [with_arrow(_SHORT.get(metric, metric_title(metric)), direction(metric)) for metric in metrics])
        for name, metrics in groups
    ]
    return grouped_table([("", ["condition"]), *heads], rows if groups else [])


def _plain(condition: str) -> str:
    name, size = split(condition)
    return f"worst case at {size}" if name == WORST else condition


def _label(condition: str) -> Cell:
    if is_control(condition):
        return Cell(f"{_plain(condition)} control", tone="later")
    return Cell(_plain(condition), strong=condition == CLEAN or split(condition)[0] == WORST)


# Sizes, harm by radius, corruptions ---------------------------------------------------------------------------------


def realised(model: Audited, norm: str = "linf") -> Table:
    """The measured size of the perturbations and their cost; one beyond its radius (in `norm`) is marked."""
    rows = []
    attacks = part(model.found, "attacks")
    for name in ordered(attacks):
        found = part(attacks, name)
        if not any(key in found for key in ("realised", "passes", "broken")):
            continue
        around, length = part(found, "realised", "linf"), part(found, "realised", "l2")
        most, allowed = number((length if norm == "l2" else around).get("max")), radius(split(name)[1])
        beyond = most is not None and allowed is not None and most > allowed * (1 + _SLACK)
        label = _label(name)
        if beyond:
            label = Cell(label.value, lines=(Cell("⚠ beyond its radius", tone="bad", strong=True),))
        sizes = [
            figure(None if (size := number(norms.get(key))) is None else size * unit, digits=2)
            for norms, unit in ((around, _GREYS), (length, 1))
            for key in ("mean", "max")
        ]
        passes = figure(found.get("passes"), digits=1).removesuffix(".0")
        rows.append([label, *sizes, passes, percent(found.get("broken"))])
    ends = ["mean", "most"]
    groups = [("", ["condition"]), ("L∞, in 255ths", ends), ("L2", ends), ("", ["passes per image", "goal reached"])]
    return grouped_table(groups, rows)


def smallest_radius(model: Audited) -> Table:
    """The share of studies that some attack of at most each radius harms, and the radius that harms half of them."""
    found = part(model.found, "smallest_eps")
    kinds = {"report": "reports with more significant errors", "closed_questions": "studies with more wrong answers"}
    sizes = by_radius({size for kind in kinds for size in part(found, kind, "harmed")})
    rows = [
        [words, *(measured(part(found, kind, "harmed").get(size)) for size in sizes), part(found, kind).get("median")]
        for kind, words in kinds.items()
        if part(found, kind)
    ]
    return Table(["share harmed by radius ↓", *sizes, "median radius"], rows if sizes else [], words=1)


@dataclass(frozen=True)
class Corruptions:
    """Heat maps of natural corruptions, and a table of every metric."""

    heat: tuple[Table, ...]
    table: Table


def corruptions(model: Audited) -> Corruptions | None:
    """One heat map for each metric: kinds down, severities across; and every metric as a table."""
    found, heat = part(model.found, "corruptions"), []
    for metric in ("closed_questions.accuracy", FINDINGS):
        known = {split(name): number(part(found, name).get(metric)) for name in found}
        if all(value is None for value in known.values()):
            continue
        clean, sizes, rows = number(model.clean.get(metric)), by_radius({size for _, size in known}), []
        for kind in dict.fromkeys(kind for kind, _ in known):
            cells: list[Any] = [kind, figure(clean)]
            for value in (known.get((kind, size)) for size in sizes):
                # The darker, the more is lost relative to the clean image; darkest where half or more is lost.
                shade = None
                if value is not None and clean is not None:
                    shade = 0.75 * min(max(2 * (clean - value) / (clean or 1.0), 0.0), 1.0)
                cells.append(Cell(figure(value), shade=shade))
            rows.append(cells)
        heat.append(Table([heading(metric), "clean", *sizes], rows, words=1))
    every = [(CLEAN, model.clean)]
    every += [(name, part(found, name)) for name in ordered(found)]
    table = _condition_table(every if found else [])
    return Corruptions(tuple(heat), table) if heat or table else None


# Comparison of models -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """One model against another."""

    title: str  # Both models
    equal: tuple[bool, Any]  # Whether both are equal on clean images, with the sentence that states it
    counts: tuple[Any, Any]  # Studies and patients
    first: Table  # Differences at the middle radius
    more: Table  # Every other condition and metric
    flips: Table  # Studies that flip under one model only
    matched: tuple[Table, Any, Any]  # What both have right on the clean image, with the number of answers and reports


@dataclass(frozen=True)
class Transfer:
    """Images made for one model shown to another: a matrix under one condition, and all conditions as a list."""

    metric: str
    condition: str
    matrix: Table
    every: Table


@dataclass(frozen=True)
class Comparisons:
    """Every pair, and the transfer between all models."""

    pairs: tuple[Pair, ...]
    transfer: Transfer | None


def comparisons(audit: Mapping[str, Any], models: Sequence[Audited]) -> Comparisons | None:
    """Every pair of the audit; None where nothing was compared."""
    found = part(audit, "comparison")
    pairs = tuple(_pair(name, part(found, name), models, place < _FULL) for place, name in enumerate(found))
    transfer = _transfer(found, models)
    return Comparisons(pairs, transfer) if pairs or transfer else None


def _pair(pair: str, found: Mapping[str, Any], models: Sequence[Audited], full: bool) -> Pair:
    names = {model.key: model.name for model in models}
    keys, by_condition = _keys(pair), part(found, "conditions")
    rows = [
        (name, metric)
        for name in ordered(by_condition)
        for metric, one in part(by_condition, name).items()
        if number(part(one).get("difference")) is not None
    ]
    size = middle_radius(name for name in by_condition if "/" in name or "." in name)
    first = [(name, m) for name, m in rows if m in _COMPARED and radius(split(name)[1]) == size] or rows
    rest = [row for row in rows if row not in first] if full else []
    flips = []
    for name in ordered(part(found, "flips")):
        one = part(found, "flips", name)
        counts = (one.get(key) for key in ("of", "only_a", "only_b", "both", "n"))
        flips.append([name, *counts, *(p_value(one.get(key)) for key in ("p", "p_holm"))])
    # Of what both have right on the clean image, where both start from the same value.
    both, matched = part(found, "matched") if full else {}, []
    for name in ordered(part(both, "conditions")):
        for metric, one in part(both, "conditions", name).items():
            if number(one.get("difference")) is not None:
                sides = (measured(one.get(side)) for side in ("a", "b"))
                matched.append([name, heading(metric), *sides, changed(difference(one), direction(metric))])
    matched_head = ["condition", "metric", *keys, "difference"]
    flip_head = ["condition", "what flips", *(f"only {key}" for key in keys), "both", "of", "McNemar p", "Holm p"]
    return Pair(
        title=" against ".join(f"{key} {names.get(key, '')}".strip() for key in reversed(keys)),
        equal=(bool(found.get("equal_clean")), found.get("sentence")),
        counts=(found.get("n"), found.get("patients")),
        first=_differences(by_condition, first, keys),
        more=_differences(by_condition, rest, keys),
        flips=Table(flip_head, flips if full else [], words=2),
        matched=(Table(matched_head, matched, words=2), both.get("pairs"), both.get("studies")),
    )


def _differences(by_condition: Mapping[str, Any], chosen: Sequence[tuple[str, str]], keys: tuple[str, str]) -> Table:
    rows = []
    for name, metric in chosen:
        found, drop = part(by_condition, name, metric), part(by_condition, name, metric, "drop")
        rows.append(
            [
                name,
                heading(metric),
                figure(found.get("a")),
                figure(found.get("b")),
                changed(difference(found), direction(metric), _sure(found)),
                p_value(found.get("p_holm")),
                figure(found.get("smallest_detectable")),
                changed(drop, direction(metric), _sure(drop)),
                p_value(drop.get("p_holm")),
            ]
        )
    first, second = keys
    groups: list[tuple[str, Sequence[str]]] = [
        ("", ["condition", "metric"]),
        ("under attack", [first, second, f"{second} − {first}", "Holm p", "smallest detectable"]),
        ("difference of drops", [f"{second} − {first}", "Holm p"]),
    ]
    return grouped_table(groups, rows, words=2)


def _keys(pair: str) -> tuple[str, str]:
    first, _, second = pair.partition(":")
    return first, second


def _sure(found: Mapping[str, Any]) -> bool:
    """Whether the difference is significant after Holm's correction."""
    p = number(found.get("p_holm"))
    return p is not None and p < _ALPHA


def _transfer(found: Mapping[str, Any], models: Sequence[Audited]) -> Transfer | None:
    """Images made for one model (rows) shown to another (columns); None where this was not measured."""
    moved = {pair: part(found, pair, "transfer") for pair in found if part(found, pair, "transfer")}
    if not moved:
        return None
    # (condition, made for, tested on) → result; the file calls the first model of a pair a.
    results: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    known = ordered(dict.fromkeys(name for one in moved.values() for name in one))
    for condition in known:
        for pair, one in moved.items():
            first, second = _keys(pair)
            results[condition, first, second] = part(one, condition, "a_to_b")
            results[condition, second, first] = part(one, condition, "b_to_a")
    strongest = strongest_attack(models[0].found) if models else None
    chosen = strongest if strongest in known else known[0]
    shown = [one for (condition, _, _), one in results.items() if condition == chosen]
    metric = next((name for name in _COMPARED if any(number(one.get(name)) is not None for one in shown)), _COMPARED[0])
    rows = []
    for row in models:
        cells = []
        for column in models:
            own = row.key == column.key
            one = part(row.found, "attacks", chosen) if own else results.get((chosen, row.key, column.key), {})
            ratio = number(part(one, "ratios").get(metric))
            notes = [figure(one.get("flip_rate")), *([] if ratio is None else [f"harm × {ratio:.2f}"])]
            known_value = number(one.get(metric)) is not None
            cells.append(
                Cell(figure(one.get(metric)), below=(" · ".join(notes),), strong=own) if known_value else Cell(UNKNOWN)
            )
        if any(cell.value != UNKNOWN for cell in cells):
            rows.append([Cell(f"{row.key} {row.name}", strong=True), *cells])
    matrix = Table(["images made for ↓, tested on →", *(model.key for model in models)], rows, words=1, dense=True)
    every = [
        [condition, f"{name_of(models, made_for)} → {name_of(models, tested_on)}"]
        + [cell for name in _COMPARED for cell in (measured(one.get(name)), measured(part(one, "ratios").get(name)))]
        for (condition, made_for, tested_on), one in results.items()
        if one
    ]
    groups = [(heading(name), ["value", "harm transferred"]) for name in _COMPARED]
    every_table = grouped_table([("", ["condition", "made for → tested on"]), *groups], every, words=2)
    return Transfer(heading(metric), chosen, matrix, every_table)


# Images and reports -------------------------------------------------------------------------------------------------

_IMAGES = (
    ("clean", "clean image"),
    ("difference", "difference × 10; mid grey: unchanged"),
    ("perturbed", "perturbed image"),
)


def _triptych(run: RunFolder, record: Mapping[str, Any], models: Sequence[Audited]) -> Triptych:
    linf, spans = number(record.get("linf")), part(record, "spans")
    reports = [report(side, record.get(side), change_marks(spans.get(side))) for side in ("before", "after")]
    if record.get("reference"):
        reports.insert(0, report("reference", record["reference"], reference=True))
    images = []
    for key, words in _IMAGES:
        name, alt = record.get(key), f"{words} of {record.get('id')}"
        there = isinstance(name, str) and (run.path / name).is_file()
        images.append(
            picture(run.file(str(name), TRIPTYCHS), alt, str(name), words) if there else Picture(None, alt, words)
        )
    flips = []
    for flip in record.get("label_flips") or ():
        before, after, truth = (number(flip.get(key)) for key in ("before", "after", "truth"))
        shares = " → ".join(UNKNOWN if value is None else f"{value:.2f}" for value in (before, after))
        if after is None or truth is None:
            flips.append(Flip(flip.get("label"), shares))
        else:
            wrong = (after > 0.5) != (truth > 0.5)
            verdict = "✗ now wrong" if wrong else "✓ now correct"
            flips.append(Flip(flip.get("label"), shares, "present" if truth > 0.5 else "absent", verdict, wrong))
    return Triptych(
        record.get("id"),
        name_of(models, record.get("model")),
        record.get("condition"),
        "" if linf is None else f"{255 * linf:.2f}/255",
        tuple(images),
        tuple(reports),
        tuple(flips),
    )

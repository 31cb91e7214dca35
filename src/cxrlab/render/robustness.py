"""Section on a robustness audit: threat, warnings, accuracy by label, curves, every condition, images and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    figure,
    grouped_table,
    interval,
    measured,
    number,
    part,
    picture,
    report,
)
from cxrlab.render.drawing import COLOURS, GREY, INK, Curve, Drawing, Layout, Point, draw_curves
from cxrlab.render.metric_names import (
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
    split,
)
from cxrlab.render.robustness_tables import (
    FULL,
    Audited,
    Comparisons,
    Conditions,
    Corruptions,
    comparisons,
    conditions,
    corruptions,
    models_of,
    name_of,
    realised,
    smallest_radius,
    strongest_attack,
    white_box,
)
from cxrlab.render.run_folder import ROBUSTNESS, TRIPTYCHS, RunFolder, per_run

MOST_TRIPTYCHS = 12  # studies whose images are shown; three images each make a page heavy
_VERDICTS = {"looks": ("here", "✓ looks at the image"), "unclear": ("doubt", "? not clear that it looks at the image")}


@dataclass(frozen=True)
class Looks:
    """Whether a model looks at the image: tone and words of the verdict, and the sentence behind it."""

    model: str
    blind: bool
    tone: str
    verdict: str
    sentence: Any


@dataclass(frozen=True)
class ByLabel:
    """Accuracy and confidence of one model by label, under its strongest attack."""

    condition: str  # The attack
    why: str  # How it was chosen
    table: Table  # One row for each label, or for whole metrics where nothing is known by label
    others: tuple[tuple[str, Table], ...]  # The same table for other conditions, where they are shown
    left_out: int  # Other conditions that only the file holds


@dataclass(frozen=True)
class Certified:
    """What randomised smoothing certifies of a model's closed answers."""

    model: str
    sentence: Any
    shares: Table


@dataclass(frozen=True)
class Flip:
    """An answer that turned under attack; `verdict` says whether it is wrong or right now."""

    label: Any
    shares: str
    truth: str = ""
    verdict: str = ""
    wrong: bool = False


@dataclass(frozen=True)
class Triptych:
    """A study before and after an attack: three images, the reports, and the answers that turned."""

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
    looks: tuple[Looks, ...]  # Whether each model looks at the image
    warnings: Sequence[str]  # Of the run
    summary: Table  # One row for each of several models
    # Those that were audited; what follows has one entry for each, None or empty where it has nothing
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
    looks = []
    for key, one in part(found, "controls", "image_dependence").items():
        verdict = str(one.get("verdict"))
        tone, words = _VERDICTS.get(verdict, ("doubt", "? not tested whether it looks at the image"))
        looks.append(Looks(name_of(models, str(key)), verdict == "blind", tone, words, one.get("sentence")))
    blind = [str(one.sentence) for one in looks if one.blind and one.sentence]
    records = run.records(TRIPTYCHS)
    return Audit(
        threat=found.get("threat"),
        looks=tuple(looks),
        # A blind model has an alarm of its own.
        warnings=[line for line in found.get("warnings") or () if not any(sentence in line for sentence in blind)],
        summary=_summary(models),
        models=models,
        by_label=[_by_label(model, full=place < FULL) for place, model in enumerate(models)],
        curves=_panels(found, None),
        model_curves=tuple((model.name, _panels(found, [model.key])) for model in models[:FULL])
        if len(models) > 1
        else (),
        smallest=list(map(smallest_radius, models)),
        certified=tuple(one for model in models if (one := _certified(model))),
        conditions=[conditions(model, place < FULL) for place, model in enumerate(models)],
        realised=[realised(model, norm) for model in models],
        corruptions=list(map(corruptions, models)),
        comparisons=comparisons(found, models),
        triptychs=tuple(_triptych(run, record, models) for record in records[:MOST_TRIPTYCHS]),
        more_triptychs=max(0, len(records) - MOST_TRIPTYCHS),
        protocol=part(found, "protocol"),
    )


# Accuracy and confidence by label -----------------------------------------------------------------------------------

# Group of columns, where the figures of a label stand, and which way is better.
_GROUPS = (
    ("accuracy of answers ↑", ("asked", "accuracy"), "higher"),
    ("confidence of answers", ("asked", "confidence"), ""),
    ("accuracy of reports ↑", ("written", "accuracy"), "higher"),
)
_SIDES = ("original", "perturbed", "difference")
_ALL = ("all", "all labels", "overall", "together")
_SUMMARY = ("asked.accuracy", "asked.confidence", FINDINGS, "flip_rate")


def _by_label(model: Audited, full: bool) -> ByLabel | None:
    chosen = strongest_attack(model.found)
    if chosen is None:
        return None
    labels = part(model.found, "labels")
    table = label_table(part(labels, chosen)) or _overall(model, chosen)
    if not table:
        return None
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


def _overall(model: Audited, condition: str) -> Table:
    """Where nothing is known by label: the same columns for whole metrics."""
    found, clean = part(model.found, "attacks", condition), part(model.found, CLEAN)
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
    return grouped_table([("", ["metric", "n", *_SIDES])], rows, dense=False)


def _summary(models: Sequence[Audited]) -> Table:
    """One row for each of several models: clean and under its own strongest attack."""
    rows = []
    for model in models if len(models) > 1 else ():
        chosen = strongest_attack(model.found)
        found = part(model.found, "attacks", chosen or "")
        cells: list[Any] = [Cell(f"{model.key} {model.name}", strong=True), chosen]
        for metric in _SUMMARY[:-1]:
            cells += [measured(side.get(metric), digits=2) for side in (part(model.found, CLEAN), found)]
        rows.append([*cells, measured(found.get("flip_rate"), digits=2)])
    pairs = [(metric_title(metric), ("clean", "attacked")) for metric in _SUMMARY[:-1]]
    groups = [("", ["model", "attack"]), *pairs, (metric_title("flip_rate"), ["attacked"])]
    return grouped_table(groups, rows, words=2)


def _certified(model: Audited) -> Certified | None:
    """What randomised smoothing certifies; None where the model is not smoothed."""
    found = part(model.found, "certified")
    shares = part(found, "right_within")
    if not shares:
        return None
    every = {**{str(size): part(shares, size) for size in shares}, "no answer": part(found, "abstained")}
    rows = [[name, figure(one), interval(one)] for name, one in every.items()]
    table = Table(["Euclidean length", "share of answers", "95 % interval"], rows, words=2)
    return Certified(model.name, found.get("sentence"), table)


# Curves over the radius ---------------------------------------------------------------------------------------------

_PANELS = ("asked.accuracy", "asked.confidence", FINDINGS, "flip_rate")
_DRAWN = 6  # models in one drawing; more cannot be told apart
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
        audit: Content of robustness.json.
        metric: Name of the metric.
        models: Keys or names of the models to draw; all, and never more than six, when left out.
        attacks: Attacks to draw; when left out all of them for one model, and the strongest one and the noise control
            for several.
        size: Pixels, without the legend, which is put beneath.
    """
    known = models_of(audit)
    chosen = [one for one in known if models is None or not {one.key, one.name, one.full}.isdisjoint(models)]
    if len(chosen) > 1 and attacks is None:
        first = next((name for model in chosen if (name := strongest_attack(model.found))), None)
        attacks = [CONTROL] if first is None else [split(first)[0], CONTROL]
    drawn = _curves(chosen[:_DRAWN], metric, attacks)
    if not drawn:
        return None
    worse = f" ({_WORSE[direction(metric)]})" if direction(metric) in _WORSE else ""
    under = [name for name in attacks or () if not is_control(name)]
    shared = f" under {under[0]}" if len(chosen) > 1 and len(under) == 1 else ""
    note = f"{_DRAWN} of {len(chosen)} models drawn" if len(chosen) > _DRAWN else ""
    layout = Layout(*size)
    if part(audit, "protocol").get("norm") == "l2":
        layout = Layout(*size, 1.0, "radius ε, length of the whole change (0: clean image)")
    return draw_curves(drawn, f"{metric_title(metric)}{shared}{worse}", layout, is_share(metric), note)


def _curves(models: Sequence[Audited], metric: str, attacks: Sequence[str] | None) -> list[Curve]:
    several = len(models) > 1
    one_attack = several and attacks is not None and sum(not is_control(name) for name in attacks) == 1
    drawn = []
    for place, model in enumerate(models):
        lines = part(model.found, "curves", metric)
        chosen = [name for name in lines if attacks is None or name in attacks]
        for turn, name in enumerate(sorted(chosen, key=lambda one: (is_control(one), one == WORST))):
            points = _points(lines[name], number(part(model.found, CLEAN).get(metric)))
            label = name
            if several:
                known = model.name if len(model.name) <= 52 else f"{model.name[:24]}…{model.name[-27:]}"
                label = f"{model.key}: {known}" + ("" if one_attack else f", {name}")
            colour = COLOURS[(place if several else turn) % len(COLOURS)]
            if is_control(name):  # one entry of the legend for the controls of all models
                label, colour = f"{name} (control)", GREY
            elif name == WORST and not several:
                colour = INK
            if points:
                marker = place if one_attack else turn
                drawn.append(Curve(label, points, colour, marker, dashed=is_control(name), thick=colour == INK))
    return sorted(drawn, key=lambda curve: curve.dashed)


def _points(rows: Any, clean: float | None) -> tuple[Point, ...]:
    """Points with a value, radii rising; the clean image is radius 0."""
    found: dict[float, Point] = {}
    for row in rows if isinstance(rows, (list, tuple)) else ():
        values = [number(one) for one in row] if isinstance(row, (list, tuple)) else []
        eps, value, low, high = (*values, None, None, None, None)[:4]
        if eps is not None and value is not None and eps >= 0:
            found[eps] = (eps, value, low, high)
    if clean is not None and found:
        found.setdefault(0.0, (0.0, clean, None, None))
    return tuple(found[eps] for eps in sorted(found))


# Images and reports -------------------------------------------------------------------------------------------------

_IMAGES = (
    ("clean", "clean image"),
    ("difference", "difference × 10; mid grey is no change"),
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

"""The section of a page on audits over seeds: does alignment change how a model stands perturbed images?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cxrlab.render.drawing import in_page
from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, ends, figure, grouped_table, section, table, text
from cxrlab.render.robustness_parts import (
    CLEAN,
    WORST,
    dense,
    folded,
    heading,
    is_control,
    number,
    ordered,
    p_value,
    part,
    split,
    title,
)
from cxrlab.render.robustness_seeds_alarms import alarms
from cxrlab.render.robustness_seeds_figures import answer_curves, drops_forest, is_asked, sizes, strongest

_ALPHA = 0.05
_SIDES = ("start", "aligned")
_ASKED = ("asked.accuracy", "asked.confidence")
_NOTE = (
    "Each audit holds the model aligned in one seed against its own start, on the same test studies; every attack is "
    "made anew for each model. A drop is what a model loses from its own clean images, and a difference of drops is the "
    "aligned model's change under attack minus the start's: below zero the aligned model loses more of the quantity. "
    "Figures are means over seeds with Student's 95 % interval. Clear in a seed: p below 0.05 by that seed's own test, "
    "paired by study and drawn by patient, after Holm's correction over all tests of that audit; variants and seeds "
    "are not corrected for. Alike on clean images: ✓ where a seed's difference is small and its interval holds zero, ✗ "
    "where not. Of few seeds the interval is wide: no clear difference is not the same as equal."
)
_CURVES = (
    "Lines: means over seeds. Small dots: the seeds, set side by side. Each panel is drawn under the attack that harms "
    "the start most; dashed: noise of the same size on the start, the control."
)
_FOREST = "Dot: mean over seeds with Student's interval. Thin lines: each seed with its own interval by patient."


def robustness_seeds(runs: Sequence[RunFolder]) -> str:
    """One row a variant, the figures, then every condition, quantity and seed."""
    made = (_one(run.robustness_seeds) for run in runs if run.robustness_seeds)
    return section("Alignment under attack, over seeds", *made, note=_NOTE)


def _one(found: Mapping[str, Any]) -> str:
    if not part(found, "variants"):
        return ""
    asked = is_asked(found)
    first = "findings.f1"
    parts = [
        f"<p class=threat><b>Threat model.</b> {text(found['threat'])}</p>" if found.get("threat") else "",
        alarms(found),
        _counts(found),
        _headline(found, first, _ASKED if asked else ()),
        _headline(found, "asked.accuracy" if asked else "errors.significant"),
        _headline(found, "flip_rate"),
        _drawn(answer_curves(found), _CURVES),
        _drawn(drops_forest(found, first if asked else "flip_rate"), _FOREST),
        folded("Every quantity on clean images", _clean(found)),
        folded("Every condition, quantity and seed", _every(found)),
        folded("Studies that flip under one model only", _flips(found)),
        folded("Transfer between start and aligned model", _transfer(found)),
    ]
    return "".join(parts)


def _counts(found: Mapping[str, Any]) -> str:
    seeds = ", ".join(text(seed) for seed in found.get("seeds") or ())
    counted = f"{text(found.get('n'))} studies of {text(found.get('patients'))} patients"
    return f"<p class=small>Seeds {seeds}; the first audit has {counted}.</p>"


def _drawn(figure_: str, note: str) -> str:
    inside = in_page(figure_)
    return f"<div class=chapter><div class=plots>{inside}</div><p class=small>{note}</p></div>" if inside else ""


def _headline(found: Mapping[str, Any], metric: str, beside: Sequence[str] | None = None) -> str:
    """One row a variant: the clean images, then the strongest attack at the middle and at the largest radius.

    Args:
        found: Content of robustness_seeds.json.
        metric: What is shown under attack, and on clean images where it is known there.
        beside: What else is shown on clean images, with what the variants change; None leaves both to another table.
    """
    attack = strongest(found, metric)
    if not any(number(_shown(row).get("mean")) is not None for row in _all(found, attack, metric)):
        return ""
    known = sizes(found, attack)
    radii = list(dict.fromkeys([known[(len(known) - 1) // 2], known[-1]]))
    variants = part(found, "variants")
    clean = [name for name in (metric, *(beside or ())) if any(part(variants, one, CLEAN, name) for one in variants)]
    change = "difference of drops" if metric in clean else "difference"
    groups: list[tuple[str, Sequence[str]]] = [("", ["way to align"])]
    groups.append(("clean: start → aligned", [*map(heading, clean), "alike, by seed"]))
    groups += [(text(f"{attack}@{size}: {title(metric)}"), ["start → aligned", change]) for size in radii]
    rows = []
    for name in variants:
        row = part(variants, name)
        under = [cell for size in radii for cell in _cells(part(row, "conditions", f"{attack}@{size}", metric))]
        label = f"<b>{text(name)}</b>"
        if beside is not None:
            label += f"<br><span class=later>{text(row.get('changes'))}</span>"
        rows.append([label, *(_sides(part(row, CLEAN, one)) for one in clean), _alike(row.get("equal_clean")), *under])
    head = f"<h3>Under {text(attack)}: {text(title(metric))}</h3>"
    return f"<div class=chapter>{head}{dense(grouped_table(groups, rows))}</div>"


def _all(found: Mapping[str, Any], attack: str | None, metric: str) -> Iterable[Mapping[str, Any]]:
    rows = part(found, "variants")
    return [
        part(rows, name, "conditions", f"{attack}@{size}", metric) for name in rows for size in sizes(found, attack)
    ]


def _alike(told: Any) -> str:
    """Whether both models do equally well on clean images, seed by seed: ✓, ✗, or a dash where it is not known."""
    marks = {True: "✓", False: "✗"}
    seeds = told if isinstance(told, list) else []
    return " ".join(marks.get(one, UNKNOWN) if isinstance(one, bool) else UNKNOWN for one in seeds) or UNKNOWN


def _sides(found: Mapping[str, Any]) -> str:
    return " → ".join(figure(number(part(found, side).get("mean"))) for side in _SIDES)


def _shown(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The difference of drops, and the plain one of a quantity that clean images do not have."""
    return part(found, "drop") or part(found, "difference")


def _cells(found: Mapping[str, Any]) -> list[str]:
    return [_sides(found), _change(_shown(found))]


def _change(gap: Mapping[str, Any]) -> str:
    """Mean, Student's interval, and the seeds in which it is clear."""
    mean = number(gap.get("mean"))
    if mean is None:
        return UNKNOWN
    lines = [ends(gap, "+")] if gap.get("low") is not None else []
    if (seeds := len(_alone(gap))) > 0:
        opposed = "" if gap.get("same_way", True) else ", not the same way"
        lines.append(f"clear in {text(gap.get('clear') or 0)} of {seeds} seeds{opposed}")
    small = f"<br><span class=small>{'<br>'.join(lines)}</span>" if lines else ""
    return f"<b>{_signed(mean)}</b>{small}"


def _signed(value: float | None) -> str:
    return UNKNOWN if value is None else figure(round(value, 3) + 0.0, "+")  # 0 for -0


def _alone(gap: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = [part(one) for one in gap.get("by_seed") or ()]
    return [one for one in rows if number(one.get("value")) is not None]


def _seeds(gap: Mapping[str, Any]) -> str:
    """Each seed with its own interval, bold where clear."""
    lines = []
    for one in _alone(gap):
        p, value = number(one.get("p_holm")), _signed(number(one.get("value")))
        told = f"<b>{value}</b>" if p is not None and p < _ALPHA else value
        lines.append(f"{told} <span class=later>{ends(one, '+')}</span>")
    return "<br>".join(lines) or UNKNOWN


def _clean(found: Mapping[str, Any]) -> str:
    rows = part(found, "variants")
    metrics = list(dict.fromkeys(metric for name in rows for metric in part(rows, name, CLEAN)))
    told = [[heading(metric), *(_sides(part(rows, name, CLEAN, metric)) for name in rows)] for metric in metrics]
    told = [row for row in told if any(cell.strip(f"{UNKNOWN} →") for cell in row[1:])]
    return dense(table(["start → aligned", *map(text, rows)], told, len(rows))) if told else ""


def _every(found: Mapping[str, Any]) -> str:
    rows = part(found, "variants")
    known = ordered(dict.fromkeys(name for one in rows for name in part(rows, one, "conditions")))
    return "".join(folded(name, _condition(rows, name)) for name in known)


def _condition(variants: Mapping[str, Any], condition: str) -> str:
    """One row a quantity and variant."""
    names = dict.fromkeys(metric for one in variants for metric in part(variants, one, "conditions", condition))
    rows = []
    for metric in names:
        for variant in variants:
            found = part(variants, variant, "conditions", condition, metric)
            if number(_shown(found).get("mean")) is None:
                continue
            gaps = [
                cell for gap in ("difference", "drop") for cell in (_change(part(found, gap)), _seeds(part(found, gap)))
            ]
            least = figure(number(part(found, "smallest_detectable").get("mean")))
            rows.append([heading(metric), text(variant), _sides(found), *gaps[:2], least, *gaps[2:]])
    groups: list[tuple[str, Sequence[str]]] = [
        ("", ["quantity", "way to align", "start → aligned"]),
        ("difference", ["over seeds", "each seed, bold where clear", "smallest detectable"]),
        ("difference of drops", ["over seeds", "each seed, bold where clear"]),
    ]
    return dense(grouped_table(groups, rows, words=2)) if rows else ""


def _flips(found: Mapping[str, Any]) -> str:
    """How many studies flip under the start only, under the aligned model only, and Holm's p, seed by seed."""
    variants = part(found, "variants")
    rows = []
    for variant in variants:
        told = part(variants, variant, "flips")
        for name in ordered(told):
            seeds = [part(one) for one in told[name] or ()] if isinstance(told[name], list) else []
            cells = [_flip(one) for one in seeds]
            if any(seeds):
                rows.append([text(variant), text(name), "<br>".join(cells)])
    head = [
        "way to align",
        "condition",
        "each seed: only start / only aligned / both, of all; Holm p of McNemar's test",
    ]
    return dense(table(head, rows)) if rows else ""


def _flip(one: Mapping[str, Any]) -> str:
    if not one:
        return UNKNOWN
    counts = " / ".join(text(one.get(key)) for key in ("only_a", "only_b", "both"))
    return f"{counts}, of {text(one.get('n'))}; p {p_value(one.get('p_holm'))}"


def _transfer(found: Mapping[str, Any]) -> str:
    """Harm of images made for the one on the other, as a share of what images made for that other do to it."""
    variants = part(found, "variants")
    rows = []
    for variant in variants:
        told = part(variants, variant, "transfer")
        for name in ordered(told):
            ways = [part(told, name, way) for way in ("start_to_aligned", "aligned_to_start")]
            wished = not is_control(name) and split(name)[0] != WORST
            if wished and any(number(way.get("mean")) is not None for way in ways):
                rows.append([text(variant), text(name), *map(_ratio, ways)])
    head = [
        "way to align",
        "condition",
        "made for the start, shown to the aligned",
        "made for the aligned, shown to the start",
    ]
    note = (
        "Loss of findings F1 that images made for one model cause in the other, as a share of what images made for that "
        "other cause (1: as much). A dash: the loss is too small to divide by."
    )
    return f"{dense(table(head, rows, 2))}<p class=small>{note}</p>" if rows else ""


def _ratio(found: Mapping[str, Any]) -> str:
    span = f"<br><span class=small>{ends(found)}</span>" if found.get("low") is not None else ""
    return f"{figure(number(found.get('mean')))}{span}"

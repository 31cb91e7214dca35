"""The tables and sentences in which scores are shown, from the content of scores.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cxrlab.core.headline_metrics import ARROWS, best_floor, headline_metrics, is_model_judge
from cxrlab.core.tables import Column, Interval, Table
from cxrlab.evaluation.metric_presets import PresetRow
from cxrlab.evaluation.select_metrics import format_unreadable_answers

# The headline metrics of the short form of a score sheet, then judges.
SHORT = (
    "clinical:rules", "findings.f1.side", "errors.significant", "chexpert14.micro.f1:uncertain-positive",
    "rougeL:google", "bleu4:coco",
)  # fmt: skip
_STAR = "* a control that never sees an image reaches this: do not rely on it alone"


def score_parts(
    scores: Mapping[str, Any],
    level: float,
    *,
    everything: bool = True,
    kept: bool = True,
    preset: Sequence[PresetRow] = (),
) -> list[str | Table]:
    """Counts, the table of scores, notes, and image dependence; a star marks what a control reaches too.

    Args:
        scores: Content of scores.json.
        everything: Show every metric, not the headline metrics only.
        kept: Whether scores.json was written, so that the text can refer to it.
        preset: The rows of a preset: its metrics are shown under the names of papers, then the others that were scored.
    """
    names = list(scores["metrics"])
    listed = names if everything or preset else headline_metrics(names)
    table = score_table(scores, listed, level, preset)
    notes = [*(f"caution: {one}" for one in scores.get("cautions", ())), *scores.get("notes", ())]
    notes += [f"missing: {labels}: {why}" for why, labels in _by_text(preset, "missing").items()]
    notes += [f"{labels}: {note}" for note, labels in _by_text([row for row in preset if row.metrics], "note").items()]
    if len(listed) < len(names):
        where = " in scores.json" if kept else ""
        notes.append(f"{len(names) - len(listed)} more metrics{where}; --metrics default shows them all here")
    if any(row[_BEST_FLOOR].endswith("*") for row in table.rows):
        notes.append(_STAR)
    notes += format_unreadable_answers(scores.get("judges", {}))
    parts: list[str | Table] = [_counts(scores), table, *notes]
    if dependence := (scores.get("controls") or {}).get("image_dependence"):
        return [*parts, "", _dependence_table(dependence, level), dependence["sentence"]]
    return [*parts, "Image dependence not tested: no predictions for control images."]


def score_table(
    scores: Mapping[str, Any], names: Iterable[str], level: float, preset: Sequence[PresetRow] = ()
) -> Table:
    """A row for each metric: value with interval, best floor, and how many pairs entered it.

    With a preset, its rows come first under their labels; a missing metric has a row without a value.
    """
    labels = [Column("metric", "label")] if preset else []
    name_columns = [Column("computed as" if preset else "metric", only="text"), Column("metric", only="data")]
    value = Column(f"value [{100 * level:g} %]", "value")
    all_defined = not any(score["undefined"] for score in scores["metrics"].values())
    undefined = Column("undefined", only="data" if all_defined else "")
    columns = (
        *labels, *name_columns, Column("direction", only="data"), value, *_FLOOR_COLUMNS, Column("n"), undefined,
    )  # fmt: skip
    known = [(row.label, name) for row in preset for name in row.metrics or ("",)]
    named = {name for _, name in known}
    known += [("", name) for name in names if name not in named]
    rows = []
    for label, name in known:
        score = scores["metrics"].get(name)
        first = (label,) if preset else ()
        if score is None:
            rows.append((*first, "", None, None, Interval(None), None, None, "", None, None))
            continue
        control, floor, star = None, None, ""
        if best := best_floor(name, score["direction"], scores["floors"]):
            control, floor = best
            higher = score["direction"] == "higher"
            reached = score["value"] is not None and (floor >= score["value"] if higher else floor <= score["value"])
            star = " *" if reached else ""
        shown = "" if floor is None else f"{floor:.3f} {control}{star}"
        found = Interval(score["value"], score["low"], score["high"])
        shown_name = f"{name} {ARROWS[score['direction']]}"
        rows.append(
            (*first, shown_name, name, score["direction"], found, floor, control, shown, score["n"], score["undefined"])
        )
    return Table(columns, tuple(rows))


def _by_text(rows: Iterable[PresetRow], key: str) -> dict[str, str]:
    """Text → labels of the rows that have it."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if text := getattr(row, key):
            found.setdefault(text, []).append(row.label)
    return {text: ", ".join(labels) for text, labels in found.items()}


_FLOOR_COLUMNS = (Column("floor", only="data"), Column("floor_control", only="data"), Column("best floor", only="text"))
_BEST_FLOOR = -3  # place of that column in a row


def short_form(scores: Mapping[str, Any], level: float) -> list[str | Table]:
    """About ten lines: counts, a few headline metrics with floor, cautions, image dependence."""
    names = list(scores["metrics"])
    judged = [name for name in headline_metrics(names) if is_model_judge(name)]
    listed = [*(name for name in SHORT if name in names), *judged[:2]] or names[: len(SHORT)]
    table = score_table(scores, listed, level)
    notes = [f"caution: {one}" for one in scores.get("cautions", ())]
    notes += [_STAR] if any(row[_BEST_FLOOR].endswith("*") for row in table.rows) else []
    dependence = (scores.get("controls") or {}).get("image_dependence")
    last = dependence["sentence"] if dependence else "Image dependence not tested."
    last += f" {len(names) - len(listed)} more metrics in to_frame()." * (len(listed) < len(names))
    return [_counts(scores), table, *notes, last]


def _counts(scores: Mapping[str, Any]) -> str:
    """How many pairs were scored, and how they were matched."""
    statuses = ", ".join(f"{count:,} {status}" for status, count in scores["statuses"].items())
    line = f"{scores['n']:,} {'pair' if scores['n'] == 1 else 'pairs'}: {statuses}"
    if not (matching := scores.get("matching")):
        return line
    sides = [matching["references"], matching["predictions"]]
    sizes = f"{sides[0]['rows']:,} references and {sides[1]['rows']:,} predictions"
    ids = list(dict.fromkeys(f"'{side['id']}'" for side in sides if side["id"] is not None))
    how = {
        "file": f"within one file: {matching['matched']:,} {'row' if matching['matched'] == 1 else 'rows'}",
        "row": f"row by row, not by id: {sizes}",
        "id": f"by {' = '.join(ids) or 'id'}: {sizes}, {matching['matched']:,} matched",
    }[matching["by"]]
    reports = [", ".join(f"'{name}'" for name in side["report"]) for side in sides]
    return f"{line}\nmatched {how}" + (f" (reports: {reports[0]} against {reports[1]})" if all(reports) else "")


def _dependence_table(dependence: Mapping[str, Any], level: float) -> Table:
    name, right = dependence["metric"], dependence["right"]
    columns = (
        Column("image"),
        Column(name),
        Column(f"right is better by [{100 * level:g} %]", "difference"),
        Column("same words", "unchanged", write=lambda share: "" if share is None else f"{100 * share:.0f} %"),
    )
    rows: list[tuple[Any, ...]] = [
        ("right", Interval(*(right[name].get(key) for key in ("value", "low", "high"))), "", None)
    ]
    for kind, wrong in dependence["wrong"].items():
        gain = wrong["difference"]
        difference = Interval(gain["value"], gain.get("low"), gain.get("high"))
        rows.append((kind, Interval(wrong["metrics"][name]), difference, wrong["unchanged"]))
    return Table(columns, tuple(rows), "image dependence")

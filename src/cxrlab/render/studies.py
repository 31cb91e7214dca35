"""The sections of a page on whole experiments: ablations over seeds, and texts against texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.core.headlines import headlines
from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, bar, ends, figure, section, table, text

_ABLATIONS = (
    "Mean over seeds with Student's 95 % interval: where the mean of many seeds lies, for these test studies. The "
    "difference is taken seed by seed to the first row, the full recipe. Within a seed all models write for the same "
    "studies; the comparison study by study stands in each seed's own folder."
)
_TEXTS = (
    "The source's text taken out by rule is one reference, processed text the other. The first table scores the "
    "processed text as if a model had written it: what is missing to 1 is the choice of words. The others score one "
    "model against both; the difference is paired by study, its interval by patient."
)


def ablations(runs: Sequence[RunFolder]) -> str:
    """One row a variant: what it changes, and each metric over the seeds."""
    return section("Ablations", *(_ablations(run.ablations) for run in runs if run.ablations), note=_ABLATIONS)


def texts(runs: Sequence[RunFolder]) -> str:
    """Two reference texts against each other, and a model against both."""
    return section("Two reference texts", *(_texts(run.analysis) for run in runs if run.analysis), note=_TEXTS)


def _ablations(found: Mapping[str, Any]) -> str:
    metrics = [str(name) for name in found.get("metrics") or ()]
    variants = found.get("variants") or {}
    if not metrics or not variants:
        return ""
    first = metrics[0]
    rows = []
    for name, row in variants.items():
        own = (row.get("metrics") or {}).get(first) or {}
        value = f"<span class=figure>{figure(own.get('mean'))}</span>"
        cells = [_name(name, row), text(row.get("changes")), value, bar(own.get("mean") or 0.0)]
        rows.append([*cells, ends(own), _gap(own.get("difference"))])
    head = ["variant", "what is changed", text(first), "", "interval", "difference"]
    seeds = ", ".join(text(seed) for seed in found.get("seeds") or ())
    told = f"<p class=small>Seeds {seeds}; {text(found.get('n'))} test studies each.</p>"
    return table(head, rows) + told + _every_metric(variants, metrics) + _published(variants)


def _every_metric(variants: Mapping[str, Any], metrics: Sequence[str]) -> str:
    """Mean of each metric, with the values of the seeds beneath."""
    rows = []
    for name, row in variants.items():
        found = [(row.get("metrics") or {}).get(metric) or {} for metric in metrics]
        cells = [
            f"{figure(own.get('mean'))}<br><span class=later>{' '.join(map(figure, own.get('values') or ()))}</span>"
            for own in found
        ]
        rows.append([text(name), *cells])
    return f"<h3>Every metric, and every seed</h3>{table(['variant', *map(text, metrics)], rows)}"


def _name(name: str, row: Mapping[str, Any]) -> str:
    notes = [row.get("paper"), f"stands for {row['stands_for']}" if row.get("stands_for") else None]
    small = "<br>".join(text(note) for note in notes if note)
    return f"{text(name)}<br><span class=later>{small}</span>" if small else text(name)


def _published(variants: Mapping[str, Any]) -> str:
    """The paper's own figures, where the file gives them."""
    names = list(dict.fromkeys(name for row in variants.values() for name in row.get("published") or {}))
    if not names:
        return ""
    rows = [
        [text(name), text(row.get("paper")), *(text((row.get("published") or {}).get(metric)) for metric in names)]
        for name, row in variants.items()
        if row.get("published")
    ]
    head = ["variant", "in the paper", *map(text, names)]
    return f"<h3>Published figures</h3>{table(head, rows, len(names))}"


def _texts(found: Mapping[str, Any]) -> str:
    metrics = found.get("metrics") or {}
    rows = [[text(name), figure(metrics[name].get("value")), ends(metrics[name])] for name in headlines(metrics)]
    parts = [f"<h3>Processed text against rule text</h3>{table(['metric', 'value', 'interval'], rows)}"] if rows else []
    counts = found.get("texts") or {}
    parts.append(
        f"<p class=small>{text(counts.get('both'))} of {text(counts.get('studies'))} studies have both texts and are "
        f"scored; {text(counts.get('rule_only'))} have the rule text alone, {text(counts.get('processed_only'))} the "
        f"processed one alone.</p>"
    )
    for run, values in (found.get("predictions") or {}).items():
        lines = [
            [text(name), figure(values[name].get("a")), figure(values[name].get("b")), _gap(values[name])]
            for name in headlines(values)
        ]
        head = ["metric", "against the rule text", "against the processed text", "difference"]
        parts.append(f"<h3>{text(run)}</h3>{table(head, lines)}")
    return "".join(parts)


def _gap(found: Mapping[str, Any] | None) -> str:
    if not found:
        return UNKNOWN
    value = found.get("difference", found.get("mean"))
    return f"{figure(value, '+')} <span class=later>{ends(found, '+')}</span>"

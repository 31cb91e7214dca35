"""The section of a page on ways to align, over seeds: what each has gained, how long its reports are, what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.core.headlines import ARROWS
from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, ends, figure, section, table, text

_NOTE = (
    "Every way to align starts from the same model of a seed and is measured on studies of the test split, which is "
    "kept from judging and training. A change is after minus before: its mean over seeds, with Student's 95 % interval "
    "beneath. It is clear in a seed whose own interval, paired by study and drawn by patient, excludes zero; intervals "
    "are not corrected for the number of variants and metrics. Every seed has its own test studies. A judge can be "
    "pleased by length alone: look at the words. Drift is KL(after from before) in nats a report."
)
_SHOWN = 3  # metrics of the first table


def aligned_seeds(runs: Sequence[RunFolder]) -> str:
    """One row a variant, then every metric and every seed."""
    return section("Alignment, over seeds", *(_one(run.preferences) for run in runs if run.preferences), note=_NOTE)


def _one(found: Mapping[str, Any]) -> str:
    metrics = [str(name) for name in found.get("metrics") or ()]
    variants = found.get("variants") or {}
    if not metrics or not variants:
        return ""
    ways = found.get("directions") or {}
    first = metrics[:_SHOWN]
    head = ["way to align", *(_named(name, ways) for name in first)]
    rows = [_row(name, row, first) for name, row in variants.items()]
    seeds = ", ".join(text(seed) for seed in found.get("seeds") or ())
    told = (
        f"<p class=small>Seeds {seeds}; {text(found.get('n'))} test studies of at most {text(found.get('patients'))} "
        "patients each.</p>"
    )
    parts = [table([*head, "words a report", "drift"], rows), told, _published(variants)]
    parts.append(_folded("What it learnt from and what it cost", _costs(variants)))
    every = "".join(_metric(name, _named(name, ways), variants) for name in metrics)
    return "".join([*parts, _folded("Every metric and every seed", every)])


def _named(metric: str, ways: Mapping[str, Any]) -> str:
    """A metric and, on the same line, which way is better."""
    return f"{text(metric)}&nbsp;{ARROWS.get(str(ways.get(metric)), '')}"


def _folded(title: str, inside: str) -> str:
    return f"<details><summary>{text(title)}</summary>{inside}</details>"


def _row(name: str, row: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    told = row.get("metrics") or {}
    drift = _mean((row.get("drift") or {}).get("kl_report"))
    label = f"<b>{text(name)}</b><br><span class=later>{text(row.get('changes'))}</span>"
    return [label, *(_change(told.get(metric) or {}) for metric in metrics), _words(row), _short(drift, 2)]


def _change(found: Mapping[str, Any]) -> str:
    """Mean change, its interval over seeds, and the seeds whose own interval excludes zero."""
    gap = found.get("difference") or {}
    alone = [one.get("excludes_zero") for one in found.get("by_seed") or ()]
    known = sum(one is not None for one in alone)
    seeds = f"clear in {sum(one is True for one in alone)} of {known}" if known else UNKNOWN
    value = f"<b>{figure(gap.get('mean'), '+')}</b>"
    return _whole(f"{value}<br><span class=small>{ends(gap, '+')}<br>{seeds}</span>")


def _words(row: Mapping[str, Any]) -> str:
    words, ratio = row.get("words") or {}, row.get("length_ratio") or {}
    before, after, reference = (_short(_mean(words.get(side))) for side in ("before", "after", "reference"))
    times = f"{_short(_mean(ratio.get('after')), 2)} of that"
    return _whole(f"{before} → <b>{after}</b><br><span class=small>reference {reference}<br>{times}</span>")


def _costs(variants: Mapping[str, Any]) -> str:
    """Pairs, the step that was kept, length, drift a token, closed questions: means over seeds."""
    head = [
        *("way to align", "pairs", "chosen is longer", "step kept", "words to the reference's"),
        *("drift a token", "closed questions right", "calibration error"),
    ]
    rows = []
    for name, row in variants.items():
        drift, ratio = row.get("drift") or {}, row.get("length_ratio") or {}
        rows.append(
            [
                text(name),
                _short(_mean(row.get("pairs")), 0),
                _percent(_mean(row.get("chosen_longer"))),
                _whole(f"{_short(_mean(row.get('step')), 0)} of {_short(_mean(row.get('steps')), 0)}"),
                _whole(f"{_short(_mean(ratio.get('before')), 2)} → {_short(_mean(ratio.get('after')), 2)}"),
                figure(_mean(drift.get("kl_token"))),
                _moved(row.get("accuracy") or {}),
                _moved(row.get("calibration_error") or {}),
            ]
        )
    return table(head, rows)


def _moved(found: Mapping[str, Any]) -> str:
    """Before → after, and the change with its interval over seeds."""
    gap = found.get("difference") or {}
    sides = " → ".join(figure(_mean(found.get(side))) for side in ("before", "after"))
    change = f"{figure(gap.get('mean'), '+')}, {ends(gap, '+')}"
    return _whole(f"{sides}<br><span class=small>{change}</span>")


def _metric(name: str, title: str, variants: Mapping[str, Any]) -> str:
    """One metric: before, after, change, and the change of every seed with its own interval."""
    rows = []
    for variant, row in variants.items():
        found = (row.get("metrics") or {}).get(name) or {}
        gap = found.get("difference") or {}
        cells = [text(variant), *(figure(_mean(found.get(side))) for side in ("before", "after"))]
        rows.append([*cells, f"<b>{figure(gap.get('mean'), '+')}</b>", ends(gap, "+"), _seeds(found)])
    head = ["way to align", "before", "after", "change", "interval over seeds", "each seed alone, bold where clear"]
    return f"<h3>{title}</h3>{table(head, rows)}"


def _seeds(found: Mapping[str, Any]) -> str:
    lines = []
    for one in found.get("by_seed") or ():
        clear = one.get("excludes_zero") is True
        value = figure(one.get("difference"), "+")
        lines.append(f"{f'<b>{value}</b>' if clear else value} <span class=later>{ends(one, '+')}</span>")
    return _whole("<br>".join(lines)) if lines else UNKNOWN


def _published(variants: Mapping[str, Any]) -> str:
    """Figures of others, where the file gives them."""
    names = list(dict.fromkeys(name for row in variants.values() for name in row.get("published") or {}))
    if not names:
        return ""
    rows = [
        [text(name), *(text((row.get("published") or {}).get(metric)) for metric in names)]
        for name, row in variants.items()
        if row.get("published")
    ]
    return f"<h3>Published figures</h3>{table(['way to align', *map(text, names)], rows, len(names))}"


def _whole(cell: str) -> str:
    """Numbers that are not broken over lines."""
    return f"<span class=figure>{cell}</span>"


def _mean(found: Mapping[str, Any] | None) -> Any:
    return (found or {}).get("mean")


def _short(value: Any, digits: int = 1) -> str:
    return f"{round(value, digits) + 0.0:,.{digits}f}" if isinstance(value, (int, float)) else UNKNOWN  # 0 for -0


def _percent(share: Any) -> str:
    return f"{100 * share:.0f} %" if isinstance(share, (int, float)) else UNKNOWN

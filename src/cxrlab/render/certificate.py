"""The section on a certified prediction file: the verdict, every check, and the figures behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.headline_metrics import ARROWS
from cxrlab.render.components import Cell, Table, figure, interval, part, percent
from cxrlab.render.run_folder import CERTIFICATE, RunFolder, per_run

_TONES = {"pass": "here", "note": "", "warning": "doubt", "fail": "bad", "not tested": "later"}
_CSS = {"ok": "passed", "caution": "caution", "severe": "unfinished"}
# Checks whose numbers are one row for each metric, and the heading of what the reports are compared with.
_BASELINES = {
    "fit to the studies": "shuffled among patients",
    "better than a constant report": "one normal report",
    "better than retrieval": "nearest training image",
}
# Check → the shares that it compares, and their names in the table.
_SHARES = {
    "variety": {"most_frequent": "the most frequent text", "most_frequent_findings": "the most frequent findings"},
    "content": {
        "normal": "normal",
        "empty": "without words",
        "without_sentence_end": "without the end of a sentence",
        "masks": "with masks (XXXX, ___)",
        "silent": "without any observation that is recognised",
    },
    "copied references": {"other_reference": "word for word the reference of another study"},
    "overlap with training reports": {
        "verbatim": "word for word a training report",
        "near": "nearly a training report",
    },
}


@dataclass(frozen=True)
class CertificateSection:
    """One certificate."""

    name: str  # Of the run
    css: str  # Class of the box around the verdict
    severity: str  # In capitals
    headline: str  # The verdict in words
    studies: Any  # Matched pairs
    patients: Any  # Their patients
    checks: Table  # Every check with its sentence
    metrics: tuple[tuple[str, Table], ...]  # Gains over each baseline
    shares: Table  # Shares of reports and references
    labels: Table  # Label prevalence


@per_run(CERTIFICATE)
def certificates(run: RunFolder, found: Mapping[str, Any]) -> CertificateSection:
    """The verdict and the checks of one run."""
    checks = [check for check in found.get("checks") or ()]
    numbers = {str(check.get("name")): part(check.get("numbers")) for check in checks}
    severity = str(found.get("severity"))
    return CertificateSection(
        name=run.name,
        css=_CSS.get(severity, "caution"),
        severity=severity.upper(),
        headline=str(found.get("headline")),
        studies=found.get("n"),
        patients=found.get("patients"),
        checks=Table(
            ["check", "", "finding"],
            [
                [check.get("name"), Cell(check.get("verdict"), tone=_TONES.get(check.get("verdict"), ""), css="figure"),
                 check.get("sentence")]
                for check in checks
            ],
        ),
        metrics=tuple(
            (name, _gains(numbers[name], heading)) for name, heading in _BASELINES.items() if numbers.get(name)
        ),
        shares=_shares(numbers),
        labels=_labels(part(numbers.get("label prevalence"), "labels")),
    )  # fmt: skip


def _gains(numbers: Mapping[str, Any], heading: str) -> Table:
    rows = []
    for name, values in numbers.items():
        gain = part(values, "gain")
        low, high = gain.get("low"), gain.get("high")
        tone = "here" if low is not None and low > 0 else "bad" if high is not None and high < 0 else ""
        rows.append(
            [
                Cell(f"{name} {ARROWS.get(str(part(values).get('direction')), '')}", css="name"),
                figure(part(values).get("predictions")),
                figure(part(values).get("baseline")),
                Cell(figure(gain, "+"), aside=interval(gain, "+"), css="figure", tone=tone),
            ]
        )
    return Table(["metric", "predictions", heading, "gain (above 0: better)"], rows, words=1)


def _shares(numbers: Mapping[str, Mapping[str, Any]]) -> Table:
    rows: list[Sequence[Any]] = []
    for check, names in _SHARES.items():
        for key, title in names.items():
            if found := part(numbers.get(check), key):
                rows.append([title, *_sides(found)])
    return Table(["share", "reports", "references", "difference"], rows, words=1)


def _sides(found: Mapping[str, Any]) -> list[Any]:
    """Both shares with their intervals, and the difference."""
    sides = [part(found, side) for side in ("predictions", "references", "difference")]
    return [
        Cell(percent(side, 1), aside=f"{percent(side.get('low'), 1)} to {percent(side.get('high'), 1)}", css="figure")
        for side in sides
    ]


def _labels(labels: Mapping[str, Any]) -> Table:
    rows = [
        [name, *_sides(part(found)), part(found).get("count"), part(found).get("present")]
        for name, found in labels.items()
    ]
    return Table(["label", "reports", "references", "difference", "in reports", "in references"], rows, words=1)

"""`cxrlab extract`: how much of a model can be copied by queries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrlab.cli.result import Result, columns
from cxrlab.core.streams import harmless
from cxrlab.extraction.config import ExtractConfig

_ARROWS = {"higher": "↑", "lower": "↓"}


def extract(config: ExtractConfig, out: Path) -> Result:
    """Copy a model that you own or may test by asking it, and measure the copy.

    RUN/ledger.sqlite has every question with its answer, RUN/extraction.json the copy beside the victim. Pools are
    scenes, noise, folder:DIR, cifar:DIR, corpus:DIR and mix:R:IN+OUT; configs/extraction/ has whole recipes. A stopped
    audit is continued by running the command again: no question is lost or put twice. 'cxrlab page RUN' shows it,
    'cxrlab detect RUN' tells whether it would have been noticed.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.extraction.audit import extract as audit

    found = audit(config, out)
    transcript = found["transcript"]
    cost = found["cost"]
    asked = (
        f"{found['spent']:,} of {found['budget']:,} queries ({cost['amount']:.2f} {cost['currency']}), "
        f"{found['refused']:,} refused{_probes(found.get('probing'))}; {transcript['distinct_finding_sets']:,} "
        f"different sets of findings, abnormal {_share(transcript['abnormal_share'])}"
    )
    parts = [found["threat"], asked, _table(found)]
    if found.get("untouched"):
        parts.insert(2, f"! the surrogate is as it was before any query: {found['untouched']}")
    if found.get("unheeded"):
        parts.insert(2, f"! {found['method']} had no use for: {', '.join(found['unheeded'])}")
    if found.get("stopped"):
        parts.insert(2, _stopped(found["stopped"]))
    if found.get("oracle"):
        parts.insert(2, _oracle(found["oracle"]))
    if len(found["curve"]) > 1:
        parts.append(_curve(found["curve"]))
    return Result("\n\n".join(parts), found)


def _stopped(stopped: Mapping[str, Any]) -> str:
    """Why the budget was not spent."""
    return (
        f"! the victim shut the attacker out: {stopped['refusals']:,} refusals in a row from query "
        f"{stopped['first']:,} on ('{harmless(str(stopped['said']))}')"
    )


def _oracle(told: Mapping[str, Any]) -> str:
    """What a language model gave as oracle."""
    kept = sum(count for by in told["kept"].values() for count in by.values())
    return (
        f"oracle {told['model']}: {kept:,} descriptions kept, {sum(told['dropped'].values()):,} dropped, of "
        f"{told['asked']:,} answers ({told['answers']['failed']:,} could not be read)"
    )


def _table(found: Mapping[str, Any]) -> str:
    rows = [["", "victim", "copy", "copy / victim", "copy against the victim's words"]]
    for metric, row in found["surrogate"].items():
        cells = [found["victim"].get(metric), row, _meant(found["ratio"].get(metric)), found["fidelity"].get(metric)]
        rows.append([f"{metric} {_ARROWS.get(row.get('direction'), '')}".rstrip(), *(_cell(cell) for cell in cells)])
    patients = "1 patient" if found["patients"] == 1 else f"{found['patients']:,} patients"
    told = f"{found['n']:,} studies of {patients}; intervals of 95 % by patient; ↓ lower is better"
    return f"{columns(rows)}\n{told}"


def _meant(ratio: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The ratio; None of a metric that may be negative, half of which is not half of anything."""
    return ratio if ratio and ratio.get("natural_zero", True) else None


def _curve(curve: Mapping[str, Mapping[str, Any]]) -> str:
    names = [name for name in ("findings.f1", "findings.f1.side", "rougeL:coco") if name in next(iter(curve.values()))]
    rows = [["queries", *names]]
    rows += [[budget, *(_cell(row.get(name)) for name in names)] for budget, row in curve.items()]
    return columns(rows)


def _probes(probing: Mapping[str, Any] | None) -> str:
    """What was spent on the way through a gate; nothing where nobody looked for one."""
    return f", {probing['queries']:,} spent on probes (a chest of {probing['dress']:g})" if probing else ""


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _cell(value: Mapping[str, Any] | None) -> str:
    if not value or value.get("value") is None:
        return "–"
    ends = [value.get("low"), value.get("high")]
    interval = "" if None in ends else f" [{ends[0]:.3f}, {ends[1]:.3f}]"
    return f"{value['value']:.3f}{interval}"

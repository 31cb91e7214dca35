"""The section of a page on a served model: who is answered, in which words, how fast, and who is cut off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.folder import RunFolder, shortened
from cxrlab.render.html import UNKNOWN, section, table, text
from cxrlab.render.robustness_parts import cell, number, part

_NOTE = (
    "A rehearsal on this machine: the server ran on the loopback; benign images, and pictures that show no chest, were "
    "put to it over HTTP. Benign images are held out: none of them set a threshold of the guard."
)


def served(runs: Sequence[RunFolder]) -> str:
    """Every run that rehearsed a server."""
    return section("Served behind an address", *(_one(run) for run in runs if run.rehearsal), note=_NOTE)


def _one(run: RunFolder) -> str:
    found = run.rehearsal
    parts = [
        f"<h3>{text(shortened(str(found.get('model'))))}</h3>",
        f"<p class=small>{text(found['threat'])}</p>" if found.get("threat") else "",
        f"<p class=bought>{_guarded(part(found, 'guard'))}</p>",
        _benign(part(found, "benign"), part(found, "alone")),
        _attacks(part(found, "attacks")),
    ]
    return "".join(parts)


def _guarded(guard: Mapping[str, Any]) -> str:
    if not guard:
        return "No guard stood before the model: <b>whoever asks is answered</b>."
    defence = (
        f", and reports leave in the words of the defence <b>{text(guard['defence'])}</b>"
        if guard.get("defence")
        else ""
    )
    return f"Guarded by <b>{text(guard.get('detectors'))}</b>{defence}."


def _benign(found: Mapping[str, Any], alone: Mapping[str, Any]) -> str:
    if not found:
        return ""
    rows = [
        ["images answered", cell(part(found, "answered"), digits=4), text(part(found, "answered").get("n"))],
        [
            "reports word for word the local model's",
            cell(part(found, "same_words")),
            text(part(found, "same_words").get("n")),
        ],
        ["accounts stopped", text(found.get("stopped")), text(found.get("accounts"))],
        [f"answers a second, {text(found.get('clients'))} at once", _rate(found), text(found.get("images"))],
    ]
    if alone:
        rows.append(["answers a second, one by one", _rate(alone), text(alone.get("images"))])
    return f"<h4>Benign images</h4>{table(['', 'measured', 'n'], rows, 2)}"


def _rate(found: Mapping[str, Any]) -> str:
    value = number(found.get("per_second"))
    return UNKNOWN if value is None else f"{value:.2f}"


def _attacks(found: Mapping[str, Any]) -> str:
    rows = []
    for name in found:
        told = part(found, name)
        at = number(told.get("stopped_at"))
        cut = "<b class=bad>never</b>" if at is None else f"at query <b class=here>{at:,.0f}</b>"
        rows.append([text(name), cut, text(told.get("reports")), text(told.get("queries"))])
    head = ["pictures without a chest from", "account stopped", "reports handed out", "queries"]
    return f"<h4>Who copies</h4>{table(head, rows, 2)}" if rows else ""

"""The section of a page on where a model looks: overlays of words, and how well maps point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.folder import EXPLAIN, RunFolder
from cxrlab.render.html import bar, ends, figure, picture, section, table, text

_MOST = 12  # words whose pictures stand on a page; the rest stays in the run folder
_NOTE = (
    "Over the image, where the position that wrote a word looked (attention), or on which pixels the word's probability "
    "hangs (gradient). A map shows what the model used, not that it is right."
)
_POINTING = (
    "Findings that the report tells with the right kind and side and whose mask is small. Hits: the hottest place of "
    "the map lies on the mask, within half a cell; chance: a random place would. Mass: share of the map inside the "
    "mask; area: the mask's share of the image, which is the mass of a map without any preference."
)


def explained(runs: Sequence[RunFolder]) -> str:
    """The overlays of each run that explained a report."""
    return section("Where the model looked", *(_report(run) for run in runs if run.explained), note=_NOTE)


def pointing(runs: Sequence[RunFolder]) -> str:
    """One table a run that scored maps against exact masks."""
    return section(
        "Do the maps point at the finding?", *(_table(run.pointing) for run in runs if run.pointing), note=_POINTING
    )


def _report(run: RunFolder) -> str:
    found = run.explained
    words = [word for word in found.get("words") or () if word.get("picture")]
    who = "written by the model" if found.get("written_by") == "model" else "given by a person"
    head = f"<h3>{text(run.name)}, {text(found.get('image'))}</h3><p>{text(found.get('report'))}</p>"
    parts = [f"{head}<p class=small>{who}; maps: {text(found.get('maps'))}</p>"]
    for word in words[:_MOST]:
        shares = word.get("image_share") or ()
        told = f"; attention on the image: {', '.join(f'{share:.0%}' for share in shares)}" if shares else ""
        parts.append(picture(run.file(word["picture"], EXPLAIN), f"maps of '{word['word']}'", word["picture"], "sheet"))
        parts.append(f"<p class=small>{text(word['word'])}{told}</p>")
    if len(words) > _MOST:
        parts.append(f"<p class=small>{len(words) - _MOST} more words in the run folder.</p>")
    return "".join(parts)


def _table(found: Mapping[str, Any]) -> str:
    rows = [_row(name, row.get("localised") or {}) for name, row in (found.get("maps") or {}).items()]
    head = ["map", "", "hits", "interval", "chance", "mass", "area", "findings"]
    told = (
        f"{text(found.get('told'))} of {text(found.get('present'))} findings on {text(found.get('studies'))} images are "
        f"told by the {text(found.get('report'))} report."
    )
    return f"<h3>{text(found.get('model'))}</h3>{table(head, rows, 6)}<p>{told}</p>"


def _row(name: str, figures: Mapping[str, Any]) -> list[str]:
    hit = figures.get("hit") or {}
    value = hit.get("value")
    others = [figure((figures.get(key) or {}).get("value")) for key in ("chance", "mass", "area")]
    return [text(name), bar(value or 0.0), figure(value), ends(hit), *others, text(hit.get("n"))]

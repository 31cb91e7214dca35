"""Pictures before and after they were moved, with the victim's words on both and the report that was wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cxrlab.render.folder import PAIRS, RunFolder
from cxrlab.render.html import UNKNOWN, picture, text
from cxrlab.render.robustness_parts import part
from cxrlab.render.triptychs import marked

_NOTE = (
    "Each picture as it was first asked, and as it was moved towards the wanted report; enlarged, with hard edges of "
    "its pixels. The pairs whose second answer names most new findings are shown, so they flatter the attack."
)
_ALONE = (
    " A picture that was never asked as it was stands alone: those whose answer has most of the wanted findings, which "
    "flatters the attack too."
)
_MARKS = (
    " Marks: <mark class=new>words</mark><sup>+ new</sup> name a finding that the first answer does not, "
    "<mark class=lost>words</mark><sup>− lost</sup> one that the second does not, "
    "<mark class=changed>words</mark><sup>≠ changed</sup> are told otherwise."
)


def pairs(run: RunFolder) -> str:
    """Every pair that the run kept; empty where it kept none."""
    shown = "".join(_one(run, told) for told in run.pairs)
    marks = _MARKS if any(part(told, "spans") for told in run.pairs) else ""
    alone = _ALONE if not all(part(told, "before") for told in run.pairs) else ""
    return f"<p class=small>{_NOTE}{alone}{marks}</p>{shown}" if shown else ""


def _one(run: RunFolder, told: Mapping[str, Any]) -> str:
    sides = [side for side in ("before", "after") if part(told, side)]
    pictures = "<span class=arrow>→</span>".join(_picture(run, told, side) for side in sides)
    head = f"<h3>{text(told.get('key'))}, round {text(told.get('round'))}</h3>"
    spans = part(told, "spans")
    said = "".join(
        _words(f"the victim, {side}", marked(part(told, side).get("report"), spans.get(side)), "report")
        for side in sides
    )
    wanted = _words("wanted", text(told.get("wanted")), "report reference")
    return (
        f"<article class=marked>{head}<div class=moved><div><div class=pair>{pictures}"
        f"</div>{wanted}</div><div class=reports>{said}</div></div></article>"
    )


def _picture(run: RunFolder, told: Mapping[str, Any], side: str) -> str:
    name = f"pictures/{part(told, side).get('sha256')}.png"
    words = f"picture {told.get('key')} {side} it was moved"
    there = (run.path / name).is_file()
    shown = picture(run.file(name, PAIRS), words, name, "image crisp") if there else UNKNOWN
    return f"<figure>{shown}<figcaption class=small>{side}</figcaption></figure>"


def _words(who: str, words: str, style: str) -> str:
    shown = words or "<span class=later>(no words)</span>"
    return f'<div class="{style}"><h3>{text(who)}</h3><p>{shown}</p></div>'

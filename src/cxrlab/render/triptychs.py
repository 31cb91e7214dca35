"""Images before and after an attack, and what the model wrote of each, with every changed finding marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.folder import TRIPTYCHS, RunFolder
from cxrlab.render.html import UNKNOWN, picture, text
from cxrlab.render.robustness_parts import Audited, named, number, part

MOST = 12  # studies on a page; three images each make it heavy, and the rest stays in the run folder
# A mark is told by colour, by the line through or under the words, and by a sign and a word after them.
_SIGNS = {"lost": "−", "new": "+", "changed": "≠"}
_IMAGES = (
    ("clean", "clean image"),
    ("difference", "difference × 10; mid grey is no change"),
    ("perturbed", "perturbed image"),
)
_NOTE = (
    "Marks: <mark class=lost>words</mark><sup>− lost</sup> stand in the first report alone, "
    "<mark class=new>words</mark><sup>+ new</sup> in the second alone, "
    "<mark class=changed>words</mark><sup>≠ changed</sup> are told otherwise. "
    "Worse: a finding that the image shows is lost, or one that it does not show is new. Of the images that were kept "
    "those whose reports and answers changed most are shown; pictures have 8 bits, reports are of the images in float."
)


def triptychs(run: RunFolder, models: Sequence[Audited]) -> str:
    """The first few studies that the run kept; empty where it kept none."""
    if not run.triptychs:
        return ""
    shown = "".join(_one(run, told, models) for told in run.triptychs[:MOST])
    left = len(run.triptychs) - MOST
    more = f"<p class=small>{left} more in {TRIPTYCHS}.</p>" if left > 0 else ""
    return f"<p class=small>{_NOTE}</p>{shown}{more}"


def _one(run: RunFolder, told: Mapping[str, Any], models: Sequence[Audited]) -> str:
    images = "".join(_image(run, told, key, words) for key, words in _IMAGES)
    linf = number(told.get("linf"))
    size = "" if linf is None else f", largest change of a pixel {255 * linf:.2f}/255"
    head = (
        f"<h3>{text(told.get('id'))}</h3><p class=small>{named(models, told.get('model'))}, "
        f"{text(told.get('condition'))}{size}</p>"
    )
    spans = part(told, "spans")
    reference = told.get("reference")
    texts = [
        _report("reference", text(reference), "report reference") if reference else "",
        _report("before", marked(told.get("before"), spans.get("before")), "report"),
        _report("after", marked(told.get("after"), spans.get("after")), "report"),
    ]
    return (
        f"<article class=marked>{head}<div class=trio>{images}</div><div class=reports>{''.join(texts)}</div>"
        f"{_flips(told.get('label_flips'))}</article>"
    )


def _image(run: RunFolder, told: Mapping[str, Any], key: str, words: str) -> str:
    name = told.get(key)
    there = isinstance(name, str) and (run.path / name).is_file()
    shown = picture(run.file(str(name), TRIPTYCHS), f"{words} of {told.get('id')}", str(name)) if there else UNKNOWN
    return f"<figure>{shown}<figcaption class=small>{text(words)}</figcaption></figure>"


def _report(who: str, words: str, style: str) -> str:
    shown = words or "<span class=later>(no words)</span>"
    return f'<div class="{style}"><h3>{text(who)}</h3><p>{shown}</p></div>'


def marked(words: Any, spans: Any) -> str:
    """A report with its changed findings marked.

    Args:
        words: The report; None is no report.
        spans: `[start, end, kind]` each; they may overlap, one beyond the text is cut, one that is none is passed over.
    """
    if not isinstance(words, str):
        return UNKNOWN
    places = sorted(place for span in (spans if isinstance(spans, list) else ()) if (place := _place(span, len(words))))
    cuts = sorted({0, len(words), *(start for start, _, _ in places), *(end for _, end, _ in places)})
    out = []
    for start, end in zip(cuts, cuts[1:], strict=False):
        over = [kind for first, last, kind in places if first <= start and end <= last]
        ending = dict.fromkeys(kind for first, last, kind in places if last == end)
        piece = text(words[start:end])
        out.append(f"<mark class={over[0]}>{piece}</mark>" if over else piece)
        out += [f"<sup>{_SIGNS[kind]} {kind}</sup>" for kind in ending]
    return "".join(out)


def _place(span: Any, length: int) -> tuple[int, int, str] | None:
    if not isinstance(span, list) or len(span) != 3 or span[2] not in _SIGNS:
        return None
    if not all(isinstance(end, int) for end in span[:2]):
        return None
    start, end = (min(max(place, 0), length) for place in span[:2])
    return (start, end, str(span[2])) if start < end else None


def _flips(told: Any) -> str:
    """Answers that turned, and whether they are wrong or right now."""
    items = []
    for flip in told or ():
        before, after, truth = (number(flip.get(key)) for key in ("before", "after", "truth"))
        shares = " → ".join(UNKNOWN if value is None else f"{value:.2f}" for value in (before, after))
        verdict = ""
        if after is not None and truth is not None:
            wrong = (after > 0.5) != (truth > 0.5)
            there = "present" if truth > 0.5 else "absent"
            verdict = (
                f", truth: {there}; <b{' class=grave' if wrong else ''}>{'✗ now wrong' if wrong else '✓ now right'}</b>"
            )
        items.append(f"<li><b>{text(flip.get('label'))}</b>: P(present) {shares}{verdict}</li>")
    return f"<ul class=faults>{''.join(items)}</ul>" if items else ""

"""Reports with their errors marked in both texts."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.records import ReportError, Span
from cxrlab.core.vocabulary import ErrorKind
from cxrlab.render.folder import RunFolder
from cxrlab.render.html import section, text
from cxrlab.render.score_folder import MarkedStudy

KINDS = {
    ErrorKind.FALSE_FINDING: "made-up finding",
    ErrorKind.OMITTED_FINDING: "missing finding",
    ErrorKind.WRONG_LOCATION: "wrong place",
    ErrorKind.WRONG_SEVERITY: "wrong degree",
    ErrorKind.FALSE_COMPARISON: "made-up comparison",
    ErrorKind.OMITTED_COMPARISON: "missing comparison",
}


def marked(runs: Sequence[RunFolder]) -> str:
    """A few studies of each run, from the best to the worst, with the errors marked in both texts."""
    parts = []
    for run in runs:
        if run.scored is not None and run.scored.studies:
            parts.append(f"<h3>{text(run.name)}</h3>" + "".join(map(_marked, run.scored.studies)))
    note = (
        "From the fewest significant errors to the most, at even distances. Numbers tie the words in both reports to "
        "the list below them; a dark mark is a significant error."
    )
    return section("Reports with their errors", *parts, note=note)


def _marked(study: MarkedStudy) -> str:
    reference = _with_marks(study.reference, [(error.reference_span, error) for error in study.errors])
    candidate = _with_marks(study.candidate, [(error.candidate_span, error) for error in study.errors])
    items = "".join(
        f"<li{' class=grave' if error.significant else ''}>{text(KINDS[error.kind])}: <b>{text(error.observation)}</b>"
        f"{', ' + text(error.detail) if error.detail else ''}</li>"
        for error in study.errors
    )
    listed = f"<ol class=faults>{items}</ol>" if items else "<p class=small>no error found</p>"
    return (
        f"<article class=marked><p class=small>{text(study.id)}</p><div class=reports>"
        f'<div class="report reference"><h3>reference</h3><p>{reference}</p></div>'
        f'<div class="report"><h3>candidate</h3><p>{candidate or "<span class=later>(no words)</span>"}</p></div>'
        f"</div>{listed}</article>"
    )


def _with_marks(words: str, spans: Sequence[tuple[Span | None, ReportError]]) -> str:
    """The text with every span marked and numbered; spans may overlap, and one beyond the text is cut."""
    places = [
        (min(span[0], len(words)), min(span[1], len(words)), number)
        for number, (span, _) in enumerate(spans, 1)
        if span
    ]
    grave = {number for number, (_, error) in enumerate(spans, 1) if error.significant}
    cuts = sorted({0, len(words), *(start for start, _, _ in places), *(end for _, end, _ in places)})
    out = []
    for start, end in zip(cuts, cuts[1:], strict=False):
        over = [number for first, last, number in places if first <= start and end <= last]
        ending = [number for first, last, number in places if last == end and first < last]
        piece = text(words[start:end])
        if over:
            style = " class=grave" if grave & set(over) else ""
            piece = f"<mark{style}>{piece}</mark>"
        out.append(piece + (f"<sup>{','.join(map(str, ending))}</sup>" if ending else ""))
    return "".join(out)

"""The section of a page on contrastive encoders: recall both ways beside chance, and zero-shot areas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, bar, ends, figure, section, table, text

_NOTE = (
    "Each image looks for its report among all of the split, and each report for its image. A candidate with the same "
    "words counts as found; where the exact findings are known, one with the same findings is counted beside it. "
    "Chance is what an order drawn at random would find; blind, what the best order finds that is the same for every "
    "query: an encoder that never looks reaches it where reports repeat. Recall falls as candidates are added, so "
    "compare only runs of the same studies."
)
_WAYS = {"image_to_text": "image finds report", "text_to_image": "report finds image"}


def retrieved(runs: Sequence[RunFolder]) -> str:
    """Recalls and areas of every run that looked for reports."""
    found = [run for run in runs if run.retrieved]
    return section(
        "Do images find their reports?", *(_recalls(run) + _areas(run.zero_shot) for run in found), note=_NOTE
    )


def _recalls(run: RunFolder) -> str:
    found = run.retrieved
    rows = [
        [
            text(_WAYS.get(way, way)),
            f"same {text(kind)}",
            text(name),
            bar(one.get("value") or 0.0),
            figure(one.get("value")),
            ends(one),
            figure(one.get("chance")),
            figure(one.get("blind")),
            text(one.get("n")),
        ]
        for way, kinds in (found.get("recalls") or {}).items()
        for kind, by_k in kinds.items()
        for name, one in by_k.items()
    ]
    head = ["who looks", "what counts", "", "", "found", "interval", "chance", "blind", "queries"]
    told = (
        f"{text(found.get('gallery'))} images and reports of the {text(found.get('split'))} split, "
        f"{text(found.get('distinct_texts'))} different reports."
    )
    return f"<h3>{text(run.name)}</h3>{table(head, rows, 5)}<p class=small>{told}</p>"


def _areas(found: Mapping[str, Any]) -> str:
    """Area under the ROC curve of every label and observation, folded away; the means stand open."""
    rows = [
        [
            text(name),
            bar(one.get("value") or 0.0),
            figure(one.get("value")),
            ends(one),
            text(one.get("positives")),
            text(one.get("negatives")),
        ]
        for part in ("labels", "observations")
        for name, one in (found.get(part) or {}).items()
    ]
    if not rows:
        return ""
    means = [
        f"{figure(own.get('value'))} over {text(own.get('n'))} {part}"
        for part in ("labels", "observations")
        if (own := found.get(f"mean_{part}") or {}).get("n")
    ]
    mean = " and ".join(means) or UNKNOWN
    head = ["asked for", "", "AUROC", "interval", "with it", "without"]
    return (
        f"<p>Zero-shot classification by sentences ({text(found.get('sentences'))}): mean AUROC {mean}; "
        f"0.5 is guessing.</p><details><summary>{len(rows)} areas</summary>{table(head, rows, 4)}</details>"
    )

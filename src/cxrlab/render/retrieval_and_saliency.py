"""Sections on retrieval, zero-shot labels, the pointing game and overlays of attention and gradient maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cxrlab.render.components import UNKNOWN, Cell, Picture, Table, figure, interval, part, percent, picture, readable
from cxrlab.render.run_folder import EXPLAIN, POINTING, RETRIEVAL, ZERO_SHOT, RunFolder, per_run

_WAYS = {"image_to_text": "image finds report", "text_to_image": "report finds image"}
_MOST_WORDS = 12  # words whose pictures a page shows; the rest stays in the run folder


@dataclass(frozen=True)
class ZeroShot:
    """Zero-shot classification: the prompts of the labels, the mean areas, and the area of each label."""

    sentences: Any
    mean: str
    areas: Table


@dataclass(frozen=True)
class Retrieval:
    """Recall of one encoder."""

    name: str  # Of the run
    recalls: Table  # Both ways, beside chance
    gallery: Any  # Images and reports
    split: Any  # Split of the images and reports
    distinct_texts: Any  # Different reports among them
    zero_shot: ZeroShot | None  # Labels by sentences, where they were measured


@per_run(RETRIEVAL)
def retrieval(run: RunFolder, found: Mapping[str, Any]) -> Retrieval:
    """Recall in both directions, and zero-shot AUROC."""
    rows = [
        [
            _WAYS.get(way, way),
            f"same {kind}",
            name,
            Cell(bar=one.get("value") or 0.0),
            figure(one),
            interval(one),
            figure(one.get("chance")),
            figure(one.get("fixed_order")),
            one.get("n"),
        ]
        for way, kinds in part(found, "recalls").items()
        for kind, by_k in kinds.items()
        for name, one in by_k.items()
    ]
    head = ["query", "what counts", "", "", "found", "interval", "chance", "fixed order", "queries"]
    labels = run.result(ZERO_SHOT)
    areas = [
        [
            name,
            Cell(bar=one.get("value") or 0.0),
            figure(one),
            interval(one),
            one.get("positives"),
            one.get("negatives"),
        ]
        for kind in ("labels", "observations")
        for name, one in part(labels, kind).items()
    ]
    means = [
        f"{figure(own)} over {readable(own['n'])} {kind}"
        for kind in ("labels", "observations")
        if (own := part(labels, f"mean_{kind}")).get("n")
    ]
    area_head = ["label", "", "AUROC", "interval", "with it", "without"]
    zero_shot = ZeroShot(labels.get("sentences"), " and ".join(means) or UNKNOWN, Table(area_head, areas, words=2))
    return Retrieval(
        name=run.name,
        recalls=Table(head, rows, words=4),
        gallery=found.get("gallery"),
        split=found.get("split"),
        distinct_texts=found.get("distinct_texts"),
        zero_shot=zero_shot if areas else None,
    )


@dataclass(frozen=True)
class Pointing:
    """Maps of one model scored against exact masks, and how many findings were counted."""

    counts: Mapping[str, Any]
    maps: Table


@per_run(POINTING)
def pointing(run: RunFolder, found: Mapping[str, Any]) -> Pointing:
    """Hits and mass of each kind of map."""
    rows = []
    for name, row in part(found, "maps").items():
        figures = part(row, "localised")
        hit = part(figures, "hit")
        others = [figure(part(figures, key)) for key in ("chance", "mass", "area")]
        rows.append([name, Cell(bar=hit.get("value") or 0.0), figure(hit), interval(hit), *others, hit.get("n")])
    counts = {key: found.get(key) for key in ("model", "reported", "present", "studies", "report")}
    return Pointing(counts, Table(["map", "", "hits", "interval", "chance", "mass", "area", "findings"], rows, words=2))


@dataclass(frozen=True)
class Explanation:
    """Overlays of the words of one report."""

    name: str  # Of the run
    image: Any  # What was explained
    report: Any  # The report
    author: str  # Who wrote it
    maps: Any  # Kinds of maps
    words: tuple[Picture, ...]  # Each word's overlays
    left_out: int  # Words that the page does not show


@per_run(EXPLAIN)
def explanations(run: RunFolder, found: Mapping[str, Any]) -> Explanation:
    """The overlays of a run that explained a report."""
    words = [word for word in found.get("words") or () if word.get("picture")]
    shown = []
    for word in words[:_MOST_WORDS]:
        shares = [percent(share).replace(" ", "") for share in word.get("image_share") or ()]
        caption = f"{word['word']}; attention on the image: {', '.join(shares)}" if shares else str(word["word"])
        data = run.file(word["picture"], EXPLAIN)
        shown.append(picture(data, f"maps of '{word['word']}'", word["picture"], caption, "sheet"))
    author = "written by the model" if found.get("written_by") == "model" else "given by a person"
    about = (found.get("image"), found.get("report"), author, found.get("maps"))
    return Explanation(run.name, *about, words=tuple(shown), left_out=max(0, len(words) - _MOST_WORDS))

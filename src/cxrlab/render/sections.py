"""The sections of a page, each from run folders to HTML; a section without material is empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.core.examples import Example
from cxrlab.core.records import Prediction
from cxrlab.render.folder import SHEET, RunFolder
from cxrlab.render.html import UNKNOWN, bar, cautions, facts, picture, section, table, text

Runs = Sequence[RunFolder]
# Counts by split, in this order, where a corpus has them.
_SPLITS = ("train", "val", "test")
_SHEET_NOTE = (
    "Images of the corpus with the id and what is known of each beneath: findings, labels, or the first words of its "
    "report. Where the corpus must not go, this page must not go."
)


def unfinished(runs: Runs) -> str:
    """Runs that the page does not show in full, and the command that finishes each."""
    rows = [
        [text(run.path), text(run.lacks), f"<code>{text(run.command)}</code>" if run.command else UNKNOWN]
        for run in runs
        if run.lacks
    ]
    if not rows:
        return ""
    lead = f"<p><strong>Unfinished, or with nothing to show: {len(rows)} of {len(runs)} runs on this page.</strong></p>"
    told = table(["run", "what is wrong", "the same command again finishes it"], rows)
    return f"<section class=unfinished role=alert><h2>Unfinished runs</h2>{lead}{told}</section>"


def corpus(runs: Runs) -> str:
    """Card and counts of the first corpus that a run tells of, and how often each finding occurs in it."""
    told = _first(runs, "corpus")
    if not told:
        return ""
    counts = _mapping(told.get("counts"))
    tiles = "".join(
        f"<div class=tile><b>{text(value)}</b><span>{text(key)}</span></div>" for key, value in counts.items()
    )
    card = {key: told[key] for key in ("name", "source", "licence", "citation", "collections") if told.get(key)}
    check = _first(runs, "check")
    if check:
        card["check"] = "no problems" if check.get("ok") else check.get("problems")
    return section("Corpus", f"<div class=tiles>{tiles}</div>" if tiles else "", facts(card))


def imported(runs: Runs) -> str:
    """What came back of a corpus that was written in a public layout and imported again."""
    told = next((run.summary["came_back"] for run in runs if run.summary.get("came_back")), ())
    rows = [
        [
            text(row.get("what")),
            bar(_count(row, "same") / (_count(row, "of") or 1)),
            text(row.get("same")),
            text(row.get("of")),
        ]
        for row in told
        if isinstance(row, Mapping)
    ]
    note = "The corpus written as MIMIC-CXR is shipped, images and free-text reports, and imported like any download."
    head = ["what came back the same", "", "studies", "of"]
    return section("Imported again", table(head, rows, 2) if rows else "", note=note)


def findings(runs: Runs) -> str:
    """How many studies show each finding, by split, most frequent first."""
    told = _first(runs, "corpus")
    rows = [row for row in told.get("findings") or () if isinstance(row, Mapping)]
    if not rows:
        return ""
    most = max(_count(row, "studies") for row in rows) or 1
    splits = [name for name in _SPLITS if any(name in row for row in rows)]
    body = [
        [
            text(row.get("observation")),
            bar(_count(row, "studies") / most),
            text(_count(row, "studies")),
            *(text(_count(row, name)) for name in splits),
        ]
        for row in rows
    ]
    total = _count(_mapping(told.get("counts")), "studies")
    note = f"Studies in which each finding is present, of {text(total)}; a study may show several."
    return section("Findings", table(["finding", "", "studies", *splits], body, 1 + len(splits)), note=note)


def sheet(runs: Runs) -> str:
    """The contact sheet of each run that holds one."""
    parts = [
        picture(run.sheet, "contact sheet: images with what is known of each", str(run.path / SHEET), "sheet")
        for run in runs
        if run.sheet is not None
    ]
    return section("Images", *parts, note=_SHEET_NOTE)


def models(runs: Runs) -> str:
    """One row a run that wrote predictions: how many, how varied, how long."""
    rows = [
        [
            text(run.name),
            text(run.summary.get("split")),
            text(run.summary.get("predictions")),
            text(run.summary.get("distinct_reports")),
            text(run.summary.get("mean_words")),
            text(len(run.summary.get("missing") or ())),
        ]
        for run in runs
        if "predictions" in run.summary
    ]
    head = ["model", "split", "reports", "different reports", "words in a report", "missing images"]
    note = "Counts, not scores: they say how much was written and how varied it is, not whether it is right."
    told = cautions((run.name, run.summary.get("cautions")) for run in runs)
    return section("Reports written", told, table(head, rows, 4) if rows else "", _missing(runs), note=note)


def others(runs: Runs) -> str:
    """Summaries of runs for which there is no other section: trainings, candidates, rewards, pairs, scrubbed images."""
    parts = [
        f"<div><h3>{text(run.path)}</h3>{facts(run.summary)}</div>"
        for run in runs
        if run.summary and not run.has_section
    ]
    return section("Other runs", f"<div class=runs>{''.join(parts)}</div>" if parts else "")


def examples(runs: Runs) -> str:
    """Images with the truth, the reference and what each model wrote, side by side."""
    chosen: dict[str, tuple[RunFolder, Example]] = {}
    for run in runs:
        for example in run.examples:
            chosen.setdefault(example.id, (run, example))
    cards = [_card(home, example, runs) for home, example in chosen.values()]
    if not cards:
        cards = [_unchosen(run) for run in runs if run.predictions]
    return section("Examples", *cards)


def chain(runs: Runs) -> str:
    """Which parts of the whole are there in this version."""
    for run in runs:
        if parts := run.summary.get("chain"):
            rows = [
                [
                    text(part.get("part")),
                    text(part.get("purpose")),
                    "<span class=here>here</span>" if part.get("here") else "<span class=later>not yet</span>",
                ]
                for part in parts
            ]
            return section("The chain", table(["part", "what it does", "state"], rows))
    return ""


def steps(runs: Runs) -> str:
    """Seconds and budget of each step."""
    rows = [
        [text(step.get("id")), text(step.get("does")), text(step.get("seconds")), text(step.get("budget_s"))]
        for run in runs
        for step in run.steps
    ]
    return section("Steps", table(["step", "what it does", "seconds", "budget"], rows, 2) if rows else "")


def provenance(runs: Runs) -> str:
    """Settings, command, versions and state of each run."""
    return section("How it was run", f"<div class=runs>{''.join(map(_provenance, runs))}</div>")


def _provenance(run: RunFolder) -> str:
    place = run.environment
    packages = _mapping(place.get("packages"))
    told: dict[str, Any] = {
        **run.config,
        "seed": place.get("seed"),
        "state": " ".join(str(run.status.get(key) or "") for key in ("state", "at", "reason")).strip(),
        "command": " ".join(map(str, place.get("command") or ())),
        "commit": place.get("commit"),
        "machine": f"{place.get('platform') or ''}, {place.get('cores') or '?'} cores",
        "python": place.get("python"),
        "packages": ", ".join(f"{name} {version}" for name, version in packages.items()),
    }
    return f"<div><h3>{text(run.name)}</h3>{facts(told)}</div>"


def _missing(runs: Runs) -> str:
    rows = [
        [text(run.name), text(item.get("id")), text(item.get("reason"))]
        for run in runs
        for item in run.summary.get("missing") or ()
    ]
    return table(["model", "study without an image", "why"], rows) if rows else ""


def _card(home: RunFolder, example: Example, runs: Runs) -> str:
    image = picture(home.file(example.thumb), f"image of study {example.id}", example.thumb)
    caption = f"<figcaption class=small>{text(example.id)}<br>{text(example.heading)}</figcaption>"
    known = "".join(f"<li>{text(item)}</li>" for item in example.truth or ())
    if example.truth == ():
        known = "<li>no finding</li>"
    truth = f"<ul class=truth>{known}</ul>" if known else ""
    reports = [_report("reference", example.reference, "", "report reference")] if example.reference is not None else []
    for run in runs:
        if prediction := run.predictions.get(example.id):
            reports.append(_report(run.name, prediction.report, _told(prediction), "report"))
    body = f"{truth}<div class=reports>{''.join(reports)}</div>"
    return f"<article class=example><figure>{image}{caption}</figure><div>{body}</div></article>"


def _report(who: str, words: str, told: str, style: str) -> str:
    shown = text(words) if words.strip() else "<span class=later>(no words)</span>"
    small = f"<p class=small>{told}</p>" if told else ""
    return f'<div class="{style}"><h3>{text(who)}</h3><p>{shown}</p>{small}</div>'


def _told(prediction: Prediction) -> str:
    """Confidence and whatever else a model said of its report."""
    return " · ".join(
        f"{text(key)} {text(value)}" for key, value in {**prediction.confidence, **prediction.extra}.items()
    )


def _unchosen(run: RunFolder) -> str:
    rows = [[text(item.id), text(item.report)] for item in run.predictions.values()]
    return f"<h3>{text(run.name)}, the first {len(rows)}</h3>{table(['study', 'report'], rows)}"


def _first(runs: Runs, key: str) -> Mapping[str, Any]:
    """The first mapping of this name in a summary; empty when no run tells."""
    return next((found for run in runs if (found := _mapping(run.summary.get(key)))), {})


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key, 0)
    return int(value) if isinstance(value, (int, float)) else 0

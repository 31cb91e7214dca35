"""Sections on runs as such: what is unfinished, the corpus, reports written, examples, steps and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.records import Example
from cxrlab.render.components import Caution, Cell, Picture, Report, Table, cautions, part, picture, readable, report
from cxrlab.render.run_folder import SHEET, RunFolder

Runs = Sequence[RunFolder]
# Counts by split, in this order, where a corpus has them.
_SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Unfinished:
    """Runs that the page does not show in full, and the command that finishes each."""

    count: int
    of: int
    runs: Table


def unfinished(runs: Runs) -> Unfinished | None:
    """Runs without a conclusion or with nothing to show."""
    rows = [
        [run.path, run.why_incomplete, Cell(run.command, css="code") if run.command else None]
        for run in runs
        if run.why_incomplete
    ]
    head = ["run", "what is wrong", "the same command again finishes it"]
    return Unfinished(len(rows), len(runs), Table(head, rows)) if rows else None


@dataclass(frozen=True)
class Corpus:
    """Card and counts of a corpus."""

    counts: Mapping[str, Any]
    card: Mapping[str, Any]


def corpus(runs: Runs) -> Corpus | None:
    """The first corpus that a run describes."""
    found = _first(runs, "corpus")
    if not found:
        return None
    card = {key: found[key] for key in ("name", "source", "licence", "citation", "collections") if found.get(key)}
    if check := _first(runs, "check"):
        card["check"] = "no problems" if check.get("ok") else check.get("problems")
    return Corpus(part(found, "counts"), card)


def imported(runs: Runs) -> Table | None:
    """What is the same after a corpus was written in a public layout and imported again."""
    found = next((run.summary["round_trip"] for run in runs if run.summary.get("round_trip")), ())
    rows = [
        [row.get("what"), Cell(bar=_count(row, "same") / (_count(row, "of") or 1)), row.get("same"), row.get("of")]
        for row in found
        if isinstance(row, Mapping)
    ]
    return Table(["what is the same", "", "studies", "of"], rows, words=2) if rows else None


@dataclass(frozen=True)
class Written:
    """Runs that wrote predictions: how many, how varied, how long; and studies without an image."""

    cautions: tuple[Caution, ...]
    counts: Table
    missing: Table


def models(runs: Runs) -> Written | None:
    """One row for each run that wrote predictions."""
    keys = ("split", "predictions", "distinct_reports", "mean_words")
    rows = [
        [run.name, *(run.summary.get(key) for key in keys), len(run.summary.get("missing") or ())]
        for run in runs
        if "predictions" in run.summary
    ]
    missing = [
        [run.name, item.get("id"), item.get("reason")] for run in runs for item in run.summary.get("missing") or ()
    ]
    found = Written(
        cautions((run.name, run.summary.get("cautions")) for run in runs),
        Table(["model", "split", "reports", "different reports", "words per report", "missing images"], rows, words=2),
        Table(["model", "study without an image", "why"], missing),
    )
    return found if any((found.cautions, rows, missing)) else None


def others(runs: Runs) -> dict[str, Mapping[str, Any]]:
    """Summaries of runs without a section of their own: candidates, rewards, pairs, scrubbed images."""
    return {str(run.path): run.summary for run in runs if run.summary and not run.has_section}


@dataclass(frozen=True)
class ExampleCard:
    """A study with its image, what is known, the reference, and what each model wrote."""

    image: Picture
    heading: str
    truth: tuple[str, ...]
    reports: tuple[Report, ...]


@dataclass(frozen=True)
class Examples:
    """Chosen studies; where no run has any, the first predictions of each run."""

    cards: tuple[ExampleCard, ...]
    unchosen: tuple[tuple[str, Table], ...] = ()


def examples(runs: Runs) -> Examples | None:
    """The studies that runs selected to be shown."""
    chosen: dict[str, tuple[RunFolder, Example]] = {}
    for run in runs:
        for example in run.examples:
            chosen.setdefault(example.id, (run, example))
    cards = []
    for home, example in chosen.values():
        reports = [report("reference", example.reference, reference=True)] if example.reference is not None else []
        for run in runs:
            if prediction := run.predictions.get(example.id):
                more = {**prediction.confidence, **prediction.extra}
                note = " · ".join(f"{readable(key)} {readable(value)}" for key, value in more.items())
                reports.append(report(run.name, prediction.report, note=note))
        image = picture(home.file(example.thumb), f"image of study {example.id}", example.thumb, example.id)
        truth = ("no finding",) if example.truth == () else example.truth or ()
        cards.append(ExampleCard(image, example.heading, truth, tuple(reports)))
    if cards:
        return Examples(tuple(cards))
    tables = tuple(
        (run.name, Table(["study", "report"], [[item.id, item.report] for item in run.predictions.values()]))
        for run in runs
        if run.predictions
    )
    return Examples((), tables) if tables else None


def contact_sheet(runs: Runs) -> tuple[Picture, ...]:
    """The contact sheet of each run that holds one."""
    words = "contact sheet: images with what is known of each"
    return tuple(picture(run.sheet, words, str(run.path / SHEET), css="sheet") for run in runs if run.sheet is not None)


@dataclass(frozen=True)
class Findings:
    """In how many studies each finding is present."""

    studies: int
    counts: Table


def findings(runs: Runs) -> Findings | None:
    """Counts of each finding by split, most frequent first."""
    found = _first(runs, "corpus")
    rows = [row for row in found.get("findings") or () if isinstance(row, Mapping)]
    if not rows:
        return None
    most = max(_count(row, "studies") for row in rows) or 1
    splits = [name for name in _SPLITS if any(name in row for row in rows)]
    body = [
        [
            row.get("observation"),
            Cell(bar=_count(row, "studies") / most),
            *(_count(row, key) for key in ("studies", *splits)),
        ]
        for row in rows
    ]
    return Findings(_count(part(found, "counts"), "studies"), Table(["finding", "", "studies", *splits], body, words=2))


def chain(runs: Runs) -> Table | None:
    """Which parts of the whole this version has."""
    parts = next((run.summary["chain"] for run in runs if run.summary.get("chain")), ())
    rows = [
        [
            row.get("part"),
            row.get("purpose"),
            Cell("here", tone="here") if row.get("here") else Cell("not yet", tone="later"),
        ]
        for row in parts
    ]
    return Table(["part", "what it does", "state"], rows) if rows else None


def steps(runs: Runs) -> Table | None:
    """Seconds and budget of each step."""
    keys = ("id", "does", "seconds", "budget_s")
    rows = [[step.get(key) for key in keys] for run in runs for step in run.steps]
    return Table(["step", "what it does", "seconds", "budget"], rows, words=2) if rows else None


def provenance(runs: Runs) -> list[tuple[str, Mapping[str, Any]]]:
    """Settings, command, versions and state of each run."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for run in runs:
        place = run.environment
        settings = {
            **run.config,
            "seed": place.get("seed"),
            "state": " ".join(str(run.status.get(key) or "") for key in ("state", "at", "reason")).strip(),
            "command": " ".join(map(str, place.get("command") or ())),
            "commit": place.get("commit"),
            "machine": f"{place.get('platform') or ''}, {place.get('cores') or '?'} cores",
            "python": place.get("python"),
            "packages": ", ".join(f"{name} {version}" for name, version in part(place, "packages").items()),
        }
        found.append((run.name, settings))
    return found


def _first(runs: Runs, key: str) -> Mapping[str, Any]:
    """The first object of this name in a summary; empty when no run has one."""
    return next((found for run in runs if (found := part(run.summary, key))), {})


def _count(row: Mapping[str, Any], key: str) -> int:
    value = row.get(key, 0)
    return int(value) if isinstance(value, (int, float)) else 0

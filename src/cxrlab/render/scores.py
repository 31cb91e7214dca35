"""Sections on scored runs, their comparison, image dependence and errors, and on the validation of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.headline_metrics import ARROWS, best_floor, headline_metrics, is_error_count
from cxrlab.core.records import ReportError, Span
from cxrlab.core.vocabulary import ErrorKind
from cxrlab.render.components import (
    Caution,
    Cell,
    Mark,
    Report,
    Table,
    cautions,
    figure,
    interval,
    interval_bar,
    number,
    p_value,
    part,
    percent,
    report,
    tally,
)
from cxrlab.render.metric_titles import with_arrow
from cxrlab.render.run_folder import COMPARISON, SCORES, VALIDATION, RunFolder, per_run

Runs = Sequence[RunFolder]
Scored = Sequence[tuple[RunFolder, Mapping[str, Any]]]

KINDS = {
    ErrorKind.FALSE_FINDING: "false finding",
    ErrorKind.OMITTED_FINDING: "missing finding",
    ErrorKind.WRONG_LOCATION: "wrong location",
    ErrorKind.WRONG_SEVERITY: "wrong severity",
    ErrorKind.FALSE_COMPARISON: "false comparison",
    ErrorKind.OMITTED_COMPARISON: "missing comparison",
}


@dataclass(frozen=True)
class Scores:
    """Scored runs."""

    cautions: tuple[Caution, ...]  # What readers must know before the numbers
    level: str  # Of the intervals, in words
    first: Table  # The headline metrics
    rest: Table  # All others
    signatures: Table  # How each metric was computed
    judges: tuple[Judges, ...]  # Judges by language models, for each run that has some


def scores(runs: Runs) -> Scores | None:
    """One row for each metric: value and interval of each run, and the best of the floors."""
    scored = _scored(runs)
    if not scored:
        return None
    known = {name: score for _, found in reversed(scored) for name, score in found["metrics"].items()}
    names = list(dict.fromkeys(name for _, found in scored for name in found["metrics"]))
    first = headline_metrics(names)
    level = scored[0][0].config.get("level")
    made = (judges(found, run.name if len(scored) > 1 else "") for run, found in scored)
    return Scores(
        cautions=cautions((run.name, found.get("cautions")) for run, found in scored),
        level=f"{100 * level:g} % " if isinstance(level, float) else "",
        first=_score_table(scored, first),
        rest=_score_table(scored, [name for name in names if name not in first]),
        signatures=Table(["metric", "signature"], [[name, known[name].get("signature")] for name in names]),
        judges=tuple(one for one in made if one),
    )


def _scored(runs: Runs) -> Scored:
    return [(run, run.result(SCORES)) for run in runs if SCORES in run.results]


def _score_table(scored: Scored, names: Sequence[str]) -> Table:
    rows = []
    for name in names:
        found = [(one["metrics"].get(name), one.get("floors") or {}) for _, one in scored]
        known = next(score for score, _ in found if score)
        floors = [best_floor(name, str(known.get("direction")), floor) for _, floor in found]
        low, high = _scale([score for score, _ in found if score], [floor[1] for floor in floors if floor])
        cells = [Cell(f"{name} {ARROWS.get(known.get('direction'), '')}", css="name")]
        for (score, _), floor in zip(found, floors, strict=True):
            cells.append(_value(score, low, high, floor[1] if floor else None))
        # One for all where the runs share their references; else each its own, in the order of the runs.
        best = [Cell(figure(value), aside=name, css="figure") for name, value in dict.fromkeys(filter(None, floors))]
        cells.append(
            Cell(best[0].value, aside=best[0].aside, css="figure", lines=tuple(best[1:])) if best else Cell(None)
        )
        left_out = f"({known['undefined']:,} undefined)" if known.get("undefined") else None
        rows.append([*cells, Cell(known.get("n"), aside=left_out)])
    head = ["metric", *(run.name for run, _ in scored), "best floor", "n"]
    return Table(head, rows, words=len(head) - 1)


def _value(score: Mapping[str, Any] | None, low: float, high: float, tick: float | None = None) -> Cell:
    """A score with its interval beside and beneath."""
    if not score:
        return Cell(None)
    ends = None if score.get("low") is None else f"{figure(score['low'])}–{figure(score['high'])}"
    return Cell(figure(score), aside=ends, css="figure", scale=interval_bar(score, low, high, tick))


def _scale(found: Sequence[Mapping[str, Any]], floors: Sequence[float] = ()) -> tuple[float, float]:
    """Both ends of the bar: the metric's range where it has one, else what has to fit on it."""
    low, high = (list(found[0].get("range") or ()) + [None, None])[:2]
    there = [value for score in found for key in ("value", "low", "high") if (value := score.get(key)) is not None]
    there += floors
    low = low if low is not None else min([0.0, *there])
    high = high if high is not None else max([0.0, *there]) * 1.05
    return (low, high) if high > low else (low, low + 1)


# Image dependence ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dependence:
    """How a run scores with the right image and with control images."""

    name: str  # Of the run
    tone: str  # Colour of the verdict
    sentence: str  # The verdict in words
    first: Table  # The metric that decides
    rest: Table  # The other metrics


@dataclass(frozen=True)
class ImageDependence:
    """Runs that were tested, and the names of those that were not."""

    tested: tuple[Dependence, ...]
    untested: tuple[str, ...]


def image_dependence(runs: Runs) -> ImageDependence | None:
    """Scores of runs with control images instead of the right ones."""
    tested, untested = [], []
    for run, found in _scored(runs):
        control = part(found, "controls", "image_dependence")
        if not control:
            untested.append(run.name)
            continue
        metric, right = str(control.get("metric")), part(control, "right")
        wrong = {kind: image for kind, image in part(control, "wrong").items() if image}
        own = part(right, metric)
        rows = [["right", _figure(own), Cell(scale=interval_bar(own, 0.0, 1.0)), "", ""]]
        for kind, image in wrong.items():
            value = part(image, "metrics").get(metric)
            bar, gap = Cell(scale=interval_bar(own, 0.0, 1.0, number(value))), _figure(part(image, "difference"))
            rows.append([kind, _figure(value), bar, gap, percent(image.get("unchanged"))])
        others = [
            [one, _figure(right[one]), *(_figure(part(image, "metrics").get(one)) for image in wrong.values())]
            for one in right
            if one != metric
        ]
        tested.append(
            Dependence(
                run.name,
                {"uses_image": "here", "ignores_image": "bad"}.get(str(control.get("verdict")), "later"),
                str(control.get("sentence")),
                Table(["image", metric, "", "right minus control", "same words"], rows, words=4),
                Table(["metric", "right image", *wrong], others, words=2),
            )
        )
    return ImageDependence(tuple(tested), tuple(untested)) if tested else None


def _figure(found: Any) -> Cell:
    ends = interval(part(found))
    return Cell(figure(found), aside=None if number(part(found).get("low")) is None else ends, css="figure")


# Errors, slices, comparisons ----------------------------------------------------------------------------------------


def errors(runs: Runs) -> Table | None:
    """How often each kind of error was made, significant or not."""
    scored = [run for run, _ in _scored(runs)]
    if not any(run.scored.kinds for run in scored):
        return None
    counts = [run.scored.kinds for run in scored]
    most = max(known[kind, True] + known[kind, False] for known in counts for kind in ErrorKind) or 1
    rows: list[list[Any]] = []
    for kind in ErrorKind:
        row: list[Any] = [KINDS[kind]]
        for known in counts:
            row += [Cell(bar=(known[kind, True] + known[kind, False]) / most), known[kind, True], known[kind, False]]
        rows.append(row)
    return Table(["kind of error", *(cell for run in scored for cell in (run.name, "significant", "other"))], rows)


@dataclass(frozen=True)
class Slices:
    """The first headline metric in parts of the test set."""

    metric: str
    table: Table


def slices(runs: Runs) -> Slices | None:
    """The first headline metric by view, sex, age and device."""
    scored = [(run, found) for run, found in _scored(runs) if found.get("slices") and found["metrics"]]
    if not scored:
        return None
    known = scored[0][1]["metrics"]
    name = headline_metrics(known)[0]
    rows = []
    for key in dict.fromkeys(key for _, one in scored for key in one["slices"]):
        found = [one["slices"].get(key, {}).get(name) for _, one in scored]
        low, high = _scale([known[name], *(item for item in found if item)])
        first = next(item for item in found if item)
        cells = [_value(item, low, high) for item in found]
        rows.append([key, *cells, Cell(first.get("n"), aside="(few)" if first.get("small") else None)])
    head = ["slice", *(run.name for run, _ in scored), "n"]
    return Slices(with_arrow(name, known[name].get("direction")), Table(head, rows, words=len(head) - 1))


@dataclass(frozen=True)
class Gate:
    """A non-inferiority gate: tone and word of its verdict, the run, and the sentence."""

    tone: str
    verdict: str
    run: Any
    sentence: Any


@dataclass(frozen=True)
class Comparison:
    """Differences of runs to the baseline, and gates."""

    differences: tuple[tuple[str, Table], ...]
    gates: tuple[Gate, ...]


@per_run(COMPARISON)
def comparison(run: RunFolder, found: Mapping[str, Any]) -> Comparison | None:
    """The difference of each run to the baseline, paired by study."""
    metrics = found.get("metrics")
    if not metrics:
        return None
    head = ["metric", "baseline", "this run", "difference", "p", "win / tie / lose", "verdict"]
    tables = []
    for other in list(found.get("runs") or ())[1:]:
        against = {name: part(metrics[name], "against", other) for name in headline_metrics(metrics)}
        rows = []
        for name, one in against.items():
            if one:
                tone = {"better": "here", "worse": "bad"}.get(str(one.get("verdict")), "later")
                rows.append(
                    [
                        f"{name} {ARROWS.get(metrics[name].get('direction', ''), '')}",
                        figure(one.get("a")),
                        figure(one.get("b")),
                        Cell(figure(one.get("difference")), aside=interval(one)),
                        p_value(one.get("p_holm")),
                        tally(one.get("by_study") or {}),
                        Cell(one.get("verdict"), tone=tone),
                    ]
                )
        tables.append((f"{other} against {found.get('baseline')}", Table(head, rows)))
    gates = []
    for gate in found.get("gates") or ():
        failed = "not established" if gate.get("verdict") == "not established" else "failed"
        tone, word = ("here", "passed") if gate.get("shown") is True else ("bad", failed)
        gates.append(Gate(tone, word, gate.get("run"), gate.get("sentence")))
    return Comparison(tuple(tables), tuple(gates))


# Reports with their errors ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """One error: its kind, what it is about, details, and whether it is clinically significant."""

    kind: str
    observation: str
    detail: str
    significant: bool


@dataclass(frozen=True)
class MarkedStudy:
    """A study whose errors are marked in both texts and listed."""

    id: str
    reports: tuple[Report, Report]
    faults: tuple[Fault, ...]


def marked_reports(runs: Runs) -> list[tuple[str, list[MarkedStudy]]]:
    """A few studies of each run, from the best to the worst."""
    found = []
    for run in runs:
        studies = []
        for study in run.scored.studies:
            errors = study.errors
            right = report("reference", study.reference, _marks((e.reference_span, e) for e in errors), reference=True)
            candidate = report("candidate", study.candidate, _marks((e.candidate_span, e) for e in errors))
            faults = tuple(Fault(KINDS[e.kind], e.observation, e.detail or "", e.significant) for e in errors)
            studies.append(MarkedStudy(study.id, (right, candidate), faults))
        if studies:
            found.append((run.name, studies))
    return found


def _marks(spans: Iterable[tuple[Span | None, ReportError]]) -> list[Mark]:
    """Numbered marks; those of significant errors are dark."""
    return [
        Mark(span[0], span[1], str(number), "significant" if error.significant else "")
        for number, (span, error) in enumerate(spans, 1)
        if span
    ]


_COUNTED = ("total", "significant")


@dataclass(frozen=True)
class Judges:
    """Judges by language models."""

    of: str  # Name of the run, where a page has several
    answers: Table  # What could be read of each judge's answers
    raters: Table  # Each judge in the place of each rater
    differences: Table  # Further judges against the first


@dataclass(frozen=True)
class Validation:
    """Metrics measured on one benchmark, beside what raters reach among themselves."""

    benchmark: Any
    metrics: Table
    ceiling: Sequence[float]
    judges: Judges | None


@per_run(VALIDATION)
def validation(run: RunFolder, found: Mapping[str, Any]) -> Validation | None:
    """Each metric's agreement with a benchmark, the best first."""
    metrics = found.get("metrics")
    if not metrics:
        return None
    names = [name for name in metrics if not is_error_count(name)]  # the twelve counts stay in the file
    merit = {name: number(row.get("passed", row.get("tau"))) for name, row in metrics.items()}
    names.sort(key=lambda name: 2.0 if (value := merit[name]) is None else -value)
    rows: list[list[Any]] = []
    if any("passed" in row for row in metrics.values()):
        for name in names:
            passed, of = (int(metrics[name].get(key, 0)) for key in ("passed", "of"))
            rows.append([name, Cell(bar=passed / of if of else 0.0), f"{passed} of {of}"])
        table = Table(["metric", "", "correct"], rows, words=2)
    else:
        # Some benchmarks count the significant errors separately.
        significant = any("tau_significant" in row for row in metrics.values())
        more = ["τ-b, significant", "interval"] if significant else []
        for name in names:
            row = metrics[name]
            cells = [name, Cell(bar=row.get("tau") or 0.0), figure(row.get("tau")), interval(row)]
            if significant:
                ends = {key: row.get(f"{key}_significant") for key in ("low", "high")}
                cells += [figure(row.get("tau_significant")), interval(ends)]
            rows.append([*cells, row.get("n")])
        table = Table(["metric", "", "τ-b", "interval", *more, "n"], rows, words=2)
    ceiling = part(found, "ceiling").get("leave_one_out_tau") or ()
    return Validation(found.get("benchmark"), table, list(ceiling), judges(found))


def judges(found: Mapping[str, Any], of: str = "") -> Judges | None:
    """The judges of validation.json or scores.json; None where there are none."""
    rows = part(found, "judges")
    if not rows:
        return None
    answers = []
    for name, row in rows.items():
        reasons = "; ".join(f"{count} × {reason}" for reason, count in part(row, "reasons").items())
        counts = (row.get(key) for key in ("asked", "parsed", "partial", "failed"))
        answers.append([Cell(name, css="name"), *counts, reasons or None])
    # One table for a benchmark with one scale, two where errors are counted.
    tables = [
        (str(one.get("judge", name)), one)
        for name, row in part(found, "raters", "judges").items()
        for one in ([row] if "by_rater" in row else [row[kind] for kind in _COUNTED if kind in row])
    ]
    raters: list[list[Any]] = []
    for name, one in tables:
        mean = [figure(part(one, "mean").get(key)) for key in ("judge_difference", "rater_difference")]
        raters.append([Cell(name, strong=True), "mean", *mean, "", "", ""])
        for rater, row in one["by_rater"].items():
            figures = [figure(row.get(key)) for key in ("judge_difference", "rater_difference", "t")]
            raters.append(["", rater, *figures, p_value(row.get("p")), row.get("n")])
    gaps = [
        [name, row.get("above"), kind, figure(row[kind].get("difference"), "+"), interval(row[kind], "+")]
        for name, row in part(found, "differences").items()
        for kind in _COUNTED
        if kind in row
    ]
    return Judges(
        of,
        Table(["judge", "requests", "read", "in part", "not read", "why not"], answers),
        Table(["judge", "rater", "judge’s difference", "rater’s difference", "t", "p", "n"], raters, words=2),
        Table(["judge", "above", "errors", "difference of τ-b", "interval"], gaps, words=3),
    )

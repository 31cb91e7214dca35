"""Sections on model extraction: the copies of a victim, alone and compared, and extraction methods over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.components import (
    Cell,
    Picture,
    Report,
    Table,
    Threat,
    change_marks,
    changed,
    figure,
    grouped_table,
    in_sentence,
    measured,
    number,
    over_seeds,
    part,
    picture,
    readable,
    report,
    threat_model,
)
from cxrlab.render.drawing import (
    COLOURS,
    GREY,
    RULE,
    Curve,
    Drawing,
    Layout,
    Row,
    draw_curves,
    shape,
    share_forest,
    spread_of,
    truncated,
)
from cxrlab.render.metric_titles import FINDINGS, ROUGE, heading, metric_title
from cxrlab.render.run_folder import (
    EXAMPLE_PAIRS,
    EXTRACTION,
    EXTRACTION_SEEDS,
    SENTENCE_MAP,
    RunFolder,
    per_run,
    short_name,
)

NONE, MOVED = "none", "ada-steal"  # the method without queries, and the one that perturbs its images
# The metrics in the first table; the others are folded.
_FIRST = (
    FINDINGS,
    "findings.f1.side",
    ROUGE,
    "bertscore",
    "radgraph.simple",
    "chexpert14.micro.f1:uncertain-positive",
    "errors.significant",
)
# Options that only affect perturbed images, and those that affect the method without queries.
_OF_MOVED = ("rounds", "oracle", "direction", "steps", "eps", "picture", "guide")
_OF_NONE = ("surrogate", "size")
_SILENT = 0.1  # share of answers without a finding or a normal statement from which a page warns


# Runs of one victim -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copy:
    """One extraction of a victim."""

    run: RunFolder  # Its folder
    name: str  # Method, pool, and whatever distinguishes it from the others of the page
    # The run without a query of the same surrogate, where the page has one; never a run's own
    floor: RunFolder | None = None

    @property
    def found(self) -> Mapping[str, Any]:
        """Content of extraction.json."""
        return self.run.result(EXTRACTION)

    @property
    def queried(self) -> bool:
        """Whether the method sends queries at all."""
        return self.found.get("method") != NONE


def copies_by_victim(runs: Sequence[RunFolder]) -> list[list[Copy]]:
    """Extractions of the same victim, measured on the same studies, together; in the order given."""
    groups: dict[tuple[str, ...], list[RunFolder]] = {}
    for run in runs:
        if run.result(EXTRACTION):
            key = tuple(str(run.config.get(name)) for name in ("victim", "data", "split", "n"))
            groups.setdefault(key, []).append(run)
    found = []
    for group in groups.values():
        names = [_name(run, group) for run in group]
        untouched = [run for run in group if run.result(EXTRACTION).get("method") == NONE]
        copies = []
        for run, name in zip(group, names, strict=True):
            name = name if names.count(name) == 1 else f"{name} ({run.path.resolve().name})"
            same = [one for one in untouched if _option(one, "surrogate") == _option(run, "surrogate")]
            copies.append(Copy(run, name, next((one for one in same if one is not run), None)))
        found.append(copies)
    return found


def _name(run: RunFolder, group: Sequence[RunFolder]) -> str:
    """Method and pool, then the options and settings in which it differs from the other runs."""
    found = run.result(EXTRACTION)
    method = str(found.get("method") or run.path.resolve().name)
    if method == NONE:
        words = ["no query"]
    else:
        pools = str(part(found, "options").get("pool")).split("+")
        words = [method, "+".join(map(short_name, pools))]
    for option in dict.fromkeys(name for one in group for name in part(one.result(EXTRACTION), "options")):
        having = [one for one in group if applies(option, str(one.result(EXTRACTION).get("method")))]
        if option != "pool" and applies(option, method) and len({_option(one, option) for one in having}) > 1:
            value = short_name(_option(run, option))
            words.append(f"{option} {'not set' if value == 'None' else value}")
    for setting in ("budget", "seed"):
        attacking = [one for one in group if one.result(EXTRACTION).get("method") != NONE or setting == "seed"]
        if run in attacking and len({str(one.config.get(setting)) for one in attacking}) > 1:
            words.append(f"{setting} {run.config.get(setting)}")
    return ", ".join(words)


def _option(run: RunFolder, option: str) -> str:
    return str(part(run.result(EXTRACTION), "options").get(option))


def applies(option: str, method: str) -> bool:
    """Whether an option has an effect in a method: Knockoff perturbs nothing, and `none` sends no query."""
    if method == NONE:
        return option in _OF_NONE
    return method == MOVED or option not in _OF_MOVED


# What the page shows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Headline:
    """Share of the victim's findings F1 reached with N queries, beside the floor without queries, and the price."""

    name: str  # Of the run, where there are several
    queries: str  # In words
    share: str  # Of the victim's findings
    queried: bool  # Whether any query was sent; otherwise the run is the floor
    score: str  # Findings F1 of the copy
    notes: tuple[str, ...]  # Floor, price and probes, in sentences


@dataclass(frozen=True)
class PicturePair:
    """A picture before and after it was perturbed, with the victim's answers and the target report."""

    key: Any
    round: Any
    pictures: tuple[Picture, ...]
    target: Report
    answers: tuple[Report, ...]


@dataclass(frozen=True)
class SentenceMap:
    """Sentences of the victim on a plane: the drawing, its legend, and how far it can be trusted."""

    drawing: Drawing
    legend: tuple[tuple[str, str, str, str], ...]  # colour, sign of an abnormal sentence, of another, and of what
    counts: Mapping[str, Any]
    left_out: float


@dataclass(frozen=True)
class Details:
    """Details of one run."""

    name: str  # Of the run
    counts: tuple[Any, Any]  # Studies and patients
    first: Table  # Victim, copy, ratio and fidelity by the first metrics
    rest: Table  # The same by the other metrics
    uncounted: Mapping[str, Any]  # Metrics that were left out, with the reason
    variety: Table  # How varied the victim's answers were, round by round
    findings: Table  # Findings by how many answers name them
    map: SentenceMap | None  # The victim's sentences
    pairs: tuple[PicturePair, ...]  # Pictures before and after they were perturbed
    pair_notes: tuple[bool, bool]  # What the pairs show: (a picture without a pair, explanation of marks)
    options: Mapping[str, Any]  # What the paper leaves open and was chosen
    unused: list[str]  # Options without an effect in this method
    method: Any  # Its name
    labels: tuple[tuple[str, Table], ...]  # Reader and table of the labels one by one


@dataclass(frozen=True)
class Victim:
    """All extractions of one victim."""

    name: str  # Of the victim
    threats: tuple[Threat, ...]  # Each different threat model with its authorisation, once
    warnings: tuple[str, ...]  # What limits the figures
    headlines: tuple[Headline, ...]  # One for each run
    beneath: tuple[str, ...]  # What all headlines have in common, in sentences
    beside: Table  # Runs beside each other; empty for one run
    plots: tuple[Drawing, ...]  # Copies under each other, and the curve over queries
    curve: bool  # Whether the curve is among them
    runs: tuple[Details, ...]  # Each in detail


def extraction(runs: Sequence[RunFolder]) -> tuple[Victim, ...]:
    """Everything that extractions found, victim by victim."""
    victims = []
    for copies in copies_by_victim(runs):
        several = len(copies) > 1
        attacks = [copy for copy in copies if copy.queried] or copies[:1]
        threats = [threat_model(copy.found.get("threat"), copy.found.get("authorised")) for copy in attacks]
        found, curve = copies[0].found, copies_curve(copies)
        beneath = [
            f"Findings F1 of the victim: {in_sentence(part(found, 'victim', FINDINGS))}; {readable(found.get('n'))} "
            f"studies of {readable(found.get('patients'))} patients, 95 % intervals by patient."
        ]
        if any(copy.queried and copy.floor is None for copy in copies):
            beneath.append("The floor is shown when a run of the same surrogate with method none is on this page.")
        if not any(map(_price, copies)):
            beneath.append("No price was set.")
        victims.append(
            Victim(
                name=short_name(str(copies[0].run.config.get("victim") or "the victim")),
                threats=tuple(dict.fromkeys(threats)),
                warnings=tuple(f"{one.name}: {line}" if several else line for one in copies for line in warnings(one)),
                headlines=tuple(headline(copy, several) for copy in copies),
                beneath=tuple(beneath),
                beside=_beside(copies),
                plots=tuple(one for one in (copies_forest(copies), curve) if one),
                curve=curve is not None,
                runs=tuple(map(_details, copies)),
            )
        )
    return tuple(victims)


def headline(copy: Copy, several: bool = False) -> Headline:
    """The headline of a run; it is named where other runs are on the page too."""
    found = copy.found
    spent = int(number(found.get("spent")) or 0)
    notes = []
    if copy.floor is not None:
        floor = part(copy.floor.result(EXTRACTION), "surrogate", FINDINGS)
        low, high = number(part(found, "surrogate", FINDINGS).get("low")), number(floor.get("high"))
        verdict = "the intervals overlap, so the copy is not shown to be above it"
        if low is None or high is None:
            verdict = "it is unknown whether the copy is above it"
        elif low > high:
            verdict = "the copy is above it"
        notes.append(f"The floor (the untrained surrogate) reaches {in_sentence(floor)}: {verdict}.")
    if price := _price(copy):
        notes.append(price)
    if probing := part(found, "probing"):  # queries spent to find images that pass a gate
        best = max((number(value) or 0.0 for value in part(probing, "passed").values()), default=0.0)
        notes.append(
            f"{readable(probing.get('queries'))} of the queries were probes: with "
            f"{number(probing.get('blend_chest')) or 0:g} of a radiograph in every image {best:.0%} were answered."
        )
    return Headline(
        name=copy.name if several else "",
        queries=f"{spent:,} {'query' if spent == 1 else 'queries'}",
        share=in_sentence(part(found, "ratio", FINDINGS)),
        queried=copy.queried,
        score=in_sentence(part(found, "surrogate", FINDINGS)),
        notes=tuple(notes) if copy.queried else (),
    )


def _price(copy: Copy) -> str:
    price, cost = part(copy.run.config, "price"), part(copy.found, "cost")
    if not any(number(price.get(key)) for key in ("per_query", "per_1k_tokens")):
        return ""
    least = "at least " if number(cost.get("unknown")) else ""
    return f"Price: {least}{figure(cost.get('amount'), digits=2)} {readable(cost.get('currency'))}."


def warnings(copy: Copy) -> list[str]:
    """What limits the figures of a run, in sentences."""
    found, answers = copy.found, part(copy.found, "transcript")
    spent, budget, refused, lost = (int(number(found.get(key)) or 0) for key in ("spent", "budget", "refused", "lost"))
    silent, n = (int(number(answers.get(key)) or 0) for key in ("silent", "n"))
    untouched = found.get("untouched")
    lines = []
    if untouched and copy.queried:
        lines.append(f"Nothing was learned ({untouched}): the figures are those of the untrained surrogate.")
    if refused:
        lines.append(
            f"{refused:,} of {spent:,} queries were refused{'' if untouched else '; the copy was trained on the others'}."
        )
    if lost:
        lines.append(f"{lost:,} queries brought no answer and may have been charged.")
    if copy.queried and spent < budget:
        lines.append(f"Only {spent:,} of {budget:,} queries were spent.")
    if silent > _SILENT * n:
        lines.append(f"{silent:,} of {n:,} answers contain no statement about an image.")
    return lines


# Tables -------------------------------------------------------------------------------------------------------------


def _details(copy: Copy) -> Details:
    found, method = copy.found, str(copy.found.get("method"))
    names = [name for name in part(found, "surrogate") if part(found, "surrogate", name)]
    first = [name for name in _FIRST if name in names]
    options, transcript = part(found, "options"), part(found, "transcript")
    records = copy.run.records(EXAMPLE_PAIRS)
    rounds = {f"round {key}": one for key, one in part(transcript, "rounds").items()}
    variety = [[name, *_variety_cells(part(one))] for name, one in rounds.items()]
    if len(variety) != 1 and transcript.get("n"):
        variety.append([Cell("all", strong=True), *_variety_cells(transcript)])
    variety_head = ["", "answers", "distinct finding sets", "abnormal share"]
    variety_head += ["vocabulary", "words", "silent", "commonest"]
    label_head = ["label", "support", "victim", "copy", "fidelity", "claimed by the copy"]
    counts = [
        [name, count, *(part(one, "findings").get(name, 0) for one in rounds.values())]
        for name, count in part(transcript, "findings").items()
    ]
    labels = []
    for reader, sides in part(found, "observations").items():
        rows = []
        for name in part(sides, "victim") or part(sides, "surrogate"):
            own, alike = part(sides, "surrogate", name), part(sides, "fidelity", name)
            support = own.get("support", part(sides, "victim", name).get("support"))
            # Without support the F1 is 0 by definition and means nothing; that of fidelity is the victim's reports.
            scores = [measured(part(sides, side, name)) if support else None for side in ("victim", "surrogate")]
            rows.append([name, support, *scores, measured(alike) if alike.get("support") else None, own.get("claimed")])
        labels.append((reader, Table(label_head, rows, words=1)))
    return Details(
        name=copy.name,
        counts=(found.get("n"), found.get("patients")),
        first=_scores(found, first),
        rest=_scores(found, [name for name in names if name not in first]),
        uncounted=part(found, "left_out") if names else {},
        variety=Table(variety_head, variety, words=1, dense=True),
        findings=Table(["finding", "answers", *rounds], counts, words=1),
        map=sentence_map(copy.run.result(SENTENCE_MAP)),
        pairs=tuple(_pair(copy.run, record) for record in records),
        pair_notes=(
            not all(part(record, "before") for record in records),
            any(part(record, "spans") for record in records),
        ),
        options={name.replace("_", " "): value for name, value in options.items() if applies(name, method)},
        unused=[name for name in options if not applies(name, method)],
        method=found.get("method"),
        labels=tuple(labels),
    )


def _scores(found: Mapping[str, Any], names: Sequence[str]) -> Table:
    rows = [
        [
            heading(name, part(found, "surrogate", name)),
            *(measured(part(found, side).get(name)) for side in ("victim", "surrogate")),
            ratio(part(found, "ratio", name)),
            measured(part(found, "fidelity").get(name)),
            part(found, "surrogate", name).get("n"),
        ]
        for name in names
    ]
    return Table(["metric", "victim", "copy", "copy ÷ victim", "fidelity", "n"], rows, words=1)


def ratio(found: Mapping[str, Any], digits: int = 3) -> Cell:
    """A ratio with its interval beneath; none of a metric without a natural zero."""
    if found.get("natural_zero") is False:
        return Cell(None, below=("may be negative",))
    if number(found) is not None and (found.get("low") is None or found.get("high") is None):
        return Cell(figure(found), below=("interval unknown",))
    return measured(found, digits=digits)


def _beside(copies: Sequence[Copy]) -> Table:
    """One row per run: the queries spent and the scores of the copy; empty for one run."""
    rows = []
    for copy in copies if len(copies) > 1 else ():
        found, answers = copy.found, part(copy.found, "transcript")
        spent = f"{readable(found.get('spent'))} of {readable(found.get('budget'))}" if copy.queried else "0"
        abnormal = measured(_with_ends(answers, "abnormal_share"), digits=2) if answers.get("n") else None
        rows.append(
            [
                Cell(copy.name, strong=True),
                spent,
                found.get("refused"),
                measured(part(found, "surrogate").get(FINDINGS), digits=2),
                ratio(part(found, "ratio", FINDINGS), 2),
                measured(part(found, "fidelity").get(FINDINGS), digits=2),
                ratio(part(found, "ratio", ROUGE), 2),
                answers.get("distinct_finding_sets") if answers.get("n") else None,
                abnormal,
            ]
        )
    groups = [
        ("", ["run"]),
        ("queries", ["spent", "refused"]),
        ("findings F1", ["copy", "copy ÷ victim", "fidelity"]),
        ("ROUGE-L", ["copy ÷ victim"]),
        ("transcript", ["finding sets", "abnormal"]),
    ]
    return grouped_table(groups, rows)


def _with_ends(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A figure of the transcript as a measurement."""
    return {"value": found.get(name), "low": found.get(f"{name}_low"), "high": found.get(f"{name}_high")}


def _variety_cells(one: Mapping[str, Any]) -> list[Any]:
    words, low, high = (number(one.get(key)) for key in ("words", "words_low", "words_high"))
    ends = () if low is None or high is None else (f"{low:.1f} to {high:.1f}",)
    return [
        one.get("n"),
        one.get("distinct_finding_sets"),
        measured(_with_ends(one, "abnormal_share"), digits=2),
        one.get("vocabulary"),
        Cell(figure(words, digits=1), below=ends),
        one.get("silent"),
        figure(one.get("commonest_report")),
    ]


def _pair(run: RunFolder, record: Mapping[str, Any]) -> PicturePair:
    sides = [side for side in ("before", "after") if part(record, side)]
    spans = part(record, "spans")
    pictures = []
    for side in sides:
        name = f"pictures/{part(record, side).get('sha256')}.png"
        words = f"picture {record.get('key')} {side} it was perturbed"
        data = run.file(name, EXAMPLE_PAIRS) if (run.path / name).is_file() else None
        pictures.append(
            Picture(None, words, side) if data is None else picture(data, words, name, side, css="image crisp")
        )
    answers = (
        report(f"the victim, {side}", part(record, side).get("report"), change_marks(spans.get(side))) for side in sides
    )
    target = report("target", record.get("wanted"), reference=True)
    return PicturePair(record.get("key"), record.get("round"), tuple(pictures), target, tuple(answers))


# Drawings -----------------------------------------------------------------------------------------------------------


def copies_forest(copies: Sequence[Copy], metric: str = FINDINGS) -> Drawing | None:
    """A metric of each copy, against the victim's; None for fewer than two copies."""
    rows = [
        Row(copy.name, spread, quiet=not copy.queried)
        for copy in copies
        if (spread := spread_of(part(copy.found, "surrogate").get(metric)))
    ]
    victim = spread_of(part(copies[0].found, "victim").get(metric))
    return share_forest(rows, f"{metric_title(metric)} of each copy", ("victim", victim) if victim else None)


def copies_curve(copies: Sequence[Copy], metric: str = FINDINGS) -> Drawing | None:
    """A metric of each copy over the number of queries, with the victim as a line; None without a curve."""
    lines = []
    for copy in copies:
        curve = part(copy.found, "curve")
        known = {int(key): one for key in curve if key.isdigit() and (one := spread_of(part(curve, key).get(metric)))}
        if copy.floor is not None and known:  # the untrained surrogate, at 0 queries
            if floor := spread_of(part(copy.floor.result(EXTRACTION), "surrogate").get(metric)):
                known.setdefault(0, floor)
        if copy.queried and known:
            lines.append((copy, tuple((float(key), *known[key]) for key in sorted(known))))
    if not lines:
        return None
    drawn = [
        Curve(truncated(copy.name, 62), points, COLOURS[place], place)
        for place, (copy, points) in enumerate(lines[: len(COLOURS)])  # more could not be distinguished
    ]
    most = max(point[0] for curve in drawn for point in curve.points)
    if victim := spread_of(part(lines[0][0].found, "victim").get(metric)):
        drawn.append(Curve("the victim", ((0.0, *victim), (most, *victim)), GREY, 0, dashed=True))
    layout = Layout(520, 300, 1.0, "queries (0: the untrained surrogate)", "the queries", "queries")
    note = f"{len(COLOURS)} of {len(lines)} runs drawn" if len(lines) > len(COLOURS) else ""
    return draw_curves(drawn, f"{metric_title(metric)} of the copy", layout, unit=True, note=note)


_CLEAN, _PERTURBED = "clean", "perturbed"
_SHADES = {_CLEAN: COLOURS[0], _PERTURBED: COLOURS[1]}
_LEGEND = {_CLEAN: ("●", "○", "clean images"), _PERTURBED: ("▲", "△", "perturbed images")}


def sentence_map(found: Mapping[str, Any]) -> SentenceMap | None:
    """Sentences of the victim on a plane, one point each; None without a sentence.

    Circles are of clean images, triangles of perturbed ones; filled points state something abnormal.
    """
    rows = [row for row in found.get("rows") or () if None not in (number(row.get("x")), number(row.get("y")))]
    if not rows:
        return None
    width, height, margin = 760, 460, 18
    low, high = ({key: pick(float(row[key]) for row in rows) for key in ("x", "y")} for pick in (min, max))

    points = [shape("rect", x=1, y=1, width=width - 2, height=height - 2, fill="none", stroke=RULE)]
    for row in sorted(rows, key=lambda one: one.get("source") == _PERTURBED):
        wide = {key: high[key] - low[key] for key in ("x", "y")}
        share = {key: (float(row[key]) - low[key]) / wide[key] if wide[key] else 0.5 for key in wide}
        x, y = margin + share["x"] * (width - 2 * margin), height - margin - share["y"] * (height - 2 * margin)
        source = _PERTURBED if row.get("source") == _PERTURBED else _CLEAN
        count, abnormal = number(row.get("count")) or 1.0, bool(row.get("abnormal"))
        size = 4.0 + min(math.log2(max(count, 1.0)), 5.0)  # larger for a sentence that occurs often
        style = {
            "fill": _SHADES[source] if abnormal else "#fff",
            "fill_opacity": "0.75" if abnormal else "0.6",
            "stroke": _SHADES[source],
            "stroke_width": "1.3",
        }
        times = f" (× {count:g})" if count > 1 else ""
        title = f"{source}, round {readable(row.get('round'))}: {readable(row.get('text'))}{times}"
        if source == _CLEAN:
            points.append(shape("circle", title=title, cx=x, cy=y, r=size, **style))
        else:
            corners = ((0, -1.2), (1.1, 0.8), (-1.1, 0.8))
            outline = " ".join(f"{x + size * right:.1f},{y + size * down:.1f}" for right, down in corners)
            points.append(shape("polygon", title=title, points=outline, **style))
    sources = {str(row.get("source")) for row in rows}
    legend = tuple((_SHADES[source], *signs) for source, signs in _LEGEND.items() if source in sources)
    return SentenceMap(
        drawing=Drawing("map of the victim's sentences", width, height, tuple(points)),
        legend=legend,
        counts={key: found.get(key) for key in ("sentences", "embedding", "perplexity", "trustworthiness")},
        left_out=number(found.get("left_out")) or 0,
    )


# Extraction methods over seeds -----------------------------------------------------------------------------------------


SHOWN_TO_VICTIM = ("flip_rate", "errors.added")


@dataclass(frozen=True)
class ExtractionMethods:
    """Extraction methods that are shown in one table."""

    title: str  # Of the table
    about: Any  # What it shows
    table: Table  # One row per method, victims first
    drawing: Drawing | None  # Forest plot of the copies
    published: Table | None = None  # The paper's figures


@dataclass(frozen=True)
class ExtractionSeeds:
    """A study of extraction methods over seeds."""

    seeds: Sequence[Any]  # All of them
    counts: tuple[Any, Any]  # Studies and patients
    contrasts: Table  # Findings F1 of every pair
    how: Any  # How their intervals were computed
    other_contrasts: tuple[tuple[str, Table], ...]  # The other metrics of every pair
    methods: tuple[ExtractionMethods, ...]  # The tables
    curve: Drawing | None  # Findings F1 over the queries
    pairwise: Table  # Reports against reports, by a judge
    controls: Controls | None  # Texts without an image behind them
    transfer: Table  # Attack images made on copies, shown to their victim


@dataclass(frozen=True)
class Controls:
    """Texts without an image, scored like a report: every metric, and where one does as well as a model."""

    reached: tuple[tuple[str, str, str], ...]
    table: Table


@per_run(EXTRACTION_SEEDS)
def extraction_seeds(run: RunFolder, found: Mapping[str, Any]) -> ExtractionSeeds | None:
    """A study of extraction methods: comparisons first, then each table, then the controls of the metrics."""
    if not part(found, "variants"):
        return None
    compared, tables = found.get("contrasts") or (), part(found, "tables")
    others = [str(name) for name in found.get("metrics") or () if name != FINDINGS]
    contrasts = {name: _contrasts(compared, name, str(part(found, "directions").get(name) or "")) for name in others}
    methods = []
    for title in tables:
        table = part(tables, title)
        names = [name for name in table.get("variants") or () if part(found, "variants", name)]
        own, ratios = part(table, "published"), part(table, "published_ratio")  # the paper's figures
        metrics = list(dict.fromkeys(metric for row in own for metric in part(own, row)))
        rows = []
        for row in own:
            cells = []
            for metric in metrics:
                value, share = number(part(own, row).get(metric)), number(part(ratios, row).get(metric))
                aside = None if share is None else f"({share:.2f})"
                cells.append(Cell(None) if value is None else Cell(f"{value:g}", aside=aside))
            rows.append([row, *cells])
        published = Table(["published", *metrics], rows, words=1, dense=True) if rows else None
        methods.append(_methods(found, title, table.get("about"), names, published))
    pairwise = [
        [
            f"{one.get('a')} against {one.get('b')}",
            one.get("judge"),
            *(measured(over_seeds(part(one, key)), digits=2) for key in ("a_better", "equal", "b_better")),
            measured(over_seeds(part(one, "net")), "+", 2),
            one.get("n"),
        ]
        for one in found.get("pairwise") or ()
    ]
    pairwise_head = ["first against second", "judge", "first better", "equal", "second better", "net", "n by seed"]
    return ExtractionSeeds(
        seeds=found.get("seeds") or (),
        counts=(found.get("n"), found.get("patients")),
        contrasts=_contrasts(compared, FINDINGS, "higher"),
        how=compared[0].get("how") if compared else None,
        other_contrasts=tuple((metric_title(name), table) for name, table in contrasts.items() if table),
        methods=tuple(methods) or (_methods(found, "All methods", None, list(part(found, "variants"))),),
        curve=_seeds_curve(found),
        pairwise=Table(pairwise_head, pairwise, words=2, dense=True),
        controls=_controls(part(found, "controls")),
        transfer=_shown_to_victim(part(found, "transfer")),
    )


def _contrasts(rows: Sequence[Mapping[str, Any]], metric: str, better: str) -> Table:
    body = []
    for row in rows:
        if one := part(row, "metrics", metric):
            seeds = ", ".join(figure(seed.get("difference"), "+") for seed in one.get("by_seed") or ())
            ratio = part(one, "ratio")
            times = (
                None if number(ratio.get("low")) is None else measured(ratio)
            )  # a ratio to a value near zero is meaningless
            pair = Cell(f"{row.get('name')} − {row.get('against')}")
            body.append([pair, changed(part(one, "pooled"), better), seeds, times])
    return Table(["compared", "difference", "by seed", "ratio"], body, words=1)


def _methods(
    found: Mapping[str, Any], title: str, about: Any, names: Sequence[str], published: Table | None = None
) -> ExtractionMethods:
    groups = [
        ("", ["method", "what it is"]),
        ("findings F1", ["copy", "÷ victim", "fidelity"]),
        ("ROUGE-L", ["copy", "÷ victim"]),
        ("transcript", ["finding sets", "abnormal"]),
    ]
    rows: list[list[Any]] = []
    victims: dict[str, list[str]] = {}  # victim → the variants that copy it
    for name in names:
        victims.setdefault(str(part(found, "variants", name, "asked").get("victim")), []).append(name)
    for copies in victims.values():
        one = part(found, "variants", copies[0])
        own, rouge = (measured(_side(one, metric, "victim"), digits=2) for metric in (FINDINGS, ROUGE))
        of = f"of {', '.join(copies)}" if len(victims) > 1 else ""
        rows.append([Cell("victim", tone="later"), Cell(of, css="small"), own, None, None, rouge, None, None, None])
    sides = [(FINDINGS, side) for side in ("surrogate", "ratio", "fidelity")]
    sides += [(ROUGE, side) for side in ("surrogate", "ratio")]
    for name in names:
        variant = part(found, "variants", name)
        figures = (measured(_side(variant, metric, side), digits=2) for metric, side in sides)
        finding_sets = number(part(variant, "transcript", "distinct_finding_sets").get("mean"))
        abnormal = measured(over_seeds(part(variant, "transcript", "abnormal_share")), digits=2)
        about_it = Cell(variant.get("changes") or "", css="small verdict")
        rows.append([Cell(name, strong=True), about_it, *figures, finding_sets, abnormal])
    table = grouped_table(groups, rows, words=2)
    drawn = []
    for name in names:
        variant = part(found, "variants", name)
        if spread := spread_of(_side(variant, FINDINGS, "surrogate")):
            values = part(variant, "metrics", FINDINGS, "surrogate").get("values") or ()
            alone = tuple((known, None, None) for value in values if (known := number(value)) is not None)
            drawn.append(Row(name, spread, alone, quiet=part(variant, "asked").get("method") == NONE))
    victim = None
    if len(victims) == 1:
        victim = spread_of(_side(part(found, "variants", names[0]), FINDINGS, "victim"))
    forest = share_forest(drawn, "findings F1 of each copy, over seeds", ("victim", victim) if victim else None)
    return ExtractionMethods(title, about, table, forest, published)


def _side(variant: Mapping[str, Any], metric: str, side: str) -> dict[str, Any]:
    return over_seeds(part(variant, "metrics", metric, side))


def _seeds_curve(found: Mapping[str, Any]) -> Drawing | None:
    """Findings F1 over the queries, of every variant that was measured at several budgets."""
    lines = []
    for name in part(found, "variants"):
        curve = part(found, "variants", name, "curve")
        budgets = sorted(int(key) for key in curve if key.isdigit())
        spreads = [(float(one), spread_of(over_seeds(part(curve, str(one), FINDINGS)))) for one in budgets]
        points = tuple((one, *spread) for one, spread in spreads if spread)
        if len(points) > 1:
            lines.append((name, points))
    most = len(COLOURS)  # more could not be distinguished
    drawn = [Curve(name, points, COLOURS[at], at) for at, (name, points) in enumerate(lines[:most])]
    note = f"{most} of {len(lines)} drawn" if len(lines) > most else ""
    layout = Layout(per=1.0, across="queries", over="the queries", sign="queries")
    title = "findings F1 of the copy, mean over seeds"
    return draw_curves(drawn, title, layout, unit=True, note=note) if drawn else None


def _shown_to_victim(found: Mapping[str, Any]) -> Table:
    """One row for each variant, attack and model that images were made on; then how much the copy's images exceed it."""
    rows = []
    for name in part(found, "variants"):
        for condition in part(found, "variants", name):
            one = part(found, "variants", name, condition)
            for source in part(one, "sources"):
                values = (measured(over_seeds(part(one, "sources", source, metric))) for metric in SHOWN_TO_VICTIM)
                gaps = (
                    changed(part(one, "differences", source, metric, "pooled"), "lower") for metric in SHOWN_TO_VICTIM
                )
                rows.append([name, condition, Cell(source, strong=source == "copy"), *values, *gaps])
    titles = ["reports changed", "significant errors gained"]
    groups: list[tuple[str, Sequence[str]]] = [("", ["copy by", "attack", "images made on"])]
    return grouped_table([*groups, ("reports of the victim", titles), ("copy − this", titles)], rows, words=3)


def _controls(found: Mapping[str, Any]) -> Controls | None:
    values, reached = part(found, "values"), part(found, "reached")
    metrics = list(dict.fromkeys(metric for name in values for metric in part(values, name)))
    if not metrics:
        return None
    rows = [
        [metric_title(one), *(measured(part(values, name).get(one), digits=2) for name in values)] for one in metrics
    ]
    lines = tuple(
        (metric_title(metric), ", ".join(f"“{name}”" for name in controls), run)
        for metric in reached
        for run, controls in part(reached, metric).items()
    )
    return Controls(lines, Table(["metric", *values], rows, words=1, dense=True))

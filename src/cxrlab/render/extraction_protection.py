"""Sections on protecting a model against extraction: detection, defences, and a guarded server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.components import (
    UNKNOWN,
    Cell,
    Table,
    Threat,
    difference,
    figure,
    grouped_table,
    in_sentence,
    interval,
    measured,
    number,
    p_value,
    part,
    readable,
    threat_model,
)
from cxrlab.render.metric_titles import FINDINGS, metric_title
from cxrlab.render.run_folder import DEFENCE, DETECTION, REHEARSAL, RunFolder, per_run, short_name

# Detection ----------------------------------------------------------------------------------------------------------

HOLDS, OPEN, BROKEN, UNMEASURED = "holds", "not shown to hold", "broken", "not measured"
_STYLES = {HOLDS: ("here", "✓"), OPEN: ("doubt", "?"), BROKEN: ("bad", "✗"), UNMEASURED: ("doubt", "?")}
_BOUNDS = {
    OPEN: "whose bound on false alarms is unproven",
    BROKEN: "whose bound on false alarms is broken",
    HOLDS: "whose bound on false alarms holds",
    UNMEASURED: "whose false alarms were not measured",
}


@dataclass(frozen=True)
class FirstAlarm:
    """The first alarm of a stream of queries; `detector` is empty where none was raised."""

    stream: str
    queries: Any
    after: float | None = None
    detector: str = ""
    bound: str = ""


@dataclass(frozen=True)
class Detection:
    """Detectors that watched queries."""

    name: str  # Of the run
    warnings: Sequence[str]  # Of the run
    first: tuple[FirstAlarm, ...]  # The first alarm of each stream
    false_alarms: Table  # On benign images
    held_out: tuple[Any, Any]  # How many benign images were held out, and of which split
    streams: tuple[tuple[str, Table], ...]  # Title and table of each stream


@per_run(DETECTION)
def detection(run: RunFolder, found: Mapping[str, Any]) -> Detection:
    """How often an alarm is false, and after how many queries copying would be detected."""
    benign, rows = part(found, "benign"), []
    for name, detector in part(found, "detectors").items():
        for kind, rate in part(detector, "false_positives").items():
            bound = number(part(detector, "bound").get(kind))
            word = bound_verdict(rate, bound)
            tone, sign = _STYLES[word]
            judged = "image" if kind == "image" else f"account of {readable(detector.get('queries'))} queries"
            ends = interval(rate, digits=4)  # bounds are small
            measured_rate = Cell(figure(rate, digits=4), below=() if ends == UNKNOWN else (ends,))
            verdict = Cell(f"{sign} {word}", tone=tone, strong=True)
            rows.append([name, judged, verdict, None if bound is None else f"{bound:g}", measured_rate, rate.get("n")])
    metric, streams = metric_title(str(found.get("metric") or "quality")), []
    head = ["detector", "detected after", "caught", "n", "images flagged", "n", f"{metric} of the copy then"]
    for stream, watched in part(found, "streams").items():
        accounts, body = number(watched.get("accounts")) or 1, []
        for name, one in part(watched, "detectors").items():
            after, quality = number(one.get("queries_to_detect")), part(one, "quality")
            rate, flagged, copy = part(one, "detection_rate"), part(one, "share_flagged"), measured(quality)
            note = readable(quality.get("reason"))
            if number(quality) is not None:
                note = f"trained on {readable(quality.get('budget'))} queries"
            when = Cell("never", tone="later") if after is None else Cell(f"{after:,.0f} queries", strong=True)
            shares = [cell for share in (rate, flagged) for cell in (measured(share, digits=2), share.get("n"))]
            body.append([name, when, *shares, Cell(copy.value, below=(*copy.below, note))])
        by = f" by {accounts:,.0f} accounts" if accounts > 1 else ""
        title = f"{stream}: {readable(watched.get('queries'))} queries{by}"
        streams.append((title, Table(head, body, words=1)))
    return Detection(
        name=run.name,
        warnings=found.get("warnings") or (),
        first=tuple(first_alarm(found, stream) for stream in part(found, "streams")),
        false_alarms=Table(["detector", "judges", "bound", "at most", "measured", "n"], rows, words=3),
        held_out=(benign.get("held_out_images"), benign.get("held_out")),
        streams=tuple(streams),
    )


def bound_verdict(rate: Mapping[str, Any], bound: float | None) -> str:
    """Whether a measured rate of false alarms keeps its bound.

    HOLDS if the interval ends within the bound, BROKEN if it begins above, OPEN in between, and UNMEASURED without an
    interval or a bound.
    """
    low, high = number(rate.get("low")), number(rate.get("high"))
    if low is None or high is None or bound is None:
        return UNMEASURED
    return HOLDS if high <= bound else BROKEN if low > bound else OPEN


def first_alarm(found: Mapping[str, Any], stream: str) -> FirstAlarm:
    """The detector that raised the first alarm of a stream, with what is known of its false alarms."""
    watched = part(found, "streams", stream)
    queries, detectors = watched.get("queries"), part(watched, "detectors")
    alarms = {name: number(part(detectors, name).get("queries_to_detect")) for name in detectors}
    raised = {name: after for name, after in alarms.items() if after is not None}
    if not raised:
        return FirstAlarm(stream, queries)
    name = min(raised, key=lambda key: raised[key])
    detector = part(found, "detectors", name)
    rate, bound = part(detector, "false_positives", "account"), number(part(detector, "bound").get("account"))
    return FirstAlarm(stream, queries, raised[name], name, _BOUNDS[bound_verdict(rate, bound)])


# Defences -----------------------------------------------------------------------------------------------------------

_PLAIN, _ADAPTIVE = "plain", "adaptive"
_ATTACKERS = {_PLAIN: "attacker unaware of it", _ADAPTIVE: "attacker aware of it"}
_EVIDENCE = {
    "unmarked": "victim without the mark",
    "marked": "victim with the mark",
    "enriched": "marked, then enriched by the oracle",
    "reworded": "marked, then reworded",
}


@dataclass(frozen=True)
class Review:
    """The summary for a security reviewer: severity with its CSS class, what would establish it, facts and rule."""

    severity: str
    badge: str
    missing: Any
    facts: Mapping[str, Any]
    rule: Any


@dataclass(frozen=True)
class Defences:
    """Defences of one victim."""

    victim: str  # Its name
    review: Review | None  # Summary for a security reviewer
    threat: Threat | None  # The threat model and under whose authorisation, where either is recorded
    each: Table  # What each defence costs and prevents
    paired: bool  # Whether every difference is paired by study
    marks: Table  # The test for the watermark
    chance: str  # One in how many forms is the keyed one by chance
    attacks: Table  # What each attacker did
    safety: Table  # Reports that a defence would change


@per_run(DEFENCE)
def defences(run: RunFolder, found: Mapping[str, Any]) -> Defences:
    """What each defence costs benign clients, and how it degrades a copy."""
    rows = part(found, "defences")
    threat, authorised = part(found, "undefended").get("threat"), found.get("authorised")
    losses = [part(one, "loss") for row in rows.values() for one in part(row, "attacks").values()]
    evidence = part(rows, "watermark", "evidence")
    texts = {words: part(evidence, key) for key, words in _EVIDENCE.items()}
    texts |= {f"copy, {_ATTACKERS.get(kind, kind)}": one for kind, one in part(evidence, "copies").items()}
    gammas = [gamma for one in texts.values() if (gamma := number(one.get("gamma")))]
    marks: list[list[Any]] = []
    for name, one in texts.items():
        z, keyed = number(one.get("z")), f"{readable(one.get('green'))} ({figure(one.get('rate'))})"
        cells: list[Any] = [keyed, one.get("n_choices"), figure(z, "+", 2), p_value(one.get("p"))]
        if z is None:
            reason = one.get("reason") or "no sentence in a form that can carry it"
            cells = [Cell(reason, css="small"), one.get("n_choices"), None, None]
        if one:
            marks.append([name, *cells, one.get("contexts_needed"), one.get("queries_needed")])
    mark_head = ["words of", "keyed form", "n", "z", "p", "contexts needed", "reports needed"]
    attacks, safety = [], []
    for name, row in rows.items():
        for kind, one in part(row, "attacks").items():
            actions = []
            if blend_chest := number(one.get("blend_chest")):
                actions.append(f"blended {blend_chest:g} of a radiograph into every image")
            if (accounts := number(one.get("accounts"))) and accounts > 1:
                actions.append(f"used {accounts:,.0f} accounts")
            if one.get("rewrite"):
                actions.append("reworded every answer before training")
            if through := one.get("through"):
                actions.append(f"moved images by gradients through {through}")
            if probing := part(one, "probing"):
                best = max((number(value) or 0.0 for value in part(probing, "passed").values()), default=0.0)
                queries = readable(probing.get("queries"))
                actions.append(f"spent {queries} queries to find a share that passes; at best {best:.0%} passed")
            counts = (part(one, "result").get(key) for key in ("spent", "refused"))
            attacks.append([name, _ATTACKERS.get(kind, kind), "; ".join(actions) or "nothing", *counts])
    metrics = list(dict.fromkeys(metric for row in rows.values() for metric in part(row, "benign", "difference")))
    for name, row in rows.items():
        safe, most = part(row, "safety"), number(part(row, "safety").get("most_unsafe"))
        if other := part(row, "benign", "other_findings"):  # a transformed image may have another report
            most = number(other.get("high"))
        gaps = [_gap(part(row, "benign", "difference", metric)) for metric in metrics]
        safety.append([name, safe.get("n"), None if most is None else f"{most:.1%}", *gaps])
    safety_head = ["defence", "reports checked", "at most changed", *map(metric_title, metrics)]
    return Defences(
        victim=short_name(str(found.get("victim") or "unknown")),
        review=review(part(found, "summary")),
        threat=threat_model(threat, authorised) if threat or authorised else None,
        each=_each(found),
        paired=bool(losses) and all(one.get("paired") is True for one in losses),
        marks=Table(mark_head, marks, words=1),
        chance=f"{1 / gammas[0]:g}" if gammas else "",
        attacks=Table(["defence", "attacker", "what it did", "queries", "refused"], attacks, words=3),
        safety=Table(safety_head, safety, words=1, dense=True),
    )


def review(summary: Mapping[str, Any]) -> Review | None:
    """The summary for a security reviewer; None without one."""
    if not summary:
        return None
    level = str(summary.get("severity") or "unknown")
    copied, cost, advice = part(summary, "copied"), part(summary, "cost_to_copy"), part(summary, "recommended")
    share = in_sentence({"value": copied.get("ratio"), "low": copied.get("low"), "high": copied.get("high")})
    metric = metric_title(str(copied.get("metric") or FINDINGS))
    money, least = number(cost.get("money")), number(cost.get("least_queries"))
    price = "no price known" if money is None else f"{money:,.2f} {readable(cost.get('currency'))}"
    fewer = f"; {least:,.0f} come within a tenth of that copy" if least is not None else ""
    techniques = [
        Cell(f"{readable(row.get('id'))} {readable(row.get('name'))}", aside=f"({readable(row.get('part'))})")
        for row in summary.get("techniques") or ()
    ]
    mitigation = part(advice, "mitigation")
    control = f"({readable(mitigation.get('id'))} {readable(mitigation.get('name'))})" if mitigation else None
    facts = {
        "copied": f"{share} of the victim's {metric}, without a defence",
        "cost to copy": f"{readable(cost.get('queries'))} queries, {price}{fewer}",
        "MITRE ATLAS": Cell(lines=tuple(techniques)) if techniques else None,
        "recommended": Cell(advice.get("control") or "none", strong=True, aside=control),
        "why": advice.get("reason"),
    }
    badge = level if level in ("low", "medium", "high", "critical") else "unknown"
    return Review(level, badge, summary.get("missing"), facts, summary.get("rule"))


def _each(found: Mapping[str, Any]) -> Table:
    rows = part(found, "defences")
    if not rows:
        return Table([], [])
    groups = [
        ("", ["defence", "verdict"]),
        (f"benign images, n {readable(found.get('n'))}", ["refused", "reworded", "findings F1"]),
        *((f"copy, {words}", ["findings F1", "difference"]) for words in _ATTACKERS.values()),
    ]
    open_copy = measured(part(found, "undefended", "surrogate").get(FINDINGS), digits=2)
    body = [[Cell("none", tone="later"), *[None] * 4, open_copy, *[None] * 3]]
    for name, row in rows.items():
        benign, quota = part(row, "benign"), part(row, "benign", "quota")
        refused = measured(part(benign, "refused"), digits=2)
        if quota:  # its refusals follow from the stated use
            refused = Cell(figure(quota.get("share_refused")), below=("at the stated use",))
        cells: list[Any] = [Cell(name, strong=True), defence_verdict(row), refused]
        cells += [measured(part(benign, "reworded"), digits=2), _gap(part(benign, "difference", FINDINGS))]
        for kind in _ATTACKERS:
            loss, result = part(row, "attacks", kind, "loss"), part(row, "attacks", kind, "result")
            turned, spent = number(result.get("refused")), number(result.get("spent"))
            note = (f"{turned:,.0f} of {spent:,.0f} refused",) if turned and spent else ()
            cells += [Cell(figure(loss.get("with")), below=note), _gap(loss, mark=True)]
        body.append(cells)
    return grouped_table(groups, body, words=2)


def defence_verdict(row: Mapping[str, Any]) -> Cell:
    """What to think of a defence: harm first, else whether the copy suffers when the attacker knows the defence."""

    def verdict(words: str, tone: str, note: str = "") -> Cell:
        return Cell(words, tone=tone, strong=True, css="verdict", below=(note,) if note else ())

    if harms := row.get("harms") or ():
        return verdict("✗ harms", "bad", "; ".join(map(str, harms)))
    attacks = part(row, "attacks")
    tops = [number(part(attacks, kind, "loss").get("high")) for kind in attacks]
    if not tops or any(top is None for top in tops):
        return verdict("? not measured", "doubt")
    if all(top is not None and top < 0 for top in tops):
        return verdict("✓ weakens the copy", "here", "" if _ADAPTIVE in attacks else "no adaptive attacker was tried")
    plain = number(part(attacks, _PLAIN, "loss").get("high"))
    if plain is not None and plain < 0:
        return verdict("? circumvented", "doubt", "by an attacker aware of it")
    return verdict("? no effect shown", "doubt")


def _gap(one: Mapping[str, Any], mark: bool = False) -> Cell:
    """A difference; ▼ marks one that is surely below zero."""
    shown = measured(difference(one), "+", 2)
    high = number(one.get("high"))
    if not mark or high is None or high >= 0:
        return shown
    return Cell(f"▼\N{NO-BREAK SPACE}{shown.value}", below=shown.below, tone="here")


# A guarded server ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Served:
    """A server that was rehearsed: its model, threat model, detectors, defence, benign clients and attackers."""

    model: str
    threat: Any
    detectors: Any
    defence: Any
    benign: Table
    attacks: Table


@per_run(REHEARSAL)
def served(run: RunFolder, found: Mapping[str, Any]) -> Served:
    """How a server answered benign clients and attackers."""
    guard, benign, alone = (part(found, key) for key in ("guard", "benign", "alone"))
    rows: list[list[Any]] = []
    if benign:
        for name, key, digits in (
            ("images answered", "answered", 4),
            ("reports identical to the local model's", "same_words", 3),
        ):
            rows.append([name, measured(part(benign, key), digits=digits), part(benign, key).get("n")])
        rows.append(["accounts blocked", benign.get("blocked"), benign.get("accounts")])
        together = f"answers per second, {readable(benign.get('clients'))} at once"
        rows.append([together, figure(benign.get("per_second"), digits=2), benign.get("images")])
        if alone:
            rate = figure(alone.get("per_second"), digits=2)
            rows.append(["answers per second, one by one", rate, alone.get("images")])
    attacks = []
    for name, one in part(found, "attacks").items():
        at = number(one.get("blocked_at"))
        blocked = Cell("never", tone="bad", strong=True) if at is None else f"at query {at:,.0f}"
        attacks.append([name, blocked, one.get("reports"), one.get("queries")])
    return Served(
        short_name(str(found.get("model"))),
        found.get("threat"),
        guard.get("detectors"),
        guard.get("defence"),
        Table(["", "measured", "n"], rows, words=1),
        Table(["images without a chest from", "account blocked", "reports returned", "queries"], attacks, words=2),
    )

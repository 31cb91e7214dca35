"""The section of a page on defences: the reviewer's summary, what each costs and takes, and the watermark's test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.extraction_parts import authorised, chapter, metric_title, told
from cxrlab.render.folder import RunFolder, shortened
from cxrlab.render.html import UNKNOWN, figure, grouped_table, section, table, text
from cxrlab.render.robustness_parts import cell, dense, folded, number, p_value, part

_PLAIN, _ADAPTIVE = "plain", "adaptive"
_KINDS = {_PLAIN: "attacker who does not know it", _ADAPTIVE: "attacker who knows it"}
_METRIC = "findings.f1"
_SPENT = ("spent", "refused")
_NOTE = (
    "Benign: images of people who mean no harm, each scored with the defence minus without; a refused image counts as an "
    "empty report. Copy: findings F1 of the copy made behind the defence, and its difference to the copy made without. "
    "{how} ▼ marks a copy that is surely worse."
)
_PAIRED = "It is paired by study."
_APART = "Where reports of a copy are lost, its interval is made of the ends of both and wider than a paired one."
_MARK = (
    "One-sided exact test on words alone: in how many contexts the leading form is the keyed one, against one in "
    "{chance} by chance. n: contexts. Needed: contexts, and reports in the order given, for a decision at p &lt; 0.01 "
    "with power 0.9 at this rate; a dash where the rate is not above chance or the reports hold too few."
)
_TEXTS = {
    "unmarked": "victim without the mark",
    "marked": "victim with the mark",
    "enriched": "marked, then enriched by the oracle",
    "reworded": "marked, then told in other words",
}


def defence(runs: Sequence[RunFolder]) -> str:
    """Every run that measured defences."""
    return section("Defences", *(_one(run) for run in runs if run.defence))


def _one(run: RunFolder) -> str:
    found = run.defence
    rows = part(found, "defences")
    threat = part(found, "undefended").get("threat")
    parts = [
        f"<h3>Victim: {text(shortened(str(found.get('victim') or 'unknown')))}</h3>",
        review(part(found, "summary")),
        authorised(threat, found.get("authorised")) if threat or found.get("authorised") else "",
        chapter("Each defence", _table(found)),
        chapter("Test for the watermark", _marks(part(rows, "watermark", "evidence"))),
        folded("what each attacker did", _attacks(rows)),
        folded("safety on benign reports, and every metric", _safety(rows)),
    ]
    return f"<div class=victim>{''.join(parts)}</div>"


def review(summary: Mapping[str, Any]) -> str:
    """The summary for a security reviewer: severity, technique, cost to copy, and the control to take with its why."""
    if not summary:
        return ""
    level = str(summary.get("severity") or "unknown")
    style = level if level in ("low", "medium", "high", "critical") else "unknown"
    advice = part(summary, "recommended")
    copied = part(summary, "copied")
    share = told({"value": copied.get("ratio"), "low": copied.get("low"), "high": copied.get("high")})
    metric = text(metric_title(str(copied.get("metric") or _METRIC)))
    missing = summary.get("missing")
    need = f"<br><span class=small>To establish it: {text(missing)}.</span>" if missing else ""
    facts = {
        "severity": f'<span class="badge {style}">{text(level)}</span>{need}',
        "copied": f"{share} of the victim's {metric}, without a defence",
        "cost to copy": _cost(part(summary, "cost_to_copy")),
        "MITRE ATLAS": "<br>".join(map(_technique, summary.get("techniques") or ())) or UNKNOWN,
        "recommended": f"<b>{text(advice.get('control') or 'none')}</b>{_mitigation(advice)}",
        "why": text(advice.get("reason")),
    }
    listed = "".join(f"<dt>{key}</dt><dd>{value}</dd>" for key, value in facts.items())
    rule = f"<p class=small>Rule: {text(summary.get('rule'))}.</p>" if summary.get("rule") else ""
    return f"<div class=review><h3>For the security reviewer</h3><dl>{listed}</dl>{rule}</div>"


def _technique(row: Mapping[str, Any]) -> str:
    return f"{text(row.get('id'))} {text(row.get('name'))} <span class=small>({text(row.get('part'))})</span>"


def _mitigation(advice: Mapping[str, Any]) -> str:
    row = part(advice, "mitigation")
    return f" ({text(row.get('id'))} {text(row.get('name'))})" if row else ""


def _cost(cost: Mapping[str, Any]) -> str:
    """Queries and money; unknown money is said to be so, not counted as nothing."""
    money, least = number(cost.get("money")), number(cost.get("least_queries"))
    paid = "no price known" if money is None else f"{money:,.2f} {text(cost.get('currency'))}"
    fewer = f"; {least:,.0f} come within a tenth of that copy" if least is not None else ""
    return f"{text(cost.get('queries'))} queries, {paid}{fewer}"


def _table(found: Mapping[str, Any]) -> str:
    rows = part(found, "defences")
    groups = [
        ("", ["defence", "verdict"]),
        (f"benign images, n {text(found.get('n'))}", ["refused", "reworded", "findings F1"]),
        *((f"copy, {words}", ["findings F1", "difference"]) for words in _KINDS.values()),
    ]
    body = [_open(part(found, "undefended")), *(_row(name, part(rows, name)) for name in rows)] if rows else []
    losses = [part(one, "loss") for name in rows for one in part(rows, name, "attacks").values()]
    note = _NOTE.format(how=_PAIRED if losses and all(one.get("paired") is True for one in losses) else _APART)
    return f"{dense(grouped_table(groups, body, words=2))}<p class=small>{note}</p>" if body else ""


def _open(undefended: Mapping[str, Any]) -> list[str]:
    """The copy that is made where nothing stands in the way."""
    copy = cell(part(undefended, "surrogate").get(_METRIC), digits=2)
    return ["<span class=later>none</span>", *[UNKNOWN] * 4, copy, *[UNKNOWN] * 3]


def _row(name: str, row: Mapping[str, Any]) -> list[str]:
    benign = part(row, "benign")
    losses = {kind: part(row, "attacks", kind, "loss") for kind in _KINDS}
    cells = [
        f"<b>{text(name)}</b>",
        f"<span class=verdict>{verdict(row)}</span>",
        _refused(benign),
        cell(part(benign, "reworded"), digits=2),
    ]
    cells += [_gap(part(benign, "difference", _METRIC))]
    for kind, one in losses.items():
        cells += [_with(one, part(row, "attacks", kind, "result")), _gap(one, mark=True)]
    return cells


def verdict(row: Mapping[str, Any]) -> str:
    """What is to be thought of a defence: harm first, else whether the copy suffers when the attacker knows it."""
    if harms := row.get("harms") or ():
        return f"<b class=bad>✗ harms</b><br><span class=small>{text('; '.join(map(str, harms)))}</span>"
    attacks = part(row, "attacks")
    tops = [number(part(attacks, kind, "loss").get("high")) for kind in attacks]
    if not tops or any(top is None for top in tops):
        return "<b class=doubt>? not measured</b>"
    if all(top is not None and top < 0 for top in tops):
        known = "" if _ADAPTIVE in attacks else "<br><span class=small>no attacker who knows it was tried</span>"
        return f"<b class=here>✓ weakens the copy</b>{known}"
    plain = number(part(attacks, _PLAIN, "loss").get("high"))
    if plain is not None and plain < 0:
        return "<b class=doubt>? gives way</b><br><span class=small>to an attacker who knows it</span>"
    return "<b class=doubt>? no effect shown</b>"


def _refused(benign: Mapping[str, Any]) -> str:
    """Share of benign images refused; of a quota what its stated use leads to."""
    quota = part(benign, "quota")
    if not quota:
        return cell(part(benign, "refused"), digits=2)
    return f"{figure(number(quota.get('share_refused')))}<br><span class=small>at the stated use</span>"


def _gap(one: Mapping[str, Any], mark: bool = False) -> str:
    shown = cell({"value": one.get("difference"), "low": one.get("low"), "high": one.get("high")}, "+", 2)
    high = number(one.get("high"))
    return f"<span class=here>▼&nbsp;{shown}</span>" if mark and high is not None and high < 0 else shown


def _with(one: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    refused, spent = number(result.get("refused")), number(result.get("spent"))
    small = f"<br><span class=small>{refused:,.0f} of {spent:,.0f} refused</span>" if refused and spent else ""
    return f"{figure(number(one.get('with')))}{small}"


def _marks(evidence: Mapping[str, Any]) -> str:
    texts = {words: part(evidence, key) for key, words in _TEXTS.items()}
    texts |= {f"copy, {_KINDS.get(kind, kind)}": part(evidence, "copies", kind) for kind in part(evidence, "copies")}
    rows = [[text(name), *_mark(one)] for name, one in texts.items() if one]
    gammas = [gamma for one in texts.values() if (gamma := number(one.get("gamma")))]
    head = ["words of", "keyed form", "n", "z", "p", "contexts needed", "reports needed"]
    note = _MARK.format(chance=f"{1 / gammas[0]:g}") if gammas else ""
    return f"{table(head, rows, 6)}<p class=small>{note}</p>" if rows else ""


def _mark(one: Mapping[str, Any]) -> list[str]:
    z = number(one.get("z"))
    needs = [text(one.get(key)) for key in ("contexts_needed", "queries_needed")]
    if z is None:
        why = text(one.get("reason") or "no sentence in a form that can carry it")
        return [f"<span class=small>{why}</span>", text(one.get("n_choices")), UNKNOWN, UNKNOWN, *needs]
    share = f"{text(one.get('green'))} ({figure(number(one.get('rate')))})"
    return [share, text(one.get("n_choices")), f"{z:+.2f}", p_value(one.get("p")), *needs]


def _attacks(rows: Mapping[str, Any]) -> str:
    body = []
    for name in rows:
        for kind in part(rows, name, "attacks"):
            one = part(rows, name, "attacks", kind)
            result = part(one, "result")
            body.append(
                [text(name), text(_KINDS.get(kind, kind)), _did(one), *(text(result.get(key)) for key in _SPENT)]
            )
    return table(["defence", "attacker", "what it did", "queries", "refused"], body, 2) if body else ""


def _did(one: Mapping[str, Any]) -> str:
    """The adaptation in words, with what was found out for it."""
    words = []
    if dress := number(one.get("dress")):
        words.append(f"blended {dress:g} of a chest into every picture")
    if (accounts := number(one.get("accounts"))) and accounts > 1:
        words.append(f"asked from {accounts:,.0f} accounts")
    if one.get("rewrite"):
        words.append("told every answer in other words before learning it")
    if probing := part(one, "probing"):
        best = max((number(value) or 0.0 for value in part(probing, "passed").values()), default=0.0)
        words.append(
            f"spent {text(probing.get('queries'))} queries to look for a share that passes; at best {best:.0%} did"
        )
    return "; ".join(words) or "nothing about it"


def _safety(rows: Mapping[str, Any]) -> str:
    metrics = list(dict.fromkeys(metric for name in rows for metric in part(rows, name, "benign", "difference")))
    body = []
    for name in rows:
        safe = part(rows, name, "safety")
        most = number(safe.get("most_unsafe"))
        gaps = [_gap(part(rows, name, "benign", "difference", metric)) for metric in metrics]
        body.append([text(name), text(safe.get("n")), UNKNOWN if most is None else f"{most:.1%}", *gaps])
    note = (
        "None of the reports checked had a finding changed, or the defence would have been rejected. At most: upper "
        "end of the one-sided 95 % interval of the share of reports that it would change. Differences on benign images."
    )
    head = ["defence", "reports checked", "at most changed", *(text(metric_title(metric)) for metric in metrics)]
    return f"<p class=small>{note}</p>{dense(table(head, body, len(head) - 1))}" if body else ""

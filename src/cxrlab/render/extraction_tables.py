"""Tables of an extraction: victim beside copy, runs beside each other, variety by round, labels one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.extraction_parts import (
    FINDINGS,
    FIRST,
    Copied,
    applies,
    metric_heading,
)
from cxrlab.render.html import UNKNOWN, facts, figure, grouped_table, table, text
from cxrlab.render.robustness_parts import cell, dense, folded, number, part

_ROUGE = "rougeL:coco"
_NOTE = (
    "Victim and copy are scored against the reference reports; the ratio is copy ÷ victim on the same studies. "
    "Fidelity takes the victim's reports as the reference: how alike the two write, right or wrong. "
    "Intervals of 95 % by patient. A ratio of a metric that may be negative says nothing and is left out; its interval "
    "is left out where the victim is at 0 in more than one resample of twenty."
)
_CHEXPERT = (
    "F1 of each CheXpert label that the rules read, uncertain taken as present; support: references with the label, "
    "claimed: reports of the copy with it. A label without support has no F1 to speak of, however high or low."
)
_VARIETY = (
    "A copy cannot learn what was never said. Vocabulary and distinct sets grow with the number of answers: compare "
    "rounds of like size. Intervals of 95 %; abnormal: states something present."
)
_SIDES = (("victim", "victim"), ("surrogate", "copy"))


def scores(found: Mapping[str, Any]) -> str:
    """Victim, copy, ratio and fidelity by metric; what is asked for first in the open."""
    names = [name for name in part(found, "surrogate") if part(found, "surrogate", name)]
    first = [name for name in FIRST if name in names]
    rest = [name for name in names if name not in first]
    told = f"{text(found.get('n'))} studies of {text(found.get('patients'))} patients. {_NOTE}"
    parts = [_scores(found, first), f"<p class=small>{told}</p>", folded("other metrics", _scores(found, rest))]
    return "".join([*parts, _uncounted(found)]) if names else ""


def _scores(found: Mapping[str, Any], names: Sequence[str]) -> str:
    rows = [
        [
            metric_heading(name, part(found, "surrogate", name)),
            *(cell(part(found, side).get(name)) for side in ("victim", "surrogate")),
            ratio(part(found, "ratio", name)),
            cell(part(found, "fidelity").get(name)),
            text(part(found, "surrogate", name).get("n")),
        ]
        for name in names
    ]
    return table(["metric", "victim", "copy", "copy ÷ victim", "fidelity", "n"], rows, 5) if rows else ""


def ratio(found: Mapping[str, Any]) -> str:
    """A ratio with its interval beneath; none of a metric without a natural zero."""
    if found.get("natural_zero") is False:
        return f"{UNKNOWN}<br><span class=small>may be negative</span>"
    if number(found) is not None and (found.get("low") is None or found.get("high") is None):
        return f"{figure(number(found))}<br><span class=small>interval unknown</span>"
    return cell(found)


def _uncounted(found: Mapping[str, Any]) -> str:
    told = part(found, "left_out")
    return folded(f"{len(told)} metrics not counted", facts(told)) if told else ""


def beside(copies: Sequence[Copied]) -> str:
    """One row a run: what was spent, and what it bought; empty for one run."""
    if len(copies) < 2:
        return ""
    rows = [_beside(one) for one in copies]
    groups = [
        ("", ["run"]),
        ("queries", ["spent", "refused"]),
        ("findings F1", ["copy", "copy ÷ victim", "fidelity"]),
        ("ROUGE-L", ["copy ÷ victim"]),
        ("transcript", ["finding sets", "abnormal"]),
    ]
    return dense(grouped_table(groups, rows))


def _beside(one: Copied) -> list[str]:
    found = one.found
    said = part(found, "transcript")
    return [
        f"<b>{text(one.name)}</b>",
        f"{text(found.get('spent'))} of {text(found.get('budget'))}" if one.asked else "0",
        text(found.get("refused")),
        cell(part(found, "surrogate").get(FINDINGS), digits=2),
        _narrow_ratio(part(found, "ratio", FINDINGS)),
        cell(part(found, "fidelity").get(FINDINGS), digits=2),
        _narrow_ratio(part(found, "ratio", _ROUGE)),
        text(said.get("distinct_finding_sets")) if said.get("n") else UNKNOWN,
        cell(_share(said, "abnormal_share"), digits=2) if said.get("n") else UNKNOWN,
    ]


def _narrow_ratio(found: Mapping[str, Any]) -> str:
    return cell(found, digits=2) if found.get("low") is not None else ratio(found)


def _share(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {"value": found.get(name), "low": found.get(f"{name}_low"), "high": found.get(f"{name}_high")}


def variety(found: Mapping[str, Any]) -> str:
    """How varied the victim's answers were, round by round."""
    said = part(found, "transcript")
    rounds = part(said, "rounds")
    named = {f"round {text(key)}": part(rounds, key) for key in rounds}
    rows = [[name, *_variety(one)] for name, one in named.items()]
    if len(rows) != 1 and said.get("n"):
        rows.append(["<b>all</b>", *_variety(said)])
    head = ["", "answers", "distinct finding sets", "abnormal share", "vocabulary", "words", "silent", "commonest"]
    counts = _counts(said, named)
    return f"{dense(table(head, rows, 7))}<p class=small>{_VARIETY}</p>{counts}" if rows else ""


def _variety(one: Mapping[str, Any]) -> list[str]:
    return [
        text(one.get("n")),
        text(one.get("distinct_finding_sets")),
        cell(_share(one, "abnormal_share"), digits=2),
        text(one.get("vocabulary")),
        _words(one),
        text(one.get("silent")),
        figure(one.get("commonest_report")),
    ]


def _words(one: Mapping[str, Any]) -> str:
    """Words an answer with one decimal."""
    value, low, high = (number(one.get(key)) for key in ("words", "words_low", "words_high"))
    ends = "" if low is None or high is None else f"<br><span class=small>{low:.1f} to {high:.1f}</span>"
    return UNKNOWN if value is None else f"{value:.1f}{ends}"


def _counts(said: Mapping[str, Any], rounds: Mapping[str, Mapping[str, Any]]) -> str:
    """Findings by how many answers name them, in all and by round."""
    counts = part(said, "findings")
    rows = [
        [text(name), text(counts[name]), *(text(part(one, "findings").get(name, 0)) for one in rounds.values())]
        for name in counts
    ]
    head = ["finding", "answers", *rounds]
    return folded("findings that the answers name", table(head, rows, len(head) - 1)) if rows else ""


def observations(found: Mapping[str, Any]) -> str:
    """F1 of each label with its support, victim beside copy; folded away, since most supports are small."""
    out = ""
    for reader in part(found, "observations"):
        sides = part(found, "observations", reader)
        names = list(part(sides, "victim") or part(sides, "surrogate"))
        rows = [_observation(name, sides) for name in names]
        head = ["label", "support", *(title for _, title in _SIDES), "fidelity", "claimed by the copy"]
        inside = f"<p class=small>{_CHEXPERT}</p>{table(head, rows, 5)}" if rows else ""
        out += folded(f"labels one by one, read by {reader}", inside)
    return out


def _observation(name: str, sides: Mapping[str, Any]) -> list[str]:
    copy = part(sides, "surrogate", name)
    support = copy.get("support", part(sides, "victim", name).get("support"))
    # An F1 of nothing but false alarms is 0 by count; without support it is no figure of the label.
    shown = [cell(part(sides, side, name)) if support else UNKNOWN for side, _ in _SIDES]
    alike = part(sides, "fidelity", name)  # its support is the victim's reports with the label
    fidelity = cell(alike) if alike.get("support") else UNKNOWN
    return [text(name), text(support), *shown, fidelity, text(copy.get("claimed"))]


def options(found: Mapping[str, Any]) -> str:
    """What the paper leaves open and was chosen; of options without a part in the method nothing is shown."""
    chosen = part(found, "options")
    method = str(found.get("method"))
    shown = {name.replace("_", " "): chosen[name] for name in chosen if applies(name, method)}
    aside = [name for name in chosen if not applies(name, method)]
    note = f"<p class=small>Without a part in {text(method)}: {text(aside)}.</p>" if aside else ""
    return f"{facts(shown)}{note}" if shown else ""

"""The claims of a report in a comparable form: a defence may change words, but not findings.

Present findings are counted, since two nodules are not one. A defence may drop some details of a present finding; of an
absent one only its change, since "no large effusion" does not mean that there is no effusion.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Change, Group, Severity, observation
from cxrlab.findings.reader import Reading, read

KEPT = ("observation", "presence", "certainty", "side", "tip")
DROPPABLE = ("location", "severity", "size_mm", "change", "tip_mm", "normal")

Claim = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Claims:
    """The claims of one text."""

    present: Counter[Claim]  # each present finding and how often it is stated
    absent: frozenset[Claim]  # each denied finding
    normal: bool  # whether a normal statement appears without an observation
    unread: frozenset[str]  # sentences that may state a finding unknown to the vocabulary, in lower case


def claim(finding: Finding, dropped: Collection[str] = ()) -> Claim:
    """A finding as pairs of field and value, without its place in the text and the dropped details."""
    free = set(dropped) if finding.present else {"change"} & set(dropped)
    fields = [name for name in (*KEPT, *DROPPABLE[:-1]) if name not in free]
    return tuple((name, str(getattr(finding, name))) for name in fields if getattr(finding, name) is not None)


@lru_cache(1 << 12)  # a report that is compared with several others is read once
def claims(text: str, dropped: tuple[str, ...] = ()) -> Claims:
    """The claims of a text, without these `DROPPABLE` details of present findings; do not change the result."""
    reading = read(text)
    return Claims(
        present=Counter(claim(finding, dropped) for finding in reading if finding.present),
        absent=frozenset(claim(finding, dropped) for finding in reading if not finding.present),
        normal=bool(reading.normal),
        unread=frozenset(" ".join(reading.text[a:b].lower().split()) for a, b in reading.unread),
    )


def difference(report: str, text: str, dropped: Collection[str] = ()) -> str | None:
    """How the claims of a text differ from those of the report, as a clause for a message; None if they agree.

    Args:
        report: The model's report.
        text: The text that would be given out instead.
        dropped: Details of present findings that the text may leave out; "normal" allows it to leave out that something
            is normal. It may never call normal what the report does not.
    """
    if text == report:
        return None
    mine, theirs = claims(report, tuple(dropped)), claims(text, tuple(dropped))
    for lost in (mine.present - theirs.present, mine.absent - theirs.absent):
        if lost:
            return f"it no longer states '{describe_claim(min(lost))}'"
    if mine.unread - theirs.unread:
        return "it drops a sentence that may state a finding"
    for added in (theirs.present - mine.present, theirs.absent - mine.absent):
        if added:
            return f"it adds '{describe_claim(min(added))}'"
    if theirs.normal and not mine.normal:
        return "it calls normal what the report does not"
    if mine.normal and not theirs.normal and "normal" not in dropped:
        return "it no longer states that something is normal"
    return None


def describe_claim(one: Claim) -> str:
    """A claim in words: "pleural effusion, absent, left"."""
    values = dict(one)
    words = [values["observation"], values["presence"]]
    words += [value for name, value in one if name not in ("observation", "presence") and value != "certain"]
    return ", ".join(words)


# The point of "1.5 cm" has no space behind it; the number of a list ("2.") becomes a sentence that says nothing.
_BREAK = re.compile(r"(?<=[.!?])\s+|\n+")
_LEAD = re.compile(r"(?:[A-Z][A-Za-z ,/]{1,40}:\s+)?")


@dataclass(frozen=True)
class ReportSentence:
    """One sentence of a report."""

    start: int  # where `text` begins in the report, after a heading such as "Lungs: "
    text: str  # the sentence with its full stop
    findings: tuple[Finding, ...]
    normal: tuple[str, ...]  # its phrases that call something normal, "lungs are clear"
    unread: bool  # whether it may state a finding that the vocabulary does not know


def report_sentences(reading: Reading) -> list[ReportSentence]:
    """The sentences of a report with their findings; a finding belongs to the sentence in which it begins."""
    text, found = reading.text, []
    breaks = [match.span() for match in _BREAK.finditer(text)]
    starts = [0, *(end for _, end in breaks)]
    stops = [*(start for start, _ in breaks), len(text.rstrip())]
    for start, end in zip(starts, stops, strict=True):
        if not text[start:end].strip():
            continue
        lead = _LEAD.match(text[start:end])
        words = start + (lead.end() if lead else 0)
        found.append(
            ReportSentence(
                start=words,
                text=text[words:end],
                findings=tuple(f for f in reading if f.span and start <= f.span[0] < end),
                normal=tuple(text[a:b] for a, b in reading.normal if start <= a < end),
                unread=any(start <= span[0] < end for span in reading.unread),
            )
        )
    return found


# The place of a tip is always kept: a tube in the wrong place is the most urgent finding of a report.
_TIPS = {
    "above carina": "above the carina",
    "right main bronchus": "in the right main bronchus",
    "high": "high in the trachea",
    "beyond image": "beyond the image",
    "apex": "at the apex",
    "base": "at the base",
}
_AMOUNTS = {Severity.TRACE: "trace", Severity.MILD: "small", Severity.MODERATE: "moderate", Severity.SEVERE: "large"}
_MANY = ("low lung volumes", "sternal wires", "surgical clips", "monitoring leads")  # plural names
_CHANGES = {
    Change.NEW: "new since the prior study",
    Change.INCREASED: "increased since the prior study",
    Change.UNCHANGED: "unchanged since the prior study",
    Change.DECREASED: "decreased since the prior study",
}
# Statements that something is normal: kind, pattern, and the fixed sentence.
_NORMAL = (
    ("lungs", r"\blungs?\b", "The lungs are clear."),
    ("bones", r"\b(bones?|bony|osseous|skelet\w*|ribs?)\b", "The bones are intact."),
    ("pleura", r"\bpleura", "The pleura is normal."),
    ("abdomen", r"\babdomen\b", "The upper abdomen is normal."),
    ("diaphragm", r"\bdiaphragms?\b|\bhemidiaphragms?\b", "The hemidiaphragms are normal in position."),
    (
        "whole",
        r"\b(chest|study|image|radiograph|examination|cardiopulmonary|intrathoracic)\b",
        "Normal chest radiograph.",
    ),
)


@lru_cache(maxsize=8192)
def canonical(finding: Finding, dropped: tuple[str, ...]) -> str | None:
    """The fixed sentence for a finding without its dropped details; None if no sentence is read back as that finding."""
    wanted = claim(finding, dropped)
    for sentence in _sentences(finding):
        if [claim(one, dropped) for one in read(sentence)] == [wanted]:
            return sentence
    return None


def canonical_normal(words: str) -> tuple[str, str] | None:
    """Kind and fixed sentence for a statement that something is normal, "lungs are clear"; None if there is none."""
    for kind, pattern, sentence in _NORMAL:
        if re.search(pattern, words, re.IGNORECASE) and difference(f"{words}.", sentence) is None:
            return kind, sentence
    return None


def _sentences(finding: Finding) -> Iterator[str]:
    """Sentences for a finding, plainest first: the first that is read back as wanted has just the details kept."""
    side = f"{finding.side.value} " if finding.side else ""
    verb = "are" if finding.observation in _MANY else "is"
    lead = "Possible " if finding.certainty is Certainty.POSSIBLE else ""
    tips = [""]
    if finding.tip is not None:  # of a tube also how high above the carina, if that was measured
        tips = [f" with its tip {_TIPS.get(finding.tip, f'in the {finding.tip}')}"]
        if finding.tip_mm is not None:
            height = f"{finding.tip_mm:g} mm above the carina"
            tips += [f" with its tip {height}", f" with its tip in a high position {height}"]
    places = ["", *(f" {word} the {finding.location}" for word in ("in", "at", "of") if finding.location)]
    sizes = [""] if finding.size_mm is None else ["", f"{finding.size_mm:g} mm "]
    degrees = [""]
    if finding.severity is not None:  # fluid and air are small or large, the rest is mild or severe
        words = [f"{finding.severity.value} ", f"{_AMOUNTS[finding.severity]} "]
        degrees += reversed(words) if observation(finding.observation).group is Group.PLEURA else words
    for change in ("", f", {_CHANGES.get(finding.change, '')}") if finding.change else ("",):
        for tip, place, size, degree in product(tips, places, sizes, degrees):
            noun = f"{size}{degree}{side}{finding.observation}{place}{tip}"
            if not finding.present:
                yield f"No {noun}."
                if finding.change is Change.RESOLVED:
                    yield from (f"The prior {noun} has {end}." for end in ("resolved", "healed", "been removed"))
            elif lead:
                yield f"{lead}{noun}{change}."
            else:
                yield f"{noun[:1].upper()}{noun[1:]} {verb} present{change}."

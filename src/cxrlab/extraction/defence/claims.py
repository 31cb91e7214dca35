"""What a report claims, in a form in which two texts can be held against each other.

A defence may change words, never what they say. Present findings are counted, since two nodules are not one. Of a
present finding some details may be dropped where a defence says so; of an absent one none but its change, since
"no large effusion" does not say that there is no effusion.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from cxrlab.core.records import Finding, Span
from cxrlab.core.vocabulary import Certainty, Change, Group, Severity, observation
from cxrlab.findings.reader import Reading, read

KEPT = ("observation", "presence", "certainty", "side", "tip")
DROPPABLE = ("location", "severity", "size_mm", "change", "tip_mm", "normal")

Claim = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Claims:
    """What one text says of an image.

    Args:
        present: Each present finding and how often it is told.
        absent: Each denied finding.
        normal: Whether something is called normal without an observation.
        unread: Sentences that sound like a finding which the vocabulary does not know, in small letters.
    """

    present: Counter[Claim]
    absent: frozenset[Claim]
    normal: bool
    unread: frozenset[str]


def claim(finding: Finding, dropped: Collection[str] = ()) -> Claim:
    """One finding as pairs of field and value without its place in the text and without the dropped details."""
    free = set(dropped) if finding.present else {"change"} & set(dropped)
    fields = [name for name in (*KEPT, *DROPPABLE[:-1]) if name not in free]
    return tuple((name, str(getattr(finding, name))) for name in fields if getattr(finding, name) is not None)


def claims(text: str | Reading, dropped: Collection[str] = ()) -> Claims:
    """What a text claims.

    Args:
        text: A report, or what was read of it.
        dropped: Names of `DROPPABLE` that are left out of present findings.
    """
    if isinstance(text, str):
        return _claims_of(text, tuple(dropped))
    return _claims(text, dropped)


@lru_cache(1 << 12)
def _claims_of(text: str, dropped: tuple[str, ...]) -> Claims:
    """Of a text; a report that is held against several others is read once. Nobody may change what comes out."""
    return _claims(read(text), dropped)


def _claims(reading: Reading, dropped: Collection[str]) -> Claims:
    return Claims(
        present=Counter(claim(finding, dropped) for finding in reading if finding.present),
        absent=frozenset(claim(finding, dropped) for finding in reading if not finding.present),
        normal=bool(reading.normal),
        unread=frozenset(" ".join(reading.text[a:b].lower().split()) for a, b in reading.unread),
    )


def difference(report: str, text: str, dropped: Collection[str] = ()) -> str | None:
    """What a text says otherwise than the report, as a clause for a message; None where both claim the same.

    Args:
        report: What the model wrote.
        text: What would be handed out instead.
        dropped: Details of present findings that the text may leave out; "normal" lets it leave out that something is
            normal. It may never call normal what the report does not.
    """
    if text == report:
        return None
    mine, theirs = claims(report, dropped), claims(text, dropped)
    for lost in (mine.present - theirs.present, mine.absent - theirs.absent, mine.unread - theirs.unread):
        if lost:
            return f"it no longer says '{told(min(lost))}'"
    for added in (theirs.present - mine.present, theirs.absent - mine.absent):
        if added:
            return f"it adds '{told(min(added))}'"
    if theirs.normal and not mine.normal:
        return "it calls normal what the report does not"
    if mine.normal and not theirs.normal and "normal" not in dropped:
        return "it no longer says that something is normal"
    return None


def told(one: Claim | str) -> str:
    """A claim for a person: "absent, pleural effusion, left"."""
    if isinstance(one, str):
        return one
    values = dict(one)
    words = [values["observation"], values["presence"]]
    words += [value for name, value in one if name not in ("observation", "presence") and value != "certain"]
    return ", ".join(words)


# The point of "1.5 cm" has no space behind it; the number of a list ("2.") becomes a sentence that says nothing.
_BREAK = re.compile(r"(?<=[.!?])\s+|\n+")
_LEAD = re.compile(r"(?:[A-Z][A-Za-z ,/]{1,40}:\s+)?")


@dataclass(frozen=True)
class ReportSentence:
    """One sentence of a report.

    Args:
        start: Where `text` begins in the report, behind a heading such as "Lungs: ".
        text: The sentence with its full stop.
        findings: What it says.
        normal: Its words that call something normal, "lungs are clear".
        unread: Whether it sounds like a finding that the vocabulary does not know.
    """

    start: int
    text: str
    findings: tuple[Finding, ...]
    normal: tuple[str, ...]
    unread: bool


def split(text: str) -> list[Span]:
    """Spans of the sentences of a text; nothing but white space lies between them."""
    ends = [match.span() for match in _BREAK.finditer(text)]
    starts = [0, *(end for _, end in ends)]
    stops = [*(start for start, _ in ends), len(text.rstrip())]
    return [(a, b) for a, b in zip(starts, stops, strict=True) if text[a:b].strip()]


def report_sentences(reading: Reading) -> list[ReportSentence]:
    """The sentences of a report, each with what was read of it; a span belongs where it begins."""
    text, found = reading.text, []
    for start, end in split(text):
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


# Where a device ends is kept: a tube in the wrong place is the most urgent thing that a report can say.
_TIPS = {
    "above carina": "above the carina",
    "right main bronchus": "in the right main bronchus",
    "high": "high in the trachea",
    "beyond film": "beyond the image",
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
# Statements that something is normal: kind, words that give it away, and the sentence that stands for it.
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
    """The sentence for a finding without its dropped details; None where no sentence of ours is read back as it."""
    wanted = claim(finding, dropped)
    for sentence in _sentences(finding):
        if [claim(one, dropped) for one in read(sentence)] == [wanted]:
            return sentence
    return None


def canonical_normal(words: str) -> tuple[str, str] | None:
    """Kind and sentence for a statement that something is normal, "lungs are clear"; None for one of another kind."""
    for kind, pattern, sentence in _NORMAL:
        if re.search(pattern, words, re.IGNORECASE) and difference(f"{words}.", sentence) is None:
            return kind, sentence
    return None


def _sentences(finding: Finding) -> Iterator[str]:
    """Ways to say it, plainest first: the first that is read back as wanted has just the details that are kept."""
    side = f"{finding.side.value} " if finding.side else ""
    verb = "are" if finding.observation in _MANY else "is"
    lead = "Possible " if finding.certainty is Certainty.POSSIBLE else ""
    for change in ("", f", {_CHANGES.get(finding.change, '')}") if finding.change else ("",):
        details = product(_tips(finding), _places(finding), _sizes(finding), _degrees(finding))
        for tip, place, size, degree in details:
            noun = f"{size}{degree}{side}{finding.observation}{place}{tip}"
            if not finding.present:
                yield f"No {noun}."
                if finding.change is Change.RESOLVED:
                    yield from (f"The prior {noun} has {end}." for end in ("resolved", "healed", "been removed"))
            elif lead:
                yield f"{lead}{noun}{change}."
            else:
                yield f"{noun[:1].upper()}{noun[1:]} {verb} present{change}."


def _tips(finding: Finding) -> tuple[str, ...]:
    """Where a device ends; of a tube also how high above the carina, where that was measured."""
    if finding.tip is None:
        return ("",)
    plain = f" with its tip {_TIPS.get(finding.tip, f'in the {finding.tip}')}"
    if finding.tip_mm is None:
        return (plain,)
    height = f"{finding.tip_mm:g} mm above the carina"
    return (plain, f" with its tip {height}", f" with its tip in a high position {height}")


def _places(finding: Finding) -> tuple[str, ...]:
    place = finding.location
    return ("", f" in the {place}", f" at the {place}", f" of the {place}") if place else ("",)


def _sizes(finding: Finding) -> tuple[str, ...]:
    return ("",) if finding.size_mm is None else ("", f"{finding.size_mm:g} mm ")


def _degrees(finding: Finding) -> tuple[str, ...]:
    """None first, then words for the degree: what fills a space is small or large, the rest mild or severe."""
    if finding.severity is None:
        return ("",)
    words = (f"{finding.severity.value} ", f"{_AMOUNTS[finding.severity]} ")
    return ("", *(reversed(words) if observation(finding.observation).group is Group.PLEURA else words))

"""One fixed sentence for each claim: what is left of a report when its wording is taken away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Change, Group, Severity, observation
from cxrlab.extraction.defence.claims import claim, difference
from cxrlab.findings.reader import read

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

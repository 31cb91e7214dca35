"""Phrases that may stand for one another: which of them a sentence uses, and the sentence with another of them.

Every family has `WAYS` interchangeable forms, so that a form met by chance is the chosen one with probability
1 / `WAYS`. A form never depends on the number of the noun, so that a change needs no grammar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty
from cxrlab.extraction.defence.sentences import Piece

WAYS = 4
STATED = ("seen", "noted", "present", "identified")
DENIED = ("No {}.", "No {} seen.", "No evidence of {}.", "Negative for {}.")
# Normal statements: the four ways to say one, all of them read alike.
NORMAL: Mapping[str, tuple[str, str, str, str]] = {
    "heart": (
        "The heart is normal in size.",
        "Heart size is normal.",
        "Normal heart size.",
        "The heart size is normal.",
    ),
    "lungs": ("The lungs are clear.", "Both lungs are clear.", "Clear lungs.", "The lung fields are clear."),
    "mediastinum": (
        "The mediastinal contours are normal.",
        "Mediastinal contours are normal.",
        "Normal mediastinal contours.",
        "The mediastinum has normal contours.",
    ),
    "angles": (
        "The costophrenic angles are sharp.",
        "The costophrenic angles are clear.",
        "Sharp costophrenic angles.",
        "Costophrenic angles are clear.",
    ),
    "bones": (
        "The bones are intact.",
        "Bones are intact.",
        "Intact bones.",
        "The osseous structures are intact.",
    ),
    "abdomen": (
        "The upper abdomen is normal.",
        "The upper abdomen is unremarkable.",
        "Normal upper abdomen.",
        "Unremarkable upper abdomen.",
    ),
}  # fmt: skip
_NORMAL_WAY = {
    sentence.lower().rstrip("."): (kind, way) for kind, rows in NORMAL.items() for way, sentence in enumerate(rows)
}
_VERB = rf"(?:(?P<number>is|are) )?(?P<verb>{'|'.join((*STATED, 'visualized'))})"
_STATEMENTS = (
    re.compile(r"there (?P<number>is|are) (?!no\b|may\b|evidence\b)(?P<noun>[^,]+)(?P<rest>,.*)?", re.IGNORECASE),
    re.compile(r"the (?:radiograph|image|image|study) shows (?P<noun>[^,]+)(?P<rest>,.*)?", re.IGNORECASE),
    re.compile(rf"(?P<noun>[^,]+?) {_VERB}(?P<rest>,.*)?", re.IGNORECASE),
    # A fragment: no verb at all.
    re.compile(
        r"(?P<noun>(?:(?!\b(?:is|are|was|were|has|have|may|can|shows?|be|been|there|no|not)\b)[^,])+)(?P<rest>,.*)?",
        re.IGNORECASE,
    ),
)
_DENIALS = (
    (re.compile(r"(?:there is )?no (?:radiographic |definite )?evidence of (?P<noun>.+)", re.IGNORECASE), 2),
    (re.compile(r"negative for (?P<noun>.+)", re.IGNORECASE), 3),
    (re.compile(r"no (?P<noun>.+?) (?:is|are) (?:seen|noted|identified|present)", re.IGNORECASE), None),
    (re.compile(r"no (?P<noun>.+?) seen", re.IGNORECASE), 1),
    (re.compile(r"no (?P<noun>.+?) (?:noted|identified|present|visualized)", re.IGNORECASE), None),
    (re.compile(r"there (?:is|are) no (?P<noun>.+)", re.IGNORECASE), None),
    (re.compile(r"no (?P<noun>.+)", re.IGNORECASE), 0),
)


@dataclass(frozen=True)
class Slot:
    """A sentence as a choice between interchangeable forms.

    Args:
        context: What the sentence is about, apart from its form; the mark depends on it.
        way: Which of the forms it uses now, 0 to `WAYS` - 1; None for another one that may be replaced.
        forms: The sentence in each of the forms.
    """

    context: str
    way: int | None
    forms: tuple[str, ...]


def slot(piece: Piece) -> Slot | None:
    """The choice that a sentence offers; None where its form is not one of ours."""
    words = piece.text.strip().rstrip(".")
    if piece.unread or not piece.text.rstrip().endswith("."):
        return None
    if (known := _NORMAL_WAY.get(words.lower())) is not None:
        kind, way = known
        return Slot(f"normal|{kind}", way, NORMAL[kind])
    if piece.normal or not piece.findings:
        return None
    if all(f.present and f.certainty is Certainty.CERTAIN for f in piece.findings):
        return _stated(words, piece.findings[0])
    if not any(f.present or f.change for f in piece.findings):
        return _denied(words, piece.findings[0])
    return None


def _stated(words: str, first: Finding) -> Slot | None:
    for frame in _STATEMENTS:
        if match := frame.fullmatch(words):
            parts = match.groupdict()
            noun, rest, verb = parts["noun"].strip(), parts["rest"] or "", (parts.get("verb") or "").lower()
            number = (parts.get("number") or "").lower()
            # "There is X and Y" would need another verb after the noun; the short form fits any number.
            copula = f" {number}" if number and " and " not in noun else ""
            forms = tuple(f"{noun[:1].upper()}{noun[1:]}{copula} {way}{rest}." for way in STATED)
            return Slot(_context(first), STATED.index(verb) if verb in STATED else None, forms)
    return None


def _denied(words: str, first: Finding) -> Slot | None:
    for frame, way in _DENIALS:
        if match := frame.fullmatch(words):
            noun = match["noun"]
            return Slot(_context(first), way, tuple(form.format(noun) for form in DENIED))
    return None


def _context(finding: Finding) -> str:
    """The first thing that a sentence names: the same for the same content, whatever else the report says."""
    return f"{finding.presence.value}|{finding.observation}|{finding.side.value if finding.side else ''}"

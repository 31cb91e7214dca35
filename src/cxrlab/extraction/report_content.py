"""Parses a report into its sentences, the five anatomical categories, words and findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from cxrlab.core.records import Span
from cxrlab.core.vocabulary import Group, observation
from cxrlab.findings.reader import read


class Category(StrEnum):
    """The five categories of a report, in order."""

    AIRWAY = "airway"
    BREATHING = "breathing"
    CARDIAC = "cardiac"
    DIAPHRAGM = "diaphragm"
    EVERYTHING = "everything else"


_GROUPS: Mapping[Group, Category] = {
    Group.LUNG: Category.BREATHING,
    Group.PLEURA: Category.BREATHING,
    Group.HEART: Category.CARDIAC,
    Group.MEDIASTINUM: Category.EVERYTHING,
    Group.DIAPHRAGM: Category.DIAPHRAGM,
    Group.BONE: Category.EVERYTHING,
    Group.SOFT_TISSUE: Category.EVERYTHING,
    Group.DEVICE: Category.EVERYTHING,
}
# Exceptions to the groups. Trachea, bronchi and hila are the airway, with a tube inside the trachea; every other tube
# belongs to everything else, the great vessels to the heart, a hernia to the diaphragm.
_EXCEPTIONS: Mapping[str, Category] = {
    "hilar enlargement": Category.AIRWAY,
    "tracheal deviation": Category.AIRWAY,
    "bronchiectasis": Category.AIRWAY,
    "bronchial wall thickening": Category.AIRWAY,
    "endotracheal tube": Category.AIRWAY,
    "tracheostomy tube": Category.AIRWAY,
    "tortuous aorta": Category.CARDIAC,
    "aortic calcification": Category.CARDIAC,
    "aortic aneurysm": Category.CARDIAC,
    "pulmonary artery enlargement": Category.CARDIAC,
    "hiatal hernia": Category.DIAPHRAGM,
}
_WORDS: Mapping[Category, re.Pattern[str]] = {
    Category.AIRWAY: re.compile(r"\b(trache|bronch|carina|hil(a|um|ar)\b|lung roots?|airways?\b|intubat)"),
    Category.BREATHING: re.compile(
        r"\b(lungs?\b|pulmon|pleura|costophrenic|recess|parenchym|aerat|airspace|lob(e|es|ar)\b|interstiti|hemithora"
        r"|fissur|inspirat|respirat|zones?\b)"
    ),
    Category.CARDIAC: re.compile(r"\b(heart|cardiac|cardio(?!mediast|phrenic)|aort|ventric|atri(um|al)|pericard)"),
    Category.DIAPHRAGM: re.compile(
        r"\b(hemi)?diaphragm|\b(domes?\b|abdom|subphrenic|subdiaphragm|gastric|stomach|bowel|cardiophrenic|peritone)"
    ),
    Category.EVERYTHING: re.compile(
        r"\b((cardio)?mediastin|bon(e|es|y)\b|osseous|skelet|ribs?\b|spin(e|al)\b|vertebra|clavic|collarbone|shoulder"
        r"|soft tissue|chest wall|tubes?\b|lines?\b|catheter|drains?\b|valves?\b|pacemaker|pacing|leads?\b|wires?\b"
        r"|devices?\b|implant|hardware|foreign)"
    ),
}
_END = re.compile(
    r"(?<=[.!?;])(?<!\bvs\.)(?<!\bDr\.)(?<!\bapprox\.)\s+(?=\S)"  # the end of a sentence
    r"|\s*\n\s*(?=[A-Z\d*•-])"  # a new line that starts a new item, not a wrapped one
)
_NUMBER = re.compile(r"(?:\(?\d{1,2}[.)]|[-*•])(?:\s+|$)")
_HEADING = re.compile(r"([A-Z][A-Za-z]*(?:[ ,/&-]+[A-Za-z]+){0,5}):(?:\s+|$)")


@dataclass(frozen=True)
class Sentence:
    """One sentence of a report without its number and heading.

    `text` has its full stop, `span` gives characters [start, end) of the report, `heading` is empty before the first.
    """

    text: str
    span: Span
    heading: str = ""


def category_of(name: str) -> Category:
    """The category of an observation of the vocabulary."""
    return _EXCEPTIONS.get(name) or _GROUPS[observation(name).group]


def sentences_of(report: str) -> list[Sentence]:
    """The sentences in order, without headings, list numbers and pieces without a letter or digit."""
    breaks = [match.span() for match in _END.finditer(report)]
    starts, ends = [0, *(end for _, end in breaks)], [*(start for start, _ in breaks), len(report)]
    found, heading = [], ""
    for start, end in zip(starts, ends, strict=True):
        start += len(report[start:end]) - len(report[start:end].lstrip())
        while match := _NUMBER.match(report, start, end) or _HEADING.match(report, start, end):
            heading = match.group(1) if match.re is _HEADING else heading
            start = match.end()
        text = report[start:end].rstrip()
        if re.search(r"\w", text):
            found.append(Sentence(" ".join(text.split()), (start, start + len(text)), heading))
    return found


def split_by_category(report: str) -> dict[Category, str]:
    """Every sentence of the report under exactly one of the five categories; all five keys exist."""
    parts: dict[Category, list[str]] = {category: [] for category in Category}
    findings = read(report).findings
    for sentence in sentences_of(report):
        first, last = sentence.span
        own = [finding for finding in findings if finding.span is not None and first <= finding.span[0] < last]
        # Present findings decide; a list of absent ones may mention other categories.
        names = [finding.observation for finding in own if finding.present] or [finding.observation for finding in own]
        if names:  # the commonest category; of equally common ones the first
            category = Counter(map(category_of, names)).most_common(1)[0][0]
        else:
            category = _by_words(sentence.text) or _by_words(sentence.heading) or Category.EVERYTHING
        parts[category].append(sentence.text)
    return {category: " ".join(texts) for category, texts in parts.items()}


def _by_words(text: str) -> Category | None:
    """The category whose anatomical word comes first, if any."""
    found = {category: match.start() for category, row in _WORDS.items() if (match := row.search(text.lower()))}
    return min(found, key=found.__getitem__) if found else None


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts without empty ones and repetitions that differ only in case, spaces or punctuation."""
    kept: dict[tuple[str, ...], str] = {}
    for text in texts:
        if key := words_of(text):
            kept.setdefault(key, " ".join(text.split()))
    return tuple(kept.values())


def words_of(text: str) -> tuple[str, ...]:
    """Runs of letters and digits of the lower-cased text; a hyphen or apostrophe inside a word stays in it."""
    return tuple(re.findall(r"[^\W_]+(?:[-'’.][^\W_]+)*", text.lower()))


FindingSet = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class ReportContent:
    """The content of one report."""

    findings: FindingSet  # (observation, side) of everything stated as present or possible; side empty if none is given
    has_statements: bool  # whether the text states anything about an image
    words: int  # number of words


@lru_cache(1 << 14)
def report_content(report: str) -> ReportContent:
    """Read one report; cached, since transcripts hold many equal ones."""
    reading = read(report)
    found = frozenset((f.observation, f.side.value if f.side else "") for f in reading if f.present)
    return ReportContent(found, reading.has_statements, len(words_of(report)))

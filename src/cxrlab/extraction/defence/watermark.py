"""A watermark in the wording: of interchangeable forms of a sentence, a secret key picks one for each content."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_bytes
from cxrlab.core.vocabulary import Certainty
from cxrlab.extraction.defence.base import Defence
from cxrlab.extraction.defence.finding_preservation import ReportSentence, difference, report_sentences
from cxrlab.findings.reader import read
from cxrlab.metrics.statistics.intervals import regularised_beta

if TYPE_CHECKING:
    from cxrlab.extraction.config import DefenceSettings
    from cxrlab.extraction.defence.base import Benign


def keyed_way(key: bytes, context: str) -> int:
    """Which of the `WAYS` forms the key picks for a context (HMAC)."""
    digest = hmac.new(key, context.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "big") % WAYS  # WAYS divides 2^64: all forms are equally likely


class Watermark(Defence):
    """Writes each sentence in the form that the key picks for its content.

    The same content gets the same form in every report, so that a copy learns the mark with the style. A sentence, or a
    report, whose findings would change is left as it was.
    """

    name = "watermark"

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def from_settings(cls, settings: DefenceSettings, benign: Benign) -> Watermark:
        """The watermark of the key file."""
        return cls(load_key(settings.key_file))

    def reword(self, report: str) -> str:
        """The marked report; idempotent."""
        text, shift = report, 0
        for piece in report_sentences(read(report)):
            choice = slot(piece)
            if choice is None:
                continue
            form = choice.forms[keyed_way(self._key, choice.context)]
            if difference(piece.text, form):
                continue
            start = piece.start + shift
            text = text[:start] + form + text[start + len(piece.text) :]
            shift += len(form) - len(piece.text)
        return report if difference(report, text) else text


VARIABLE = "CXRLAB_WATERMARK_KEY"
LEAST = 16  # bytes


def load_key(file: Path | None) -> bytes:
    """The key: the content of a file without white space at its ends; None takes the environment variable."""
    if file is not None:
        key, place = read_bytes(file).strip(), str(file)
    else:
        key, place = os.environ.get(VARIABLE, "").strip().encode(), f"the environment variable {VARIABLE}"
    if not key:
        raise ConfigError(f"{place} holds no key; give key_file=FILE with at least {LEAST} random bytes.")
    if len(key) < LEAST:
        raise ConfigError(f"the key in {place} has only {len(key)} bytes; give at least {LEAST}.")
    return key


def fingerprint_of(key: bytes) -> str:
    """The sha256 of a key as hexadecimal digits, to see whether two runs had the same one."""
    return hashlib.sha256(b"watermark key:" + key).hexdigest()


WAYS = 4
STATED = ("seen", "noted", "present", "identified")
DENIED = ("No {}.", "No {} seen.", "No evidence of {}.", "Negative for {}.")
# Normal statements: four forms each, all with the same reading.
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
    re.compile(r"the (?:radiograph|image|film|study) shows (?P<noun>[^,]+)(?P<rest>,.*)?", re.IGNORECASE),
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
    """A sentence as a choice between interchangeable forms."""

    context: str  # the content of the sentence, apart from its form; the mark depends on it
    way: int | None  # which of the forms it has, 0 to `WAYS` - 1; None for another one that may be replaced
    forms: tuple[str, ...]  # the sentence in each of the forms


def slot(piece: ReportSentence) -> Slot | None:
    """The choice that a sentence offers; None if it has none of the known forms."""
    words = piece.text.strip().rstrip(".")
    if piece.unread or not piece.text.rstrip().endswith("."):
        return None
    if (known := _NORMAL_WAY.get(words.lower())) is not None:
        kind, way = known
        return Slot(f"normal|{kind}", way, NORMAL[kind])
    if piece.normal or not piece.findings:
        return None
    first = piece.findings[0]
    # The first finding of a sentence is its context: the same for the same content, whatever else the report states.
    context = f"{first.presence.value}|{first.observation}|{first.side.value if first.side else ''}"
    if all(finding.present and finding.certainty is Certainty.CERTAIN for finding in piece.findings):
        for frame in _STATEMENTS:
            if match := frame.fullmatch(words):
                parts = match.groupdict()
                noun, rest, verb = parts["noun"].strip(), parts["rest"] or "", (parts.get("verb") or "").lower()
                number = (parts.get("number") or "").lower()
                # "There is X and Y" would need another verb after the noun; the short form fits any number.
                copula = f" {number}" if number and " and " not in noun else ""
                forms = tuple(f"{noun[:1].upper()}{noun[1:]}{copula} {way}{rest}." for way in STATED)
                return Slot(context, STATED.index(verb) if verb in STATED else None, forms)
    elif not any(finding.present or finding.change for finding in piece.findings):
        for frame, denied in _DENIALS:
            if match := frame.fullmatch(words):
                return Slot(context, denied, tuple(form.format(match["noun"]) for form in DENIED))
    return None


GAMMA = 1 / WAYS
_MOST = 100_000  # contexts up to which a rate is distinguished from chance


def chosen_forms(reports: Iterable[str]) -> dict[str, Counter[int]]:
    """Context → how often each form was used in it; sentences in other forms do not count."""
    found: dict[str, Counter[int]] = {}
    for report in reports:
        for piece in report_sentences(read(report)):
            choice = slot(piece)
            if choice is not None and choice.way is not None:
                found.setdefault(choice.context, Counter())[choice.way] += 1
    return found


def watermark_test(reports: Sequence[str], key: bytes) -> dict[str, Any]:
    """One-sided exact binomial test that the reports of a suspect use the keyed forms more often than by chance.

    Returns:
        z, p, n_choices (contexts), green (contexts in which the keyed form is the most frequent), gamma, rate, reports
        and sentences. Without a context z is None and p is 1.
    """
    return evidence_in(chosen_forms(reports), key, len(reports))


def evidence_in(forms: dict[str, Counter[int]], key: bytes, reports: int) -> dict[str, Any]:
    """The test on counted forms, so that many keys can be tried on one text."""
    n = len(forms)
    # Of equally frequent forms the first in the table counts, on which the key has no influence.
    leading = {context: min(counts, key=lambda way: (-counts[way], way)) for context, counts in forms.items()}
    green = sum(way == keyed_way(key, context) for context, way in leading.items())
    z = (green - GAMMA * n) / math.sqrt(n * GAMMA * (1 - GAMMA)) if n else None
    return {
        "z": z,
        "p": binomial_tail(green, n, GAMMA),
        "n_choices": n,
        "green": green,
        "gamma": GAMMA,
        "rate": green / n if n else None,
        "reports": reports,
        "sentences": sum(sum(counts.values()) for counts in forms.values()),
        "unit": "contexts, each with the form that leads in it",
    }


def binomial_tail(successes: int, n: int, chance: float) -> float:
    """P(X >= successes) for n independent trials of this chance, 0 < chance < 1."""
    if successes <= 0:
        return 1.0
    return 0.0 if successes > n else regularised_beta(chance, successes, n - successes + 1)


def queries_needed(rate: float, gamma: float = GAMMA, alpha: float = 0.01, power: float = 0.9) -> int | None:
    """The fewest contexts with which a test (largest p `alpha`) detects a copy with probability `power`.

    `rate` is the share of contexts in which the suspect writes the keyed form, `gamma` the same by chance. None if the
    rate is not above chance, or too near to it.
    """
    if rate <= gamma:
        return None
    critical = 0
    for n in range(1, _MOST):
        while binomial_tail(critical, n, gamma) > alpha:
            critical += 1
        found = 1.0 if rate >= 1 and critical <= n else binomial_tail(critical, n, min(rate, 1 - 1e-12))
        if found >= power:
            return n
    return None


def reports_for(reports: Sequence[str], contexts: int) -> int | None:
    """How many reports of a suspect, in order, hold so many contexts; None if all of them hold fewer."""
    seen: set[str] = set()
    for number, report in enumerate(reports, start=1):
        seen.update(chosen_forms([report]))
        if len(seen) >= contexts:
            return number
    return None


def with_needs(reports: Sequence[str], key: bytes) -> dict[str, Any]:
    """The test with the contexts and reports needed for a decision at p < 0.01 with power 0.9 at this rate."""
    found = watermark_test(reports, key)
    needed = queries_needed(found["rate"]) if found["rate"] is not None else None
    enough = reports_for(reports, needed) if needed is not None else None
    return {**found, "contexts_needed": needed, "queries_needed": enough}

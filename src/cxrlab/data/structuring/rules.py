"""The structurer that needs no language model: four sections about this film, by rule.

Sentences that only compare, or tell of the patient, are dropped; what changed is rewritten as what is;
a findings section is drawn out of an impression that stands alone; slips of the pen are mended. Every
change is read back by the findings reader, and a sentence whose findings it would alter stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from cxrlab.core.records import Report
from cxrlab.data.structuring.checks import comparing, differences, reading_of
from cxrlab.data.structuring.patterns import ADVISES, BROKEN, anonymous, describes_patient, reason
from cxrlab.data.structuring.rewriting import (
    ALSO_STATES,
    CLAUSES,
    COURSES,
    HINT,
    LONGEST,
    ONLY_COMPARES,
    STATES,
    apply,
    rewrite,
    without_change,
)
from cxrlab.data.structuring.sentences import joined, mended, split
from cxrlab.findings.reader import Reading, read

RULES = "rules"

# A sentence with one of these concludes; like one that advises, it belongs to the impression.
_CONCLUDES = re.compile(
    r"\b(?:consider|consistent with|compatible with|suggesti(?:ve|ng)|concerning for|suspicious for|represent(?:s|ing)"
    r"|(?:may|could|might|likely|probably) (?:represent|reflect|be due|relate|indicat)\w*|in keeping with|differential"
    r"|impression|diagnosis|no (?:\w+ )?(?:acute|active) (?:\w+ )?(?:process|disease|abnormalit\w+|findings?"
    r"|cardiopulmonary|disorder)|normal (?:chest|study|exam\w*|radiograph\w*|film)|telephone|discussed|communicated"
    r"|notified)\b",
    re.IGNORECASE,
)
_HEADING_WORDS = 3
_DIAGNOSES = frozenset({"pneumonia"})
_HEADING = re.compile(r"[A-Z][A-Za-z]+(?:[ ,/][A-Za-z]+){0,4}: (?=\S)")


@dataclass(frozen=True)
class Ruled:
    """A report by rule, and what the rules could not do.

    Args:
        report: The four sections; `comparison` is always None.
        compares: Sentences that still speak of an earlier film, since taking that out would have altered a finding.
        restored: Sentences that were put back, since the whole text would have read differently without them.
    """

    report: Report
    compares: int = 0
    restored: int = 0


def structure(source: Report) -> Ruled:
    """The sections of a source, rewritten by rule; findings and impression say the same of the film as before."""
    source = mend(source)
    findings = [_Sentence.of(one) for one in split(source.findings or "")]
    impression = [_Sentence.of(one) for one in split(source.impression or "")]
    if not findings and impression:
        findings, impression = _drawn_apart(impression)
    restored = 0
    report = _report(source, findings, impression)
    if differences(reading_of(source), reading_of(report)):
        restored = _restore(source, findings, impression)
        report = _report(source, findings, impression)
    if differences(reading_of(source), reading_of(report)):
        # Where even untouched sentences read otherwise one after the other, the sections stay as they were.
        report = replace(report, findings=source.findings, impression=source.impression)
    return Ruled(report, compares=len(comparing(report)), restored=restored)


def mend(source: Report) -> Report:
    """The same sections with slips of the pen put right: what an answer is compared with."""
    return Report(**{name: mended(text) if text else None for name, text in source.to_json().items()})


@dataclass
class _Sentence:
    """One sentence, what became of it (None when it was dropped), and how it reads."""

    before: str
    after: str | None
    concludes: bool
    has_statements: bool

    @property
    def heads(self) -> bool:
        """Whether it is too short for anything but a heading: "Left shoulder."."""
        return len(self.before.split()) <= _HEADING_WORDS

    @classmethod
    def of(cls, sentence: str) -> _Sentence:
        return cls(sentence, *_understood(sentence))


@lru_cache(maxsize=1 << 15)  # reports repeat their sentences
def _understood(sentence: str) -> tuple[str | None, bool, bool]:
    reading = read(sentence)
    diagnosis = any(finding.observation in _DIAGNOSES and finding.present for finding in reading)
    concludes = diagnosis or bool(_CONCLUDES.search(sentence) or ADVISES.search(sentence))
    return present_state(sentence, reading), concludes, reading.has_statements


def present_state(sentence: str, reading: Reading | None = None) -> str | None:
    """The sentence about this film alone; None when nothing of it is; the sentence itself where no rewriting is safe.

    Args:
        sentence: One sentence.
        reading: What it says, where that is already known.
    """
    reading = reading if reading is not None else read(sentence)
    heading = match[0] if (match := _HEADING.match(sentence)) else ""
    body = sentence[len(heading) :].rstrip(".")
    if len(body) > LONGEST:
        return sentence
    if not reading.findings and not reading.unread and _of_no_image(body, reading):
        return None
    state = _anonymous(body, reading)
    compared = any(finding.change is not None for finding in reading)
    if compared or (HINT.search(state) and not ADVISES.search(state)):
        state = _rewritten(state, reading, compared)
    if state == body:
        return sentence
    return None if not reading.findings and not reading.unread and _of_no_image(state, reading) else heading + state


def _of_no_image(body: str, reading: Reading) -> bool:
    """Whether a sentence without a finding only compares, or only tells of the patient; advice never does."""
    if ADVISES.search(body):
        return False
    if ONLY_COMPARES.fullmatch(body):
        return not ALSO_STATES.search(body)
    return not reading.normal and describes_patient(body)


def _anonymous(body: str, reading: Reading) -> str:
    """Without age and sex, where nothing else hangs on them."""
    bare = anonymous(body)
    return bare if bare != body and _same(reading, bare) else body


def _rewritten(body: str, reading: Reading, compared: bool) -> str:
    """Every row at once, else each row that does no harm; then what is left of change, word by word."""
    rows = (*CLAUSES, *COURSES, *STATES) if compared else (*CLAUSES, *STATES)
    whole = apply(rows, body)
    if whole != body and not _same(reading, whole):
        whole = body
        for row in rows:
            tried = rewrite(row, whole)
            if tried != whole and _same(reading, tried):
                whole = tried
    return without_change(whole, reading) if compared else whole


def _same(reading: Reading, text: str) -> bool:
    """Whether a rewritten sentence reads like its source and is still one."""
    if not text or BROKEN.search(text):
        return False
    after = read(text)
    return not differences(reading, after) and bool(after.normal) >= bool(reading.normal)


def _drawn_apart(impression: Sequence[_Sentence]) -> tuple[list[_Sentence], list[_Sentence]]:
    """Findings and impression of an impression that stands alone: what is seen, and what is concluded or advised."""
    seen = [one for one in impression if not one.concludes and (one.has_statements or one.heads)]
    if not any(one.has_statements for one in seen):
        return [], list(impression)
    return seen, [one for one in impression if one not in seen]


def _restore(source: Report, *parts: Sequence[_Sentence]) -> int:
    """Take changes back until the text reads like its source: one that is enough, else all of them."""
    changed = [one for part in parts for one in part if one.after != one.before]
    wanted = reading_of(source)
    for one in changed:
        kept, one.after = one.after, one.before
        if not differences(wanted, reading_of(_report(source, *parts))):
            return 1
        one.after = kept
    for one in changed:
        one.after = one.before
    return len(changed)


def _report(source: Report, findings: Sequence[_Sentence], impression: Sequence[_Sentence]) -> Report:
    return Report(
        examination=source.examination,
        indication=reason(source.indication),
        findings=joined(one.after for one in findings if one.after),
        impression=joined(one.after for one in impression if one.after),
    )

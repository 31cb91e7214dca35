"""Structure reports by rule, without a language model: four sections about this image alone.

Sentences that only compare or describe the patient are dropped; changes over time become the present state; findings
are separated from an impression that stands alone; typing errors are corrected. The findings reader checks every change:
a sentence whose findings would differ stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from cxrlab.core.config import read_yaml
from cxrlab.core.records import Report
from cxrlab.data.structuring.checks import comparing, differences, reading_of
from cxrlab.data.structuring.sentences import (
    ADVISES,
    BROKEN,
    anonymous,
    capital,
    corrected,
    describes_patient,
    joined,
    pattern,
    reason,
    split,
)
from cxrlab.findings.data_files import converted
from cxrlab.findings.reader import Reading, read
from cxrlab.findings.reading.phrase_tables import Kind
from cxrlab.findings.reading.phrases import load_matcher
from cxrlab.findings.reading.tokens import tokenize

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
    """A report structured by rule, and counts of what the rules could not do."""

    report: Report  # the four sections; `comparison` is always None
    compares: int = 0  # sentences that still mention an earlier image, since a finding depends on it
    restored: int = 0  # sentences that were put back, since the whole text would have read differently without them


def structure(source: Report) -> Ruled:
    """The sections of a source, rewritten by rule; findings and impression keep their meaning."""
    source = correct_typos(source)
    findings = [_Sentence.of(one) for one in split(source.findings or "")]
    impression = [_Sentence.of(one) for one in split(source.impression or "")]
    if not findings and impression:
        # An impression alone: what is seen becomes the findings, what is concluded or advised stays.
        seen = [one for one in impression if not one.concludes and (one.has_statements or one.heads)]
        if any(one.has_statements for one in seen):
            findings, impression = seen, [one for one in impression if one not in seen]
    restored = 0
    wanted, report = reading_of(source), _report(source, findings, impression)
    if differences(wanted, reading_of(report)):
        # Undo changes until the text reads like its source: one that is enough, else all of them.
        changed = [one for one in (*findings, *impression) if one.after != one.before]
        for one in changed:
            kept, one.after = one.after, one.before
            if not differences(wanted, reading_of(_report(source, findings, impression))):
                restored = 1
                break
            one.after = kept
        else:
            restored = len(changed)
            for one in changed:
                one.after = one.before
        report = _report(source, findings, impression)
    if differences(wanted, reading_of(report)):
        # Where even untouched sentences read otherwise one after the other, the sections stay as they were.
        report = replace(report, findings=source.findings, impression=source.impression)
    return Ruled(report, compares=len(comparing(report)), restored=restored)


def correct_typos(source: Report) -> Report:
    """The sections with typing errors corrected; a model's answer is compared with these."""
    return Report(**{name: corrected(text) if text else None for name, text in source.to_json().items()})


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
    """The sentence about this image alone; None if nothing remains; the sentence itself where no rewriting is safe."""
    reading = reading if reading is not None else read(sentence)
    heading = match[0] if (match := _HEADING.match(sentence)) else ""
    body = sentence[len(heading) :].rstrip(".")
    if len(body) > LONGEST:
        return sentence
    if not reading.findings and not reading.unread and _of_no_image(body, reading):
        return None
    # Without age and sex, where nothing else hangs on them.
    bare = anonymous(body)
    state = bare if bare != body and _same(reading, bare) else body
    compared = any(finding.change is not None for finding in reading)
    if compared or (HINT.search(state) and not ADVISES.search(state)):
        # Every row at once, else each row that does no harm; then what is left of change, word by word.
        rows = (*CLAUSES, *COURSES, *STATES) if compared else (*CLAUSES, *STATES)
        whole = apply(rows, state)
        if whole != state and not _same(reading, whole):
            whole = state
            for row in rows:
                tried = rewrite(row, whole)
                if tried != whole and _same(reading, tried):
                    whole = tried
        state = without_change(whole, reading) if compared else whole
    if state == body:
        return sentence
    return None if not reading.findings and not reading.unread and _of_no_image(state, reading) else heading + state


def _of_no_image(body: str, reading: Reading) -> bool:
    """Whether a sentence without a finding only compares or only describes the patient; advice does neither."""
    if ADVISES.search(body):
        return False
    if ONLY_COMPARES.fullmatch(body):
        return not ALSO_STATES.search(body)
    return not reading.normal and describes_patient(body)


def _same(reading: Reading, text: str) -> bool:
    """Whether a rewritten sentence reads like its source and is still one."""
    if not text or BROKEN.search(text):
        return False
    after = read(text)
    return not differences(reading, after) and bool(after.normal) >= bool(reading.normal)


def _report(source: Report, findings: Sequence[_Sentence], impression: Sequence[_Sentence]) -> Report:
    return Report(
        examination=source.examination,
        indication=reason(source.indication),
        findings=joined(one.after for one in findings if one.after),
        impression=joined(one.after for one in impression if one.after),
    )


@dataclass(frozen=True)
class Rewrite:
    """One row of `rewrites.yaml`: what is found, what replaces it, and why that is the present state."""

    pattern: str
    instead: str
    reason: str

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return pattern(self.pattern)


@dataclass(frozen=True)
class _RewriteTable:
    clauses: tuple[Rewrite, ...]
    courses: tuple[Rewrite, ...]
    states: tuple[Rewrite, ...]


_FILE = Path(__file__).with_name("rewrites.yaml")
_TABLE: _RewriteTable = converted(_RewriteTable, read_yaml(_FILE)[0], _FILE.name)
CLAUSES, COURSES, STATES = _TABLE.clauses, _TABLE.courses, _TABLE.states
# Cheap test whether a sentence can mention a change; a sentence with a finding states its change itself.
HINT = pattern(
    r"compar|prior|previous|former|earlier|since|inter(?:val|im)|again|still|remain|persist|continu|chang|stabl|similar"
    r"|\bnew|<adjective>|redemon|re-demon|develop|appeared|before|the same|unaltered|constant|static|\bold\b"
)
# Whole sentences without a finding that only compare, or state that there is nothing to compare with.
ONLY_COMPARES = pattern(
    r"(?:(?:in )?comparison|compared|comparing)\b.*"
    r"|(?:there (?:is|are|has been|have been) |shows? |with |otherwise,? )*"
    r"(?:no|little|minimal|without)(?: <how>)* changes?\b.*"
    r"|no comparisons?\b.*|(?:there (?:is|are) )?no (?:relevant |available )?<earlier>(?: <image>)?(?: <that image>)?"
    r"(?: (?:is|are|was|were|for|available|provided)\b.*)?"
    r"|(?:the |an? )?(?:\w+[ -]){0,6}?(?:<links>|has|have)(?: <ly>| been| remained| not)*+"
    r" (?:<same>|changed)<in size>(?: (?:since|from|to|compared|when|in the|as)\b.*)?"
    r"|(?:<ly> |otherwise,? |overall,? )*(?:<same>|<same> (?:interval |postoperative )?"
    r"(?:appearance|<image>|findings|position\w*)\b.*)"
    r"|<same> (?:\w+ ){0,4}(?:silhouettes?|contours?|mediastinum|heart|size|structures|vasculature|hila)"
    r"|(?:the )?<earlier> <image>\b.*|(?:<how> )?interval change.*"
)
# A second statement beside the comparison, which is about this image.
ALSO_STATES = pattern(
    r"\b(?:without|normal|clear|unremarkable|negative|intact|within)\b|\bno\b.*\bno\b|\band (?:is|are)\b"
    r"|(?:[,;]|\bwith) no\b(?!(?: <how>)* changes?\b)"
)
# Longer sentences are left as they are; the time of a pattern may grow with the square of its length.
LONGEST = 1000


def apply(rows: tuple[Rewrite, ...], sentence: str) -> str:
    """The sentence after every row, tidied."""
    for row in rows:
        sentence = rewrite(row, sentence)
    return sentence


def rewrite(row: Rewrite, sentence: str) -> str:
    """The sentence after one row; unchanged when the row does not fit."""
    changed, count = row.expression.subn(lambda match: _filled(row.instead, match), sentence)
    return tidy(changed) if count else sentence


_MANY = re.compile(
    r"\b(t)here is (?=(?:several|multiple|numerous)\b"
    r"|(?:\w+ )?bilateral (?:\w+ )?(?:effusions|opacities|nodules|infiltrates)\b)",
    re.IGNORECASE,
)
_OF_SEVERAL = frozenset({"are", "have", "appear", "remain", "persist", "continue", "look", "seem"})
_CONSONANT = ("uni", "use", "usu", "eu", "one")  # vowels that sound like one


def _filled(instead: str, match: re.Match[str]) -> str:
    """The replacement, with the verb in the number of the one that stood there."""
    verb = (match.groupdict().get("verb") or "").lower().partition(" ")[0]
    return match.expand(instead).replace("{be}", "are" if verb in _OF_SEVERAL else "is")


# "no the prior effusion" and "no Effusion", where a sentence became a denial.
_NO = re.compile(
    r"\b(no) (?:(?:the|an?|any|no|(?:prior|previous|earlier|former)(?! to\b)|previously(?: \w+ed| seen)?) )*(\w\S*)",
    re.IGNORECASE,
)


def _lowered(word: str) -> str:
    """The first letter in lower case, unless the word is a name or an abbreviation."""
    return word if not word[1:].islower() or "-" in word else word.lower()


def tidy(sentence: str) -> str:
    """Articles, gaps and the first letter put right after words were taken out."""
    sentence = _NO.sub(lambda match: f"{match[1]} {_lowered(match[2])}", sentence)
    sentence = re.sub(r"\b(an?) (?=([a-z]\w+))", _article, sentence, flags=re.IGNORECASE)
    sentence = re.sub(r"\s+", " ", sentence)
    sentence = _MANY.sub(r"\1here are ", sentence)
    sentence = re.sub(r"\s+(?=[,.;:)])|(?<=\()\s+", "", sentence)
    sentence = re.sub(r",(?:\s*,)+", ",", sentence).strip(" ,;:-")
    sentence = re.sub(r",? (?:and|but|or|is|are|appears?|looks?|seems?|remains?)$", "", sentence, flags=re.IGNORECASE)
    return capital(re.sub(r"^(?:and|but|with) ", "", sentence, flags=re.IGNORECASE))


def _article(match: re.Match[str]) -> str:
    word = match[2].lower()
    article = "an" if word[:1] in "aeiou" and not word.startswith(_CONSONANT) else "a"
    return f"{article.capitalize() if match[1][0].isupper() else article} "


_WANTED = (Kind.CHANGE, Kind.RESOLUTION, Kind.RESOLUTION_BACKWARD)
_BEFORE = re.compile(
    r"(?:[,(]\s*|\b(?:but|and|with|which is|which are|that is|is|are|has|have|been|an?|the|in|of|at|to)\s+)+$",
    re.IGNORECASE,
)
# "no pneumothorax after removal of the tube": two denials.
_AFTER = re.compile(r",? (?:following|after|post|status post|s/p)(?: interval)? ?$", re.IGNORECASE)
_CLAUSE = re.compile(r"[^,;]*")
_IN_SIZE = re.compile(
    r"\s*\b(?:in|of) (?:size|extent|volume|appearance|position|degree|severity|number)\b", re.IGNORECASE
)
# What follows a word of change and belongs to it: "since last time", "than before", or nothing.
_BELONGS = re.compile(
    r"\s*(?:$|[,;]|(?:since|from|than|as|to|against|after|time|on|when|compared|place|position|site|film|study)\b)",
    re.IGNORECASE,
)
# Mentions of where a resolved finding was seen before.
_THEN = re.compile(
    r"\b(?:prior|previous|earlier|former|formerly visible|previously \w+)\s+(?=\w)"
    r"|\s+(?:seen )?on the (?:prior|previous|earlier|last) \w+\b",
    re.IGNORECASE,
)


def without_change(text: str, reading: Reading) -> str:
    """The sentence with as few words of change as the reader allows; the text itself when there are none."""
    left = _changes(read(text))
    while left:
        for candidate in _candidates(text):
            after = read(candidate)
            if (
                candidate
                and _changes(after) < left
                and not BROKEN.search(candidate)
                and not differences(reading, after)
            ):
                text, left = candidate, _changes(after)
                break
        else:
            return text
    return text


def _changes(reading: Reading) -> int:
    return sum(finding.change is not None for finding in reading)


def _candidates(text: str) -> Iterator[str]:
    """Ways to take one phrase of change out, the best first."""
    # Kind and characters [start, end) of every phrase of change; the last first, since it is most often an aside.
    matcher = load_matcher()
    tokens = tokenize(text, matcher.spelling)
    phrases = [phrase for phrase in matcher.find(tokens) if phrase.kind in _WANTED]
    for kind, start, end in [
        (phrase.kind, tokens[phrase.first].start, tokens[phrase.last - 1].end) for phrase in reversed(phrases)
    ]:
        before, after = text[:start], text[end:]
        rest = _CLAUSE.sub("", after, count=1)
        if kind is Kind.RESOLUTION:
            gone = _THEN.sub("", re.sub(r"^ *(?:of )?", "", after))
            yield tidy(f"{_AFTER.sub(',', before)} no {gone}")
        elif kind is Kind.RESOLUTION_BACKWARD:
            yield tidy(f"no {_lowered_erasing(_THEN.sub('', before))}{rest}")
        else:
            joint = _BEFORE.search(before)
            bare = before[: joint.start()] if joint else before
            sized = _IN_SIZE.sub("", after, count=1)
            if _BELONGS.match(sized):
                yield tidy(bare + rest)
                yield tidy(before + rest)
            yield tidy(before + sized)
            yield tidy(f"{bare} {sized}")
            yield tidy(f"{before}present{rest}")
            yield tidy(bare + rest)


def _lowered_erasing(text: str) -> str:
    """The first letter in lower case, unless it begins an abbreviation."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]

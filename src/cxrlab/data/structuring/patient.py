"""Whom a film is of: words for age, sex and history, and a text without them."""

from __future__ import annotations

import re

from cxrlab.core.records import Report
from cxrlab.data.structuring.sentences import capital, joined, split

_AGE = r"(?:\d{1,3}|_{2,}|x{4}|\[\*\*[^\]]*\*\*\])"
_SEXES = r"(?:man|woman|male|female|boy|girl|gentleman|lady)"
_SEX = rf"(?:{_SEXES}|patient|infant|child|[mf]\b)"
_UNIT = r"(?:years?|yrs?|months?|weeks?|days?|y\.?/?o\.?)"
# "a 45-year-old woman", "45 yo M", "man aged 47", "woman of 91 years", "age 91", "The patient is an elderly man".
_PERSON = (
    rf"(?:(?:this|(?:the )?patient) is )?(?:an? )?(?:elderly |young )?"
    rf"(?:(?:{_SEX},? )?{_AGE}[ -]*{_UNIT}(?:[ -]*old)?\b(?:[ -]*{_SEX}(?: {_SEX})?)?"
    rf"|{_SEX},? (?:aged? {_AGE}|of {_AGE} {_UNIT})|aged? {_AGE}|(?:\d{{1,3}}|_{{2,}}) ?[mf]\b)"
)
_LEADING = re.compile(
    rf"^(?:{_PERSON}|an? {_SEX}(?= with)|{_SEX}(?= with))[,:]?"
    r"(?: (?:with|w/|who has|has|(?:who )?presents with|presenting with|complains of|having))? ?",
    re.IGNORECASE,
)
_INSIDE = re.compile(rf",? (?:in|of) (?:this|an?) {_PERSON}|, {_PERSON}", re.IGNORECASE)
_LEFT_OVER = re.compile(
    rf" ?\b(?:an? |the )?(?:(?:elderly|young) )?(?:{_SEXES}\b(?:,? aged? {_AGE}| of {_AGE} {_UNIT})?|aged? {_AGE}"
    rf"|{_AGE}[ -]*{_UNIT}[ -]*old\b)",
    re.IGNORECASE,
)
_HISTORY = re.compile(
    r"(?:,? ?(?:and|with|has))?(?: an?)?(?: past| medical| known| remote| prior| clinical)* ?\b(?:history|hx|h/o|pmh)\b"
    r"(?: significant)?(?: of| for|:)? [^,;./]*",
    re.IGNORECASE,
)
_TOLD_OF_PATIENT = re.compile(
    rf"(?:{_PERSON}|(?:the )?patient (?:is an?|has an?|with|had|was)\b|(?:past |clinical |medical |surgical )*history\b"
    r"|hx\b|status post\b|s/p\b|reason for|indication|clinical (?:information|indication|history))",
    re.IGNORECASE,
)
# Stricter than what is taken out: an age needs a number or its unit, and a man is one wherever he stands.
_NAMED = re.compile(
    rf"\b(?:years?|yrs?|months?|weeks?|days?)[ -]?old\b|\b\d+[ -]?(?:yo|y/o|[mf])\b|\baged? \d+\b|\b{_SEXES}\b",
    re.IGNORECASE,
)


def names_person(report: Report) -> bool:
    """Whether any section tells age or sex."""
    return any(_NAMED.search(text) for text in report.to_json().values() if text)


def names_history(report: Report) -> bool:
    """Whether the indication tells a history beside a reason that would stand without it."""
    told = report.indication or ""
    return bool(_HISTORY.search(told)) and not _HISTORY.search(reason(told) or "")


def tells_of_patient(sentence: str) -> bool:
    """Whether a sentence begins like one about the patient and not about the film."""
    return bool(_TOLD_OF_PATIENT.match(sentence))


def anonymous(sentence: str) -> str:
    """The sentence without age and sex, where they stand as an aside."""
    return capital(_INSIDE.sub("", sentence))


def reason(indication: str | None) -> str | None:
    """Why the film was taken, without age, sex and, where anything else is told, without history; None when empty."""
    kept = [bare for sentence in split(indication or "") if (bare := _bare(sentence))]
    return joined(kept)


def _bare(sentence: str) -> str:
    """What is left of a sentence of the indication; empty when it told of the person alone."""
    bare = _INSIDE.sub("", _LEADING.sub("", sentence, count=1))
    bare = _LEFT_OVER.sub("", bare).strip(" ,.")
    without = re.sub(r"^(?:now |presenting |presents |and |with )+", "", _HISTORY.sub("", bare).strip(" ,.;/"))
    bare = without if any(sign.isalpha() for sign in without) else bare
    return bare if any(sign.isalpha() for sign in bare) else ""

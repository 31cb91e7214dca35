"""Which of the six kinds of error a label means: a letter, a number in the published order, or a name."""

from __future__ import annotations

import re

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.parsing.parsed import INSIGNIFICANT, MATCHED, SIGNIFICANT

KINDS = tuple(ErrorKind)
LETTERS = dict(zip("abcdef", KINDS, strict=True))
NUMBERS = dict(zip("123456", KINDS, strict=True))

_LETTER = re.compile(r"\W{0,6}(?:(?:type|kind|category|error)[\s_-]{0,3})?\(?([a-f]|[1-6])\)?[.:)]{0,2}\W{0,6}", re.I)
_LETTER_AND_NAME = re.compile(
    r"\W{0,6}(?:(?:type|kind|category|error)\s)?\(?([a-f]|[1-6])(?:[).:]{1,2}|\s?-)\s?(\D.{2,159})", re.I
)

_COMPARISON = re.compile(r"compari[sn]|\bprior\b|\bprevious\b|\bchanges? (?:from|since)|\btemporal", re.I)
_OMITTED = re.compile(
    r"\bomi(?:t|ss)|\bmiss(?:ing|ed|es)?\b|\bleft out|\bleaves? out|\bfail|\bunreported|\bforgot", re.I
)
_FALSE = re.compile(
    r"\bfalse|\bhallucin|\binvent|\bmade up|\bspurious|\bextra\b|\bmention(?:s|ing|ed)?\b|\bnot (?:present )?in the ref"
    r"|\bisn'?t in the ref|\babsent from the ref",
    re.I,
)
_PLACE = re.compile(r"\blocat|\bposition|\blateral|\bplace\b|\bwrong side|\bincorrect side|\banatomic", re.I)
_DEGREE = re.compile(r"\bsever|\bdegree|\bextent|\bgrad(?:e|ing)\b", re.I)

_NOT = r"(?:(?<![a-z])(?:in|un)|(?<![a-z])non[\s_-]{0,2}|(?<![a-z])not[\s_-](?:clinically[\s_-])?)"
_WEIGHT = re.compile(rf"(?:(?P<no>{_NOT})|(?<![a-z]))significant(?!ly)", re.I)
_MATCH = re.compile(
    r"(?<![a-z])(?P<no>(?:not|non|un|mis|partial(?:ly)?|no)[\s_-]{0,2})?(?<![a-z])match(?:ed|es|ing)", re.I
)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def named_kind(name: str) -> ErrorKind | None:
    """The kind that a description means; None where it could be several or none."""
    name = name.replace("_", " ")
    omitted, false = bool(_OMITTED.search(name)), bool(_FALSE.search(name))
    if _COMPARISON.search(name):
        if omitted == false:
            return None
        return ErrorKind.OMITTED_COMPARISON if omitted else ErrorKind.FALSE_COMPARISON
    told = {
        ErrorKind.WRONG_LOCATION: bool(_PLACE.search(name)),
        ErrorKind.WRONG_SEVERITY: bool(_DEGREE.search(name)),
        ErrorKind.OMITTED_FINDING: omitted,
        ErrorKind.FALSE_FINDING: false,
    }
    meant = [kind for kind, said in told.items() if said]
    return meant[0] if len(meant) == 1 else None


def labelled_kind(label: str) -> ErrorKind | None:
    """The kind that a key of an object or the first cell of a row means.

    A letter whose name is that of another kind (`a: missing finding`) means none: one of the two is wrong.
    """
    if found := _LETTER.fullmatch(label):
        return lettered(found[1])
    if found := _LETTER_AND_NAME.fullmatch(label):
        return lettered(found[1]) if agrees(lettered(found[1]), found[2]) else None
    return named_kind(label) if len(label) <= 160 else None


def lettered(sign: str) -> ErrorKind:
    """The kind of a letter from a to f, or of a number from 1 to 6."""
    return LETTERS.get(sign.lower()) or NUMBERS[sign]


def agrees(kind: ErrorKind, name: str, *, named: bool = False) -> bool:
    """Whether a description may mean this kind.

    Args:
        kind: What the letter or number beside it means.
        name: The description.
        named: Whether it must mean it; else a description that tells nothing will do.
    """
    meant = named_kind(name)
    return meant is kind or (meant is None and not named)


def weight_of(key: str) -> str | None:
    """Whether a key or a heading speaks of significant errors, of the others, or of matched findings."""
    key = _HUMP.sub("_", key)
    if found := _WEIGHT.search(key):
        return INSIGNIFICANT if found["no"] else SIGNIFICANT
    matched = _MATCH.search(key)
    return MATCHED if matched and not matched["no"] else None

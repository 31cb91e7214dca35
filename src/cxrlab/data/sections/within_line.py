"""A header after other words of its line, as in "… None. FINDINGS: Clear. IMPRESSION: Normal.".

Capitals count wherever they stand, save after a word that makes them part of a sentence. Other spellings
count after a sentence, or on a line that begins with a header, and only forward in the usual order: in
"The lungs are clear. Comparison: none." the word belongs to its findings. Small letters never count here.
"""

from __future__ import annotations

import re

from cxrlab.data.sections.headers import ADDENDUM, BY_NAME, RANK, RECOMMENDATION, SUMMARY, WET_READ
from cxrlab.data.sections.mark import Mark, Strength
from cxrlab.data.sections.naming import Meaning, in_capitals, meaning

# "10:42" and "1:2" are no headers; "FINDINGS:2 views" is one.
COLON = re.compile(r"(?<!\d):|:(?!\d)")
_COLON_AND_DASH = re.compile(r"[:=\-–—]*")
SENTENCE_ENDS = ".?!;:)]"

_LONGEST = 60
# Words end at full stops too: in "Clear.IMPRESSION: Normal." the blank is only forgotten.
_WORD = re.compile(r"[^\s.;!?]+")
_MASK = re.compile(r"(?:[Xx]{3,}|_+)[.,;]?")
_HERE = frozenset({*RANK, RECOMMENDATION, ADDENDUM, WET_READ, SUMMARY})
_HERE_IN_CAPITALS_ONLY = (RECOMMENDATION, ADDENDUM, WET_READ)
_LAST_WORDS = frozenset(name.rsplit(" ", 1)[-1] for name, row in BY_NAME.items() if row.section in _HERE)
_NOT_LETTERS = re.compile(r"[^a-z]")
# A word that goes on with the header's makes both a sentence, "see IMPRESSION:"; the second set only where the header
# does not stand out by its capitals, "NO ACUTE FINDINGS:". Before findings begin a sentence broken off is likelier.
_JOINED = frozenset("see the under above per".split())
_JOINED_IN_CAPITALS = frozenset(
    "the a an this that these those see and or of in on to with by for from as my our your their his her its no any"
    " acute new prior previous above below following significant abnormal incidental clinical main such under".split()
)


def after_colon(line: str, colon: int) -> int:
    """Where the text begins after a colon, or after ":-" and "::"."""
    match = _COLON_AND_DASH.match(line, colon)
    return match.end() if match else colon + 1


def within_line(line: str, floor: int, colon: int, *, flattened: bool) -> Mark | None:
    """The header that ends at a colon of the line.

    Args:
        line: The line.
        floor: Where the header may begin at the earliest: after the last one.
        colon: Place of the colon.
        flattened: Whether the line begins with a header, so that others may follow without a full stop.
    """
    begin = max(floor, colon - _LONGEST)
    tail = line[begin:colon].rstrip()
    words = list(_WORD.finditer(tail))[-5:]
    if not words or _NOT_LETTERS.sub("", words[-1][0].lower()) not in _LAST_WORDS:
        return None
    for word in words:
        name = tail[word.start() :]
        said = meaning(name) if name[0].isupper() else None
        if said is None or not said.whole or said.film or said.row.section not in _HERE:
            continue
        strength = _strength(name, said, tail[: word.start()].rstrip(), flattened)
        if strength is None:
            return None
        return Mark(begin + word.start(), after_colon(line, colon), said.row.section, strength, said.row.merged)
    return None


def _strength(name: str, said: Meaning, before: str, flattened: bool) -> Strength | None:
    """When the header counts, by what stands before it on the line; None for never."""
    capitals = in_capitals(name)
    if before.rfind("(") > before.rfind(")") or (not capitals and said.row.section in _HERE_IN_CAPITALS_ONLY):
        return None
    last = before.rsplit(None, 1)[-1] if before else ""
    if not before or before[-1] in SENTENCE_ENDS or _MASK.fullmatch(last):
        return Strength.ALWAYS if capitals else Strength.FORWARD
    common = not said.row.bare and " " not in said.name
    if common or not (capitals or flattened):
        return None
    word = _NOT_LETTERS.sub("", last.lower())
    if word in _JOINED or (word in _JOINED_IN_CAPITALS and in_capitals(last) == capitals):
        return Strength.OUTSIDE
    return Strength.ALWAYS if capitals else Strength.FORWARD

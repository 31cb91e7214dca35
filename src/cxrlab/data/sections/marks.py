"""Headers in a text: where each begins and ends, what it heads and when it counts.

A header is told by its place, its case and its name. First on its line: `first_on_line`. After other words of its
line, as in "None. FINDINGS: Clear. IMPRESSION: Normal.", capitals count wherever they stand, save after a word that
makes them part of a sentence; other spellings count after a sentence, or on a line that begins with a header, and only
forward in the usual order: in "The lungs are clear. Comparison: none." the word belongs to its findings. Small letters
never count there. A line is looked at once and a name is short: the time grows with the length of the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from cxrlab.data.sections.first_on_line import first_on_line
from cxrlab.data.sections.headers import (
    ADDENDUM,
    BODY,
    BY_NAME,
    NOTIFICATION,
    RANK,
    RECOMMENDATION,
    RULE,
    SIGNATURE,
    SUMMARY,
    WET_READ,
)
from cxrlab.data.sections.naming import (
    COLON,
    SENTENCE_ENDS,
    Mark,
    Meaning,
    Strength,
    after_colon,
    in_capitals,
    meaning,
)

_SIGNED = re.compile(r"(?<=[.?!] )\s*(?:electronically|digitally) signed\b", re.IGNORECASE)
_BODY = re.compile(r"(?<=\s)FINAL REPORT\b")
_LONGEST = 60
# Words end at full stops and slashes too: "Clear.IMPRESSION:" only lacks its blank, "FINDINGS/IMPRESSION" are two.
_WORD = re.compile(r"[^\s.;!?/&+]+")
_MASK = re.compile(r"(?:[Xx]{3,}|_+)[.,;]?")
_HERE_IN_CAPITALS_ONLY = (RECOMMENDATION, NOTIFICATION, ADDENDUM, WET_READ)
_HERE = frozenset({*RANK, *_HERE_IN_CAPITALS_ONLY, SUMMARY})
_LAST_WORDS = frozenset(name.rsplit(" ", 1)[-1] for name, row in BY_NAME.items() if row.section in _HERE)
_NOT_LETTERS = re.compile(r"[^a-z]")
# A word that goes on with the header's makes both a sentence, "see IMPRESSION:"; the second set only where the header
# does not stand out by its capitals, "NO ACUTE FINDINGS:". Before findings begin a sentence broken off is likelier.
_JOINED = frozenset("see the under above per".split())
_JOINED_IN_CAPITALS = frozenset(
    "the a an this that these those see and or of in on to with by for from as my our your their his her its no any"
    " acute new prior previous above below following significant abnormal incidental clinical main such under".split()
)


def marks(text: str) -> list[Mark]:
    """Every header of a text in the form that `plain.plain` gives, in order and without overlap."""
    found: list[Mark] = []
    at, before, headed = 0, "", False
    for line in text.split("\n"):
        if line and not line.isspace():
            here = [mark.moved(at) for mark in _of_line(line, before, headed)]
            headed = bool(here)
            if found and here and here[0].section == RULE and not text[found[-1].end : here[0].start].strip():
                found[-1] = replace(found[-1], end=here[0].end)  # a header underlined
            else:
                found += here
        at += len(line) + 1
        before = line.strip()
    return found


def _of_line(line: str, before: str, headed: bool) -> Iterator[Mark]:
    """The headers of one line; `before` is the line above, `headed` whether the last filled line held a header."""
    first = first_on_line(line, before, headed)
    end = 0
    if first is not None:
        yield first
        end = first.end
    rest = (
        [Mark(match.start(), match.end(), BODY) for match in _BODY.finditer(line, end)] if "FINAL REP" in line else []
    )
    if "igned" in line:
        rest += [Mark(match.start(), match.end(), SIGNATURE) for match in _SIGNED.finditer(line, end)]
    floor = end
    for colon in COLON.finditer(line, end):
        mark = _within_line(line, floor, colon.start(), flattened=first is not None)
        if mark is not None:
            rest.append(mark)
            floor = mark.end
    for mark in sorted(rest, key=lambda mark: mark.start):
        if mark.start >= end:
            yield mark
            end = mark.end


def _within_line(line: str, floor: int, colon: int, *, flattened: bool) -> Mark | None:
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
        if said is None or not said.whole or said.image or said.row.section not in _HERE:
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

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

from cxrlab.data.sections.headers import (
    ADDENDUM,
    BODY,
    BY_NAME,
    COLON,
    NOTIFICATION,
    ORGAN,
    RANK,
    RECOMMENDATION,
    RULE,
    SENTENCE_ENDS,
    SIGNATURE,
    SUMMARY,
    UNNAMED,
    WET_READ,
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


_LONGEST_FIRST_ON_LINE = 90
_LONGEST_ALONE = 48
# A line this short was not broken by a margin: the next one begins anew.
_SHORT = 45
_BULLETS = ' >|•·-–=#"'
_RULED = re.compile(r" *([_=\-~.])\1{9,} *")
# "2. IMPRESSION:" in capitals; "2. Impression:" is an item of a list.
_NUMBERED = re.compile(r"\(?\d{1,2}[.)] +(?=[A-Z]{4,}[A-Z /&]*:)")
_X_MASK = re.compile(r"[Xx]{3,}\b")
_CAPITAL_NAME = re.compile(r"[A-Z][A-Z ()/,&'\-]*")

_BARE = sorted((name for name, row in BY_NAME.items() if row.bare and row.section in RANK), key=len, reverse=True)
_CAPITALS = "|".join(name.upper().replace(" AND ", "(?: AND | ?/ ?| & )") for name in _BARE)
_TITLES = "|".join(name.capitalize() for name in _BARE)
# After a word in capitals these go on with a sentence: "COMPARISON is made to".
_GOES_ON = r"(?:is|are|was|were|has|have|of|to|with|in|on|at|and|or|from|for|as|by|can|may|below|above|section)\b"
# "IMPRESSION Normal.", "IMPRESSION 1. Clear.", "IMPRESSION normal", "FINDINGS - Clear.", "Impression - Clear.",
# "[Findings] Clear."
_RUN_IN = re.compile(
    rf"(?P<name>{_CAPITALS})"
    rf"(?: ?[;.=–—-]+>? +(?=\S)| +(?=[A-Z][a-z]|A [a-z]|1[.)])|  +(?=[A-Z])| +(?!{_GOES_ON})(?=[a-z]))"
    rf"|(?P<title>{_TITLES}) ?[=–—-]>? +(?=\S)"
    rf"|\[(?P<bracketed>{_CAPITALS}|{_TITLES})\]:? *"
)
_BLOCK = re.compile(
    r"FINAL (?:RADIOLOGY )?REPORT\b|(?:WET ?READ|(?:FINAL )?ADDENDUM)\b(?=[^a-z]*$)"
    r"|(?:ADDENDUM|Addendum)(?=(?: #?\d)? (?:by|on|BY|ON) )"
)
_BY = r"(?:by|on)\b"
_SIGNED_FIRST_ON_LINE = re.compile(
    rf"""(?:this\ )?(?:report\ |document\ )?(?:has\ been\ |was\ )?
    (?:(?:electronically|digitally)\ (?:signed|approved|verified|authori[sz]ed)\b
    |(?:dictated|transcribed|signed|e-signed|finali[sz]ed|authenticated|approved|verified)\ (?:and\ \w+\ )?{_BY}
    |signed\ electronically\b|anonymi[sz]ed\b|de-?identified\b)
    |(?:reported|interpreted|reviewed|read)\ by:?\ +(?:dr|prof|_{{2}}|x{{3}})
    |\(?\*?\ ?end\ of\ (?:report|dictation)\b
    |i,?\ [^.]{{0,80}}?\bhave\ (?:personally\ )?(?:reviewed|viewed|examined)\ (?:the|this|these)\b
    |thank\ you\ for\b
    |as\ the\ (?:attending|teaching|supervising)\ (?:physician|radiologist)\b""",
    re.IGNORECASE | re.VERBOSE,
)

# "Dr A. Person" and "A. Person, MD" under an empty line.
_SIGNER = re.compile(
    r"(?:Dr|Prof|Mr|Mrs|Ms)\.?(?: [A-Z_][\w.'-]*){1,4}(?:, [A-Z].{0,60})?$"
    r"|[A-Z_][\w.'-]*(?: [A-Z_][\w.'-]*){0,4}, (?:M\.?D|D\.?O|FRCR|FRANZCR)\b.{0,60}$"
)


def first_on_line(line: str, before: str, headed: bool) -> Mark | None:
    """The header that a line begins with.

    Args:
        line: The line, not blank.
        before: The line above, stripped; empty where there is none or it is blank.
        headed: Whether the last filled line above held a header.
    """
    if _RULED.fullmatch(line):
        return Mark(0, len(line), RULE)
    lead = len(line) - len(line.lstrip(_BULLETS))
    numbered = _NUMBERED.match(line, lead)
    lead = numbered.end() if numbered else lead
    if lead == len(line) or not (line[lead].isalpha() or line[lead] in "([") or _X_MASK.match(line, lead):
        return None
    ended = not before or before[-1] in SENTENCE_ENDS
    return (
        _with_colon(line, lead, ended or (headed and before[:1].islower()))
        or _signature(line.rstrip(), lead, before)
        or _run_in(line, lead)
        or _block(line, lead)
        or _alone(line, lead, before, ended)
    )


def _mark(said: Meaning, end: int, strength: Strength = Strength.ALWAYS) -> Mark:
    """A mark from the beginning of the line, bullets included; a signature is text from its first word on."""
    section = said.row.section
    return Mark(0, 0 if section == SIGNATURE else end, section, strength, said.row.merged, said.image)


def _with_colon(line: str, lead: int, anew: bool) -> Mark | None:
    colon = COLON.search(line, lead, lead + _LONGEST_FIRST_ON_LINE)
    if colon is None:
        return None
    name = line[lead : colon.start()].strip()
    end = after_colon(line, colon.start())
    said = meaning(name)
    if said is not None:
        strength = _strength_first_on_line(name, said, anew)
        return None if strength is None else _mark(said, end, strength)
    unnamed = _CAPITAL_NAME.fullmatch(name) and len(name) > 2 and len(name.split()) <= 6
    return Mark(0, end, UNNAMED, Strength.OUTSIDE) if unnamed else None


def _strength_first_on_line(name: str, said: Meaning, anew: bool) -> Strength | None:
    """When a name before a colon counts; None for never."""
    if said.row.section == ORGAN:
        return Strength.OUTSIDE
    if in_capitals(name):
        return Strength.ALWAYS
    if not name[0].isupper() and not anew:
        return None
    if not said.whole:
        return Strength.OUTSIDE if said.image else None
    if said.row.bare or " " in said.name:
        return Strength.ALWAYS
    # One common word, "Study: limited by motion", is a header only where one is due.
    return Strength.FORWARD if said.row.section in RANK else Strength.OUTSIDE


def _run_in(line: str, lead: int) -> Mark | None:
    match = _RUN_IN.match(line, lead)
    said = meaning(match["name"] or match["title"] or match["bracketed"]) if match else None
    return _mark(said, match.end()) if match and said else None


def _block(line: str, lead: int) -> Mark | None:
    """A line in capitals that opens a block, with whatever else stands on it: "WET READ VERSION #1 ___"."""
    match = _BLOCK.match(line, lead)
    said = meaning(match[0]) if match else None
    return _mark(said, match.end()) if match and said else None


def _signature(line: str, lead: int, before: str) -> Mark | None:
    ended = line[lead].isupper() or not before or before[-1] in SENTENCE_ENDS
    signed = (ended and _SIGNED_FIRST_ON_LINE.match(line, lead)) or (not before and _SIGNER.match(line, lead))
    return Mark(0, 0, SIGNATURE) if signed else None


def _alone(line: str, lead: int, before: str, ended: bool) -> Mark | None:
    """A header without a colon that has its line to itself; in small letters only under an empty line."""
    name = line[lead:].rstrip(" -–=.")
    if len(name) > _LONGEST_ALONE or not (name[:1].isupper() or not before):
        return None
    said = meaning(name)
    if said is None or not said.whole or not said.row.bare:
        return None
    stands_out = in_capitals(name) and before.upper() != before
    return _mark(said, len(line)) if ended or len(before) < _SHORT or stands_out else None

"""A header at the beginning of its line: with a colon, run into its text, alone, or a signature.

Unlike MIMIC's rules these need neither one blank before nor capitals: "Findings:", "IMPRESSION", "## Comparison".
"""

from __future__ import annotations

import re

from cxrlab.data.sections.headers import BY_NAME, ORGAN, RANK, RULE, SIGNATURE, UNNAMED
from cxrlab.data.sections.naming import COLON, SENTENCE_ENDS, Mark, Meaning, Strength, after_colon, in_capitals, meaning

_LONGEST = 90
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
_SIGNED = re.compile(
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
    colon = COLON.search(line, lead, lead + _LONGEST)
    if colon is None:
        return None
    name = line[lead : colon.start()].strip()
    end = after_colon(line, colon.start())
    said = meaning(name)
    if said is not None:
        strength = _strength(name, said, anew)
        return None if strength is None else _mark(said, end, strength)
    unnamed = _CAPITAL_NAME.fullmatch(name) and len(name) > 2 and len(name.split()) <= 6
    return Mark(0, end, UNNAMED, Strength.OUTSIDE) if unnamed else None


def _strength(name: str, said: Meaning, anew: bool) -> Strength | None:
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
    signed = (ended and _SIGNED.match(line, lead)) or (not before and _SIGNER.match(line, lead))
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

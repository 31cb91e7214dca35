"""Find the headers of report sections by their place, capitals and names, which are in `section_headers.yaml`.

After other words of its line, as in "None. FINDINGS: Clear.", a header in capitals counts except within a sentence. Other
spellings count after a sentence, and only forward in the usual order of a report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import product
from pathlib import Path

from cxrlab.core.config import read_yaml
from cxrlab.findings.data_files import converted

TECHNIQUE = "technique"
RECOMMENDATION = "recommendation"
NOTIFICATION = "notification"
ADDENDUM = "addendum"
WET_READ = "wet read"
SIGNATURE = "signature"
SUMMARY = "summary"
COMMENT = "comment"
PREAMBLE = "preamble"
UNNAMED = "unnamed"
IMAGE = "image name"

# Blocks beside the body, with headers that are not the body's.
ASIDES = (WET_READ, ADDENDUM)
# Marks without text of their own: the report proper begins; a drawn line; a part of the body within the findings.
BODY, RULE, ORGAN = "final report", "rule", "organ"
# The usual order of a report; sections without a rank may be anywhere.
RANK = {"examination": 0, "indication": 0, TECHNIQUE: 0, "comparison": 0, "findings": 1, "impression": 2}


class Strength(Enum):
    """When a header counts."""

    ALWAYS = "always"
    FORWARD = "only forward in the usual order of a report: elsewhere the same words are text"
    OUTSIDE = "only outside findings and impression, where the same words are text"


@dataclass(frozen=True)
class Mark:
    """The place of a header, and the section under it."""

    start: int
    end: int
    section: str
    strength: Strength = Strength.ALWAYS
    merged: bool = False
    image: bool = False


def marks(text: str) -> list[Mark]:
    """Every header of a text in the form of `sections.plain`, in order and without overlap."""
    found: list[Mark] = []
    at, before, headed = 0, "", False
    for line in text.split("\n"):
        if line and not line.isspace():
            here = [replace(mark, start=mark.start + at, end=mark.end + at) for mark in _of_line(line, before, headed)]
            headed = bool(here)
            if found and here and here[0].section == RULE and not text[found[-1].end : here[0].start].strip():
                found[-1] = replace(found[-1], end=here[0].end)  # an underlined header
            else:
                found += here
        at += len(line) + 1
        before = line.strip()
    return found


@dataclass(frozen=True)
class Row:
    """Names of one section, in the notation of `section_headers.yaml`."""

    section: str
    names: str
    reason: str
    bare: bool = False
    merged: bool = False


@dataclass(frozen=True)
class _HeaderTable:
    forms: Mapping[str, str]
    rows: tuple[Row, ...]
    keywords: Mapping[str, str]
    image_words: str
    image_modifiers: str
    verbs: str
    joining: str
    joining_in_capitals: str


_FILE = Path(__file__).with_suffix(".yaml")
_TABLE: _HeaderTable = converted(_HeaderTable, read_yaml(_FILE)[0], _FILE.name)
ROWS = _TABLE.rows
KEYWORDS = tuple(_TABLE.keywords.items())


def spelled(names: str) -> list[str]:
    """Every name in the notation of a row."""
    for form, words in _TABLE.forms.items():
        names = names.replace(f"{{{form}}}", words)
    return [
        " ".join(words).replace("_", " ")
        for name in names.split(";")
        for words in product(*(word.split("/") for word in name.split()))
    ]


BY_NAME: dict[str, Row] = {}
for _row in ROWS:
    for _name in spelled(_row.names):
        if BY_NAME.setdefault(_name, _row) is not _row:
            raise ValueError(
                f"{_FILE.name}: header '{_name}' is in two rows: {BY_NAME[_name].section} and {_row.section}."
            )

# "10:42" and "1:2" are no headers; "FINDINGS:2 views" is one.
_COLON = re.compile(r"(?<!\d):|:(?!\d)")
_COLON_AND_DASH = re.compile(r"[:=\-–—]*")
_SENTENCE_ENDS = ".?!;:)]"
# Words long enough that one typing error still leaves no doubt ("impresson", "findigns", "ndication").
_CORRECTED = tuple(
    sorted({word for name, row in BY_NAME.items() if row.bare for word in name.split() if len(word) >= 7})
)
_KNOWN = frozenset(word for name in BY_NAME for word in name.split())
_BRACKETS = re.compile(r"\([^()]*\)")
_AND = re.compile(r"[/&+]|\band\b")
_OTHER_THAN_LETTERS = re.compile(r"[^a-z]+")
# "None. Findings" is the end of a sentence and a header, not a name.
_SENTENCE_WITHIN = re.compile(r"[A-Za-z]{3}[.?!;] ")
_SPACED_OUT = re.compile(r"(?:[a-z] ){4,}[a-z]")
_IMAGE_WORDS, _IMAGE_MODIFIERS = frozenset(_TABLE.image_words.split()), frozenset(_TABLE.image_modifiers.split())
_VERBS = frozenset(_TABLE.verbs.split())
_LETTERS = re.compile(r"[A-Za-z][A-Za-z.\-]*")


@dataclass(frozen=True)
class Meaning:
    """What a header means."""

    row: Row
    whole: bool  # whether the whole name is in the table, perhaps with a typing error; else it only holds a keyword
    image: bool = False  # whether it names an image ("PA AND LATERAL CHEST"), over its findings
    name: str = ""


_IMAGE_ROW = Row("findings", "", "the name of the image is over its findings")


@lru_cache(maxsize=1 << 15)
def meaning(name: str) -> Meaning | None:
    """The section of the words before a colon, or alone on a line; None where they are no known header."""
    if _SENTENCE_WITHIN.search(name):
        return None
    words = simple(name)
    row = BY_NAME.get(words)
    if row is None and words:
        # Each long unknown word becomes the word of the table that is one typing error away.
        words = " ".join(
            word
            if word in _KNOWN or len(word) < 6
            else next((right for right in _CORRECTED if is_one_typo(word, right)), word)
            for word in words.split()
        )
        row = BY_NAME.get(words)
    if row is not None:
        return Meaning(row, whole=True, name=words)
    if in_capitals(name) and len(words.split()) <= 7 and not _VERBS.intersection(words.split()):
        for word, section in KEYWORDS:
            if word in words:
                both = word == "impression" and "findings" in words
                return Meaning(Row(section, "", f"holds the word {word}", merged=both), whole=False, name=words)
    if names_an_image(name):
        return Meaning(_IMAGE_ROW, whole=in_capitals(name), image=True, name=words)
    return None


def simple(name: str) -> str:
    """A header in the form of the table: "Findings / IMPRESSION (final)" is "findings and impression"."""
    text = _BRACKETS.sub(" ", name.lower().replace("(s)", "s"))
    text = " ".join(_OTHER_THAN_LETTERS.sub(" ", _AND.sub(" and ", text)).split())
    return text.replace(" ", "") if _SPACED_OUT.fullmatch(text) else text


def is_one_typo(word: str, right: str) -> bool:
    """Whether one letter too many, too few, changed or swapped with the next turns `right` into `word`."""
    if abs(len(word) - len(right)) > 1 or word == right:
        return False
    same = 0
    while same < min(len(word), len(right)) and word[same] == right[same]:
        same += 1
    rest, wanted = word[same:], right[same:]
    swapped = len(rest) > 1 and rest[1] + rest[0] + rest[2:] == wanted
    return rest[1:] == wanted or rest == wanted[1:] or rest[1:] == wanted[1:] or swapped


def in_capitals(name: str) -> bool:
    """Whether the letters are capitals; "(s)" and a small "and" between capitals are allowed."""
    letters = name.replace("(s)", "").replace(" and ", " ").replace(" of ", " ")
    return letters.upper() == letters and any(letter.isalpha() for letter in letters)


def names_an_image(name: str, *, strictly: bool = False) -> bool:
    """Whether these words name an image: one image word in capitals is enough, unless all must fit strictly."""
    words = [word.strip(".-") for word in _LETTERS.findall(name.lower())]
    if (
        not words
        or not _IMAGE_WORDS.intersection(words)
        or len(words) > 14
        or words in (["view"], ["views"], ["lateral"])
    ):
        return False
    if in_capitals(name) and not strictly:
        return not _VERBS.intersection(words) and "ct" not in words
    return all(word in _IMAGE_WORDS or word in _IMAGE_MODIFIERS for word in words)


def _after_colon(line: str, colon: int) -> int:
    """Where the text begins after a colon, or after ":-" and "::"."""
    match = _COLON_AND_DASH.match(line, colon)
    return match.end() if match else colon + 1


_SIGNED = re.compile(r"(?<=[.?!] )\s*(?:electronically|digitally) signed\b", re.IGNORECASE)
_FINAL_REPORT = re.compile(r"(?<=\s)FINAL REPORT\b")
_LONGEST = 60
# Words end at full stops and slashes too: "Clear.IMPRESSION:" only lacks its blank, "FINDINGS/IMPRESSION" are two.
_TOKEN = re.compile(r"[^\s.;!?/&+]+")
_MASK = re.compile(r"(?:[Xx]{3,}|_+)[.,;]?")
_WITHIN_LINE_IN_CAPITALS_ONLY = (RECOMMENDATION, NOTIFICATION, ADDENDUM, WET_READ)
_WITHIN_LINE = frozenset({*RANK, *_WITHIN_LINE_IN_CAPITALS_ONLY, SUMMARY})
_LAST_WORDS = frozenset(name.rsplit(" ", 1)[-1] for name, row in BY_NAME.items() if row.section in _WITHIN_LINE)
_NOT_LETTERS = re.compile(r"[^a-z]")
_JOINING, _JOINING_IN_CAPITALS = frozenset(_TABLE.joining.split()), frozenset(_TABLE.joining_in_capitals.split())


def _of_line(line: str, before: str, headed: bool) -> Iterator[Mark]:
    """The headers of one line; `before` is the line above, `headed` whether the last filled line held a header."""
    first = _first_on_line(line, before, headed)
    end = 0
    if first is not None:
        yield first
        end = first.end
    rest: list[Mark] = []
    if "FINAL REP" in line:
        rest += [Mark(match.start(), match.end(), BODY) for match in _FINAL_REPORT.finditer(line, end)]
    if "igned" in line:
        rest += [Mark(match.start(), match.end(), SIGNATURE) for match in _SIGNED.finditer(line, end)]
    floor = end
    for colon in _COLON.finditer(line, end):
        mark = _within_line(line, floor, colon.start(), flattened=first is not None)
        if mark is not None:
            rest.append(mark)
            floor = mark.end
    for mark in sorted(rest, key=lambda mark: mark.start):
        if mark.start >= end:
            yield mark
            end = mark.end


def _within_line(line: str, floor: int, colon: int, *, flattened: bool) -> Mark | None:
    """The header that ends at a colon, from `floor` on; `flattened` if the line begins with a header."""
    begin = max(floor, colon - _LONGEST)
    tail = line[begin:colon].rstrip()
    words = list(_TOKEN.finditer(tail))[-5:]
    if not words or _NOT_LETTERS.sub("", words[-1][0].lower()) not in _LAST_WORDS:
        return None
    for word in words:
        name = tail[word.start() :]
        header = meaning(name) if name[0].isupper() else None
        if header is None or not header.whole or header.image or header.row.section not in _WITHIN_LINE:
            continue
        strength = _strength_within_line(name, header, tail[: word.start()].rstrip(), flattened)
        if strength is None:
            return None
        row = header.row
        return Mark(begin + word.start(), _after_colon(line, colon), row.section, strength, row.merged)
    return None


def _strength_within_line(name: str, header: Meaning, before: str, flattened: bool) -> Strength | None:
    """When the header counts, by the text before it on the line; None for never."""
    capitals = in_capitals(name)
    in_brackets = before.rfind("(") > before.rfind(")")
    if in_brackets or (not capitals and header.row.section in _WITHIN_LINE_IN_CAPITALS_ONLY):
        return None
    last = before.rsplit(None, 1)[-1] if before else ""
    if not before or before[-1] in _SENTENCE_ENDS or _MASK.fullmatch(last):
        return Strength.ALWAYS if capitals else Strength.FORWARD
    common = not header.row.bare and " " not in header.name
    if common or not (capitals or flattened):
        return None
    word = _NOT_LETTERS.sub("", last.lower())
    if word in _JOINING or (word in _JOINING_IN_CAPITALS and in_capitals(last) == capitals):
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
# A line in capitals that opens a block, with any other text on it: "WET READ VERSION #1 ___".
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


def _first_on_line(line: str, before: str, headed: bool) -> Mark | None:
    """The header at the beginning of a line; `headed` if the last filled line above held a header."""
    if _RULED.fullmatch(line):
        return Mark(0, len(line), RULE)
    lead = len(line) - len(line.lstrip(_BULLETS))
    numbered = _NUMBERED.match(line, lead)
    lead = numbered.end() if numbered else lead
    if lead == len(line) or not (line[lead].isalpha() or line[lead] in "([") or _X_MASK.match(line, lead):
        return None
    ended = not before or before[-1] in _SENTENCE_ENDS
    with_colon = _with_colon(line, lead, ended or (headed and before[:1].islower()))
    if with_colon is not None:
        return with_colon
    stripped = line.rstrip()
    new_sentence = stripped[lead].isupper() or ended
    signed = new_sentence and _SIGNED_FIRST_ON_LINE.match(stripped, lead)
    if signed or (not before and _SIGNER.match(stripped, lead)):
        return Mark(0, 0, SIGNATURE)
    for pattern in (_RUN_IN, _BLOCK):
        if match := pattern.match(line, lead):
            header = meaning(next(filter(None, match.groups()), match[0]))
            if header is not None:
                return _mark(header, match.end())
    # A header without a colon that has its line to itself; in small letters only under an empty line.
    name = line[lead:].rstrip(" -–=.")
    if len(name) > _LONGEST_ALONE or not (name[:1].isupper() or not before):
        return None
    header = meaning(name)
    if header is None or not header.whole or not header.row.bare:
        return None
    stands_out = in_capitals(name) and before.upper() != before
    return _mark(header, len(line)) if ended or len(before) < _SHORT or stands_out else None


def _mark(header: Meaning, end: int, strength: Strength = Strength.ALWAYS) -> Mark:
    """A mark from the beginning of the line, bullets included; a signature is text from its first word on."""
    section = header.row.section
    return Mark(0, 0 if section == SIGNATURE else end, section, strength, header.row.merged, header.image)


def _with_colon(line: str, lead: int, anew: bool) -> Mark | None:
    """The header that ends at the first colon; `anew` if the line begins a new sentence."""
    colon = _COLON.search(line, lead, lead + _LONGEST_FIRST_ON_LINE)
    if colon is None:
        return None
    name = line[lead : colon.start()].strip()
    end = _after_colon(line, colon.start())
    header = meaning(name)
    if header is None:
        unnamed = _CAPITAL_NAME.fullmatch(name) and len(name) > 2 and len(name.split()) <= 6
        return Mark(0, end, UNNAMED, Strength.OUTSIDE) if unnamed else None
    row = header.row
    if row.section == ORGAN:
        return _mark(header, end, Strength.OUTSIDE)
    if in_capitals(name):
        return _mark(header, end)
    if not name[0].isupper() and not anew:
        return None
    if not header.whole:
        return _mark(header, end, Strength.OUTSIDE) if header.image else None
    if row.bare or " " in header.name:
        return _mark(header, end)
    # One common word, "Study: limited by motion", is a header only where one is due.
    return _mark(header, end, Strength.FORWARD if row.section in RANK else Strength.OUTSIDE)

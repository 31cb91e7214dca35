"""What a header says: from the words before a colon to a section, or to nothing; and a header at its place."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from cxrlab.data.sections.headers import BY_NAME, HOLDS, Row

# "10:42" and "1:2" are no headers; "FINDINGS:2 views" is one.
COLON = re.compile(r"(?<!\d):|:(?!\d)")
_COLON_AND_DASH = re.compile(r"[:=\-–—]*")
SENTENCE_ENDS = ".?!;:)]"
# Words long enough that one slip still leaves no doubt ("impresson", "findigns", "ndication").
_MENDED = tuple(sorted({word for name, row in BY_NAME.items() if row.bare for word in name.split() if len(word) >= 7}))
_KNOWN = frozenset(word for name in BY_NAME for word in name.split())
_BRACKETS = re.compile(r"\([^()]*\)")
_AND = re.compile(r"[/&+]|\band\b")
_OTHER_THAN_LETTERS = re.compile(r"[^a-z]+")
# "None. Findings" is the end of a sentence and a header, not a name.
_SENTENCE_WITHIN = re.compile(r"[A-Za-z]{3}[.?!;] ")
_SPACED_OUT = re.compile(r"(?:[a-z] ){4,}[a-z]")

# A film as its heading names it: words that alone make such a name, and words that only go with them.
_IMAGE = frozenset(
    "chest cxr thorax radiograph radiographs film films view views portable ribs x-ray xray lateral".split()
)
_WITH_IMAGE = frozenset(
    "a an the of and or with at on in from to for by as one two three four single dual both pa ap lat frontal upright"
    " erect supine semi semiupright semierect sitting standing decubitus oblique obliques apical lordotic left right"
    " unilateral bilateral bedside repeat follow-up study exam examination radiographic x ray rays am pm a.m p.m hours"
    " hrs dated post pre line placement intubation inspiration expiration inspiratory expiratory projection projections"
    " obtained plain digital xr cr dx v vw adult pediatric routine series rib".split()
)
# "No chest film is seen:" is a sentence, whatever its capitals.
_VERBS = frozenset("is are was were has have had be been there shows show demonstrates see seen not no".split())
_WORD = re.compile(r"[A-Za-z][A-Za-z.\-]*")


@dataclass(frozen=True)
class Meaning:
    """What a header means.

    Args:
        row: Section and kind.
        whole: Whether the whole name is in the table, at most with a slip; else it only holds a telling word.
        film: Whether the name is that of a film ("PA AND LATERAL CHEST"), under which the findings stand.
        name: Its simple form.
    """

    row: Row
    whole: bool
    image: bool = False
    name: str = ""


_IMAGE_ROW = Row("findings", "", "the film's name stands over what it shows")


def simple(name: str) -> str:
    """A header in the form of the table: "Findings / IMPRESSION (final)" is "findings and impression"."""
    text = _BRACKETS.sub(" ", name.lower().replace("(s)", "s"))
    text = " ".join(_OTHER_THAN_LETTERS.sub(" ", _AND.sub(" and ", text)).split())
    return text.replace(" ", "") if _SPACED_OUT.fullmatch(text) else text


def one_slip(word: str, right: str) -> bool:
    """Whether one letter too many, too few, changed or swapped with the next turns `right` into `word`."""
    if abs(len(word) - len(right)) > 1 or word == right:
        return False
    same = 0
    while same < min(len(word), len(right)) and word[same] == right[same]:
        same += 1
    rest, wanted = word[same:], right[same:]
    swapped = len(rest) > 1 and rest[1] + rest[0] + rest[2:] == wanted
    return rest[1:] == wanted or rest == wanted[1:] or rest[1:] == wanted[1:] or swapped


def _mended(name: str) -> str:
    """The name with each long unknown word set right that is one slip away from a word of the table."""
    return " ".join(
        word if word in _KNOWN or len(word) < 6 else next((right for right in _MENDED if one_slip(word, right)), word)
        for word in name.split()
    )


def in_capitals(name: str) -> bool:
    """Whether the letters are capitals; "(s)" and a small "and" between capitals do not count against it."""
    letters = name.replace("(s)", "").replace(" and ", " ").replace(" of ", " ")
    return letters.upper() == letters and any(letter.isalpha() for letter in letters)


def names_a_image(name: str, *, strictly: bool = False) -> bool:
    """Whether these words name a film: in capitals one telling word will do, else all words must go with it.

    Args:
        name: The words.
        strictly: Ask it of all words even in capitals, where they may be a finding ("CHEST TUBE IN PLACE").
    """
    words = [word.strip(".-") for word in _WORD.findall(name.lower())]
    if not words or not _IMAGE.intersection(words) or len(words) > 14 or words in (["view"], ["views"], ["lateral"]):
        return False
    if in_capitals(name) and not strictly:
        return not _VERBS.intersection(words) and "ct" not in words
    return all(word in _IMAGE or word in _WITH_IMAGE for word in words)


@lru_cache(maxsize=1 << 15)
def meaning(name: str) -> Meaning | None:
    """What the words before a colon, or alone on a line, head; None for what is no header that we know."""
    if _SENTENCE_WITHIN.search(name):
        return None
    words = simple(name)
    row = BY_NAME.get(words)
    if row is None and words:
        words = _mended(words)
        row = BY_NAME.get(words)
    if row is not None:
        return Meaning(row, whole=True, name=words)
    if in_capitals(name) and len(words.split()) <= 7 and not _VERBS.intersection(words.split()):
        for word, section in HOLDS:
            if word in words:
                both = word == "impression" and "findings" in words
                return Meaning(Row(section, "", f"holds the word {word}", merged=both), whole=False, name=words)
    if names_a_image(name):
        return Meaning(_IMAGE_ROW, whole=in_capitals(name), image=True, name=words)
    return None


def after_colon(line: str, colon: int) -> int:
    """Where the text begins after a colon, or after ":-" and "::"."""
    match = _COLON_AND_DASH.match(line, colon)
    return match.end() if match else colon + 1


class Strength(Enum):
    """When a mark counts."""

    ALWAYS = "always"
    FORWARD = "only forward in the usual order of a report: elsewhere the same words are text"
    OUTSIDE = "only outside findings and impression, where the same words are text"


@dataclass(frozen=True)
class Mark:
    """Where a header stands and what it heads.

    Args:
        start: Its first character.
        end: Where the text after it begins.
        section: What it heads.
        strength: When it counts.
        merged: Whether it heads findings and impression in one.
        film: Whether it is the name of a film.
    """

    start: int
    end: int
    section: str
    strength: Strength = Strength.ALWAYS
    merged: bool = False
    image: bool = False

    def moved(self, by: int) -> Mark:
        """The same mark so many characters later."""
        return replace(self, start=self.start + by, end=self.end + by)

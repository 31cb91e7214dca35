"""Text into words with their places, each in the spelling of the tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

# Only ASCII letters make words, so that an emoji or an accent separates and never joins.
_TOKEN = re.compile(
    r"(?P<port>x{3,}-a-x{3,})|(?P<mask>x{3,}|_+)|(?P<level>(?<![a-z0-9])[tl]\d{1,2}(?![a-z0-9]))|\d+(?:\.\d+)?|[a-z]+(?:['’][st]\b)?|[.,;:?!/]|\n",
    re.IGNORECASE | re.ASCII,
)
MASK, VERTEBRA, NEWLINE = "xxxx", "vertebra", "\n"
_NAMED = {"port": "port", "mask": MASK, "level": VERTEBRA}  # "XXXX-a-XXXX" was a port-a-cath
_ABBREVIATED = frozenset({"vs", "approx", "dr", "eg", "ie", "st", "pt", "incl", "resp"})

IRREGULAR = {
    "pneumothoraces": "pneumothorax", "pneumothoraxes": "pneumothorax", "hemithoraces": "hemithorax",
    "hydrothoraces": "hydrothorax", "apices": "apex", "hila": "hilum", "bullae": "bulla", "vertebrae": "vertebra",
    "bronchi": "bronchus", "granulomata": "granuloma", "atelectases": "atelectasis", "metastases": "metastasis",
    "diagnoses": "diagnosis", "fibroses": "fibrosis", "opacites": "opacity", "sulci": "sulcus", "pleurae": "pleura",
    "foci": "focus", "bases": "base", "lungs": "lung", "effusions": "effusion", "scoliotic": "scoliosis",
    "an": "a", "wires": "wire", "stomata": "stoma", "cms": "cm", "mms": "mm", "calculi": "calculus", "leads": "lead",
    "oesophagus": "esophagus", "centimetre": "cm", "centimetres": "cm", "millimetre": "mm", "millimetres": "mm",
    "centimeter": "cm", "centimeters": "cm", "millimeter": "mm", "millimeters": "mm", "thoraces": "thorax",
    "isn't": "not", "aren't": "not", "wasn't": "not", "doesn't": "not", "can't": "cannot", "hasn't": "not",
    "haven't": "not", "couldn't": "cannot", "don't": "not", "didn't": "not", "weren't": "not",
}  # fmt: skip
# British spellings, and what is written with or without an s: old part, new part.
_SPELLING = (
    ("oe", "e"),
    ("ae", "e"),
    ("our", "or"),
    ("is", "iz"),
    ("re", "er"),
    ("ph", "f"),
    ("ll", "l"),
    ("ys", "yz"),
)


class Token(NamedTuple):
    """One word or mark.

    Args:
        word: In the spelling of the tables where they know it, else in lower case.
        start: Offset of the first character.
        end: Offset after the last.
        lines: Line breaks before it: 0, 1, or 2 for an empty line and more.
    """

    word: str
    start: int
    end: int
    lines: int


def tokens(text: str, spelling: Callable[[str], str]) -> list[Token]:
    """Words and marks in order; characters that are neither only separate."""
    found: list[Token] = []
    lines = 0
    for match in _TOKEN.finditer(text):
        raw = match.group()
        if raw == NEWLINE:
            lines += 1
            continue
        if match.lastgroup is None:
            word = spelling(raw.lower())
            if not word:
                continue
        else:
            word = _NAMED[match.lastgroup]
        start, end = match.span()
        if word == "." and found and found[-1].word in _ABBREVIATED and found[-1].end == start:
            continue
        found.append(Token(word, start, end, lines if lines < 2 else 2))
        lines = 0
    return found


class Spelling:
    """The spelling of the tables for a word of the text: plurals, British forms and slips of one letter.

    Args:
        known: The words of the tables.
        read_as: Words that are read as another one.
        passed: Words that are passed over: their spelling is empty.
    """

    SHORTEST_SLIP = 8  # letters; in shorter words one letter makes another word
    MOST = 50_000  # remembered words; text without end must not fill the memory

    def __init__(self, known: Collection[str], read_as: Mapping[str, str], passed: Collection[str]) -> None:
        self.known = frozenset(known)
        self._read_as = read_as
        self._passed = passed
        self._memory: dict[str, str] = {}
        self._holed: dict[str, str] = {}
        for word in sorted(self.known):
            if len(word) >= self.SHORTEST_SLIP:
                for hole in _holes(word):
                    self._holed.setdefault(hole, word)

    def __call__(self, word: str) -> str:
        """`word` as the tables spell it, or unchanged where they do not know it."""
        if word in self._memory:
            return self._memory[word]
        found = self._find(word)
        spelled = "" if found in self._passed else self._read_as.get(found, found)
        if len(self._memory) < self.MOST:
            self._memory[word] = spelled
        return spelled

    def _find(self, word: str) -> str:
        if len(word) == 1 or word in self.known:
            return word
        bare = re.sub(r"['’]s$", "", word).replace("’", "'")
        for form in _forms(bare):
            if form in self.known:
                return form
        return self._slip(bare) or bare

    def _slip(self, word: str) -> str | None:
        """The one known word that differs by one letter added, lost or changed, or by two swapped."""
        if len(word) < self.SHORTEST_SLIP:
            return None
        near = {self._holed[hole] for hole in (word, *_holes(word)) if hole in self._holed}
        near |= {longer for hole in _holes(word) if (longer := hole) in self.known}
        near = {other for other in near if len(other) >= self.SHORTEST_SLIP and _one_slip(word, other)}
        return near.pop() if len(near) == 1 else None


def _holes(word: str) -> list[str]:
    return [word[:index] + word[index + 1 :] for index in range(1, len(word))]


def _one_slip(a: str, b: str) -> bool:
    if len(a) == len(b):
        apart = [index for index in range(len(a)) if a[index] != b[index]]
        swapped = (
            len(apart) == 2 and apart[1] == apart[0] + 1 and a[apart[0]] == b[apart[1]] and a[apart[1]] == b[apart[0]]
        )
        # Endings decide meaning ("inflated", "inflates"): a change in the last letter is not a slip.
        return swapped or (len(apart) == 1 and apart[0] < len(a) - 1)
    return abs(len(a) - len(b)) == 1


def _forms(word: str) -> list[str]:
    """Spellings to try in order: as it is, singular, and both in American spelling."""
    singular = [IRREGULAR.get(word, word)]
    if word.endswith("ies"):
        singular.append(word[:-3] + "y")
    if word.endswith("es"):
        singular.append(word[:-2])
    if word.endswith("s"):
        singular.append(word[:-1])
    forms = list(dict.fromkeys(singular))
    for form in singular:
        forms += [form.replace(old, new) for old, new in _SPELLING if old in form]
    return forms

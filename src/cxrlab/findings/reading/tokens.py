"""Splits text into words and marks, each in the spelling that the phrase tables use."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

# Only ASCII letters make words, so that an emoji or an accent separates words and never joins them.
_TOKEN = re.compile(
    r"(?P<port>x{3,}-a-x{3,})|(?P<mask>x{3,}|_+)|(?P<level>(?<![a-z0-9])[tl]\d{1,2}(?![a-z0-9]))|\d+(?:\.\d+)?|[a-z]+(?:['’][st]\b)?|[.,;:?!/]|\n",
    re.IGNORECASE | re.ASCII,
)
MASK, VERTEBRA, NEWLINE = "xxxx", "vertebra", "\n"
_NAMED = {"port": "port", "mask": MASK, "level": VERTEBRA}  # "XXXX-a-XXXX" was a port-a-cath
_ABBREVIATED = frozenset({"vs", "approx", "dr", "eg", "ie", "st", "pt", "incl", "resp"})
# British spellings, and what is written with or without an s: old part, new part.
_VARIANTS = (
    ("oe", "e"), ("ae", "e"), ("our", "or"), ("is", "iz"), ("re", "er"), ("ph", "f"), ("ll", "l"), ("ys", "yz"),
)  # fmt: skip


class Token(NamedTuple):
    """One word or mark."""

    word: str  # in the spelling of the tables where they know it, else in lower case
    start: int  # offset of the first character; `end` is the offset after the last
    end: int
    lines: int  # line breaks before it: 0, 1, or 2 for an empty line and more


def tokenize(text: str, spelling: Callable[[str], str]) -> list[Token]:
    """Words and marks in order; all other characters only separate them."""
    tokens: list[Token] = []
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
        if word == "." and tokens and tokens[-1].word in _ABBREVIATED and tokens[-1].end == start:
            continue
        tokens.append(Token(word, start, end, lines if lines < 2 else 2))
        lines = 0
    return tokens


class Spelling:
    """Maps a word of the text to the spelling of the tables: plurals, British forms and one-letter typing errors.

    Args:
        known: The words of the tables.
        read_as: Words that are read as another word.
        ignored: Words without effect; their spelling is empty.
        irregular: Forms that no rule derives → their base form.
    """

    SHORTEST_TYPO = 8  # letters; in shorter words one letter makes another word
    MOST = 50_000  # remembered words; endless text must not fill the memory

    def __init__(
        self,
        known: Collection[str],
        read_as: Mapping[str, str],
        ignored: Collection[str],
        irregular: Mapping[str, str],
    ) -> None:
        self.known = frozenset(known)
        self._read_as = read_as
        self._ignored = ignored
        self._irregular = irregular
        self._memory: dict[str, str] = {}
        self._shortened: dict[str, str] = {}  # known word without one letter → the word
        for word in sorted(self.known):
            if len(word) >= self.SHORTEST_TYPO:
                for shorter in _without_one_letter(word):
                    self._shortened.setdefault(shorter, word)

    def __call__(self, word: str) -> str:
        """`word` as the tables spell it, or unchanged where they do not know it."""
        if word in self._memory:
            return self._memory[word]
        found = self._find(word)
        spelled = "" if found in self._ignored else self._read_as.get(found, found)
        if len(self._memory) < self.MOST:
            self._memory[word] = spelled
        return spelled

    def _find(self, word: str) -> str:
        if len(word) == 1 or word in self.known:
            return word
        bare = re.sub(r"['’]s$", "", word).replace("’", "'")
        for form in self._forms(bare):
            if form in self.known:
                return form
        return self._corrected(bare) or bare

    def _forms(self, word: str) -> list[str]:
        """Spellings to try in order: as it is, singular, and both in American spelling."""
        singular = [self._irregular.get(word, word)]
        if word.endswith("ies"):
            singular.append(word[:-3] + "y")
        if word.endswith("es"):
            singular.append(word[:-2])
        if word.endswith("s"):
            singular.append(word[:-1])
        forms = list(dict.fromkeys(singular))
        for form in singular:
            forms += [form.replace(old, new) for old, new in _VARIANTS if old in form]
        return forms

    def _corrected(self, word: str) -> str | None:
        """The one known word that differs by one letter added, lost or changed, or by two swapped."""
        if len(word) < self.SHORTEST_TYPO:
            return None
        shorter = _without_one_letter(word)
        near = {self._shortened[form] for form in (word, *shorter) if form in self._shortened}
        near |= self.known.intersection(shorter)
        near = {other for other in near if len(other) >= self.SHORTEST_TYPO and _is_typo(word, other)}
        return near.pop() if len(near) == 1 else None


def _without_one_letter(word: str) -> list[str]:
    return [word[:index] + word[index + 1 :] for index in range(1, len(word))]


def _is_typo(a: str, b: str) -> bool:
    if len(a) != len(b):
        return abs(len(a) - len(b)) == 1
    apart = [index for index in range(len(a)) if a[index] != b[index]]
    if len(apart) == 2 and apart[1] == apart[0] + 1:
        return a[apart[0]] == b[apart[1]] and a[apart[1]] == b[apart[0]]
    # Endings decide meaning ("inflated", "inflates"): a change of the last letter is not a typing error.
    return len(apart) == 1 and apart[0] < len(a) - 1

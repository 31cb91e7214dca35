"""Text into words, as each published metric does it.

| function | case | punctuation | who |
|---|---|---|---|
| `coco_words` | lower | marks of prose split off, the rest stays in the word | the `:coco` metrics |
| `words_13a` | kept | split off as in the 13a script | the `:sacre` metrics |
| `stems` | lower | removed, words of more than three letters stemmed | the `:google` metrics |
| `letters` | lower | removed | the `:google-unstemmed` metrics |

No rule looks across white space, so a text is split there first and each distinct piece is processed once. The words
of a text are cached too: several metrics, and several candidates for one reference, use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import chain
from typing import Generic, TypeVar

Piece = TypeVar("Piece", str, bytes)
Parts = TypeVar("Parts")
_TEXTS = 1 << 14  # texts whose words are cached
_PIECES = 1 << 16  # distinct pieces that are cached

# A run of one mark is one word ("..." stays whole). A point or comma between digits, and a point that opens
# a number, belong to the number. Hyphens, slashes, apostrophes, per cent signs and angle brackets stay in the word, as
# in corpora that are already tokenised.
_MARK = re.compile(r"""(?<=\d)[.,](?=\d) | ^\.(?=\d) | (([.,;:!?()\[\]{}"“”…—])\2*)""", re.VERBOSE)
# What each byte becomes: letters lower case, digits themselves, everything else a space.
_LETTERS = bytes(ord(c.lower()) if c.isascii() and c.isalnum() else ord(" ") for c in map(chr, range(256)))

# 13a: every ASCII mark but the apostrophe, comma, hyphen and point stands alone; points and commas do unless
# they are inside a number; a hyphen does after a digit.
_ALONE_13A = re.compile(r"([!-&(-+/:-@\[-`{-~])")
_POINT_AFTER_13A = re.compile(r"([^0-9])([.,])")
_POINT_BEFORE_13A = re.compile(r"([.,])([^0-9])")
_HYPHEN_13A = re.compile(r"([0-9])-")
_ENTITIES_13A = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))


class _Known(dict[Piece, Parts], Generic[Piece, Parts]):
    """Piece of text → its parts, computed once; emptied when full."""

    def __init__(self, part: Callable[[Piece], Parts]) -> None:
        super().__init__()
        self._part: Callable[[Piece], Parts] = part

    def __missing__(self, piece: Piece) -> Parts:
        if len(self) >= _PIECES:
            self.clear()
        parts = self[piece] = self._part(piece)
        return parts


@lru_cache(_TEXTS)
def coco_words(text: str) -> tuple[str, ...]:
    """Words and marks of the lower-cased text.

    Text that is already in lower case and split is cut at every single space: two spaces in a row leave an empty word
    between them, so that scores equal the published ROUGE-L to the last digit. Text without a word has none.
    """
    words = tuple(chain.from_iterable(map(_PROSE.__getitem__, text.split())))
    at_spaces = tuple(text.split(" "))
    return at_spaces if words and tuple(filter(None, at_spaces)) == words else words


@lru_cache(_TEXTS)
def words_13a(text: str) -> tuple[str, ...]:
    """Words as the 13a script splits them, case kept."""
    line = text.rstrip().replace("<skipped>", "").replace("-\n", "")
    return tuple(chain.from_iterable(map(_13A.__getitem__, line.split())))


@lru_cache(_TEXTS)
def stems(text: str) -> tuple[str, ...]:
    """`letters`; those of more than three letters are stemmed."""
    return tuple(map(_STEMS.__getitem__, _runs(text)))


@lru_cache(_TEXTS)
def letters(text: str) -> tuple[str, ...]:
    """Runs of `a-z0-9` of the lower-cased text."""
    return tuple(run.decode() for run in _runs(text))


def _runs(text: str) -> list[bytes]:
    plain = text if text.isascii() else text.lower()  # some signs are letters a-z in lower case
    return plain.encode("ascii", "replace").translate(_LETTERS).split()


def _prose(piece: str) -> tuple[str, ...]:
    return tuple(_MARK.sub(lambda found: f" {found[1]} " if found[1] else found[0], piece.lower()).split())


def _13a(piece: str) -> tuple[str, ...]:
    for entity, mark in _ENTITIES_13A:
        piece = piece.replace(entity, mark)
    piece = _ALONE_13A.sub(r" \1 ", f" {piece} ")
    piece = _POINT_AFTER_13A.sub(r"\1 \2 ", piece)
    piece = _POINT_BEFORE_13A.sub(r" \1 \2", piece)
    return tuple(_HYPHEN_13A.sub(r"\1 - ", piece).split())


def _stem(word: bytes) -> str:
    return stem(word.decode()) if len(word) > 3 else word.decode()


_PROSE, _13A, _STEMS = _Known(_prose), _Known(_13a), _Known(_stem)


# Irregular forms.
_WHOLE = {
    "sky": "sky", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
    "inning": "inning", "innings": "inning", "outing": "outing", "outings": "outing",
    "canning": "canning", "cannings": "canning",
    "howe": "howe", "proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip
_PLURAL = (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", ""))
# Where one ending is the end of another, the longer comes first.
_LONG = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful"),
)  # fmt: skip
_MIDDLE = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_SHORT = tuple(
    (ending, "") for ending in "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize".split()
)


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case word by Porter's steps; words of one or two letters are left whole."""
    if word in _WHOLE:
        return _WHOLE[word]
    if len(word) <= 2:
        return word
    if len(word) == 4 and word.endswith("ies"):
        word = word[:-1]  # dies → die, flies → fli
    else:
        word = _replace(word, _PLURAL, measure=0)
    word = _strip_past(word)
    if word.endswith("y") and len(word) > 2 and _pattern(word)[-2] == "c":
        word = word[:-1] + "i"
    while word.endswith("alli") and _measure(word[:-4]):
        word = word[:-2]  # radicalli → radical, and again through the table
    if word.endswith("logi"):
        word = word[:-1] if _measure(word[:-3]) else word  # the l counts: geologi → geolog
    else:
        word = _replace(word, _LONG, measure=1)
    word = _replace(word, _MIDDLE, measure=1)
    word = _replace(word, _SHORT, measure=2)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _is_closed(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _pattern(word: str) -> str:
    """One `c` or `v` per letter; a `y` is a vowel after a consonant, digits are consonants."""
    pattern: list[str] = []
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and pattern[-1:] == ["c"])
        pattern.append("v" if vowel else "c")
    return "".join(pattern)


def _measure(word: str) -> int:
    return _pattern(word).count("vc")


def _is_closed(word: str) -> bool:
    """Ends consonant, vowel, consonant other than w, x, y (`hop`), or is vowel and consonant alone (`at`)."""
    pattern = _pattern(word)
    return pattern == "vc" or (pattern.endswith("cvc") and word[-1] not in "wxy")


def _replace(word: str, endings: Iterable[tuple[str, str]], measure: int) -> str:
    """The first ending that fits is replaced if what stands before it has at least this measure."""
    for ending, other in endings:
        if word.endswith(ending):
            before = word[: -len(ending)]
            enough = _measure(before) >= measure and (ending != "ion" or before[-1] in "st")
            return before + other if enough else word
    return word


def _strip_past(word: str) -> str:
    """Without `ed` or `ing`, and with its own ending again: sized → siz → size, hopping → hopp → hop."""
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    stripped = next(
        (word[: -len(e)] for e in ("ed", "ing") if word.endswith(e) and "v" in _pattern(word[: -len(e)])), ""
    )
    if not stripped:
        return word
    if stripped.endswith(("at", "bl", "iz")):
        return stripped + "e"
    if len(stripped) > 1 and stripped[-1] == stripped[-2] and _pattern(stripped)[-1] == "c":
        return stripped if stripped[-1] in "lsz" else stripped[:-1]
    return stripped + "e" if _measure(stripped) == 1 and _is_closed(stripped) else stripped

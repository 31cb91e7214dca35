"""Text into words, as each published metric does it: what counts as a word decides the number.

| function | case | punctuation | who |
|---|---|---|---|
| `coco_words` | lower | marks of prose split off, the rest stays in the word | the `:coco` metrics |
| `words_13a` | kept | split off as in the 13a script | `bleu4:sacre` |
| `stems` | lower | thrown away, words of more than three letters stemmed | the `:google` metrics |

No rule looks across white space, so a text is cut there first and each piece, most of which come
again and again, is taken apart once. The words of a text are remembered too: several metrics and
several candidates for one reference ask for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Generic, TypeVar

from cxrlab.metrics.porter import stem

Piece = TypeVar("Piece", str, bytes)
Parts = TypeVar("Parts")
_TEXTS = 1 << 14  # texts whose words are remembered
_PIECES = 1 << 16  # distinct pieces that are remembered

# A run of one mark is one word ("..." stays whole). A point or comma between digits, and a point that opens
# a number, belong to the number. Hyphens, slashes, apostrophes, per cent signs and angle brackets stay in the
# word: collections that come with their words already apart use them so.
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
    """Piece of text → what it is made of, worked out once; starts afresh when full."""

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

    Text that is in lower case and split at spaces already is cut at every single space: two spaces in
    a row leave an empty word between them, as in the published ROUGE-L, whose scores of such text then
    come out to the last digit. Text without a word has none, not one that is empty.
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
    """Runs of `a-z0-9` of the lower-cased text; those of more than three letters are stemmed."""
    plain = text if text.isascii() else text.lower()  # some signs are letters a-z in lower case
    return tuple(map(_STEMS.__getitem__, plain.encode("ascii", "replace").translate(_LETTERS).split()))


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

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

from cxrlab.metrics.porter import stem

_TEXTS = 1 << 14  # texts whose words are remembered
_PIECES = 1 << 16  # distinct pieces that are remembered

# A run of one mark is one word ("..." stays whole). A point or comma between digits, and a point that opens
# a number, belong to the number. Hyphens, slashes, apostrophes, per cent signs and angle brackets stay in the
# word: collections that come with their words already apart use them so.
_MARK = re.compile(r"""(?<=\d)[.,](?=\d) | ^\.(?=\d) | (([.,;:!?()\[\]{}"“”…—])\2*)""", re.VERBOSE)
_WORD = re.compile(r"[a-z0-9]+")

# 13a: every ASCII mark but the apostrophe, comma, hyphen and point stands alone; points and commas do unless
# they are inside a number; a hyphen does after a digit.
_ALONE_13A = re.compile(r"([!-&(-+/:-@\[-`{-~])")
_POINT_AFTER_13A = re.compile(r"([^0-9])([.,])")
_POINT_BEFORE_13A = re.compile(r"([.,])([^0-9])")
_HYPHEN_13A = re.compile(r"([0-9])-")
_ENTITIES_13A = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))


class _Pieces(dict[str, tuple[str, ...]]):
    """Piece of text → its words; starts afresh when full."""

    def __init__(self, part: Callable[[str], tuple[str, ...]]) -> None:
        super().__init__()
        self._part = part

    def __missing__(self, piece: str) -> tuple[str, ...]:
        if len(self) >= _PIECES:
            self.clear()
        words = self[piece] = self._part(piece)
        return words

    def words(self, text: str) -> tuple[str, ...]:
        """Words of all pieces of a text."""
        return tuple(chain.from_iterable(map(self.__getitem__, text.split())))


@lru_cache(_TEXTS)
def coco_words(text: str) -> tuple[str, ...]:
    """Words and marks of the lower-cased text.

    Text that is in lower case and split at spaces already is cut at every single space: two spaces in
    a row leave an empty word between them, as in the published ROUGE-L, whose scores of such text then
    come out to the last digit. Text without a word has none, not one that is empty.
    """
    words, at_spaces = _PROSE.words(text), tuple(text.split(" "))
    return at_spaces if words and tuple(filter(None, at_spaces)) == words else words


@lru_cache(_TEXTS)
def words_13a(text: str) -> tuple[str, ...]:
    """Words as the 13a script splits them, case kept."""
    return _13A.words(text.rstrip().replace("<skipped>", "").replace("-\n", ""))


@lru_cache(_TEXTS)
def stems(text: str) -> tuple[str, ...]:
    """Runs of `a-z0-9` of the lower-cased text; those of more than three letters are stemmed."""
    return _STEMS.words(text)


def _prose(piece: str) -> tuple[str, ...]:
    return tuple(_MARK.sub(lambda found: f" {found[1]} " if found[1] else found[0], piece.lower()).split())


def _13a(piece: str) -> tuple[str, ...]:
    for entity, mark in _ENTITIES_13A:
        piece = piece.replace(entity, mark)
    piece = _ALONE_13A.sub(r" \1 ", f" {piece} ")
    piece = _POINT_AFTER_13A.sub(r"\1 \2 ", piece)
    piece = _POINT_BEFORE_13A.sub(r" \1 \2", piece)
    return tuple(_HYPHEN_13A.sub(r"\1 - ", piece).split())


def _stems(piece: str) -> tuple[str, ...]:
    return tuple(stem(word) if len(word) > 3 else word for word in _WORD.findall(piece.lower()))


_PROSE, _13A, _STEMS = _Pieces(_prose), _Pieces(_13a), _Pieces(_stems)

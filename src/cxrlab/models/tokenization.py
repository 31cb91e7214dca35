"""Tokenize text of users and corpora, in which special tokens stay plain text.

`escape` puts an invisible break into everything that the tokenizer would read as a special token, so that the text can
pass a chat template and a processor. `token_ids` makes the tokenizer remove the break after it has looked for special
tokens; all other tokens stay the same.
"""

from __future__ import annotations

import copy
import json
import re
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cxrlab.core.out_of_memory import BatchSize

if TYPE_CHECKING:
    from torch import Tensor

BREAK = "\ufdd0"  # a noncharacter of Unicode
# Characters that mark an added token as a special token rather than a word.
_MARK = re.compile(r"[<>\[\]{}|@#~^\\]|__")
# Temporary placeholders of image tokens in processors of transformers.
_TEMPORARY = ("<placeholder>", "<|placeholder|>", "<|image_placeholder|>", "<|video_placeholder|>")


@dataclass(frozen=True, eq=False)
class _Marks:
    """The special tokens of a tokenizer and other tokens like them ("marks")."""

    size: int  # number of tokens of the tokenizer, to notice added ones
    pattern: re.Pattern[str]  # matches the marks in a text, the longest first
    ids: frozenset[int]  # their ids
    source: Any  # the tokenizer of the `tokenizers` library inside, if any
    # Matches, in normalised text, the marks that are looked for after normalisation; None if there are none.
    late: re.Pattern[str] | None

    @cached_property
    def backend(self) -> Any:
        """A tokenizer whose normaliser first removes every break; all marks are looked for before that."""
        from tokenizers import Tokenizer

        settings = json.loads(self.source.to_str())
        removal = {"type": "Replace", "pattern": {"String": BREAK}, "content": ""}
        steps = [removal, *([settings["normalizer"]] if settings["normalizer"] else [])]
        for token in settings["added_tokens"]:
            token["normalized"] = token["normalized"] and token["id"] not in self.ids
        return Tokenizer.from_str(json.dumps({**settings, "normalizer": {"type": "Sequence", "normalizers": steps}}))


_known: weakref.WeakKeyDictionary[Any, _Marks] = weakref.WeakKeyDictionary()


def escape(tokenizer: Any, text: str) -> str:
    """The text with a break inside everything that the tokenizer would read as a special token.

    Words that were added to a vocabulary ('effusion') stay unchanged. A break in the text itself becomes U+FFFD.

    >>> escape(tokenizer, "tube <image> seen").replace(BREAK, "·")  # doctest: +SKIP
    'tube <·image> seen'
    """
    marks = _marks(tokenizer)
    text = text.replace(BREAK, "\ufffd")
    while marks.pattern.search(text):  # again, since a break in one may leave another
        text = marks.pattern.sub(lambda found: f"{found[0][0]}{BREAK}{found[0][1:]}", text)
    if marks.late and marks.late.search(marks.source.normalizer.normalize_str(text)):
        text = BREAK.join(text.replace(BREAK, ""))  # a mark in other characters, such as '＜image＞'
    return text


def user_ids(tokenizer: Any, texts: Sequence[str], **settings: Any) -> list[list[int]]:
    """Token ids of texts of users or corpora, without special tokens in them; `settings` are for the tokenizer's call."""
    return token_ids(tokenizer, [escape(tokenizer, text) for text in texts], **settings)


def token_ids(tokenizer: Any, texts: Sequence[str], **settings: Any) -> list[list[int]]:
    """Token ids of texts with escaped text among special tokens of a template; see `without_breaks`."""
    escaped = {place: without_breaks(tokenizer, text) for place, text in enumerate(texts) if BREAK in text}
    # Together, so that the tokenizer uses all cores; escaped texts are replaced below.
    plain = ["" if place in escaped else text for place, text in enumerate(texts)]
    found: list[list[int]] = list(tokenizer(plain, **settings)["input_ids"]) if texts else []
    for place, (reader, text) in escaped.items():
        found[place] = list(reader(text, **settings)["input_ids"])
    return found


def without_breaks(tokenizer: Any, text: str) -> tuple[Any, str]:
    """A tokenizer and its input for a text with escaped text among special tokens of a template.

    The tokenizer ignores breaks, so that `</s>` in user text is tokenized like any characters. If it cannot (it is not
    of the `tokenizers` library, or its vocabulary also has the special token as a word), a space replaces the break.
    """
    spaced, marks = text.replace(BREAK, " "), _marks(tokenizer)
    if BREAK not in text or marks.source is None:
        return tokenizer, spaced
    reader = copy.copy(tokenizer)
    reader._tokenizer = marks.backend
    # Only the template's marks may be left: a vocabulary with `</s>` as a word would still produce the user's.
    unknown = tokenizer.unk_token_id
    cut = (by(given, add_special_tokens=False)["input_ids"] for by, given in ((reader, text), (tokenizer, spaced)))
    left, wanted = ([one for one in ids if one in marks.ids] for ids in cut)
    same = [one for one in left if one != unknown] == [one for one in wanted if one != unknown]
    return (reader, text) if same and left.count(unknown) <= wanted.count(unknown) else (tokenizer, spaced)


def find_marks(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """Characters [start, end) of everything in a text that the tokenizer would read as a special token."""
    return [found.span() for found in _marks(tokenizer).pattern.finditer(text)]


def _marks(tokenizer: Any) -> _Marks:
    """The marks of a tokenizer, cached until tokens are added to it."""
    if tokenizer not in _known or _known[tokenizer].size != len(tokenizer):
        added = tokenizer.get_added_vocab()
        flags = getattr(tokenizer, "added_tokens_decoder", {})
        special = {str(token) for token in tokenizer.all_special_tokens}
        special |= {str(token) for token in flags.values() if token.special}
        names = {token.strip() for token in (*special, *filter(_MARK.search, added), *_TEMPORARY)}
        # Some tokenizers add white space and single characters as ordinary words.
        names = {name for name in names if len(name) > 1}
        ids = frozenset(number for token, number in added.items() if token.strip() in names)
        source = getattr(tokenizer, "_tokenizer", None)
        normalise = getattr(getattr(source, "normalizer", None), "normalize_str", str)
        late = {normalise(str(flags[one])).strip() for one in ids & {*flags} if flags[one].normalized} - {""}

        def any_of(names: set[str]) -> re.Pattern[str]:
            return re.compile("|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name)))))

        normalised = any_of(late) if late and normalise is not str else None
        _known[tokenizer] = _Marks(len(tokenizer), any_of(names), ids, source, normalised)
    return _known[tokenizer]


@dataclass(frozen=True, eq=False)
class TextBatch:
    """A batch of texts."""

    rows: tuple[int, ...]  # index of each text in the caller's list, [B]
    ids: Tensor  # token ids [B, T], padded at the end
    mask: Tensor  # [B, T], 1 for tokens and 0 for padding


def in_batches(token_ids: Sequence[Sequence[int]], pad: int, size: BatchSize, run: Callable[[TextBatch], None]) -> None:
    """Call `run` on each batch, longest texts first, so that memory runs out at once if at all; skips empty texts."""
    import torch

    def run_rows(rows: Sequence[int]) -> tuple[()]:
        longest = len(token_ids[rows[0]])
        ids = torch.full((len(rows), longest), pad, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for place, row in enumerate(rows):
            length = len(token_ids[row])
            ids[place, :length] = torch.tensor(token_ids[row], dtype=torch.long)
            mask[place, :length] = 1
        run(TextBatch(tuple(rows), ids, mask))
        return ()

    filled = [row for row, ids in enumerate(token_ids) if ids]
    size.map(sorted(filled, key=lambda row: -len(token_ids[row])), run_rows)

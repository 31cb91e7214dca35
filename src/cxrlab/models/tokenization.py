"""Text of users and corpora as token ids: a special token typed in it stays text, whatever the tokenizer.

Everything that the tokenizer would read as a special token is escaped by an invisible break (`escape`). The text can
then pass a chat template and a processor, which see no special token but their own. `token_ids` makes
the tokenizer drop the break after it has looked for special tokens and before it cuts words: every other token is the
same as ever.
"""

from __future__ import annotations

import copy
import json
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cxrlab.core.memory import BatchSize

if TYPE_CHECKING:
    from torch import Tensor

BREAK = "\ufdd0"  # Unicode assigns it to no character, ever
# Signs by which an added token that is not called special is known for a mark and not for a word.
_MARK = re.compile(r"[<>\[\]{}|@#~^\\]|__")
# Processors of transformers write these for a moment where an image token will stand.
_TEMPORARY = ("<placeholder>", "<|placeholder|>", "<|image_placeholder|>", "<|video_placeholder|>")


@dataclass(frozen=True, eq=False)
class _Marks:
    """What a tokenizer takes for something else than its own characters.

    Args:
        size: Tokens that the tokenizer had.
        pattern: Finds them in a text, the longest first.
        ids: Their ids.
        source: The tokenizer of the `tokenizers` library inside; None where there is none.
        late: Finds those that are looked for after the text was normalised, normalised as the text is; None without.
    """

    size: int
    pattern: re.Pattern[str]
    ids: frozenset[int]
    source: Any
    late: re.Pattern[str] | None

    @cached_property
    def backend(self) -> Any:
        """The tokenizer inside, with one step more: it removes every break before all other steps.

        Marks are looked for before that in the text as it was written, also those that were looked for after it.
        """
        from tokenizers import Tokenizer

        told = json.loads(self.source.to_str())
        removal = {"type": "Replace", "pattern": {"String": BREAK}, "content": ""}
        steps = [removal, *([told["normalizer"]] if told["normalizer"] else [])]
        for token in told["added_tokens"]:
            token["normalized"] = token["normalized"] and token["id"] not in self.ids
        return Tokenizer.from_str(json.dumps({**told, "normalizer": {"type": "Sequence", "normalizers": steps}}))


_known: weakref.WeakKeyDictionary[Any, _Marks] = weakref.WeakKeyDictionary()


def escape(tokenizer: Any, text: str) -> str:
    """The text with a break inside everything that the tokenizer would read as a special token or another mark.

    Words that were added to a vocabulary ('effusion') mean what they say and stay. Text without such marks is returned
    as it is; a break that somebody typed is replaced by U+FFFD.

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
    """Token ids of texts that users or corpora wrote, none of them read as a special token.

    Args:
        tokenizer: Of transformers.
        texts: Any texts.
        settings: Of the tokenizer's call, such as `truncation=True, max_length=512`.
    """
    return token_ids(tokenizer, [escape(tokenizer, text) for text in texts], **settings)


def token_ids(tokenizer: Any, texts: Sequence[str], **settings: Any) -> list[list[int]]:
    """Token ids of texts in which escaped words stand among special tokens of a template; see `without_breaks`."""
    escaped = {place: without_breaks(tokenizer, text) for place, text in enumerate(texts) if BREAK in text}
    # Together, so that the tokenizer uses all cores; what stands in the place of an escaped text is not used.
    plain = ["" if place in escaped else text for place, text in enumerate(texts)]
    found: list[list[int]] = list(tokenizer(plain, **settings)["input_ids"]) if texts else []
    for place, (reader, text) in escaped.items():
        found[place] = list(reader(text, **settings)["input_ids"])
    return found


def without_breaks(tokenizer: Any, text: str) -> tuple[Any, str]:
    """A tokenizer, and what to give it, for a text in which escaped words may stand among special tokens of a template.

    The tokenizer reads each break as nothing, so that `</s>` in words of a user is cut like any characters. Where it
    cannot (it is not one of the `tokenizers` library, or its vocabulary holds the special token as a word too), a space
    stands in the place of the break: `< /s>`.
    """
    spaced, marks = text.replace(BREAK, " "), _marks(tokenizer)
    if BREAK not in text or marks.source is None:
        return tokenizer, spaced
    reader = copy.copy(tokenizer)
    reader._tokenizer = marks.backend
    # What is left are the template's: a vocabulary that holds `</s>` as a word too would still write the user's.
    unknown = tokenizer.unk_token_id
    cut = (by(given, add_special_tokens=False)["input_ids"] for by, given in ((reader, text), (tokenizer, spaced)))
    left, wanted = ([one for one in ids if one in marks.ids] for ids in cut)
    same = [one for one in left if one != unknown] == [one for one in wanted if one != unknown]
    return (reader, text) if same and left.count(unknown) <= wanted.count(unknown) else (tokenizer, spaced)


def find_marks(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """Characters [start, end) of everything in a text that the tokenizer would read as a special token or a mark."""
    return [found.span() for found in _marks(tokenizer).pattern.finditer(text)]


def _marks(tokenizer: Any) -> _Marks:
    """Found once for each tokenizer, and anew when tokens were added to it."""
    if tokenizer not in _known or _known[tokenizer].size != len(tokenizer):
        added = tokenizer.get_added_vocab()
        flags = getattr(tokenizer, "added_tokens_decoder", {})
        special = {str(token) for token in tokenizer.all_special_tokens}
        special |= {str(token) for token in flags.values() if token.special}
        names = {token.strip() for token in (*special, *filter(_MARK.search, added), *_TEMPORARY)}
        # Runs of white space and single characters are added by some tokenizers as ordinary words.
        names = {name for name in names if len(name) > 1}
        ids = frozenset(number for token, number in added.items() if token.strip() in names)
        source = getattr(tokenizer, "_tokenizer", None)
        normalise = getattr(getattr(source, "normalizer", None), "normalize_str", str)
        late = {normalise(str(flags[one])).strip() for one in ids & {*flags} if flags[one].normalized} - {""}
        normalised = _any_of(late) if late and normalise is not str else None
        _known[tokenizer] = _Marks(len(tokenizer), _any_of(names), ids, source, normalised)
    return _known[tokenizer]


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    """Finds each of these, the longest first."""
    return re.compile("|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name)))))


@dataclass(frozen=True, eq=False)
class TextBatch:
    """Texts that go through a model together.

    Args:
        rows: Where each text stands in the caller's list, [B].
        ids: Token ids [B, T], padded at the end.
        mask: [B, T], 1 for tokens and 0 for padding.
    """

    rows: tuple[int, ...]
    ids: Tensor
    mask: Tensor


def in_batches(token_ids: Sequence[Sequence[int]], pad: int, size: BatchSize, run: Callable[[TextBatch], None]) -> None:
    """`run` on batch after batch, longest texts first, so that running out of memory is known at once.

    A text without a token (not even a special one) is in no batch.
    """
    filled = [row for row, ids in enumerate(token_ids) if ids]

    def ran(rows: Sequence[int]) -> tuple[()]:
        run(_batch(token_ids, pad, tuple(rows)))
        return ()

    size.map(sorted(filled, key=lambda row: -len(token_ids[row])), ran)


def _batch(token_ids: Sequence[Sequence[int]], pad: int, rows: tuple[int, ...]) -> TextBatch:
    import torch

    longest = len(token_ids[rows[0]])
    ids = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        length = len(token_ids[row])
        ids[place, :length] = torch.tensor(token_ids[row], dtype=torch.long)
        mask[place, :length] = 1
    return TextBatch(rows, ids, mask)

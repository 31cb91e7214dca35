"""Which characters of a report each of its tokens writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.records import Span
from cxrlab.models.hf.prompting import report_ids


@dataclass(frozen=True)
class TokenText:
    """Tokens and the text that they write together.

    Args:
        text: What a person reads, without special tokens and without blanks at its ends.
        spans: Characters [start, end) of each token; empty for a special token and for one that writes only a blank
            at an end.
    """

    text: str
    spans: tuple[Span, ...]

    def tokens_of(self, spans: Sequence[Span]) -> tuple[int, ...]:
        """Indices of the tokens that write any character of these spans, in order; at least one."""
        chosen = tuple(
            number
            for number, (low, high) in enumerate(self.spans)
            if any(max(low, start) < min(high, end) for start, end in spans)
        )
        if not chosen:
            raise ValueError(f"no token writes any of the characters {list(spans)}")
        return chosen


def token_text(tokenizer: Any, ids: Sequence[int]) -> TokenText:
    """The text of these tokens with the characters of each.

    The beginnings of the token list are decoded one after the other: a tokenizer may write a blank, or the
    rest of a character that the token before began, only when it sees what follows.
    """
    ends = []
    for count in range(1, len(ids) + 1):
        # Half a character is shown by a mark of its own; it belongs to the token that completes it.
        ends.append(len(_decode(tokenizer, ids[:count]).rstrip("\ufffd")))
    whole = _decode(tokenizer, ids)
    before = len(whole) - len(whole.lstrip())
    text = whole.strip()
    spans, start = [], 0
    for end in ends:
        place = min(max(end - before, start), len(text))
        spans.append((start, place))
        start = place
    return TokenText(text, tuple(spans))


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def written_text(processor: Any, report: str) -> str:
    """A report as its own tokens write it: what spans of its words count in.

    Most tokenizers write every report back as it is; some fold odd spaces or signs.
    """
    return token_text(processor.tokenizer, report_ids(processor, report)).text

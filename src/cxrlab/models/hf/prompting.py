"""How an image, a prompt and a report stand in one text: the one rule that training and inference share.

A processor with a chat template writes the user's turn, with the image in front of the words; the
report is the assistant's turn. A processor without one gets `<image>`, a line break and the prompt, and the report
follows after a space. Words of people never become special tokens: `<image>` typed in an indication is text.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.records import Span
from cxrlab.models.hf.families import find_family_of_processor
from cxrlab.models.tokenization import escape, find_marks, token_ids

# In front of a report when its tokens are cut: a report's tokens must not depend on the prompt that came before.
_ANCHOR = "image."
_PROBE = "unremarkable"
# Templates that write today's date are given this one: a model must not answer otherwise tomorrow.
_DAY, _SIGNS = datetime(2024, 7, 26), ("-d", *"aAbBcdHIjmMpSxXyYZ")


@dataclass(frozen=True)
class PromptFormat:
    """Where things stand in the text of one processor.

    Args:
        image: Placeholder of an image, written in front of the prompt; empty for a chat template, which places it.
        space: Between prompt and report: a space, or nothing where the prompt ends in white space or a marker.
        end: Id of the token that ends a report.
        anchor: Stands in front of a report when it is cut into tokens; see `report_ids`.
        anchor_ids: Its tokens.
    """

    image: str
    space: str
    end: int
    anchor: str
    anchor_ids: tuple[int, ...]


_forms: weakref.WeakKeyDictionary[Any, PromptFormat] = weakref.WeakKeyDictionary()


def prompt_format(processor: Any) -> PromptFormat:
    """The form of a processor's texts, found once."""
    if processor not in _forms:
        _forms[processor] = _chat_form(processor) if _has_template(processor) else _plain_form(processor)
    return _forms[processor]


def prompt_text(processor: Any, prompt: str, told: str | None = None) -> str:
    """What the processor is given beside an image: placeholder and prompt, ready for the report to follow.

    Args:
        processor: With a tokenizer, and a chat template or an image token.
        prompt: Plain words; special tokens in them are escaped, see `user_text`. May be empty: the image alone.
        told: Words that stand in the place of the image; there is then no placeholder.
    """
    words = escape(processor.tokenizer, prompt)
    instead = None if told is None else f"{escape(processor.tokenizer, told)}\n"
    if not _has_template(processor):
        return f"{prompt_format(processor).image if instead is None else instead}{words}"
    return _rendered(processor, [_user(words, instead)], add_generation_prompt=True)


def report_text(processor: Any, report: str) -> str:
    """A report as it follows the prompt, without its end token; white space at its ends is dropped."""
    return prompt_format(processor).space + escape(processor.tokenizer, report.strip())


def report_ids(processor: Any, report: str) -> list[int]:
    """Tokens of a report in its place after any prompt, end token last; at least the end token."""
    return all_report_ids(processor, [report])[0]


def all_report_ids(processor: Any, reports: Sequence[str]) -> list[list[int]]:
    """`report_ids` of many reports, cut by the tokenizer together: many times as fast on several cores."""
    form, tokenizer = prompt_format(processor), processor.tokenizer
    texts = [report_text(processor, report) for report in reports]
    seam = len(form.anchor_ids)
    found: list[list[int]] = []
    for text, whole in zip(texts, _cut(tokenizer, [form.anchor + text for text in texts]), strict=True):
        if not text.strip():
            found.append([form.end])
            continue
        own = whole[seam:]
        if tuple(whole[:seam]) != form.anchor_ids:  # a tokenizer that joins across the seam: the report is cut alone
            own = _cut(tokenizer, [text])[0]
        found.append([*own, form.end])
    return found


def _cut(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return token_ids(tokenizer, texts, add_special_tokens=False)


def end_tokens(processor: Any, model: Any = None) -> list[int]:
    """Ids at which an answer ends: the report's own end token first, then those of the model's settings."""
    found = [prompt_format(processor).end]
    told = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    for token in [told] if isinstance(told, int) else list(told or ()):
        if token not in found:
            found.append(int(token))
    return found


def _has_template(processor: Any) -> bool:
    return bool(getattr(processor, "chat_template", None))


def _plain_form(processor: Any) -> PromptFormat:
    token = getattr(processor, "image_token", None)
    if not token:
        raise ConfigError(
            f"{type(processor).__name__} has neither a chat template nor an image token, so an image has no place in its "
            "text; give the checkpoint a chat_template.jinja."
        )
    family = find_family_of_processor(processor)
    return _form(processor, f"{token}{family.image_suffix}", family.prompt_separator, _plain_end(processor))


def _form(processor: Any, image: str, space: str, end: int) -> PromptFormat:
    anchor = _ANCHOR if space else "\n"
    ids = _cut(processor.tokenizer, [anchor])[0]
    return PromptFormat(image, space, end, anchor, tuple(ids))


def _plain_end(processor: Any) -> int:
    end = processor.tokenizer.eos_token_id
    if end is None:
        raise DataError("the tokenizer has no end token, so a report would never end; set eos_token in its config.")
    return int(end)


def _chat_form(processor: Any) -> PromptFormat:
    """Space and end token as the template itself writes them around an assistant's turn."""
    tokenizer, asked = processor.tokenizer, [_user("Findings?")]
    answered = [*asked, {"role": "assistant", "content": [{"type": "text", "text": _PROBE}]}]
    before = _rendered(processor, asked, add_generation_prompt=True)
    try:
        lead, _, after = _rendered(processor, answered, add_generation_prompt=False).partition(_PROBE)
    except ConfigError:  # a template that writes the user's turn alone
        lead, after = "", ""
    ids = _cut(tokenizer, [after.strip()])[0] if after.strip() else []
    special = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
    end = int(ids[0]) if ids and ids[0] in special else _plain_end(processor)
    gap = lead.removeprefix(before)
    if lead.startswith(before) and not gap.strip():
        return _form(processor, "", gap, end)
    closed = before[-1:].isspace() or len(before) in {end for _, end in find_marks(tokenizer, before)}
    return _form(processor, "", "" if closed else " ", end)


def _user(words: str, instead: str | None = None) -> dict[str, Any]:
    if instead is not None:
        return {"role": "user", "content": [{"type": "text", "text": instead + words}]}
    content: list[dict[str, str]] = [{"type": "image"}]
    return {"role": "user", "content": [*content, {"type": "text", "text": words}] if words else content}


def dated(template: Any) -> dict[str, str]:
    """The template with one day for all days, where it writes the date; nothing where it does not."""
    named = template.get("default") if isinstance(template, dict) else template
    if "strftime_now" not in (named or ""):
        return {}
    known = "".join(f"|replace('%{sign}', '{_DAY.strftime(f'%{sign}')}')" for sign in _SIGNS)
    return {"chat_template": f"{{%- macro strftime_now(form) -%}}{{{{ form{known} }}}}{{%- endmacro -%}}{named}"}


def _rendered(processor: Any, turns: list[dict[str, Any]], *, add_generation_prompt: bool) -> str:
    whole = dated(processor.chat_template)
    try:
        text: str = processor.apply_chat_template(
            turns, add_generation_prompt=add_generation_prompt, tokenize=False, **whole
        )
    except Exception as error:  # a template is a program of the checkpoint's author: anything may be raised in it
        raise ConfigError(
            f"the chat template of {type(processor).__name__} fails on an image with a prompt "
            f"({str(error).partition(chr(10))[0]}); mend chat_template.jinja of the checkpoint."
        ) from error
    return text


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

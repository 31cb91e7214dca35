"""The text of image, prompt and report, shared by training and inference.

With a chat template, image and prompt are the user's turn and the report is the assistant's. Without one, the text is
`<image>`, a line break and the prompt, if there is one, a space and the report. User text never becomes special tokens.
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

_ANCHOR = "image."  # before a report when it is tokenized, so that its tokens do not depend on the prompt
_PROBE = "unremarkable"
# The date for templates that write today's: answers must not depend on the day.
_DAY, _SIGNS = datetime(2024, 7, 26), ("-d", *"aAbBcdHIjmMpSxXyYZ")


@dataclass(frozen=True)
class PromptFormat:
    """Text format of one processor.

    Args:
        template: Its chat template; None if it has none.
        image: Placeholder of the image; empty for a chat template, which places the image.
        gap: Between image and prompt.
        space: Between prompt and report: a space, or nothing if the prompt ends in white space or a special token.
        end: Id of the token that ends a report.
        anchor: Text before a report when it is tokenized; see `report_ids`.
        anchor_ids: Its tokens.
    """

    template: Any
    image: str
    gap: str
    space: str
    end: int
    anchor: str
    anchor_ids: tuple[int, ...]


_forms: weakref.WeakKeyDictionary[Any, PromptFormat] = weakref.WeakKeyDictionary()


def prompt_format(processor: Any) -> PromptFormat:
    """The text format of a processor, found once for each chat template that it is given."""
    template = chat_template(processor)
    known = _forms.get(processor)
    if known is None or known.template != template:
        if template is None:
            image, gap, space, end = _plain_format(processor)
        else:
            image, gap, (space, end) = "", "", _chat_format(processor)
        anchor = _ANCHOR if space else "\n"
        ids = _tokenize(processor.tokenizer, [anchor])[0]
        known = _forms[processor] = PromptFormat(template, image, gap, space, end, anchor, tuple(ids))
    return known


def prompt_text(processor: Any, prompt: str, image_replacement: str | None = None, images: int = 1) -> str:
    """The processor's text for one or several images and a prompt, ready for the report to follow.

    Args:
        prompt: Plain text, in which special tokens are escaped; may be empty.
        image_replacement: Text in place of the image; there is then no placeholder.
        images: Number of images; their placeholders come before the prompt.
    """
    words = escape(processor.tokenizer, prompt)
    lead = None if image_replacement is None else f"{escape(processor.tokenizer, image_replacement)}\n"
    if chat_template(processor) is not None:
        return render_chat(processor, [_user(words, lead, images)], add_generation_prompt=True)
    if lead is None:
        form = prompt_format(processor)
        lead = form.gap.join([form.image] * images) + (form.gap if words else "")
    return lead + words


def report_text(processor: Any, report: str) -> str:
    """A report as it follows the prompt, stripped and without its end token."""
    return prompt_format(processor).space + escape(processor.tokenizer, report.strip())


def report_ids(processor: Any, report: str) -> list[int]:
    """Tokens of a report after any prompt, end token last."""
    return all_report_ids(processor, [report])[0]


def all_report_ids(processor: Any, reports: Sequence[str]) -> list[list[int]]:
    """`report_ids` of many reports, tokenized together: many times as fast on several cores."""
    form, tokenizer = prompt_format(processor), processor.tokenizer
    texts = [report_text(processor, report) for report in reports]
    seam = len(form.anchor_ids)
    found: list[list[int]] = []
    for text, whole in zip(texts, _tokenize(tokenizer, [form.anchor + text for text in texts]), strict=True):
        if not text.strip():
            found.append([form.end])
            continue
        own = whole[seam:]
        if tuple(whole[:seam]) != form.anchor_ids:  # the tokenizer joins across the seam: tokenize the report alone
            own = _tokenize(tokenizer, [text])[0]
        found.append([*own, form.end])
    return found


def _tokenize(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return token_ids(tokenizer, texts, add_special_tokens=False)


def end_tokens(processor: Any, model: Any = None) -> list[int]:
    """Ids at which an answer ends: the report's end token first, then those of the model's generation config."""
    found = [prompt_format(processor).end]
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    for token in [configured] if isinstance(configured, int) else list(configured or ()):
        if token not in found:
            found.append(int(token))
    return found


def chat_template(processor: Any) -> str | None:
    """The chat template that a processor uses by default; None if it has none."""
    found = getattr(processor, "chat_template", None)
    return (found.get("default") if isinstance(found, dict) else found) or None


def _plain_format(processor: Any) -> tuple[str, str, str, int]:
    """Image, gap, space and end token."""
    family = find_family_of_processor(processor)
    token = family.image_text or getattr(processor, "image_token", None)
    if not token:
        raise ConfigError(
            f"{type(processor).__name__} has neither a chat template nor an image token, so an image has no place in its "
            "text; give the checkpoint a chat_template.jinja."
        )
    return token, family.image_suffix, family.prompt_separator, _plain_end(processor)


def _plain_end(processor: Any) -> int:
    end = processor.tokenizer.eos_token_id
    if end is None:
        raise DataError("the tokenizer has no end token, so a report would never end; set eos_token in its config.")
    return int(end)


def _chat_format(processor: Any) -> tuple[str, int]:
    """Space and end token as the template writes them around an assistant's turn."""
    tokenizer, turns = processor.tokenizer, [_user("Findings?")]
    answered = [*turns, {"role": "assistant", "content": [{"type": "text", "text": _PROBE}]}]
    before = render_chat(processor, turns, add_generation_prompt=True)
    try:
        lead, _, after = render_chat(processor, answered, add_generation_prompt=False).partition(_PROBE)
    except ConfigError:  # a template for user turns only
        lead, after = "", ""
    ids = _tokenize(tokenizer, [after.strip()])[0] if after.strip() else []
    special = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
    end = int(ids[0]) if ids and ids[0] in special else _plain_end(processor)
    gap = lead.removeprefix(before)
    if lead.startswith(before) and not gap.strip():
        return gap, end
    closed = before[-1:].isspace() or len(before) in {stop for _, stop in find_marks(tokenizer, before)}
    return "" if closed else " ", end


def _user(words: str, image_replacement: str | None = None, images: int = 1) -> dict[str, Any]:
    if image_replacement is not None:
        return {"role": "user", "content": [{"type": "text", "text": image_replacement + words}]}
    content: list[dict[str, str]] = [{"type": "image"}] * images
    return {"role": "user", "content": [*content, {"type": "text", "text": words}] if words else content}


def dated(template: Any) -> dict[str, str]:
    """The template with a fixed date, if it writes today's; else nothing."""
    named = template.get("default") if isinstance(template, dict) else template
    if "strftime_now" not in (named or ""):
        return {}
    known = "".join(f"|replace('%{sign}', '{_DAY.strftime(f'%{sign}')}')" for sign in _SIGNS)
    return {"chat_template": f"{{%- macro strftime_now(form) -%}}{{{{ form{known} }}}}{{%- endmacro -%}}{named}"}


def render_chat(
    processor: Any, turns: list[dict[str, Any]], *, add_generation_prompt: bool, template: str | None = None
) -> str:
    """The text of some turns by the processor's chat template, or by another one."""
    template = template or processor.chat_template
    given = {"chat_template": template} | dated(template)
    try:
        text: str = processor.apply_chat_template(
            turns, add_generation_prompt=add_generation_prompt, tokenize=False, **given
        )
    except Exception as error:  # a template is a program: it may raise anything
        raise ConfigError(
            f"the chat template of {type(processor).__name__} fails on an image with a prompt "
            f"({str(error).partition(chr(10))[0]}); fix chat_template.jinja of the checkpoint."
        ) from error
    return text


@dataclass(frozen=True)
class TokenText:
    """The text of some tokens.

    Args:
        text: Stripped and without special tokens.
        spans: Characters [start, end) of each token; empty for a special token and for white space at an end.
    """

    text: str
    spans: tuple[Span, ...]

    def tokens_of(self, spans: Sequence[Span]) -> tuple[int, ...]:
        """Indices of the tokens with any character in these spans, in order; at least one."""
        chosen = tuple(
            number
            for number, (low, high) in enumerate(self.spans)
            if any(max(low, start) < min(high, end) for start, end in spans)
        )
        if not chosen:
            raise ValueError(f"no token covers any of the characters {list(spans)}")
        return chosen


def token_text(tokenizer: Any, ids: Sequence[int]) -> TokenText:
    """The text of these tokens with the characters of each.

    Every prefix is decoded, since a blank, or the rest of a multi-byte character, may appear only with the next token.
    """
    ends = []
    for count in range(1, len(ids) + 1):
        # An incomplete character decodes to U+FFFD; it belongs to the token that completes it.
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
    """A report decoded from its own tokens; some tokenizers normalise spaces or signs."""
    return token_text(processor.tokenizer, report_ids(processor, report)).text

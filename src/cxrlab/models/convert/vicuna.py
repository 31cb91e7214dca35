"""Vicuna's conversation with an image in it: the image token that LLaVA 1.x did without, and the words around a prompt.

LLaVA 1.x cut its text at `<image>`, turned each piece into tokens on its own and put the image between them. Here
`<image>` is a token of its own. The tokens around it stay those of the original, which is checked on a probe
when the template is written.
"""

from __future__ import annotations

from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.models.building import IMAGE

# Part of the model as its weights are: it was trained with these words in front of every prompt.
SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
_TEMPLATE = """\
{{- "SYSTEM " -}}
{%- for message in messages -%}
{%- if message.content is string -%}{%- set words = message.content -%}
{%- else -%}
{%- set words = message.content | selectattr("type", "equalto", "text") | map(attribute="text") | join("") -%}
{%- endif -%}
{%- if message.role == "user" -%}
{{- "USER: " -}}
{%- if message.content is not string -%}
{%- for part in message.content if part.type == "image" -%}{{- "IMAGE\n" -}}{%- endfor -%}
{%- endif -%}
{{- words + " " -}}
{%- elif message.role == "assistant" -%}{{- "ASSISTANT: " + words + "END" -}}
{%- else -%}{{- raise_exception("this conversation has the roles user and assistant alone") -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "ASSISTANT:" -}}{%- endif -%}"""
_PROBE = (f"{SYSTEM} USER: ", "\nProvide a description of the findings in the radiology image. ASSISTANT:")


def add_image_token(tokenizer: Any) -> int:
    """The number of `<image>`, added behind all others where the tokenizer has none; padding is `<unk>` if unset."""
    from tokenizers import AddedToken

    if tokenizer.unk_token is None or tokenizer.eos_token is None:
        raise DataError("the base's tokenizer has no token for the unknown or for the end; it is not that of Vicuna.")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.unk_token
    tokenizer.add_tokens([AddedToken(IMAGE, special=True, normalized=False)], special_tokens=True)
    return int(tokenizer.convert_tokens_to_ids(IMAGE))


def chat_template(tokenizer: Any) -> str:
    """Vicuna's conversation as a chat template whose tokens are those of LLaVA 1.x.

    Some tokenizers put a space in front of every piece of text, others only of the first. The original pieces had
    one each, so for the latter kind the template writes it.
    """
    for image in (IMAGE, f"{IMAGE} "):
        if tokenizer(image.join(_PROBE))["input_ids"] == _original(tokenizer):
            parts = {"SYSTEM": SYSTEM, "IMAGE": image, "END": tokenizer.eos_token}
            template = _TEMPLATE
            for mark, words in parts.items():
                template = template.replace(mark, words)
            return template
    raise DataError(
        "the base's tokenizer cuts the text around an image otherwise than LLaVA 1.x did; it is not Vicuna's."
    )


def _original(tokenizer: Any) -> list[int]:
    """Tokens as LLaVA 1.x made them: the pieces around the image each on its own, the begin token in front once."""
    before, after = (tokenizer(piece)["input_ids"] for piece in _PROBE)
    if after and after[0] == tokenizer.bos_token_id:
        after = after[1:]
    return [*before, tokenizer.convert_tokens_to_ids(IMAGE), *after]

"""Conversations: the chat templates that report models are trained and used with, by name.

The template is saved with the checkpoint, so that generation uses the form of the training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, UnknownName, did_you_mean
from cxrlab.core.files import read_text
from cxrlab.models.hf.prompting import render_chat
from cxrlab.models.random_init import IMAGE

PLAIN, OWN, VICUNA, MISTRAL = "plain", "own", "vicuna-v1", "mistral-instruct"
CONVERSATIONS = (PLAIN, OWN, VICUNA, MISTRAL)
_UNUSED = "language_model"  # name under which a plain processor keeps the template of its language model


def check_conversation(name: str) -> None:
    """Raise unless this is a conversation's name or a file with a chat template."""
    if name not in CONVERSATIONS and not Path(name).is_file():
        raise UnknownName(
            f"there is no conversation '{name}', nor a file of that name.{did_you_mean(name, CONVERSATIONS)} Known: "
            f"{', '.join(CONVERSATIONS)}; a file holds a chat template in Jinja."
        )


def set_conversation(processor: Any, name: str) -> None:
    """Give a LLaVA's processor, and its tokenizer, the chat template of a conversation.

    Args:
        processor: Its present template, or that of its tokenizer, is its own.
        name: `plain`: no template; its own is kept for a later stage. `own`: its own, extended by the image if it was
            written for text alone; plain if it has none. `vicuna-v1`: that of LLaVA 1.5; `mistral-instruct`: that of
            LLaVA-Med 1.5. Else a file with a template.
    """
    check_conversation(name)
    stored = [one.chat_template for one in (processor, processor.tokenizer)]
    named = [one if isinstance(one, dict) else {"default": one} for one in stored]
    own = next((one[key] for one in named for key in ("default", _UNUSED) if one.get(key)), None)
    template: Any
    if name == PLAIN:
        template = None if own is None else {_UNUSED: own}
    elif name == OWN:
        template = None if own is None else _with_image(processor, own, "the language model")
    elif name in _LLAVA:
        template = llava_template(processor.tokenizer, name)
    else:
        template = _with_image(processor, read_text(Path(name)), name)
    # Both, since they are saved to the same files.
    processor.chat_template = processor.tokenizer.chat_template = template


def set_family_conversation(processor: Any, name: str) -> None:
    """Give the processor of a family other than LLaVA a conversation: `own`, its template as it is, or a file's."""
    check_conversation(name)
    if name in CONVERSATIONS and name != OWN:
        raise ConfigError(
            f"--conversation {name} is made for a LLaVA; use --conversation own, the template of the checkpoint, or a "
            f"file with a template for {type(processor).__name__}."
        )
    if name != OWN:
        processor.chat_template = read_text(Path(name))


# Turns a message of parts into text, for a template that expects text.
_FLATTEN = """\
{%- set flat = namespace(messages=[]) -%}
{%- for message in messages -%}
{%- set flat.words = message.content if message.content is string else "" -%}
{%- if message.content is not string -%}
{%- for part in message.content -%}
{%- set flat.words = flat.words + (IMAGE if part.type == "image" else part.text) -%}
{%- endfor -%}
{%- endif -%}
{%- set flat.messages = flat.messages + [{"role": message.role, "content": flat.words}] -%}
{%- endfor -%}
{%- set messages = flat.messages -%}
"""
_QUESTION = "Are the lungs clear?"


def _with_image(processor: Any, template: str, source: str) -> str:
    """The template if it shows an image and text, else extended by the image on a line before the text."""
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": _QUESTION}]}
    reason = ""
    for found in (template, _FLATTEN.replace("IMAGE", repr(f"{IMAGE}\n")) + template):
        try:
            text = render_chat(processor, [turn], template=found, add_generation_prompt=True)
        except ConfigError as error:
            reason = f" ({str(error.__cause__).partition(chr(10))[0]})"
            continue
        before, image, after = text.partition(IMAGE)
        if image and IMAGE not in after and _QUESTION not in before and _QUESTION in after:
            return found
    raise ConfigError(
        f"the chat template of {source} does not write an image and a question, once each{reason}; give another --conversation: "
        f"{', '.join(CONVERSATIONS)}, or a file with a template."
    )


# LLaVA 1.5 and LLaVA-Rad were trained with this text in front of every prompt.
SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
_VICUNA = """\
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
_MISTRAL = """\
{%- for message in messages -%}
{%- if message.content is string -%}{%- set words = message.content -%}
{%- else -%}
{%- set words = message.content | selectattr("type", "equalto", "text") | map(attribute="text") | join("") -%}
{%- endif -%}
{%- if message.role == "user" -%}
{{- "[INST] " -}}
{%- if message.content is not string -%}
{%- for part in message.content if part.type == "image" -%}{{- "IMAGE\n" -}}{%- endfor -%}
{%- endif -%}
{{- words + " [/INST]" -}}
{%- elif message.role == "assistant" -%}{{- " " + words + "END" -}}
{%- else -%}{{- raise_exception("this conversation has the roles user and assistant alone") -}}
{%- endif -%}
{%- endfor -%}"""
_QUESTION_OF_LLAVA = "\nProvide a description of the findings in the radiology image."
# Template, and the text before and after the image of a conversation.
_LLAVA = {
    VICUNA: (_VICUNA, (f"{SYSTEM} USER: ", f"{_QUESTION_OF_LLAVA} ASSISTANT:")),
    MISTRAL: (_MISTRAL, ("[INST] ", f"{_QUESTION_OF_LLAVA} [/INST]")),
}


def llava_template(tokenizer: Any, name: str = VICUNA) -> str:
    """A conversation of LLaVA 1.x, `vicuna-v1` or `mistral-instruct`, as a chat template that gives its tokens.

    Some tokenizers put a space before every piece of text, others only before the first. LLaVA 1.x tokenized the pieces
    around the image separately, each with a space, so for the latter kind the template writes it.
    """
    template, pieces = _LLAVA[name]
    before, after = (tokenizer(piece)["input_ids"] for piece in pieces)
    if after and after[0] == tokenizer.bos_token_id:
        after = after[1:]
    original = [*before, tokenizer.convert_tokens_to_ids(IMAGE), *after]
    for image in (IMAGE, f"{IMAGE} "):
        if tokenizer(image.join(pieces))["input_ids"] == original:
            parts = {"SYSTEM": SYSTEM, "IMAGE": image, "END": tokenizer.eos_token}
            for mark, words in parts.items():
                template = template.replace(mark, words)
            return template
    raise DataError(
        "the tokenizer splits the text around an image differently from LLaVA 1.x did; it is not that of the language "
        f"model, and the conversation {name} cannot be used with it."
    )

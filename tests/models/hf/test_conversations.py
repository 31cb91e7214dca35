"""The chat template of a conversation: which one, with the image in it, and kept with the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from published_checkpoints import vicuna_tokenizer
from tiny_families import save_tiny
from tiny_models import tiny_llava

from cxrlab.core.errors import ConfigError, UnknownName
from cxrlab.models.hf.checkpoint import open_processor
from cxrlab.models.hf.conversations import OWN, PLAIN, VICUNA, check_conversation, set_conversation
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.prompting import chat_template, prompt_format, prompt_text
from cxrlab.models.load_settings import LoadSettings

# Of language models that know no images: a message is text.
CHATML = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content | trim }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Of a LLaVA: a message is a list of parts.
PARTS = (
    "{% for message in messages %}{{ message.role }}: {% for part in message.content %}"
    "{{ '<image>' if part.type == 'image' else part.text }}{% endfor %}{% endfor %}"
)


def processor(template: str | None = None, *, of_tokenizer: bool = True) -> Any:
    """A tiny LLaVA's processor; a template is its tokenizer's alone, as where a LLaVA is built from parts."""
    _, found = tiny_llava()
    (found.tokenizer if of_tokenizer else found).chat_template = template
    return found


def stored(one: Any, folder: Path) -> Any:
    one.save_pretrained(folder)
    return open_processor(folder, LoadSettings())


def test_every_conversation_and_its_text(tmp_path: Path) -> None:
    """(own template, its place, conversation, text of a prompt), before and after the processor was saved."""
    (file := tmp_path / "mine.jinja").write_text(PARTS.replace("'<image>'", "'<image>!'"))
    cases = [
        (None, True, PLAIN, "<image>\nClear?"),
        (None, True, OWN, "<image>\nClear?"),
        (CHATML, True, PLAIN, "<image>\nClear?"),
        (CHATML, True, OWN, "<|user|><image>\nClear?</s><|assistant|>"),
        (PARTS, True, OWN, "user: <image>Clear?"),
        (PARTS, False, OWN, "user: <image>Clear?"),
        (PARTS, False, PLAIN, "<image>\nClear?"),
        (PARTS, False, str(file), "user: <image>!Clear?"),
    ]
    for number, (template, of_tokenizer, name, expected) in enumerate(cases):
        found = processor(template, of_tokenizer=of_tokenizer)
        set_conversation(found, name)
        again = stored(found, tmp_path / str(number))
        assert [prompt_text(one, "Clear?") for one in (found, again)] == [expected] * 2, (template, name)
        assert chat_template(found) == chat_template(again)


def test_a_plain_stage_keeps_the_conversation_for_the_next(tmp_path: Path) -> None:
    """Stage 2 is plain; stage 3 uses the language model's own, though it opens a saved checkpoint."""
    found = processor(CHATML)
    for stage, (name, expected) in enumerate([(PLAIN, "<image>"), (PLAIN, "<image>"), (OWN, "<|user|><image>")] * 2):
        set_conversation(found, name)
        found = stored(found, tmp_path / str(stage))
        assert prompt_text(found, "").removesuffix("</s><|assistant|>") == expected


def test_the_format_follows_the_template() -> None:
    """The format is kept per processor; another template is another format."""
    found = processor(CHATML)
    before = prompt_format(found)
    set_conversation(found, OWN)
    assert before.image == "<image>" and prompt_format(found).image == ""


def test_vicunas_conversation_is_that_of_llava() -> None:
    """Word for word, around `<image>`, as LLaVA-Rad was trained."""
    found = processor()
    found.tokenizer = vicuna_tokenizer()
    found.tokenizer.add_tokens(["<image>"], special_tokens=True)
    set_conversation(found, VICUNA)
    assert prompt_text(found, "Clear?") == (
        "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
        "detailed, and polite answers to the user's questions. USER: <image> \nClear? ASSISTANT:"
    )


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no') }}",  # fails on everything
        "hello",  # writes neither
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",  # writes both twice
        "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}<image>{% endfor %}",  # image last
        "{% for",  # is no template
    ],
)
def test_a_template_that_does_not_write_image_and_question_is_refused(template: str, tmp_path: Path) -> None:
    (file := tmp_path / "mine.jinja").write_text(template)
    for found, name in ((processor(template), OWN), (processor(), str(file))):
        with pytest.raises(ConfigError, match="--conversation"):
            set_conversation(found, name)


def test_the_refusal_of_a_template_that_fails_gives_the_reason(tmp_path: Path) -> None:
    (file := tmp_path / "mine.jinja").write_text("{{ raise_exception('text alone') }}")
    with pytest.raises(ConfigError, match="text alone"):
        set_conversation(processor(), str(file))


@pytest.mark.parametrize("secret", ["cycler.__init__.__globals__.os", "''.__class__.__mro__", "open('secret.txt')"])
def test_a_template_reaches_neither_files_nor_the_interpreter(secret: str, tmp_path: Path) -> None:
    """Besides the image and the question, which alone would be accepted."""
    (file := tmp_path / "mine.jinja").write_text(f"{PARTS}{{{{ {secret} }}}}")
    with pytest.raises(ConfigError, match="--conversation"):
        set_conversation(processor(), str(file))
    file.write_text(PARTS)
    set_conversation(processor(), str(file))


def test_an_unknown_conversation_is_named() -> None:
    with pytest.raises(UnknownName, match="'vicuna'.*vicuna-v1"):
        check_conversation("vicuna")


def test_a_row_of_prompts_may_bring_its_conversation(tmp_path: Path) -> None:
    """MedGemma is a Gemma 3: its prompts replace the template of the checkpoint, system text and order included."""
    folder = save_tiny("gemma3", tmp_path / "gemma")
    own = HfModel.load(str(folder))
    assert own.prompts.name == "llava-rad/1" and "expert radiologist" not in prompt_text(own.processor, "Clear?")
    model = HfModel.load(str(folder), loading=LoadSettings(prompts="medgemma/1"))
    assert prompt_text(model.processor, model.prompts.ask()).removeprefix(model.tokenizer.bos_token) == (
        "<start_of_turn>user\nYou are an expert radiologist.\n\n"
        "Write the findings section of the report of this chest X-ray.<start_of_image><end_of_turn>\n"
        "<start_of_turn>model\n"
    )
    encoded = model.encode([torch.zeros(20, 20)], [model.prompts.ask("cough")])
    ids = encoded.inputs["input_ids"][0].tolist()
    assert ids.count(model.tokenizer.bos_token_id) == 1 and ids.count(model.tokenizer.image_token_id) == 4
    assert model.generate([torch.zeros(20, 20)])[0].tokens > 0

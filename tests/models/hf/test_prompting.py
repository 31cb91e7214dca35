from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tiny_families import IDEFICS, tiny, tokenizer
from tiny_models import TEXTS, tiny_llava

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.prompting import end_tokens, prompt_format, prompt_text, report_ids, report_text


class Plain:
    """A processor in what prompting asks of it."""

    def __init__(self, words: Any, image_token: str | None = "<image>", chat_template: str | None = None) -> None:
        self.tokenizer, self.image_token, self.chat_template = words, image_token, chat_template

    def apply_chat_template(self, turns: list[dict[str, Any]], **settings: Any) -> str:
        return str(self.tokenizer.apply_chat_template(turns, **{"chat_template": self.chat_template, **settings}))


def test_without_a_template_the_image_stands_on_a_line_of_its_own() -> None:
    _, processor = tiny_llava()
    assert prompt_text(processor, "Findings?") == "<image>\nFindings?"
    assert prompt_text(processor, "") == "<image>"
    assert prompt_text(processor, "Findings?", "mild edema") == "mild edema\nFindings?"
    assert report_text(processor, "  Clear. ") == " Clear."


def test_a_report_has_the_same_tokens_after_every_prompt() -> None:
    """Cut in one piece with any of these prompts, the tail is always the same."""
    _, processor = tiny_llava()
    words = processor.tokenizer
    for report in TEXTS:
        ids = report_ids(processor, report)
        assert ids[-1] == words.eos_token_id
        for prompt in ("image.", "indication: dyspnea", "Describe 3", "a)"):
            whole = words(prompt + report_text(processor, report), add_special_tokens=False)["input_ids"]
            assert whole[-len(ids) + 1 :] == ids[:-1]
    assert report_ids(processor, " \n") == [words.eos_token_id]


@pytest.mark.parametrize(
    ("family", "space", "end"),
    [
        ("llava", " ", "</s>"),
        ("llava_next", " ", "</s>"),  # ASSISTANT:
        ("llava_onevision", "", "<|im_end|>"),  # a line break closes the prompt
        ("idefics2", " ", "<end_of_utterance>"),  # the end of a turn, not of the tokenizer
        ("gemma3", "", "<end_of_turn>"),
        ("paligemma", "", "</s>"),
    ],
)
def test_the_template_decides_what_stands_around_a_report(family: str, space: str, end: str) -> None:
    _, processor = tiny(family)
    form = prompt_format(processor)
    assert (form.space, processor.tokenizer.convert_ids_to_tokens(form.end)) == (space, end)


def test_an_answer_also_ends_where_the_models_settings_say() -> None:
    _, processor = tiny_llava()
    own = processor.tokenizer.eos_token_id
    for reported, ends in ((None, [own]), (own, [own]), ([own, 7], [own, 7]), (9, [own, 9])):
        model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=reported))
        assert end_tokens(processor, model) == ends
    assert end_tokens(processor) == [own]


def test_a_processor_with_no_place_for_a_image_or_no_end_is_refused() -> None:
    words = tokenizer({})
    with pytest.raises(ConfigError, match="neither a chat template nor an image token"):
        prompt_text(Plain(words, image_token=None), "x")
    words.eos_token = None
    with pytest.raises(DataError, match="no end token"):
        report_ids(Plain(words), "x")


def test_what_is_told_stands_in_the_users_turn_of_a_template_without_a_image() -> None:
    processor = Plain(tokenizer({"image_token": "<image>"}), chat_template=IDEFICS)
    shown, reported = prompt_text(processor, "Findings?"), prompt_text(processor, "Findings?", "mild edema")
    assert "<image>" in shown and "<image>" not in reported
    assert "mild edema\nFindings?" in reported and reported.endswith(shown[-10:])


def test_a_template_that_fails_is_said_to_fail() -> None:
    with pytest.raises(ConfigError, match=r"the chat template of Plain fails.*chat_template.jinja"):
        prompt_text(Plain(tokenizer({}), chat_template="{{ raise_exception('no images') }}"), "x")


def test_a_template_that_writes_the_date_asks_the_same_every_day() -> None:
    """Otherwise a run that is continued tomorrow ends with other words."""
    dated = (
        "{%- if strftime_now is defined %}Today: {{ strftime_now('%d %b %Y') }}, {{ strftime_now('%Y-%m-%d') }}\n"
        "{% endif %}" + IDEFICS
    )
    processor = Plain(tokenizer({}), chat_template=dated)
    assert prompt_text(processor, "Findings?").startswith("Today: 26 Jul 2024, 2024-07-26\nUser:")
    assert prompt_format(processor).space == prompt_format(Plain(tokenizer({}), chat_template=IDEFICS)).space


def test_a_template_for_the_user_alone_ends_by_the_tokenizers_token() -> None:
    """Idefics' template, with an assistant's turn refused."""
    only = "{% if messages|length > 1 %}{{ raise_exception('one turn') }}{% endif %}" + IDEFICS
    processor = Plain(tokenizer({}), chat_template=only)
    assert prompt_format(processor).end == processor.tokenizer.eos_token_id


def test_a_tokenizer_that_marks_spaces_instead_of_keeping_them() -> None:
    """Llama's kind: a report after a prompt begins with one marked space, not with two."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Metaspace(prepend_scheme="first")
    backend.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "</s>", "<image>"]))
    words = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")
    processor = Plain(words)
    ids = report_ids(processor, "The lungs are clear.")
    whole = words("<image>\nin the radiology image. The lungs are clear.", add_special_tokens=False)["input_ids"]
    assert whole[-len(ids) + 1 :] == ids[:-1]
    assert words.convert_ids_to_tokens(ids)[0].count("▁") == 1


def test_a_tokenizer_that_joins_across_the_seam_is_given_the_report_alone() -> None:
    """One that takes every character as two halves of a pair with its neighbour: the prompt is no prefix."""

    class Pairs:
        eos_token_id, all_special_tokens = 0, ()

        def __len__(self) -> int:
            return 1 << 16

        def get_added_vocab(self) -> dict[str, int]:
            return {}

        def __call__(self, given: str | list[str], add_special_tokens: bool) -> dict[str, list[Any]]:
            cut = [
                [1000 * len(text) + ord(one) for one in text] for text in ([given] if isinstance(given, str) else given)
            ]
            return {"input_ids": cut[0] if isinstance(given, str) else cut}

    assert report_ids(Plain(Pairs()), "ab") == [3000 + ord(" "), 3000 + ord("a"), 3000 + ord("b"), 0]

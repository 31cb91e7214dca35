"""Answers from a file, and text models by name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError, DataError, UnknownName
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.core.model_interfaces import TextModel
from cxrlab.models.llm_cache import CachedTextModel
from cxrlab.models.model_registry import load_text_model


def script(folder: Path, *lines: dict[str, object]) -> str:
    file = folder / "answers.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"scripted:{file}"


def test_a_hash_goes_before_a_text_and_an_earlier_line_before_a_later(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        {"contains": "heart", "answer": "one", "tokens": 5},
        {"contains": "", "answer": "any"},
        {"sha256": hashlib.sha256(b"the heart").hexdigest().upper(), "answer": "exact"},
    )
    model = load_text_model(name)
    assert isinstance(model, TextModel) and model.name == name
    given = model.complete(["a heart", "the heart", "lungs"])
    assert [one.text for one in given] == ["one", "exact", "any"] and given[0].tokens == 5


def test_a_prompt_without_an_answer_is_an_error_without_its_words(tmp_path: Path) -> None:
    model = load_text_model(script(tmp_path, {"contains": "heart", "answer": "one"}))
    with pytest.raises(DataError, match="no answer to a prompt of 11 characters") as caught:
        model.complete(["secret text"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ({"contains": "x"}, "text 'answer'"),
        ({"answer": "x"}, "either"),
        ({"contains": "x", "sha256": "y", "answer": "z"}, "either"),
        ({"contains": "x", "answer": "y", "token": 3}, "Did you mean 'tokens'"),
        ({"contains": "x", "answer": "y", "tokens": -1}, "whole number"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: dict[str, object], reported: str) -> None:
    with pytest.raises(DataError, match=reported) as caught:
        load_text_model(script(tmp_path, line))
    assert "answers.jsonl:1" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_text_model(f"scripted:{tmp_path / 'none.jsonl'}")


def test_names_that_are_none() -> None:
    with pytest.raises(ConfigError, match="hf:gpt .*https://HOST/v1#gpt"):
        load_text_model("gpt")
    with pytest.raises(ConfigError, match="KIND:ARGUMENT, for example scripted:FILE"):
        load_text_model("scripted:")
    with pytest.raises(UnknownName, match="Did you mean 'scripted'"):
        load_text_model("script:x")


def test_answers_that_changed_under_one_name_are_asked_again(tmp_path: Path) -> None:
    """A file that runs share keeps what a script said before; it is no answer of this one."""
    found = []
    for text in ("first", "second"):
        model = load_text_model(script(tmp_path, {"contains": "", "answer": text}))
        with CachedTextModel(model, LLMConfig(cache=tmp_path / "shared.sqlite")) as asked:
            found.append(asked.complete(["the heart"])[0].text)
    assert found == ["first", "second"]

"""Weights that a surrogate has of its victim before the first query are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cxrlab.extraction.preflight import shared_weights, shared_weights_sentence
from cxrlab.models.model_card import ModelCard, write_model_card


@pytest.fixture
def made(tmp_path: Path) -> Any:
    def make(name: str, base: str | None = None, **origins: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        write_model_card(ModelCard("finetune", base=base, extra={"made_from": origins}), folder)
        return f"hf:{folder}"

    return make


def test_the_vision_encoder_and_the_language_model_of_the_victim_are_found_behind_its_adapters(made: Any) -> None:
    vision_encoder, words, other = made("vision_encoder"), made("words"), made("other")
    made("aligned", encoder=vision_encoder, language_model=words)
    victim = made("victim", base="hf:../aligned", start="hf:../aligned")
    assert shared_weights(victim, f"parts:{vision_encoder}+{words}") == [vision_encoder, words]
    assert shared_weights(victim, f"parts:{vision_encoder}+{other}") == [vision_encoder]
    assert shared_weights(victim, f"parts:fresh:tiny+{other}") == []
    assert shared_weights(victim, other) == []
    assert shared_weights(victim, made("cousin", encoder=vision_encoder, language_model=other)) == [vision_encoder]
    assert shared_weights(victim, victim) == [victim]  # and not its origins beside it
    assert shared_weights(victim, other, vision_encoder) == [vision_encoder]  # what the guide has counts too


def test_untrained_weights_are_nobodys_and_a_circle_ends(made: Any) -> None:
    victim = made("victim", encoder="fresh:tiny", start="hf:../circle")
    made("circle", start="hf:../victim")
    assert shared_weights(victim, made("mine", encoder="fresh:tiny")) == []


def test_what_has_no_card_or_no_weights_is_unknown(made: Any, tmp_path: Path) -> None:
    assert shared_weights("stub:normal", made("mine")) == []
    assert shared_weights(f"hf:{tmp_path / 'nowhere'}", f"hf:{tmp_path / 'mine'}") == []


def test_the_built_in_pair_is_one_family() -> None:
    shared = shared_weights("builtin:reporter", "parts:builtin:encoder+builtin:general")
    assert shared == ["builtin:encoder", "builtin:general"]
    assert (
        shared_weights_sentence(shared).endswith(": builtin:encoder, builtin:general.")
        and shared_weights_sentence([]) == ""
    )

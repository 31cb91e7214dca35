from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tiny_models import tiny_llava

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.inputs import Expander

IMAGE = 4  # the id of <image> in the tiny tokenizer


class Counting:
    """An image processor that counts how often it is asked."""

    def __init__(self, true: Any) -> None:
        self.true, self.calls = true, 0

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        self.calls += 1
        return self.true(*arguments, **settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.true, name)


def test_the_image_processor_runs_once_for_images_of_a_size() -> None:
    _, processor = tiny_llava()
    processor.image_processor = Counting(processor.image_processor)
    expander = Expander(processor, IMAGE)
    for number in range(20):
        expander.prompt(f"Question {number}?", ((40, 30),))
    assert processor.image_processor.calls == 1
    expander.prompt("Question 1?", ((30, 40),))
    assert processor.image_processor.calls == 2


def test_prompts_are_those_of_the_processor_on_the_true_image() -> None:
    from PIL import Image

    _, processor = tiny_llava()
    image = Image.new("RGB", (30, 40), "grey")
    true = processor(text=["<image>\nFindings?"], images=[image])["input_ids"][0]
    found = Expander(processor, IMAGE).prompt("Findings?", ((40, 30),))
    assert list(found.ids) == list(true) and found.ids.count(IMAGE) == 4


def test_neither_prompts_nor_blank_images_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven hundred thousand indications, and images of thousands of sizes, whose pixels must not all be kept."""
    monkeypatch.setattr("cxrlab.models.hf.inputs._PROMPTS", 3)
    _, processor = tiny_llava()
    processor.image_processor = Counting(processor.image_processor)
    expander = Expander(processor, IMAGE)
    first = expander.prompt("0", ((32, 32),))
    for number in range(1, 3):
        expander.prompt(str(number), ((32, 32),))
    assert expander.prompt("0", ((32, 32),)) is first  # the most recent one again
    expander.prompt("3", ((32, 32),))
    assert expander.prompt("0", ((32, 32),)) is first and expander.prompt.cache_info().currsize == 3
    for side in range(33, 63):
        expander.prompt("0", ((side, 32),))
    assert processor.image_processor.calls == 31 and expander._blank.cache_info().currsize == 4


def test_threads_may_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cxrlab.models.hf.inputs._PROMPTS", 2)
    _, processor = tiny_llava()
    expander = Expander(processor, IMAGE)
    asked = [(f"Question {number % 5}?", ((32, 32 + number % 7),)) for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda each: expander.prompt(*each), asked))
    assert found == [Expander(processor, IMAGE).prompt(*each) for each in asked]


def test_a_prompt_that_came_out_without_the_image_is_refused() -> None:
    _, processor = tiny_llava()
    with pytest.raises(DataError, match="0 image tokens"):
        Expander(processor, 499).prompt("Findings?", ((32, 32),))


def test_a_processor_that_gives_more_than_is_known_is_refused() -> None:
    """Cross-attention masks and the like would be lost, and the model asked something else."""
    _, processor = tiny_llava()
    before = type(processor).__call__

    class More(type(processor)):  # type: ignore[misc]
        def __call__(self, *arguments: Any, **settings: Any) -> Any:
            return {**before(self, *arguments, **settings), "cross_attention_mask": [[1]]}

    processor.__class__ = More
    with pytest.raises(ConfigError, match="cross_attention_mask"):
        Expander(processor, IMAGE).prompt("x", ((32, 32),))


def test_a_image_that_a_family_does_not_take_is_told_by_its_size() -> None:
    class Picky(Counting):
        def __call__(self, *arguments: Any, **settings: Any) -> Any:
            raise ValueError("too thin\nand more")

    _, processor = tiny_llava()
    processor.image_processor = Picky(processor.image_processor)
    with pytest.raises(DataError, match=r"no image of 1000 × 2 pixels \(too thin\); crop it"):
        Expander(processor, IMAGE).prompt("x", ((1000, 2),))

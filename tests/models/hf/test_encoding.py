from __future__ import annotations

import pytest
import torch
from tiny_models import tiny_llava

from cxrlab.core.errors import DataError
from cxrlab.models.hf.inputs import Encoder
from cxrlab.models.hf.pixels import pixel_path
from cxrlab.models.hf.scoring import report_log_probs

IMAGE = 4  # the id of <image> in the tiny tokenizer


def test_a_second_image_in_the_text_is_refused_where_breaking_it_up_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of image tokens is the second lock behind `escape`."""
    _, processor = tiny_llava()
    monkeypatch.setattr("cxrlab.models.hf.prompting.escape", lambda words, text: text.replace("@", "</s>"))
    encoder = Encoder(processor, pixel_path("llava", processor), IMAGE, 512, torch.device("cpu"), torch.float32)
    image = torch.rand(1, 32, 32)
    encoder.encode([image], ["fine @"])
    with pytest.raises(DataError, match="cannot put an image into a prompt"):
        encoder.encode([image], ["and <image> again"])
    with pytest.raises(DataError, match="image token"):
        encoder.encode([image], ["fine"], [[7, IMAGE]])


def test_a_path_that_gives_no_pixels_is_refused() -> None:
    class Nothing:
        def inputs(self, images: list[torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"pixel_values": torch.zeros(0)}

    _, processor = tiny_llava()
    encoder = Encoder(processor, Nothing(), IMAGE, 512, torch.device("cpu"), torch.float32)
    with pytest.raises(DataError, match="gave no pixels"):
        encoder.encode([torch.rand(1, 32, 32)], ["x"])


def test_the_words_of_a_batch_are_made_once_and_images_every_time() -> None:
    """Also when the first to ask was in inference mode: what is kept must serve a gradient later."""
    model, processor = tiny_llava()
    encoder = Encoder(processor, pixel_path("llava", processor), IMAGE, 512, torch.device("cpu"), torch.float32)
    prompts, answers = ["a", "a much longer prompt"], [[7, 8], [9]]
    with torch.inference_mode():
        first = encoder.encode([torch.zeros(1, 32, 32)] * 2, prompts, answers)
    images = [torch.ones(1, 32, 32, requires_grad=True) for _ in range(2)]
    second = encoder.encode(images, prompts, answers)
    assert second.ids is first.ids and second.places is first.places and second.places is not None
    assert not bool((second.inputs["pixel_values"] == first.inputs["pixel_values"]).any())
    report_log_probs(model, second).sums.sum().backward()
    assert all(image.grad is not None and float(image.grad.abs().max()) > 0 for image in images)
    other = encoder.encode(images, prompts, [[7, 8], [10]])
    assert other.ids is not first.ids and other.ids[1].tolist().count(10) == 1


def test_padding_stands_on_the_side_that_was_asked_for() -> None:
    _, processor = tiny_llava()
    encoder = Encoder(processor, pixel_path("llava", processor), IMAGE, 512, torch.device("cpu"), torch.float32)
    pair = [torch.rand(1, 32, 32), torch.rand(1, 32, 32)]
    left = encoder.encode(pair, ["a", "a much longer prompt"], side="left")
    right = encoder.encode(pair, ["a", "a much longer prompt"], side="right")
    assert left.inputs["attention_mask"][0, 0] == 0 and left.inputs["attention_mask"][0, -1] == 1
    assert right.inputs["attention_mask"][0, 0] == 1 and right.inputs["attention_mask"][0, -1] == 0

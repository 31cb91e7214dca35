"""The original IDEFICS: its own processor as the judge of tokens and masks, and prompts without an image."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_families import save_tiny, tiny

from cxrlab.core.errors import DataError
from cxrlab.models.hf.checkpoint import open_processor
from cxrlab.models.hf.conversations import set_family_conversation
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.inputs import make_encoder
from cxrlab.models.load_settings import LoadSettings
from cxrlab.training.report_model import find_parts, language_linears

SPEECH = (
    "{% for m in messages %}{{ m.role | capitalize }}:{% for c in m.content %}{% if c.type == 'image' %}"
    "<fake_token_around_image><image><fake_token_around_image>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


def test_tokens_and_mask_are_those_of_its_processor() -> None:
    """An address in a prompt stays text; the processor itself would fetch it as an image."""
    model, processor = tiny("idefics")
    encoder = make_encoder(model, processor)
    image, prompt = torch.rand(1, 40, 30), "Describe the image."
    encoded = encoder.encode([image], [prompt])
    theirs = processor(images=[Image.new("RGB", (30, 40))], text=[prompt])
    for name in ("input_ids", "attention_mask", "image_attention_mask"):
        assert torch.equal(encoded.inputs[name], theirs[name].long()), name
    assert encoded.inputs["pixel_values"].shape == theirs["pixel_values"].shape
    address = encoder.encode([image], ["http://127.0.0.1/image.png"])
    assert int(address.image_mask.sum()) == 1 and address.inputs["pixel_values"].shape[1] == 1


def test_two_images_are_each_seen_until_the_next() -> None:
    _, processor = tiny("idefics")
    pictures = [Image.new("RGB", (30, 40))] * 2
    theirs = processor(images=[pictures], text=["Compare."])
    ids = theirs["input_ids"]
    masks = find_family("idefics").token_inputs(ids, ids == processor.image_token_id, theirs["attention_mask"])
    assert torch.equal(masks["image_attention_mask"], theirs["image_attention_mask"].long())
    assert theirs["image_attention_mask"].shape[-1] == 2


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_sees_no_image(side: str) -> None:
    """A row sees its image from the token of the image on, and nothing where it is padded."""
    model, processor = tiny("idefics")
    images = [torch.rand(1, 32, 32)] * 2
    prompts = ["Findings?", "Describe what is seen on this radiograph."]
    inputs = make_encoder(model, processor).encode(images, prompts, side=side).inputs  # type: ignore[arg-type]
    seen = inputs["image_attention_mask"][..., 0]
    assert not bool(seen[inputs["attention_mask"] == 0].any())
    for row in range(2):
        place = int((inputs["input_ids"][row] == processor.image_token_id).nonzero())
        assert not bool(seen[row, :place].any()) and bool(
            seen[row, place:][inputs["attention_mask"][row, place:] == 1].all()
        )


def test_a_prompt_without_the_image_is_refused() -> None:
    """With a mask of zeros the model would answer without its image, in silence."""
    model, processor = tiny("idefics")
    encoder = make_encoder(model, processor)
    inputs = encoder.encode([torch.rand(1, 32, 32)], ["Findings?"]).inputs
    others = {**inputs, "pixel_values": torch.rand_like(inputs["pixel_values"])}
    blind = {"image_attention_mask": torch.zeros_like(inputs["image_attention_mask"])}
    with torch.no_grad():
        assert not torch.equal(model(**inputs).logits, model(**others).logits)
        assert torch.equal(model(**{**inputs, **blind}).logits, model(**{**others, **blind}).logits)
    processor.chat_template = "{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}"
    with pytest.raises(DataError, match="0 image tokens"):
        make_encoder(model, processor).encode([torch.rand(1, 32, 32)], ["Findings?"])


def test_a_conversation_is_kept_with_the_checkpoint(tmp_path: Path) -> None:
    folder = save_tiny("idefics", tmp_path / "start")
    (tmp_path / "speech.jinja").write_text(SPEECH)
    processor = open_processor(folder, LoadSettings())
    assert processor.chat_template is None
    set_family_conversation(processor, str(tmp_path / "speech.jinja"))
    processor.save_pretrained(tmp_path / "saved")
    assert open_processor(tmp_path / "saved", LoadSettings()).chat_template == SPEECH


def test_adapters_are_on_language_and_cross_attention_alone() -> None:
    model, _ = tiny("idefics")
    linears = language_linears(model)
    assert {name.split(".")[1] for name in linears} == {"layers", "gated_cross_attn_layers"}
    parts = find_parts(model)
    ids = [{id(value) for value in some} for some in (parts.language_parameters(), parts.vision_parameters())]
    assert not ids[0] & ids[1] and ids[0].isdisjoint(id(value) for value in parts.projector.parameters())
    gates = [id(value) for name, value in model.named_parameters() if "alpha_" in name]
    assert gates and ids[0].issuperset(gates)

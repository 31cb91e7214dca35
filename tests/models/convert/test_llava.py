"""LLaVA-1.5 and LLaVA-Med in their original layout: the converted model against a forward put together by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from published_checkpoints import Draw, vicuna_tokenizer
from torch import Tensor
from torch.nn.functional import gelu, linear

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.convert import ConvertConfig, convert
from cxrlab.models.hf.conversations import SYSTEM
from cxrlab.models.hf.model import HfModel

pytestmark = pytest.mark.slow

SIDE, PATCH, WIDTH, INNER = 42, 14, 32, 48
ROPE = 1e6  # Mistral's, under the name that files of that time have
PROMPT = "Provide a description of the findings in the radiology image."
KINDS = {
    "llava": ("Llama", (f"{SYSTEM} USER: ", f"\n{PROMPT} ASSISTANT:")),
    "llava_mistral": ("Mistral", ("[INST] ", f"\n{PROMPT} [/INST]")),
}


def clip_folder(folder: Path) -> Path:
    """A whole CLIP, as published: its text encoder is not needed."""
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel

    torch.manual_seed(0)
    vision = {"image_size": SIDE, "patch_size": PATCH, "hidden_size": WIDTH, "intermediate_size": INNER}
    heads = {"num_hidden_layers": 3, "num_attention_heads": 2, "initializer_range": 0.2}
    text = {"vocab_size": 99, "hidden_size": WIDTH, "intermediate_size": INNER}
    CLIPModel(CLIPConfig(vision_config=vision | heads, text_config=text | heads)).save_pretrained(folder)
    square = {"height": SIDE, "width": SIDE}
    CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=square).save_pretrained(folder)
    return folder


def published(folder: Path, kind: str, clip: Path, *, own_vision: bool, **changes: Any) -> Path:
    """LLaVA 1.x's folder: whole weights in two shards, the projector among them, and the tokenizer."""
    import transformers

    folder.mkdir()
    tokenizer = vicuna_tokenizer()
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 2, "max_position_embeddings": 512, "vocab_size": len(tokenizer)}
    family = KINDS[kind][0]
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**sizes, initializer_range=0.2)
    language = getattr(transformers, f"{family}ForCausalLM")(config)
    draw = Draw(5)
    projector = draw.linear("model.mm_projector.0", WIDTH, WIDTH) | draw.linear("model.mm_projector.2", WIDTH, WIDTH)
    second = {**projector, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}
    if own_vision:  # LLaVA-Med trained none of it, but ships it
        vision = transformers.CLIPVisionModel.from_pretrained(clip)
        state = {name.removeprefix("vision_model."): tensor for name, tensor in vision.state_dict().items()}
        second |= {f"model.vision_tower.vision_tower.vision_model.{name}": 0.5 * state[name] for name in state}
    torch.save(language.state_dict(), folder / "pytorch_model-00001-of-00002.bin")
    torch.save(second, folder / "pytorch_model-00002-of-00002.bin")
    layout = {
        "model_type": kind,
        "architectures": [f"Llava{family}ForCausalLM"],
        "mm_vision_tower": "openai/clip-vit-large-patch14-336",
        "mm_projector_type": "mlp2x_gelu",
        "mm_vision_select_layer": -2,
        "mm_vision_select_feature": "patch",
        "mm_use_im_start_end": False,
        "mm_use_im_patch_token": False,
        "image_aspect_ratio": "pad",
    }
    stored = {name: value for name, value in config.to_dict().items() if name != "rope_parameters"}
    (folder / "config.json").write_text(json.dumps({**stored, "rope_theta": ROPE, **layout, **changes}))
    return folder


def original_logits(folder: Path, clip: Path, kind: str, pixels: Tensor, *, own_vision: bool) -> Tensor:
    """What LLaVA 1.x computes for the first token of its answer, from the published files alone."""
    import transformers

    family, pieces = KINDS[kind]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    stored = {k: v for k, v in json.loads((folder / "config.json").read_text()).items() if k != "model_type"}
    config = getattr(transformers, f"{family}Config")(**stored)
    language = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    language.load_state_dict(torch.load(folder / "pytorch_model-00001-of-00002.bin"))
    projector = torch.load(folder / "pytorch_model-00002-of-00002.bin")
    vision = transformers.CLIPVisionModel.from_pretrained(clip).eval()
    if own_vision:
        for tensor in vision.parameters():
            tensor.data *= 0.5
    name = "model.mm_projector"
    with torch.no_grad():
        found = vision(pixels[None], output_hidden_states=True).hidden_states[-2][:, 1:]
        found = gelu(linear(found, projector[f"{name}.0.weight"], projector[f"{name}.0.bias"]))
        found = linear(found, projector[f"{name}.2.weight"], projector[f"{name}.2.bias"])
        before, after = (torch.tensor([tokenizer(piece)["input_ids"]]) for piece in pieces)
        words = language.get_input_embeddings()
        whole = torch.cat([words(before), found, words(after[:, 1:])], dim=1)
        return language(inputs_embeds=whole).logits[0, -1]


def padded(image: np.ndarray) -> Tensor:
    """LLaVA 1.5's preprocessing by hand: a square of the mean colour, then CLIP's steps."""
    from PIL import Image
    from transformers import CLIPImageProcessorPil

    processor = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    colour = tuple(int(value * 255) for value in processor.image_mean)
    picture = Image.fromarray((image * 255).astype(np.uint8)).convert("RGB")
    side = max(picture.size)
    square = Image.new("RGB", (side, side), colour)
    square.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
    return torch.as_tensor(processor(square, return_tensors="pt")["pixel_values"][0])


@pytest.mark.parametrize(("kind", "own_vision"), [("llava", False), ("llava_mistral", True)])
def test_the_converted_model_computes_what_the_original_does(tmp_path: Path, kind: str, own_vision: bool) -> None:
    clip = clip_folder(tmp_path / "clip")
    folder = published(tmp_path / "published", kind, clip, own_vision=own_vision)
    done = convert("llava", folder, ConvertConfig(vision_encoder=clip), tmp_path / "out")
    assert done.image == SIDE and list(done.unused) == ["model.layers.0.self_attn.rotary_emb.inv_freq"]
    model = HfModel.load(str(tmp_path / "out"))
    image = np.random.default_rng(2).integers(0, 256, (30, 50)).astype(np.float32) / 255
    encoded = model.encode([image], [PROMPT])
    pixels = padded(image)
    torch.testing.assert_close(encoded.inputs["pixel_values"][0], pixels, atol=0.03, rtol=0)
    expected = original_logits(folder, clip, kind, encoded.inputs["pixel_values"][0], own_vision=own_vision)
    with torch.no_grad():
        logits = model.model(**encoded.inputs).logits[0, -1]
    assert model.model.config.get_text_config().rope_parameters["rope_theta"] == ROPE
    torch.testing.assert_close(logits[: len(expected)], expected, atol=2e-4, rtol=2e-4)
    assert model.generate([image])[0].tokens > 0


def test_what_cannot_be_converted_is_refused(tmp_path: Path) -> None:
    clip = clip_folder(tmp_path / "clip")
    config = ConvertConfig(vision_encoder=clip)
    for number, (changes, words) in enumerate(
        (
            ({"mm_projector_type": "linear"}, "mm_projector_type='linear'"),
            ({"image_aspect_ratio": "anyres"}, "image_aspect_ratio='anyres'"),
            ({"model_type": "llava_mpt"}, "model_type='llava_mpt'"),
            ({"mm_use_im_start_end": True}, "mm_use_im_start_end=True"),
        )
    ):
        folder = published(tmp_path / f"published{number}", "llava", clip, own_vision=False, **changes)
        with pytest.raises(DataError, match=words):
            convert("llava", folder, config, tmp_path / "out")
    with pytest.raises(ConfigError, match="--vision-encoder"):
        convert("llava", folder, ConvertConfig(), tmp_path / "out")
    (folder / "pytorch_model-00002-of-00002.bin").unlink()
    (folder / "config.json").write_text(
        (tmp_path / "published0" / "config.json").read_text().replace("linear", "mlp2x_gelu")
    )
    with pytest.raises(DataError, match=r"the projector .*4 tensors missing"):
        convert("llava", folder, config, tmp_path / "out")
    assert not (tmp_path / "out").exists()

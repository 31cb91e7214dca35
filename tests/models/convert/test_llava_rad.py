"""LLaVA-Rad: encoder, projector, LoRA and prompt of the converted model against a forward put together by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_forward import dense, vit_states
from published_checkpoints import (
    ALPHA,
    PATCH,
    RANK,
    llava_rad_folder,
    lora_tensors,
    open_clip_tensors,
    projector_tensors,
    vicuna_folder,
    vicuna_tokenizer,
)
from torch import Tensor
from torch.nn.functional import gelu

from cxrlab.core.errors import CxrlabError
from cxrlab.models.convert import ConvertConfig, convert, under
from cxrlab.models.hf.checkpoint import open_checkpoint
from cxrlab.models.hf.conversations import SYSTEM, llava_template
from cxrlab.models.hf.model import HfModel
from cxrlab.models.model_parts import add_image_token

pytestmark = pytest.mark.slow

PROMPT = "Provide a description of the findings in the radiology image."
REPORT = "the lungs are clear ."


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Published folders, and both forms of the conversion."""
    root = tmp_path_factory.mktemp("llava_rad")
    base = vicuna_folder(root / "vicuna")
    llava_rad_folder(root / "published")
    convert("llava-rad", root / "published", ConvertConfig(base=base), root / "merged")
    convert("llava-rad", root / "published", ConvertConfig(base=base, keep_adapter=True), root / "adapter")
    return root


def image() -> Tensor:
    return torch.rand(3 * PATCH, 3 * PATCH, generator=torch.Generator().manual_seed(0))


def features(pixels: Tensor) -> Tensor:
    """Output of the last but one block without its class token, through the two layers of the projector."""
    states = vit_states(under(open_clip_tensors(), "visual.trunk."), pixels)
    projector = under(projector_tensors(), "base_model.model.model.")
    return dense(projector, "mm_projector.2", gelu(dense(projector, "mm_projector.0", states[-2][:, 1:])))


def original_logits(vicuna: Path, pixels: Tensor) -> Tensor:
    """What LLaVA 1.x computes: the pieces of text around the image, LoRA beside every linear, words of Vicuna alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(vicuna)
    model = AutoModelForCausalLM.from_pretrained(vicuna, dtype=torch.float32).eval()
    for name, a in lora_tensors().items():
        if name.endswith(".lora_A.weight"):
            b = lora_tensors()[name.replace("lora_A", "lora_B")]
            module = model.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
            module.register_forward_hook(
                lambda _, inputs, out, a=a, b=b: out + (ALPHA / RANK) * (inputs[0] @ a.T) @ b.T
            )
    pieces = (f"{SYSTEM} USER: ", f"\n{PROMPT} ASSISTANT: {REPORT}</s>")
    before, after = (torch.tensor([tokenizer(piece)["input_ids"]]) for piece in pieces)
    words = model.get_input_embeddings()
    with torch.no_grad():
        whole = torch.cat([words(before), features(pixels), words(after[:, 1:])], dim=1)
        return model(inputs_embeds=whole).logits[0, -(after.shape[1] - 1) :]


@pytest.mark.parametrize("folder", ["merged", "adapter"])
def test_the_converted_model_computes_what_the_original_did(root: Path, folder: str) -> None:
    """Every logit of Vicuna's words after the image; the word added for the image is as unlikely as <unk>."""
    found = open_checkpoint(root / folder)
    model = HfModel(found, "hf:converted", prompts())
    encoded = model.encode(image()[None], [PROMPT], [REPORT])
    with torch.no_grad():
        logits = found.model(**encoded.inputs).logits[0]
    expected = original_logits(root / "vicuna", encoded.inputs["pixel_values"].detach())
    ours = logits[int(encoded.image_mask[0].nonzero()[-1]) + 1 :]
    torch.testing.assert_close(ours[:, : expected.shape[1]], expected, atol=1e-4, rtol=1e-4)
    unknown, one_image = found.tokenizer.unk_token_id, found.tokenizer.convert_tokens_to_ids("<image>")
    torch.testing.assert_close(logits[:, one_image], logits[:, unknown], atol=0, rtol=0)
    assert (logits.argmax(-1) != one_image).all()


def prompts() -> Any:
    from cxrlab.models.prompts import load_prompts

    return load_prompts("llava-rad/1")


def test_the_image_reaches_the_language_model_as_in_the_original(root: Path) -> None:
    """hidden_states[-2] of transformers is what goes into the last block: no final norm, no class token."""
    model = open_checkpoint(root / "merged").model
    pixels = torch.randn(2, 3, 3 * PATCH, 3 * PATCH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = model.model.get_image_features(pixels)
    found = getattr(found, "pooler_output", found)
    found = torch.stack(list(found)) if not isinstance(found, Tensor) else found
    torch.testing.assert_close(found.reshape(2, 9, -1), features(pixels), atol=1e-5, rtol=1e-5)


def test_it_answers_and_says_what_it_has_learnt_from(root: Path) -> None:
    """Through the wrapper that everything else uses, merged and as an adapter: the same words."""
    merged, adapter = (HfModel.load(str(root / name)) for name in ("merged", "adapter"))
    assert merged.prompts.name == "llava-rad/1" and "beth-israel" in merged.collections
    images = [image(), image().flip(0)]
    said = [answer.text for answer in merged.generate(images, ["dyspnea", None])]
    assert said == [answer.text for answer in adapter.generate(images, ["dyspnea", None])]


def test_the_prompt_is_vicunas(root: Path) -> None:
    """The conversation of LLaVA v1, word for word, answers and further turns included."""
    processor = open_checkpoint(root / "merged").processor
    turns: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": PROMPT}]}]
    asked = processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    # This tokenizer adds no space after a token of its own, so the template writes the one that the original had.
    assert asked == f"{SYSTEM} USER: <image> \n{PROMPT} ASSISTANT:"
    turns += [{"role": "assistant", "content": [{"type": "text", "text": REPORT}]}, {"role": "user", "content": "Why?"}]
    whole = processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    assert whole == f"{asked} {REPORT}</s>USER: Why? ASSISTANT:"
    with pytest.raises(Exception, match="user and assistant alone"):
        processor.apply_chat_template([{"role": "system", "content": "x"}], tokenize=False)


@pytest.mark.parametrize(("space", "written"), [("always", "<image>\n"), ("first", "<image> \n")])
def test_tokens_around_the_image_are_those_of_separate_pieces(space: str, written: str) -> None:
    """LLaVA 1.x cut the text at the image; both kinds of Llama tokenizers must give the same tokens."""
    tokenizer = vicuna_tokenizer(space)
    pieces = (f"{SYSTEM} USER: ", f"\n{PROMPT} ASSISTANT:")
    before, after = (tokenizer(piece)["input_ids"] for piece in pieces)
    add_image_token(tokenizer)
    image, template = tokenizer.convert_tokens_to_ids("<image>"), llava_template(tokenizer)
    assert written.replace("\n", "\\n") in template or written in template
    whole = tokenizer(written.removesuffix("\n").join(pieces))["input_ids"]
    assert whole == [*before, image, *after[1:]]


def test_weights_are_written_in_the_format_asked_for(root: Path, tmp_path: Path) -> None:
    """VisionEncoder and projector take the language model's format, as the original runs them."""
    from transformers import AutoModelForImageTextToText

    convert("llava-rad", root / "published", ConvertConfig(base=root / "vicuna", dtype="bfloat16"), tmp_path / "out")
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "out", dtype="auto")
    assert {tensor.dtype for tensor in model.parameters()} == {torch.bfloat16}


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite(path: Path, **changes: Any) -> None:
    tensors = torch.load(path, weights_only=True) | changes
    torch.save({name: tensor for name, tensor in tensors.items() if tensor is not None}, path)


LAYER = "base_model.model.model.layers.0.self_attn.q_proj"
ODD: list[tuple[str, Any, str]] = [
    ("config.json", {"mm_projector_type": "linear"}, "mm_projector_type='linear'"),
    ("config.json", {"mm_use_im_start_end": True}, "mm_use_im_start_end=True"),
    ("config.json", {"image_aspect_ratio": "pad"}, "image_aspect_ratio='pad'"),
    ("config.json", {"mm_vision_select_feature": "mean"}, "'mean'"),
    ("config.json", {"mm_vision_select_layer": None}, "mm_vision_select_layer"),
    ("config.json", {"hidden_size": 64}, "hidden_size=32"),
    ("adapter_config.json", {"use_dora": True}, "use_dora=True"),
    ("adapter_config.json", {"peft_type": "IA3"}, "does not describe a LoRA"),
    ("adapter_config.json", {"r": None}, "r=null"),
    ("adapter_config.json", {"r": 5}, "matrices for model.layers.0.self_attn.q_proj are 4×32"),
    ("adapter_model.bin", {f"{LAYER}.lora_B.weight": None}, "lacks one of the two matrices of 1"),
    ("adapter_model.bin", {"base_model.model.lm_head.weight": torch.ones(2)}, "lm_head"),
    (
        "adapter_model.bin",
        {f"{LAYER}x.lora_{k}.weight": torch.ones(4, 4) for k in "AB"},
        "which the base does not have",
    ),
    ("non_lora_trainables.bin", {"base_model.model.model.mm_projector.2.bias": None}, "2.bias"),
    ("non_lora_trainables.bin", {"base_model.model.model.embed_tokens.weight": torch.ones(2)}, "embed_tokens.weight"),
    (
        "non_lora_trainables.bin",
        {"base_model.model.model.mm_projector.0.weight": torch.ones(3, 3)},
        "is 3×3 where 32×128",
    ),
    ("biomedclipcxr_518.json", {"vision_cfg": {"timm_model_name": "vit_huge_patch14_224"}}, "'vit_huge_patch14_224'"),
]


@pytest.mark.parametrize(("file", "changes", "named"), ODD)
def test_what_cannot_be_converted_is_named(root: Path, tmp_path: Path, file: str, changes: Any, named: str) -> None:
    """Each would make another model than the published one; nothing is written."""
    source = llava_rad_folder(tmp_path / "published")
    (edit if file.endswith("json") else rewrite)(source / file, **changes)
    with pytest.raises(CxrlabError) as reported:
        convert("llava-rad", source, ConvertConfig(base=root / "vicuna"), tmp_path / "out")
    assert named in str(reported.value)
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


def test_the_base_must_be_given_and_whole(root: Path, tmp_path: Path) -> None:
    """LLaVA-Rad is published without it; a base with a tensor missing would be random there."""
    from safetensors.torch import load_file, save_file

    with pytest.raises(CxrlabError, match="--base"):
        convert("llava-rad", root / "published", ConvertConfig(), tmp_path / "out")
    with pytest.raises(CxrlabError, match="config.json is missing"):
        convert("llava-rad", root / "published", ConvertConfig(base=tmp_path), tmp_path / "out")
    base = vicuna_folder(tmp_path / "vicuna")
    tensors = load_file(base / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CxrlabError, match=r"model\.norm\.weight"):
        convert("llava-rad", root / "published", ConvertConfig(base=base), tmp_path / "out")
    (base / "model.safetensors").unlink()
    with pytest.raises(CxrlabError, match="no language model that can be loaded"):
        convert("llava-rad", root / "published", ConvertConfig(base=base), tmp_path / "out")

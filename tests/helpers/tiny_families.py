"""Tiny checkpoints of fourteen families with random weights: the true classes, tokens and layouts in a few megabytes.

Each row of `FAMILIES` gives (model, processor) of one family, with the chat template where the published checkpoints
have one; `save_tiny` writes the folder that AutoModelForImageTextToText and AutoProcessor load.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import TEXTS, tiny_llava

from cxrlab.models.hf.checkpoint import without_video
from cxrlab.models.random_init import EOS, IMAGE, TINY, train_tokenizer

SIDE, PATCH, WIDTH = 32, 8, 32
TILES = [[32, 64], [64, 32], [64, 64], [96, 32], [32, 96]]
TEXT = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 2048,
}
VISION = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": PATCH,
}
GREY = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}

# What follows is how each family's published template reads, cut down to one image and its question.
VICUNA = (
    "{% for m in messages %}{{ 'USER: ' if m.role == 'user' else ' ASSISTANT: ' }}"
    "{% for c in m.content %}{% if c.type == 'image' %}<image>\n{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}{% if c.type == 'image' %}IMAGE"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
IDEFICS = (
    "{% for m in messages %}{{ m.role | capitalize }}:{% if m.content[0].type != 'image' %} {% endif %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{% for c in m.content %}{% if c.type == 'image' %}<start_of_image>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def tokenizer(named: dict[str, str], *marks: str, begins: bool = True, ends: str = EOS) -> Any:
    """The tiny tokenizer with a family's own special tokens."""
    from transformers import PreTrainedTokenizerFast

    trained = train_tokenizer(TEXTS * 4, TINY.vocabulary)
    backend = trained.backend_tokenizer
    if not begins:  # families without a begin token
        from tokenizers import processors

        backend.post_processor = processors.ByteLevel(trim_offsets=False)
    grown = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=trained.pad_token,
        bos_token=trained.bos_token if begins else None,
        eos_token=ends,
        unk_token=trained.unk_token,
        extra_special_tokens=named,
        padding_side="right",
    )
    grown.add_special_tokens({"additional_special_tokens": [*marks]} if marks else {})
    return grown


def llava() -> tuple[Any, Any]:
    return tiny_llava()


def vipllava() -> tuple[Any, Any]:
    from transformers import (
        CLIPImageProcessorPil,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaProcessor,
        VipLlavaConfig,
        VipLlavaForConditionalGeneration,
    )

    words = tokenizer({"image_token": IMAGE})
    images = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    config = VipLlavaConfig(
        vision_config=CLIPVisionConfig(**VISION),
        text_config=LlamaConfig(**TEXT, **ids(words)),
        image_token_index=words.image_token_id,
        vision_feature_layers=[-2, -1],
        image_seq_length=(SIDE // PATCH) ** 2,
    )
    processor = LlavaProcessor(
        images,
        words,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=VICUNA,
    )
    return VipLlavaForConditionalGeneration(config), processor


def llava_next() -> tuple[Any, Any]:
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaNextConfig,
        LlavaNextForConditionalGeneration,
        LlavaNextImageProcessorPil,
        LlavaNextProcessor,
    )

    words = tokenizer({"image_token": IMAGE})
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, image_grid_pinpoints=TILES
    )
    config = LlavaNextConfig(
        vision_config=CLIPVisionConfig(**VISION),
        text_config=LlamaConfig(**TEXT, **ids(words)),
        image_token_index=words.image_token_id,
        image_grid_pinpoints=TILES,
        image_seq_length=(SIDE // PATCH) ** 2,
    )
    processor = LlavaNextProcessor(
        images,
        words,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=VICUNA,
    )
    return LlavaNextForConditionalGeneration(config), processor


def llava_onevision() -> tuple[Any, Any]:
    from transformers import (
        LlavaOnevisionConfig,
        LlavaOnevisionForConditionalGeneration,
        LlavaOnevisionImageProcessorPil,
        LlavaOnevisionProcessor,
        Qwen2Config,
        SiglipVisionConfig,
    )

    words = tokenizer(
        {"image_token": IMAGE, "video_token": "<video>"}, "<|im_start|>", "<|im_end|>", begins=False, ends="<|im_end|>"
    )
    images = LlavaOnevisionImageProcessorPil(size={"height": SIDE, "width": SIDE}, image_grid_pinpoints=TILES, **GREY)
    config = LlavaOnevisionConfig(
        vision_config=SiglipVisionConfig(**VISION, vision_use_head=False),
        text_config=Qwen2Config(**TEXT, **ids(words)),
        image_token_index=words.image_token_id,
        video_token_index=words.video_token_id,
        image_grid_pinpoints=TILES,
    )
    processor = without_video(LlavaOnevisionProcessor)(
        images,
        words,
        num_image_tokens=(SIDE // PATCH) ** 2,
        vision_feature_select_strategy="full",
        chat_template=CHAT.replace("IMAGE", "<image>\n"),
    )
    return LlavaOnevisionForConditionalGeneration(config), processor


def idefics() -> tuple[Any, Any]:
    from transformers import IdeficsConfig, IdeficsForVisionText2Text, IdeficsImageProcessorPil, IdeficsProcessor

    words = tokenizer({}, "<fake_token_around_image>", IMAGE)
    text = {name: value for name, value in TEXT.items() if name not in ("num_key_value_heads", "head_dim")}
    config = IdeficsConfig(
        **text,
        **ids(words) | {"vocab_size": len(words) - 2},
        additional_vocab_size=2,
        alpha_initializer="ones",  # zeros, as published, would close the gates to the image
        cross_layer_interval=2,
        qk_layer_norms=True,
        use_resampler=True,
        vision_config={**VISION, "embed_dim": WIDTH},
        perceiver_config={
            "use_resampler": True,
            "resampler_n_latents": 4,
            "resampler_depth": 1,
            "resampler_n_heads": 2,
            "resampler_head_dim": 16,
            "qk_layer_norms_perceiver": True,
        },
    )
    return IdeficsForVisionText2Text(config), IdeficsProcessor(IdeficsImageProcessorPil(image_size=SIDE), words)


def idefics2() -> tuple[Any, Any]:
    from transformers import (
        Idefics2Config,
        Idefics2ForConditionalGeneration,
        Idefics2ImageProcessorPil,
        Idefics2Processor,
        MistralConfig,
    )

    words = tokenizer({})  # the processor adds the family's tokens
    images = Idefics2ImageProcessorPil(size={"shortest_edge": 24, "longest_edge": 40}, do_image_splitting=False)
    processor = Idefics2Processor(images, words, image_seq_len=4, chat_template=IDEFICS)
    config = Idefics2Config(
        vision_config={**VISION, "image_size": 40},
        perceiver_config={
            "hidden_size": WIDTH,
            "resampler_n_latents": 4,
            "resampler_depth": 1,
            "resampler_n_heads": 2,
            "resampler_head_dim": 16,
            "num_key_value_heads": 1,
        },
        text_config=MistralConfig(**TEXT, **ids(words)),
        image_token_id=processor.image_token_id,
    )
    return Idefics2ForConditionalGeneration(config), processor


def idefics3() -> tuple[Any, Any]:
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
        LlamaConfig,
    )

    places = [f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)]
    marks = ("<fake_token_around_image>", "<end_of_utterance>", "<global-img>")
    words = tokenizer({"image_token": IMAGE}, *marks, *places)
    images = Idefics3ImageProcessorPil(size={"longest_edge": 2 * SIDE}, max_image_size={"longest_edge": SIDE})
    processor = Idefics3Processor(images, words, image_seq_len=4, chat_template=IDEFICS)
    config = Idefics3Config(
        vision_config=VISION,
        text_config=LlamaConfig(**TEXT, **ids(words)),
        image_token_id=words.image_token_id,
        scale_factor=2,
    )
    return Idefics3ForConditionalGeneration(config), processor


def smolvlm() -> tuple[Any, Any]:
    from transformers import (
        LlamaConfig,
        SmolVLMConfig,
        SmolVLMForConditionalGeneration,
        SmolVLMImageProcessorPil,
        SmolVLMProcessor,
    )

    places = [f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)]
    marks = ("<fake_token_around_image>", "<end_of_utterance>", "<global-img>")
    words = tokenizer({"image_token": IMAGE}, *marks, *places)
    images = SmolVLMImageProcessorPil(size={"longest_edge": 2 * SIDE}, max_image_size={"longest_edge": SIDE})
    processor = without_video(SmolVLMProcessor)(images, words, image_seq_len=4, chat_template=IDEFICS)
    config = SmolVLMConfig(
        vision_config=VISION,
        text_config=LlamaConfig(**TEXT, **ids(words)),
        image_token_id=words.image_token_id,
        scale_factor=2,
    )
    return SmolVLMForConditionalGeneration(config), processor


def paligemma() -> tuple[Any, Any]:
    from transformers import (
        GemmaConfig,
        PaliGemmaConfig,
        PaliGemmaForConditionalGeneration,
        PaliGemmaProcessor,
        SiglipImageProcessorPil,
        SiglipVisionConfig,
    )

    words = tokenizer({"image_token": IMAGE})
    images = SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    images.image_seq_length = (SIDE // PATCH) ** 2
    processor = PaliGemmaProcessor(images, words)
    config = PaliGemmaConfig(
        vision_config=SiglipVisionConfig(**VISION, projection_dim=WIDTH, vision_use_head=False),
        text_config=GemmaConfig(**TEXT, **ids(words)),
        image_token_index=words.convert_tokens_to_ids(IMAGE),
        projection_dim=WIDTH,
        hidden_size=WIDTH,
    )
    return PaliGemmaForConditionalGeneration(config), processor


def gemma3() -> tuple[Any, Any]:
    from transformers import (
        Gemma3Config,
        Gemma3ForConditionalGeneration,
        Gemma3ImageProcessorPil,
        Gemma3Processor,
        Gemma3TextConfig,
        SiglipVisionConfig,
    )

    words = tokenizer(
        {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"},
        "<start_of_turn>",
        "<end_of_turn>",
    )
    images = Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE})
    processor = Gemma3Processor(images, words, image_seq_length=4, chat_template=GEMMA)
    config = Gemma3Config(
        vision_config=SiglipVisionConfig(**VISION, vision_use_head=False),
        text_config=Gemma3TextConfig(**TEXT, **ids(words), query_pre_attn_scalar=16, sliding_window=512),
        mm_tokens_per_image=4,
        boi_token_index=words.boi_token_id,
        eoi_token_index=words.eoi_token_id,
        image_token_index=words.image_token_id,
    )
    return Gemma3ForConditionalGeneration(config), processor


def qwen2_5_vl() -> tuple[Any, Any]:
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessorPil,
    )

    words = tokenizer(
        {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        begins=False,
        ends="<|im_end|>",
    )
    images = Qwen2VLImageProcessorPil(
        patch_size=PATCH, size={"shortest_edge": (2 * PATCH) ** 2, "longest_edge": 12 * (2 * PATCH) ** 2}
    )
    seen = CHAT.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    processor = without_video(Qwen2_5_VLProcessor)(images, words, chat_template=seen)
    start, end = words.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>"])
    rotary = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    config = Qwen2_5_VLConfig(
        vision_config={
            "depth": 2,
            "hidden_size": WIDTH,
            "intermediate_size": 48,
            "num_heads": 2,
            "patch_size": PATCH,
            "out_hidden_size": WIDTH,
            "window_size": 4 * PATCH,
            "fullatt_block_indexes": [1],
        },
        text_config={**TEXT, **ids(words), "rope_parameters": rotary},
        image_token_id=words.image_token_id,
        video_token_id=words.video_token_id,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    return Qwen2_5_VLForConditionalGeneration(config), processor


def qwen2_vl() -> tuple[Any, Any]:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil, Qwen2VLProcessor

    words = tokenizer(
        {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        begins=False,
        ends="<|im_end|>",
    )
    images = Qwen2VLImageProcessorPil(
        patch_size=PATCH, size={"shortest_edge": (2 * PATCH) ** 2, "longest_edge": 12 * (2 * PATCH) ** 2}
    )
    seen = CHAT.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    processor = without_video(Qwen2VLProcessor)(images, words, chat_template=seen)
    start, end = words.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>"])
    rotary = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    config = Qwen2VLConfig(
        vision_config={
            "depth": 2,
            "embed_dim": WIDTH,
            "hidden_size": WIDTH,
            "mlp_ratio": 2,
            "num_heads": 2,
            "patch_size": PATCH,
        },
        text_config={**TEXT, **ids(words), "rope_parameters": rotary},
        image_token_id=words.image_token_id,
        video_token_id=words.video_token_id,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    return Qwen2VLForConditionalGeneration(config), processor


def qwen3_vl() -> tuple[Any, Any]:
    from transformers import (
        Qwen2VLImageProcessorPil,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
    )

    words = tokenizer(
        {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        begins=False,
        ends="<|im_end|>",
    )
    images = Qwen2VLImageProcessorPil(
        patch_size=PATCH, size={"shortest_edge": (2 * PATCH) ** 2, "longest_edge": 12 * (2 * PATCH) ** 2}, **GREY
    )
    seen = CHAT.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    processor = without_video(Qwen3VLProcessor)(images, words, chat_template=seen)
    start, end = words.convert_tokens_to_ids(["<|vision_start|>", "<|vision_end|>"])
    rotary = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}
    config = Qwen3VLConfig(
        vision_config={
            "depth": 2,
            "hidden_size": WIDTH,
            "intermediate_size": 48,
            "num_heads": 2,
            "patch_size": PATCH,
            "out_hidden_size": WIDTH,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        text_config={**TEXT, **ids(words), "rope_parameters": rotary},
        image_token_id=words.image_token_id,
        video_token_id=words.video_token_id,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    return Qwen3VLForConditionalGeneration(config), processor


def internvl() -> tuple[Any, Any]:
    from transformers import (
        GotOcr2ImageProcessorPil,
        InternVLConfig,
        InternVLForConditionalGeneration,
        InternVLProcessor,
        Qwen2Config,
    )

    words = tokenizer(
        {
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
        "<|im_start|>",
        "<|im_end|>",
        begins=False,
        ends="<|im_end|>",
    )
    images = GotOcr2ImageProcessorPil(size={"height": SIDE, "width": SIDE}, max_patches=4)
    processor = without_video(InternVLProcessor)(
        images, words, image_seq_length=4, chat_template=CHAT.replace("IMAGE", "<IMG_CONTEXT>\n")
    )
    config = InternVLConfig(
        vision_config={**VISION, "image_size": [SIDE, SIDE], "patch_size": [PATCH, PATCH]},
        text_config=Qwen2Config(**TEXT, **ids(words)),
        image_token_id=words.context_image_token_id,
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    return InternVLForConditionalGeneration(config), processor


FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "llava": llava,
    "vipllava": vipllava,
    "llava_next": llava_next,
    "llava_onevision": llava_onevision,
    "idefics": idefics,
    "idefics2": idefics2,
    "idefics3": idefics3,
    "smolvlm": smolvlm,
    "paligemma": paligemma,
    "gemma3": gemma3,
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "internvl": internvl,
}


def ids(words: Any) -> dict[str, Any]:
    """Size of the vocabulary and the ids of its special tokens, as a text config takes them."""
    return {
        "vocab_size": len(words),
        "pad_token_id": words.pad_token_id,
        "bos_token_id": words.bos_token_id,
        "eos_token_id": words.eos_token_id,
        "tie_word_embeddings": False,
    }


def tiny(family: str, seed: int = 0) -> tuple[Any, Any]:
    """(model, processor) of a family, evaluation mode, with weights lively enough that the image matters."""
    torch.manual_seed(seed)
    try:
        model, processor = FAMILIES[family]()
    except ImportError:
        pytest.skip(f"transformers {transformers.__version__} has no image processor of {family} without torchvision")
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:  # drawn so that a layer keeps the size of what it is given
                fan = weights[0].numel()
                weights.copy_(torch.randn(weights.shape, generator=source) / fan**0.5)
    return model.eval(), processor


def save_tiny(family: str, folder: Path, seed: int = 0) -> Path:
    """A checkpoint folder in the layout of the published ones."""
    model, processor = tiny(family, seed)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder

"""Tiny checkpoints in the layouts of their publishers: the true names of files and tensors, random numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WORDS = "no acute edema effusion the lungs are clear small left right pleural heart is normal . , ##s".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
PUBMEDBERT = "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"
PATCH, WIDTH, SHARED, TEXT_WIDTH = 14, 128, 24, 64
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


@dataclass(frozen=True)
class Sizes:
    """Sizes of a published LLaVA-Rad; `side` is that of an image in patches."""

    side: int = 3
    vision_layers: int = 3
    vision_width: int = WIDTH
    text_layers: int = 2
    text_width: int = TEXT_WIDTH
    layers: int = 2
    width: int = 32
    inner: int = 48
    rank: int = 4


TINY = Sizes()
SEVEN_BILLION = Sizes(37, 12, 768, 12, 768, 32, 4096, 11008, 64)


class Draw:
    """Random tensors from a seed, large enough that every layer matters."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int, scale: float = 0.2, around: float = 0.0) -> Tensor:
        return around + scale * torch.randn(*shape, generator=self.generator)

    def linear(self, name: str, out: int, into: int) -> dict[str, Tensor]:
        return {f"{name}.weight": self(out, into, scale=into**-0.5), f"{name}.bias": self(out)}

    def norm(self, name: str, width: int) -> dict[str, Tensor]:
        return {f"{name}.weight": self(width, around=1.0), f"{name}.bias": self(width)}


def timm_trunk(
    seed: int = 0, side: int = 3, layers: int = 3, width: int = WIDTH, scaled: bool = True
) -> dict[str, Tensor]:
    """Tensors of a timm ViT for images of `side` × 14 pixels, with LayerScale where `scaled`."""
    draw = Draw(seed)
    tensors = {
        "cls_token": draw(1, 1, width),
        "pos_embed": draw(1, 1 + side * side, width),
        "patch_embed.proj.weight": draw(width, 3, PATCH, PATCH, scale=0.05),
        "patch_embed.proj.bias": draw(width),
    }
    for k in range(layers):
        block = f"blocks.{k}"
        tensors |= draw.norm(f"{block}.norm1", width)
        tensors |= draw.linear(f"{block}.attn.qkv", 3 * width, width)
        tensors |= draw.linear(f"{block}.attn.proj", width, width)
        tensors |= draw.norm(f"{block}.norm2", width)
        tensors |= draw.linear(f"{block}.mlp.fc1", 4 * width, width)
        tensors |= draw.linear(f"{block}.mlp.fc2", width, 4 * width)
        if scaled:
            tensors |= {f"{block}.ls1.gamma": draw(width, around=0.5), f"{block}.ls2.gamma": draw(width, around=0.5)}
    return tensors | draw.norm("norm", width)


def bert(seed: int = 1, layers: int = 2, width: int = TEXT_WIDTH, positions: int = 40) -> dict[str, Tensor]:
    """Tensors of a BERT as published checkpoints name them, pooler and position buffer included."""
    draw = Draw(seed)
    tensors = {
        "embeddings.position_ids": torch.arange(positions)[None],
        "embeddings.word_embeddings.weight": draw(len(VOCABULARY), width),
        "embeddings.position_embeddings.weight": draw(positions, width),
        "embeddings.token_type_embeddings.weight": draw(2, width),
    } | draw.norm("embeddings.LayerNorm", width)
    for k in range(layers):
        layer = f"encoder.layer.{k}"
        for part in ("query", "key", "value"):
            tensors |= draw.linear(f"{layer}.attention.self.{part}", width, width)
        tensors |= draw.linear(f"{layer}.attention.output.dense", width, width)
        tensors |= draw.norm(f"{layer}.attention.output.LayerNorm", width)
        tensors |= draw.linear(f"{layer}.intermediate.dense", 2 * width, width)
        tensors |= draw.linear(f"{layer}.output.dense", width, 2 * width)
        tensors |= draw.norm(f"{layer}.output.LayerNorm", width)
    return tensors | draw.linear("pooler.dense", width, width)


def open_clip_tensors(
    side: int | None = None, scaled: bool = True, mlp: bool = True, pooler: bool = False, sizes: Sizes = TINY
) -> dict[str, Tensor]:
    """Tensors of a whole encoder, as open_clip's CustomTextCLIP names them."""
    width, text_width = sizes.vision_width, sizes.text_width
    draw, middle = Draw(2), (text_width + SHARED) // 2
    whole = bert(layers=sizes.text_layers, width=text_width)
    text = {name: tensor for name, tensor in whole.items() if pooler or not name.startswith("pooler.")}
    projection = (
        {"text.proj.0.weight": draw(middle, text_width), "text.proj.2.weight": draw(SHARED, middle)}
        if mlp
        else {"text.proj.weight": draw(SHARED, text_width)}
    )
    trunk = timm_trunk(side=side or sizes.side, layers=sizes.vision_layers, width=width, scaled=scaled)
    return (
        {"logit_scale": torch.tensor(4.25), "visual.head.proj.weight": draw(SHARED, width)}
        | {f"visual.trunk.{name}": tensor for name, tensor in trunk.items()}
        | {f"text.transformer.{name}": tensor for name, tensor in text.items()}
        | projection
    )


def open_clip_config(side: int = 3, **text: Any) -> dict[str, Any]:
    return {
        "embed_dim": SHARED,
        "vision_cfg": {
            "timm_model_name": "vit_base_patch14_dinov2",
            "timm_model_pretrained": False,
            "timm_pool": "",
            "timm_proj": "linear",
            "image_size": side * PATCH,
        },
        "text_cfg": {
            "hf_model_name": PUBMEDBERT,
            "hf_tokenizer_name": PUBMEDBERT,
            "hf_proj_type": "mlp",
            "hf_pooler_type": "cls_last_hidden_state_pooler",
            "context_length": 16,
        }
        | text,
    }


def save_tokenizer(folder: Path, *more: str) -> None:
    from transformers import BertTokenizer

    BertTokenizer(vocab={word: number for number, word in enumerate([*VOCABULARY, *more])}).save_pretrained(folder)


def open_clip_folder(folder: Path, tensors: dict[str, Tensor] | None = None, sizes: Sizes = TINY, **text: Any) -> Path:
    """BiomedCLIP's folder: config with its preprocessing, weights as a pickle, tokenizer of the text model."""
    folder.mkdir(parents=True)
    config = {"model_cfg": open_clip_config(sizes.side, **text), "preprocess_cfg": {"mean": MEAN, "std": STD}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    torch.save(open_clip_tensors(sizes=sizes) if tensors is None else tensors, folder / "open_clip_pytorch_model.bin")
    save_tokenizer(folder)
    return folder


RANK, ALPHA = 4, 12
LLAVA_CONFIG = {
    "model_type": "llava",
    "architectures": ["LlavaLlamaForCausalLM"],
    "mm_vision_tower": "biomedclip_cxr_518",
    "mm_projector_type": "mlp2x_gelu",
    "mm_hidden_size": WIDTH,
    "mm_vision_select_layer": -2,
    "mm_vision_select_feature": "patch",
    "mm_use_im_start_end": False,
    "mm_use_im_patch_token": False,
    "image_aspect_ratio": "square",
    "hidden_size": 32,
    "num_hidden_layers": 2,
}
LORA_CONFIG = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": RANK,
    "lora_alpha": ALPHA,
    "lora_dropout": 0.05,
    "bias": "none",
    "fan_in_fan_out": False,
    "modules_to_save": None,
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "base_model_name_or_path": "lmsys/vicuna-7b-v1.5",
}


def vicuna_tokenizer(space: str = "first", texts: Sequence[str] = (), vocabulary: int = 520) -> Any:
    """Words with the space in front of them, as Llama's.

    Args:
        space: Which pieces of a text get a space added: first or always.
        texts: More texts to learn words from.
        vocabulary: Size of the vocabulary without the bytes, filled up with tokens that never occur.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    from cxrlab.models.hf.conversations import SYSTEM

    bpe = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    if space == "always":
        bpe.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        bpe.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=space, split=False)
    bpe.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    more = [word for text in texts for word in f" {text}".replace(" ", " ▁").split()]
    texts = [SYSTEM, "USER: ASSISTANT: Provide a description of the findings in the radiology image.", *WORDS]
    alphabet = sorted(set("".join([*texts, *more])) | set("▁") | {chr(k) for k in range(33, 127)})
    special = ["<unk>", "<s>", "</s>", *(f"<0x{k:02X}>" for k in range(256))]
    bpe.train_from_iterator(
        [text.replace(" ", "▁") for text in texts] + more,
        trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=special[:3], initial_alphabet=alphabet, show_progress=False
        ),
    )
    merged = json.loads(bpe.to_str())
    start = len(merged["model"]["vocab"])
    unused = [f"▁unused{k}" for k in range(vocabulary - start)]
    merged["model"]["vocab"] |= {word: start + k for k, word in enumerate([*special[3:], *unused])}
    bpe = Tokenizer.from_str(json.dumps(merged))
    bpe.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", bpe.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def vicuna_folder(folder: Path, space: str = "first") -> Path:
    """A Llama with its tokenizer, which knows no `<image>`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = vicuna_tokenizer(space)
    torch.manual_seed(3)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=512,
            initializer_range=0.2,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def lora_tensors(sizes: Sizes = TINY, scale: float = 0.2) -> dict[str, Tensor]:
    """LoRA matrices of all linears of a Llama, as LLaVA 1.x saves them."""
    width, inner, rank = sizes.width, sizes.inner, sizes.rank
    draw, mlp = Draw(4), {"gate_proj": (inner, width), "up_proj": (inner, width), "down_proj": (width, inner)}
    tensors = {}
    for k in range(sizes.layers):
        for module in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"):
            part = "mlp" if module in mlp else "self_attn"
            out, into = mlp.get(module, (width, width))
            name = f"base_model.model.model.layers.{k}.{part}.{module}"
            tensors[f"{name}.lora_A.weight"] = draw(rank, into, scale=scale)
            tensors[f"{name}.lora_B.weight"] = draw(out, rank, scale=scale)
    return tensors


def projector_tensors(sizes: Sizes = TINY) -> dict[str, Tensor]:
    draw, width = Draw(5), sizes.width
    tensors = draw.linear("mm_projector.0", width, sizes.vision_width) | draw.linear("mm_projector.2", width, width)
    return {f"base_model.model.model.{name}": tensor for name, tensor in tensors.items()}


def llava_rad_folder(folder: Path, sizes: Sizes = TINY, scale: float = 0.2) -> Path:
    """LLaVA-Rad's folder: LoRA, projector, config, and the encoder as a training checkpoint with its config.

    Args:
        sizes: Of the model.
        scale: Standard deviation of the LoRA's matrices.
    """
    folder.mkdir(parents=True)
    own = {"hidden_size": sizes.width, "num_hidden_layers": sizes.layers, "mm_hidden_size": sizes.vision_width}
    (folder / "config.json").write_text(json.dumps(LLAVA_CONFIG | own))
    (folder / "adapter_config.json").write_text(json.dumps(LORA_CONFIG | {"r": sizes.rank}))
    torch.save(lora_tensors(sizes, scale), folder / "adapter_model.bin")
    torch.save(projector_tensors(sizes), folder / "non_lora_trainables.bin")
    (folder / "biomedclipcxr_518.json").write_text(json.dumps(open_clip_config(sizes.side)))
    state = {f"module.{name}": tensor for name, tensor in open_clip_tensors(pooler=True, sizes=sizes).items()}
    torch.save({"epoch": 1, "name": "cxr", "state_dict": state}, folder / "biomedclipcxr_518_checkpoint.pt")
    return folder

"""Models in two precisions, images with their reports, and attack settings for the attack benchmark."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cxrlab.data.config import PhantomConfig
from cxrlab.data.images import load_image
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.models.builtin import builtin_folder
from cxrlab.models.hf.checkpoint import Checkpoint, open_checkpoint, open_processor
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_parts import load_language_model, load_vision_encoder
from cxrlab.models.prompts import load_prompts
from cxrlab.models.random_init import assemble_llava, build_image_processor

SEED = 7


@dataclass(frozen=True)
class Strength:
    """Settings of PGD; `share` is the step size as a share of `eps`."""

    eps: float = 2 / 255
    steps: int = 10
    share: float = 0.25

    @property
    def length(self) -> float:
        """Step size."""
        return self.share * self.eps


@dataclass(frozen=True, eq=False)
class Images:
    """Images [N, 1, H, W] float32 in [0, 1] with reports and indications."""

    images: Tensor
    reports: tuple[str, ...]
    indications: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, part: slice) -> Images:
        return Images(self.images[part], self.reports[part], self.indications[part])


def phantoms(count: int, side: int, seed: int = SEED) -> Images:
    """Generate phantoms with the reports of their findings."""
    with tempfile.TemporaryDirectory() as folder:
        config = PhantomConfig(n=count, size=side, seed=seed, masks=False, workers=0 if count > 16 else 1)
        corpus = make_phantom(config, Path(folder) / "corpus")
        images, reports, indications = [], [], []
        for study in corpus:
            assert study.sections is not None
            images.append(torch.from_numpy(load_image(corpus.path / study.images[0].path)))
            reports.append(study.sections.findings or "")
            indications.append(study.sections.indication)
    return Images(torch.stack(images)[:, None], tuple(reports), tuple(indications))


def reporter(device: str) -> Checkpoint:
    """`builtin:reporter` with its adapter merged into the weights, so that neither implementation pays for it."""
    return open_checkpoint(builtin_folder("reporter"), LoadSettings(device=device, dtype="float32"), merge=True)


def tiny(device: str) -> Checkpoint:
    """A tiny LLaVA with random weights, to check that the script runs."""
    vision_encoder, language = load_vision_encoder("fresh:tiny"), load_language_model("fresh:tiny", seed=1)
    model, processor = assemble_llava(
        vision_encoder.model, language.model, language.tokenizer, vision_encoder.image_processor, 2
    )
    return Checkpoint(model.to(device).eval(), processor, processor.tokenizer, None, Path())


def billion(device: str) -> Checkpoint:
    """A LLaVA of 1.4 billion parameters with random weights: ViT-L/14 at 518 px, 1369 image tokens, a Llama of 1.1."""
    from transformers import Dinov2Config, Dinov2Model, LlamaConfig, LlamaForCausalLM

    tokenizer = open_processor(builtin_folder("general"), LoadSettings()).tokenizer
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    torch.manual_seed(SEED)
    with torch.device(device):
        vision_encoder = Dinov2Model(
            Dinov2Config(
                hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, image_size=518, patch_size=14,
                use_mask_token=False,
            )
        )  # fmt: skip
        language = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                num_attention_heads=32, num_key_value_heads=4, max_position_embeddings=2048, tie_word_embeddings=False,
                **ids,
            )
        )  # fmt: skip
    model, processor = assemble_llava(vision_encoder, language, tokenizer, build_image_processor(518), SEED)
    return Checkpoint(model.to(device).eval(), processor, tokenizer, None, Path())


def in_precision(checkpoint: Checkpoint, dtype: str) -> HfModel:
    """The weights rounded to bfloat16, stored as `dtype`: converting back and forth changes nothing."""
    model: Any = checkpoint.model
    with torch.no_grad():
        for weights in model.parameters():  # not the rotary embeddings, which stay float32 in a loaded model too
            weights.data = weights.data.to(torch.bfloat16).to(getattr(torch, dtype))
    return HfModel(checkpoint, "hf:subject", load_prompts())

"""PGD as published attacks on vision-language models run it: one image at a time, through the whole model's own loss.

Taken from how the evaluation code of Robust CLIP (chs20/RobustVLM) attacks a LLaVA:

    once per image   prompt and report are tokenised together, the labels of the prompt are masked
    each step        the range of the image is checked on the device, the image is normalised, the whole sequence goes
                     through the model with labels (so that logits are computed for every token), and autograd computes
                     the gradient of the image

The vision encoder is frozen. The other weights stay as loaded: they require gradients, which autograd does not compute
here, but their activations are kept. The cache of keys and values has the model's default. Three changes favour the
loop: attention is SDPA instead of the slower eager one, images are given as tensors instead of being read and resized,
and there is no momentum. Images stay float32 in every precision, which costs nothing; the published code rounds them to
the precision of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from attack_ways.subjects import Images, Strength
from torch import Tensor

from cxrlab.models.hf.prompting import prompt_text, report_text


def attack(model: Any, processor: Any, prompts: Sequence[str], images: Images, strength: Strength) -> Tensor:
    """Perturbed images [N, 1, H, W] on the CPU; `model` is a LLaVA of transformers, `prompts` has one per image."""
    perturbed = []
    with _weights_as_loaded(model):
        for image, prompt, report in zip(images.images, prompts, images.reports, strict=True):
            loss = OneLoss(model, processor, prompt, report)
            perturbed.append(_perturb(loss, image[None].to(model.device), strength).cpu())
    return torch.cat(perturbed)


class OneLoss:
    """The model's own loss of one report, as a function of the image."""

    def __init__(self, model: Any, processor: Any, prompt: str, report: str) -> None:
        self.model = model
        features = (model.config.vision_config.image_size // model.config.vision_config.patch_size) ** 2
        prompt_with_image = prompt_text(processor, prompt).replace(
            processor.image_token, processor.image_token * features
        )
        tokenizer = processor.tokenizer
        text = prompt_with_image + report_text(processor, report) + tokenizer.eos_token
        self.ids = torch.tensor([tokenizer(text)["input_ids"]])
        self.labels = self.ids.clone()
        self.labels[:, : len(tokenizer(prompt_with_image)["input_ids"])] = -100
        self.ids, self.labels = self.ids.to(model.device), self.labels.to(model.device)
        self.mask = torch.ones_like(self.ids)
        image_processor = processor.image_processor
        self.mean, self.std = (
            torch.tensor(values, device=model.device).view(3, 1, 1)
            for values in (image_processor.image_mean, image_processor.image_std)
        )

    def __call__(self, image: Tensor) -> Tensor:
        """Mean of −log p over the tokens of the report, for an image [1, 1, H, W]."""
        if not (image.min() >= 0 and image.max() <= 1):
            raise ValueError("an image must be in [0, 1]")
        pixels = (image - self.mean) / self.std
        out = self.model(
            input_ids=self.ids,
            attention_mask=self.mask,
            pixel_values=pixels.to(self.model.dtype),
            labels=self.labels,
        )
        loss: Tensor = out.loss
        return loss


def _perturb(loss: OneLoss, clean: Tensor, strength: Strength) -> Tensor:
    """The image after the last step of projected gradient ascent."""
    image = clean.clone()
    for _ in range(strength.steps):
        image.requires_grad_()
        with torch.enable_grad():
            value = loss(image)
        (gradient,) = torch.autograd.grad(value, image)
        with torch.no_grad():
            image = image + strength.length * gradient.sign()
            image = torch.minimum(torch.maximum(image, clean - strength.eps), clean + strength.eps).clamp(0, 1)
    return image.detach()


def _weights_as_loaded(model: Any) -> ExitStack:
    """All weights but the vision encoder's require gradients inside the block."""
    stack = ExitStack()
    stack.callback(model.requires_grad_, False)
    model.requires_grad_(True)
    model.model.vision_tower.requires_grad_(False)
    return stack

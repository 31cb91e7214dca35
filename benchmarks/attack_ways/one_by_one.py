"""PGD as published attacks on vision-language models run it: one image at a time, through the whole model's own loss.

Taken from how the evaluation code of Robust CLIP (chs20/RobustVLM) attacks a LLaVA:

    once an image    prompt and report are cut into tokens together, the labels of the prompt are blanked
    each step      the range of the image is checked on the device, it is normalised, the whole sequence goes through
    the model with labels (so that logits are made for every token), and autograd goes back to the image

VisionEncoder frozen, other weights as they are loaded (they ask for gradients; autograd leaves them out, their
activations are kept); the cache of keys and values at the model's default. Three things are in its favour here:
attention is SDPA where
it had the slower eager one, images are given as tensors and not read and resized, and there is no momentum. Images stay
float32 in every precision, which costs nothing; the published code rounds them to that of the weights.
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
    """Images after the attack, [N, 1, H, W] on the processor.

    Args:
        model: A LLaVA of transformers.
        processor: Its own.
        prompts: One an image.
        images: With their reports.
        strength: Of the attack.
    """
    found = []
    with _weights_as_loaded(model):
        for image, prompt, report in zip(images.images, prompts, images.reports, strict=True):
            loss = OneLoss(model, processor, prompt, report)
            found.append(_perturbed(loss, image[None].to(model.device), strength).cpu())
    return torch.cat(found)


class OneLoss:
    """An image into the model's own loss of one report."""

    def __init__(self, model: Any, processor: Any, prompt: str, report: str) -> None:
        self.model = model
        features = (model.config.vision_config.image_size // model.config.vision_config.patch_size) ** 2
        asked = prompt_text(processor, prompt).replace(processor.image_token, processor.image_token * features)
        words = processor.tokenizer
        self.ids = torch.tensor([words(asked + report_text(processor, report) + words.eos_token)["input_ids"]])
        self.labels = self.ids.clone()
        self.labels[:, : len(words(asked)["input_ids"])] = -100
        self.ids, self.labels = self.ids.to(model.device), self.labels.to(model.device)
        self.mask = torch.ones_like(self.ids)
        scale = processor.image_processor
        self.mean, self.std = (
            torch.tensor(values, device=model.device).view(3, 1, 1) for values in (scale.image_mean, scale.image_std)
        )

    def __call__(self, image: Tensor) -> Tensor:
        """Of an image [1, 1, H, W]: mean of −log p over the tokens of the report."""
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


def _perturbed(loss: OneLoss, clean: Tensor, strength: Strength) -> Tensor:
    """The last image of so many steps, each brought back into the ball."""
    image = clean.clone()
    for _ in range(strength.steps):
        image.requires_grad_()
        with torch.enable_grad():
            value = loss(image)
        (slope,) = torch.autograd.grad(value, image)
        with torch.no_grad():
            image = image + strength.length * slope.sign()
            image = torch.minimum(torch.maximum(image, clean - strength.eps), clean + strength.eps).clamp(0, 1)
    return image.detach()


def _weights_as_loaded(model: Any) -> ExitStack:
    """Everything but the vision encoder asks for gradients until this is left."""
    left = ExitStack()
    left.callback(model.requires_grad_, False)
    model.requires_grad_(True)
    model.model.vision_tower.requires_grad_(False)
    return left

"""How far an attack moves what a vision encoder sees, before hardening and after it, image by image.

Both encoders are attacked for themselves, with the same starts; both are held against what the encoder saw in the clean
images before it was hardened, since that is what the projector behind it was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from cxrlab.core.terminal import track
from cxrlab.robustness.harden_config import HardenConfig
from cxrlab.robustness.harden_steps import FeatureDistance, as_images, feature_attack, squared_distances
from cxrlab.robustness.vision_encoder_sight import See, Sight
from cxrlab.training.images import Images


def measure(
    sight: Sight, before: See, images: Images, names: Sequence[str], config: HardenConfig
) -> list[dict[str, Any]]:
    """One record an image: see `summary` for what its numbers are.

    Args:
        sight: The hardened vision encoder.
        before: The vision encoder as it was.
        images: Images that were not learnt from.
        names: Id of each.
        config: Radius, steps of the attack, batch and seed.
    """
    records: list[dict[str, Any]] = []
    size = config.batch_size
    batches = [range(first, min(first + size, len(images))) for first in range(0, len(images), size)]
    for chosen in track(batches, "measuring images before and after", len(images), size=len):
        all_images = as_images(images[chosen], sight.device)
        keys = [names[number] for number in chosen]
        with torch.no_grad():
            wanted, now = before(all_images), sight(all_images)
        columns = {
            "length": wanted.square().sum(dim=-1).mean(dim=1),
            "clean": squared_distances(now, wanted),
            "clean_cosine": _cosines(now, wanted),
        }
        for label, see in (("before", before), ("after", sight)):
            moved = _attacked(see, all_images, wanted, keys, config)
            columns[label] = squared_distances(moved, wanted)
            columns[f"{label}_cosine"] = _cosines(moved, wanted)
        told = {name: values.double().tolist() for name, values in columns.items()}
        records += [
            {"id": key, **{name: values[place] for name, values in told.items()}} for place, key in enumerate(keys)
        ]
    return records


def summary(records: Sequence[Mapping[str, Any]], config: HardenConfig) -> dict[str, Any] | None:
    """Means over the images; None without any.

    `distance` is the squared distance of the features of a patch from those of the clean image before hardening;
    `share` is that over their own mean squared length; `cosine` that of the angle between the two.
    """
    if not records:
        return None
    mean = {name: math.fsum(one[name] for one in records) / len(records) for name in records[0] if name != "id"}

    def told(name: str) -> dict[str, float]:
        return {
            "distance": mean[name], "share": mean[name] / mean["length"], "cosine": mean[f"{name}_cosine"]
        }  # fmt: skip

    return {
        "n": len(records),
        "split": "val",
        "attack": {
            "name": "pgd",
            "norm": config.budget.norm,
            "eps": config.budget.label,
            "steps": config.measure_steps,
        },
        "attacked": {"before": told("before"), "after": told("after")},
        "clean": told("clean"),
    }


def _attacked(see: See, images: Tensor, wanted: Tensor, keys: Sequence[str], config: HardenConfig) -> Tensor:
    """Features of the images after an attack on this vision encoder, [B, P, D]."""
    attack = feature_attack(config.measure_steps)
    found = attack(FeatureDistance(see, wanted), images, config.budget, keys=keys, seed=config.seed)
    with torch.no_grad():
        return see(found.images)


def _cosines(features: Tensor, wanted: Tensor) -> Tensor:
    """[B], mean over the patches."""
    return cosine_similarity(features, wanted, dim=-1).mean(dim=1)

"""What a frozen vision encoder gives to the projector: recorded once, and used in place of running the encoder.

A family declares how (`Family.feature_source`). Where the projector follows the encoder, the encoder's output is
replaced; where it lies inside (Qwen2-VL), the encoder's blocks are skipped and the projector's input is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling

from cxrlab.models.hf.families import FeatureSource, find_family
from cxrlab.models.hf.image_prefix import image_encoder, replaced


class _Recorded(Exception):
    """Carries the features out of a forward pass that needs nothing else."""


def encoder_features(model: Any, pixels: Mapping[str, Tensor]) -> Tensor:
    """What the vision encoder gives to the projector, [R, ...]: tiles or patches, image after image.

    Args:
        model: Of a family with a `feature_source`; its vision encoder is on the device of the pixels.
        pixels: Inputs that come from images alone.
    """
    family = find_family(model.config.model_type)
    vision = model.get_submodule(family.vision_encoder)
    owner, method = image_encoder(model)

    def stop_after_encoder(*args: Any, **given: Any) -> None:
        output = run(*args, **given)
        layers = family.used_layers(model.config)
        used = [output.last_hidden_state] if layers is None else [output.hidden_states[layer] for layer in layers]
        raise _Recorded(torch.cat(used, dim=-1))

    def stop_before_projector(_: Any, args: tuple[Any, ...]) -> None:
        raise _Recorded(args[0])

    with ExitStack() as stack, torch.no_grad():
        if family.feature_source is FeatureSource.OUTPUT:
            run = vision.forward
            stack.enter_context(replaced(vision, "forward", stop_after_encoder))
        else:
            projector = model.get_submodule(family.projector)
            stack.callback(projector.register_forward_pre_hook(stop_before_projector).remove)
        try:
            getattr(owner, method)(**pixels)
        except _Recorded as found:
            features: Tensor = found.args[0]
            return features
    raise ValueError(f"the vision encoder of a '{model.config.model_type}' was not run")


@contextmanager
def given_features(model: Any, features: Tensor) -> Iterator[None]:
    """Within it the projector gets these features, and the layers of the vision encoder are not run."""
    family = find_family(model.config.model_type)
    vision = model.get_submodule(family.vision_encoder)
    with ExitStack() as stack:
        if family.feature_source is FeatureSource.OUTPUT:
            layers = family.used_layers(model.config)
            parts = features.chunk(len(layers or (0,)), dim=-1)

            def output(*args: Any, **given: Any) -> BaseModelOutputWithPooling:
                found = BaseModelOutputWithPooling(last_hidden_state=parts[-1])  # type: ignore[arg-type]
                if layers is not None:
                    found.hidden_states = dict(zip(layers, parts, strict=True))  # type: ignore[assignment]
                return found

            stack.enter_context(replaced(vision, "forward", output))
        else:
            for block in vision.blocks:
                stack.enter_context(replaced(block, "forward", lambda hidden, *args, **given: hidden))
            projector = model.get_submodule(family.projector)
            hook = projector.register_forward_pre_hook(lambda _, args: (features, *args[1:]))
            stack.callback(hook.remove)
        yield

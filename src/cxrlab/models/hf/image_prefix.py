"""Score several texts about the same images: what depends on the images alone is computed once.

The vision encoder runs once for all texts. If the family is causal and all texts begin with the same tokens, the image's
among them, the language model reads these once too, and every text continues from their keys and values (prefix
caching). Gradients flow through both. The activations of one text at a time are kept: a text is computed again when its
gradient is (gradient checkpointing), and autograd adds the gradients up where the texts meet, at the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache, DynamicLayer

from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.inputs import Encoded
from cxrlab.models.hf.scoring import forward, last_logits, reads_left_to_right, without_mask

Score = Callable[[Any, Encoded], Tensor]


def score_each(model: Any, texts: Sequence[Encoded], score: Score) -> list[Tensor]:
    """`score(model, text)` of each batch of texts, all about the same images with the same pixel inputs."""
    if len(texts) == 1:
        return [score(model, texts[0])]
    by_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in texts[0].inputs.values())
    again: Any = partial(checkpoint, use_reentrant=False, preserve_rng_state=False) if by_gradient else _call
    if length := shared_length(model, texts):
        prefix = read_prefix(model, texts[0], length)
        return [again(score, model, _after(text, length, prefix)) for text in texts]
    features = image_features(model, texts[0])

    def with_features(text: Encoded) -> Tensor:
        with _given_features(model, features):
            return score(model, text)

    return [again(with_features, text) for text in texts]


def _call(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    return function(*arguments)


def shared_length(model: Any, texts: Sequence[Encoded]) -> int:
    """Number of tokens that every row of every text begins with; 0 where they cannot be read once for all.

    They must hold the whole image, and leave to each text the tokens whose logits score it. A family that reads images by
    cross-attention needs them at every token.
    """
    if not reads_left_to_right(model) or "image_attention_mask" in texts[0].inputs:
        return 0
    own = [text.places.count if text.places else _answer_length(text) for text in texts]
    least = min(text.ids.shape[1] - count for text, count in zip(texts, own, strict=True))
    rows = torch.cat([text.ids[:, :least] for text in texts])
    length = int((rows == rows[0]).all(dim=0).int().cumprod(dim=0).sum())
    images = [text.image_mask.sum(dim=1) for text in texts]
    in_prefix = texts[0].image_mask[0, :length].sum()
    return length if in_prefix > 0 and all(bool((count == in_prefix).all()) for count in images) else 0


def _answer_length(text: Encoded) -> int:
    """Last positions that hold the last token of every row."""
    lengths = text.inputs["attention_mask"].sum(dim=1)
    return text.ids.shape[1] - int(lengths.min()) + 1


class _Recording(DynamicLayer):
    """A cache layer that keeps the keys and values of the one pass that is made with it.

    It may be called again when the layer is recomputed: then it changes nothing.
    """

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.keys, self.values, self.is_initialized = key_states, value_states, True
        return key_states, value_states

    def get_seq_length(self) -> int:
        return 0


class _Prefixed(DynamicLayer):
    """A cache layer with the keys and values of a prefix, which several texts continue; it keeps none of theirs."""

    keys: Tensor
    values: Tensor

    def __init__(self, recorded: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values, self.is_initialized = recorded.keys, recorded.values, True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return torch.cat([self.keys, key_states], dim=-2), torch.cat([self.values, value_states], dim=-2)


def read_prefix(model: Any, text: Encoded, length: int) -> Cache:
    """Keys and values of the first tokens, image included, for texts that continue them; differentiable."""
    cache = Cache(layer_class_to_replicate=_Recording)
    inputs = {
        name: tensor[:, :length] if tensor.shape == text.ids.shape else tensor for name, tensor in text.inputs.items()
    }
    last_logits(model, {**without_mask(model, inputs), **_cached(cache)}, 1)
    return Cache(layers=[_Prefixed(layer) for layer in cache.layers])


def _after(text: Encoded, length: int, prefix: Cache) -> Encoded:
    """A text without its first tokens and its pixels, which the prefix holds."""
    left = {name: tensor[:, length:] for name, tensor in text.inputs.items() if tensor.shape == text.ids.shape}
    return replace(
        text,
        inputs={**left, **_cached(prefix)},
        report_mask=text.report_mask[:, length:],
        image_mask=text.image_mask[:, length:],
    )


def _cached(cache: Cache) -> dict[str, Any]:
    return {"past_key_values": cache}


class _Features(Exception):
    """Carries the image features out of a forward pass that needs nothing else."""


def image_features(model: Any, text: Encoded) -> Any:
    """What the image encoder of a model returns for the images of a batch; None for a model whose encoder is unknown."""
    module, method = image_encoder(model)
    if module is None:
        return None
    compute = getattr(module, method)

    def stop_with_features(*args: Any, **kwargs: Any) -> None:
        raise _Features(compute(*args, **kwargs))

    with _replaced(module, method, stop_with_features):
        try:
            forward(model, **without_mask(model, text.inputs), use_cache=False)
        except _Features as found:
            return found.args[0]
    return None


@contextmanager
def _given_features(model: Any, features: Any) -> Iterator[None]:
    """Within it the model takes these image features in place of computing them."""
    if features is None:
        yield
        return
    with _replaced(*image_encoder(model), lambda *args, **kwargs: features):
        yield


def image_encoder(model: Any) -> tuple[Any, str]:
    """Module and method that compute what depends on the images alone: vision encoder and projector, or the first."""
    for part in reversed(list(model.modules())):
        if hasattr(type(part), "get_image_features"):
            return part, "get_image_features"
    try:
        return model.get_submodule(find_family(model.config.model_type).vision_encoder), "forward"
    except AttributeError:
        return None, ""


@contextmanager
def _replaced(module: Any, method: str, function: Callable[..., Any]) -> Iterator[None]:
    before = vars(module).get(method)
    setattr(module, method, function)
    try:
        yield
    finally:
        delattr(module, method)
        if before is not None:
            setattr(module, method, before)

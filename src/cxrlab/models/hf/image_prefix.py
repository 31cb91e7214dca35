"""Score several texts about the same images: what depends on the images alone is computed once.

A causal family reads texts that begin with the same tokens, the image's among them, as one sequence: the common prefix, then
what each text has of its own. A mask lets each text see the prefix and itself alone (a tree of two levels), and its
positions continue those of the prefix. For other families the vision encoder runs once for all texts, the language model
for each; where gradients are wanted, the activations of one text at a time are kept, and computed again for its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.inputs import Encoded
from cxrlab.models.hf.scoring import forward, last_logits, logits_at, reads_left_to_right, without_mask

Result = TypeVar("Result")

_PACKED = 1024  # tokens after a short prefix


def score_each(
    model: Any, texts: Sequence[Encoded], counts: Sequence[int], read: Callable[[Encoded, Tensor], Result]
) -> list[Result]:
    """`read(text, logits)` of each batch of texts, all about the same images with the same pixel inputs.

    Args:
        counts: For each text the number of its last positions whose logits [B, count, V] are read.
    """
    length = shared_length(model, texts, counts) if len(texts) > 1 else 0
    groups = pack([text.ids.shape[1] - length for text in texts], length)

    def score(group: list[int]) -> list[Result]:
        some, kept = [texts[place] for place in group], [counts[place] for place in group]
        if len(group) == 1:
            logits = [last_logits(model, without_mask(model, some[0].inputs), kept[0])]
        else:
            logits = packed_logits(model, some, kept, length)
        return [read(text, part) for text, part in zip(some, logits, strict=True)]

    if len(groups) == 1:
        return score(groups[0])
    features = image_features(model, texts[0])

    def score_with_features(group: list[int]) -> list[Result]:
        with _given_features(model, features):
            return score(group)

    by_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in texts[0].inputs.values())
    again = partial(checkpoint, score_with_features, use_reentrant=False, preserve_rng_state=False)
    return [result for group in groups for result in (again if by_gradient else score_with_features)(group)]


def pack(own: Sequence[int], prefix: int) -> list[list[int]]:
    """Positions of texts that are read in one sequence after their prefix; each alone where the prefix has no tokens.

    A sequence is at most twice as long as the prefix, or the prefix and 1,024 tokens: attention grows with the square.

    Args:
        own: Tokens of each text after the prefix.
    """
    groups: list[list[int]] = []
    size = 0
    for place, tokens in enumerate(own):
        if not groups or not prefix or size + tokens > max(prefix, _PACKED):
            groups.append([])
            size = 0
        groups[-1].append(place)
        size += tokens
    return groups


def shared_length(model: Any, texts: Sequence[Encoded], counts: Sequence[int]) -> int:
    """Number of tokens that every row of every text begins with; 0 where they cannot be read once for all.

    They must hold the whole image, and leave to each text the positions that are read. A family with cross-attention
    needs its images at every token, and a sliding window must be wider than any text.
    """
    if not reads_left_to_right(model) or "image_attention_mask" in texts[0].inputs:
        return 0
    window = getattr(model.config.get_text_config(), "sliding_window", None)
    if window is not None and window < max(text.ids.shape[1] for text in texts):
        return 0
    least = min(text.ids.shape[1] - count for text, count in zip(texts, counts, strict=True))
    rows = torch.cat([text.ids[:, :least] for text in texts])
    length = int((rows == rows[0]).all(dim=0).int().cumprod(dim=0).sum())
    in_prefix = texts[0].image_mask[0, :length].sum()
    images = torch.cat([text.image_mask.sum(dim=1) for text in texts])
    return length if bool((in_prefix > 0) & (images == in_prefix).all()) else 0


def packed_logits(model: Any, texts: Sequence[Encoded], counts: Sequence[int], length: int) -> list[Tensor]:
    """Logits [B, count, V] of the last positions of each text, from one pass over their common prefix and their rest."""
    first, device = texts[0], texts[0].ids.device
    own = [text.ids.shape[1] - length for text in texts]
    packed = {
        name: torch.cat([tensor[:, :length], *(text.inputs[name][:, length:] for text in texts)], dim=1)
        if tensor.shape == first.ids.shape
        else tensor
        for name, tensor in first.inputs.items()
    }
    # 0 in the prefix, the number of the text after it.
    text_of = torch.repeat_interleave(torch.arange(len(texts) + 1), torch.tensor([length, *own])).to(device)
    places = torch.arange(len(text_of), device=device)
    seen = (places <= places[:, None]) & ((text_of == 0) | (text_of == text_of[:, None]))
    mask = torch.zeros(seen.shape, dtype=model.dtype, device=device).masked_fill(~seen, torch.finfo(model.dtype).min)
    positions = torch.cat([torch.arange(length), *(torch.arange(length, length + size) for size in own)]).to(device)
    packed["attention_mask"] = mask.expand(len(first.ids), 1, -1, -1)
    packed["position_ids"] = positions.expand(len(first.ids), -1)
    ends = torch.tensor(own).cumsum(dim=0) + length
    columns = torch.cat([torch.arange(end - count, end) for end, count in zip(ends.tolist(), counts, strict=True)])
    return list(torch.split(logits_at(model, packed, columns.to(device)), list(counts), dim=1))


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

    with replaced(module, method, stop_with_features):
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
    with replaced(*image_encoder(model), lambda *args, **kwargs: features):
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
def replaced(module: Any, method: str, function: Callable[..., Any]) -> Iterator[None]:
    """Within it the method of a module is another function."""
    before = vars(module).get(method)
    setattr(module, method, function)
    try:
        yield
    finally:
        delattr(module, method)
        if before is not None:
            setattr(module, method, before)

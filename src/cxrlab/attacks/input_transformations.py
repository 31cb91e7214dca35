"""Input transformations, a defence in front of a model: JPEG, blur, bit depth, noise and resampling, with gradients.

A transformation is written NAME:STRENGTH, such as jpeg:50. It maps images [B, C, H, W] float32 in [0, 1] to images of the
same shape and range. Blur, resampling and noise have exact gradients. Rounding has none that help, so that two of them
have the backward pass of a stand-in (BPDA, Athalye et al. 2018): bit depth that of the identity (straight-through), JPEG
that of a softly rounded codec.

A random transformation draws from one generator per image, in one of three ways:

an audit     seed and pixels decide the draw (`draws_by_pixels`), so that a run can be repeated
a server     each request has a new draw (`fresh_draws`): an image that was lucky once is not lucky when it is sent again
an attacker  has draws of their own (`expected`), never those of the defence
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.image_codec import decode, encode_jpeg, open_picture, to_uint8, to_unit
from cxrlab.core.randomness import generator

if TYPE_CHECKING:
    from torch import Tensor

    Draws = Sequence[np.random.Generator]


def parse_transformation(text: str) -> InputTransformation:
    """`jpeg:50`, or `jpeg` for the strength of the table; a `ConfigError` for an unknown name or strength."""
    name, _, given = text.strip().partition(":")
    kind = TRANSFORMATIONS.get(name)
    if kind is None:
        known = ", ".join(f"{one}:{row.strength:g}" for one, row in TRANSFORMATIONS.items())
        raise ConfigError(f"There is no input transformation '{name}'.{did_you_mean(name, TRANSFORMATIONS)} "
                          f"Known, with usual strengths: {known}.")  # fmt: skip
    try:
        strength = float(given) if given else kind.strength
    except ValueError:
        strength = math.nan
    whole = kind.whole and not float(strength).is_integer()
    if not kind.low <= strength <= kind.high or whole:
        number = "a whole number" if kind.whole else "a number"
        raise ConfigError(
            f"The input transformation '{text}' has the strength '{given}'; give {number} from {kind.low:g} to "
            f"{kind.high:g} ({kind.unit}), such as {name}:{kind.strength:g}."
        )
    return InputTransformation(name, strength)


@dataclass(frozen=True)
class InputTransformation:
    """A row of `TRANSFORMATIONS` with its strength."""

    name: str
    strength: float

    def __str__(self) -> str:
        return f"{self.name}:{self.strength:g}"

    @property
    def random(self) -> bool:
        """Whether the same image can be transformed in several ways."""
        return TRANSFORMATIONS[self.name].random

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """The transformed images [B, C, H, W], with gradients; `draws` has one generator per image."""
        return TRANSFORMATIONS[self.name].apply(images, self.strength, draws)


def draws_by_pixels(images: Tensor, seed: int, *names: str | int) -> Draws:
    """One generator per image, decided by the seed, the names and the pixels alone: not by the batch."""
    return [
        generator(seed, "input transformation", *names, blake2b(pixels.tobytes(), digest_size=16).hexdigest())
        for pixels in images.detach().cpu().numpy()
    ]


def fresh_draws(images: Tensor) -> Draws:
    """One generator per image from the entropy of the operating system."""
    return [np.random.default_rng() for _ in images]


def expected(
    model: Callable[[Tensor], Tensor], images: Tensor, transformation: InputTransformation, draws: int, seed: int
) -> Tensor:
    """Outputs for an attacker's draws of the transformed images, [draws, B, …]; expectation over transformation (EOT).

    The mean over the first dimension has the gradient that an attacker follows. A transformation without randomness has
    one draw. Another image has other draws, so that every gradient step sees new ones.
    """
    import torch

    rounds = range(draws if transformation.random else 1)
    return torch.stack(
        [model(transformation(images, draws_by_pixels(images, seed, "attacker", draw))) for draw in rounds]
    )


class BehindTransformation:
    """A model as an attacker who knows its input transformation differentiates it: losses are means over draws.

    Args:
        model: With `device`, and the method of the two below that is used.
        draws: Of a random transformation.
        seed: Of the attacker's draws.
    """

    def __init__(self, model: Any, transformation: InputTransformation, draws: int, seed: int) -> None:
        self.model, self.transformation, self.draws, self.seed = model, transformation, draws, seed
        self.device = model.device

    def losses(self, images: Tensor, reports: Sequence[str], indications: Sequence[Any]) -> Tensor:
        """[B], mean over draws of the loss of each image's report."""
        return self.expected(lambda some: self.model.losses(some, reports, indications), images).mean(dim=0)

    def losses_of_each(
        self, images: Tensor, reports: Sequence[Sequence[str]], indications: Sequence[Any]
    ) -> list[Tensor]:
        """The same for several lists of reports about the same images."""
        import torch

        def several(some: Tensor) -> Tensor:  # [B, lists]
            return torch.stack(self.model.losses_of_each(some, reports, indications), dim=1)

        return list(self.expected(several, images).mean(dim=0).unbind(dim=1))

    def expected(self, compute: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """As the function `expected`."""
        return expected(compute, images, self.transformation, self.draws, self.seed)


def jpeg(images: Tensor, quality: float, draws: Draws) -> Tensor:
    """Encoded as 8-bit JPEG by the codec of the archive and decoded.

    The gradient is that of 8 × 8 cosine transforms whose coefficients are rounded softly, r(x) = ⌊x⌉ + (x - ⌊x⌉)³ (Shin
    and Song 2017): a coefficient that the codec drops has next to no gradient.
    """

    def compressed(channels: np.ndarray) -> np.ndarray:
        stored = to_uint8(channels[0] if len(channels) == 1 else channels.transpose(1, 2, 0))
        decoded = to_unit(decode(encode_jpeg(stored, int(quality)), "the compressed image"))
        return decoded[None] if decoded.ndim == 2 else decoded.transpose(2, 0, 1)

    arrays = images.detach().cpu().numpy()
    return _with_gradient_of(_soft_jpeg(images, int(quality)), np.stack([compressed(one) for one in arrays]))


def _soft_jpeg(images: Tensor, quality: int) -> Tensor:
    """JPEG without its last rounding, each channel with the table of grey images; differentiable."""
    import torch
    from torch.nn.functional import pad

    size = 8
    at = torch.arange(size, dtype=images.dtype, device=images.device)
    cosines = torch.cos((2 * at[None, :] + 1) * at[:, None] * math.pi / (2 * size)) * math.sqrt(2 / size)
    cosines[0] /= math.sqrt(2)
    steps = torch.tensor(_quantisation(quality), dtype=images.dtype, device=images.device).reshape(size, size)
    height, width = images.shape[-2:]
    full = pad(images * 255 - 128, (0, -width % size, 0, -height % size), mode="replicate")
    blocks = full.unfold(-2, size, size).unfold(-2, size, size)  # [B, C, rows, columns, 8, 8]
    scaled = cosines @ blocks @ cosines.T / steps
    rounded = scaled.detach().round()
    restored = cosines.T @ ((rounded + (scaled - rounded) ** 3) * steps) @ cosines
    whole = restored.transpose(-3, -2).reshape(full.shape)
    return (whole[..., :height, :width] + 128) / 255


@lru_cache
def _quantisation(quality: int) -> tuple[int, ...]:
    """The codec's 64 steps for grey images, row by row."""
    picture = open_picture(encode_jpeg(np.zeros((8, 8), np.uint8), quality), "a black image")
    return tuple(picture.quantization[0])  # type: ignore[attr-defined]


def bits(images: Tensor, depth: float, draws: Draws) -> Tensor:
    """Rounded to 2^depth grey levels; the gradient is that of the identity."""
    levels = 2.0**depth - 1.0
    return _with_gradient_of(images, (images.detach() * levels).round() / levels)


def _with_gradient_of(smooth: Tensor, values: Any) -> Tensor:
    """These values to the last bit, with the gradient of another tensor."""
    import torch

    return torch.as_tensor(values).to(smooth) + (smooth - smooth.detach())


def blur(images: Tensor, sigma: float, draws: Draws) -> Tensor:
    """Gaussian blur with this standard deviation in pixels; the edges of the image are repeated outwards."""
    import torch
    from torch.nn.functional import conv2d, pad

    reach = math.ceil(3.0 * sigma)
    at = torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device)
    kernel = torch.exp(-0.5 * (at / sigma) ** 2)
    kernel = kernel / kernel.sum()
    count, channels, height, width = images.shape
    flat = pad(images.reshape(count * channels, 1, height, width), (reach,) * 4, mode="replicate")
    blurred = conv2d(conv2d(flat, kernel[None, None, :, None]), kernel[None, None, None, :])
    return _within_range(blurred.reshape(images.shape))


def noise(images: Tensor, sigma: float, draws: Draws) -> Tensor:
    """Gaussian noise with this standard deviation, clipped to [0, 1]."""
    import torch

    shape = tuple(images.shape[1:])
    field = np.stack([rng.standard_normal(shape, dtype=np.float32) for rng in draws])
    return (images + sigma * torch.from_numpy(field).to(images)).clamp(0.0, 1.0)


def resample(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Reduced to this share of height and width and enlarged again; both are linear with antialiasing."""
    from torch.nn.functional import interpolate

    height, width = images.shape[-2:]
    small = max(1, round(share * height)), max(1, round(share * width))
    reduced = interpolate(images, small, mode="bilinear", antialias=True)
    return _within_range(interpolate(reduced, (height, width), mode="bilinear", antialias=True))


def _within_range(averages: Tensor) -> Tensor:
    """Averages of pixels, which leave [0, 1] by rounding alone; their gradients are kept where a clamp would drop them."""
    return _with_gradient_of(averages, averages.detach().clamp(0.0, 1.0))


def random_resample(images: Tensor, least: float, draws: Draws) -> Tensor:
    """Resampled through a size drawn for each image, from the least share of its sides to all of them."""
    import torch

    shares = [least + (1.0 - least) * float(rng.random()) for rng in draws]
    return torch.cat([resample(image[None], share, ()) for image, share in zip(images, shares, strict=True)])


@dataclass(frozen=True)
class Kind:
    """A kind of transformation: its function, and what a strength may be."""

    apply: Callable[[Tensor, float, Draws], Tensor]
    strength: float  # where none is given
    low: float
    high: float
    unit: str
    random: bool = False
    whole: bool = False


TRANSFORMATIONS: Mapping[str, Kind] = {
    "jpeg": Kind(jpeg, 50.0, 1, 95, "quality", whole=True),
    "blur": Kind(blur, 1.0, 0.1, 20, "standard deviation in pixels"),
    "bits": Kind(bits, 4.0, 1, 8, "bits per pixel", whole=True),
    "noise": Kind(noise, 0.05, 0.001, 1, "standard deviation, where black is 0 and white 1", random=True),
    "resample": Kind(resample, 0.5, 0.01, 1, "share of height and width"),
    "random-resample": Kind(random_resample, 0.5, 0.01, 1, "least share of height and width", random=True),
}  # fmt: skip

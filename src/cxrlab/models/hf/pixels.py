"""From images in [0, 1] to what a model takes: the image processor's own steps, in torch and differentiable.

An image processor of transformers works on 8-bit pictures and its result knows nothing of the pixels it came from.
A `PixelPath` repeats its steps (resize, crop, tile, pad, scale) on the caller's own floating pixels, so that a
gradient reaches them and a perturbation smaller than a grey level is not rounded away. `pixel_path` proves each
path on probe pictures when a model is loaded; where the proof fails, or a family has no path, the model is still
served through its image processor, in 8 bits and without gradients, and the path says so.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.memory import exhausted_memory
from cxrlab.core.tables import Table
from cxrlab.models.hf.resampling import pillow_takes_rows_first, resize, rounding

if TYPE_CHECKING:
    from torch import Tensor

# Class of the image processor, without its ending for a backend → the path that repeats its steps.
# One that is not listed is tried as a plain one: the proof decides.
PATHS = Table(
    "pixel path",
    {
        "plain": "cxrlab.models.hf.families.llava:Plain",
        "LlavaImageProcessor": "cxrlab.models.hf.families.llava:PaddedToSquare",
        "LlavaNextImageProcessor": "cxrlab.models.hf.families.llava_next:AnyResolution",
        "LlavaOnevisionImageProcessor": "cxrlab.models.hf.families.llava_next:OneVision",
        "Idefics2ImageProcessor": "cxrlab.models.hf.families.idefics:Idefics2",
        "Idefics3ImageProcessor": "cxrlab.models.hf.families.idefics:Idefics3",
        "SmolVLMImageProcessor": "cxrlab.models.hf.families.idefics:Idefics3",
        "Gemma3ImageProcessor": "cxrlab.models.hf.families.llava:WholeImage",
        "Qwen2VLImageProcessor": "cxrlab.models.hf.families.qwen_vl:FlatPatches",
    },
)
_ENDINGS = ("Pil", "Fast")
# What an image processor tells its processor about the text, and no model takes.
_NOT_FOR_THE_MODEL = ("rows", "cols", "num_crops", "num_patches", "num_tiles", "num_image_tokens")
# Height and width of the probes: portrait and landscape, smaller and larger than a tile of the usual models, and for
# small and large models one that loses rows while it gains columns.
_PROBES = ((61, 23), (1100, 97), (300, 530))


@dataclass(frozen=True)
class Scaling:
    """The last step: from [0, 1] to the numbers that the model was trained on.

    Args:
        factor: White, before the mean is taken off: 1 when the image processor rescales by 1/255.
        mean: Taken off each of the three channels.
        std: Each channel is divided by it.
    """

    factor: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @classmethod
    def of(cls, image_processor: Any) -> Scaling:
        """As the image processor has it."""
        factor = 255.0 * (float(image_processor.rescale_factor) if image_processor.do_rescale else 1.0)
        if not image_processor.do_normalize:
            return cls(factor, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
        return cls(factor, three(image_processor.image_mean), three(image_processor.image_std))

    def __call__(self, image: Tensor) -> Tensor:
        """[..., 1 or 3, H, W] in [0, 1] → [..., 3, H, W]; one channel is repeated."""
        mean, std = (image.new_tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        return (image * self.factor - mean) / std


class PixelPath(ABC):
    """The steps of one image processor.

    Attributes:
        differentiable: A gradient reaches the pixels.
        reason: Why not, in one sentence; empty where it does.
        resizes: Most times that a pixel is resampled on its way.
        asked: What the family's processor asks of its image processor, whatever that one's file says.
        tolerance: How far a number may be from the image processor's own on an 8-bit picture; exact but for rounding.
        difference: How far the probes were, at most; 0 until proven.
    """

    differentiable = True
    reason = ""
    resizes = 1
    asked: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, image_processor: Any) -> None:
        self.image_processor = image_processor
        self.scaling = Scaling.of(image_processor)
        self.resample = int(2 if image_processor.resample is None else image_processor.resample)
        # Which of the two resizes it is, and which side gets the odd line of padding.
        self.pillow = getattr(image_processor, "backend", "pil") != "torchvision"
        self.difference = 0.0

    @property
    def tolerance(self) -> float:
        """In the units of `pixel_values`."""
        return rounding(self.resample, self.resizes) / 255.0 * self.scaling.factor / min(self.scaling.std)

    def resize(self, image: Tensor, size: tuple[int, int]) -> Tensor:
        """A picture [..., H, W] at another height and width, with the processor's filter in the processor's order."""
        return resize(image, size, self.resample, rows_first=self.pillow and pillow_takes_rows_first())

    @final
    def inputs(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the model takes for these images, one image a sample.

        Args:
            images: [1, H, W] or [3, H, W] in [0, 1], floating; sizes may differ, device and type may not.

        Returns:
            `pixel_values` in the type of the images, and what goes with it (`image_sizes`, `image_grid_thw`, …).
        """
        if not images:
            raise DataError("there is no image to prepare; a model of images cannot be asked without one.")
        for image in images:
            if image.ndim != 3 or image.shape[0] not in (1, 3) or not image.is_floating_point() or not image.numel():
                raise DataError(
                    f"an image is {image.dtype} {tuple(image.shape)}; give floating pixels in [0, 1], "
                    "[1, H, W] or [3, H, W]."
                )
        return self.arrange(images)

    @abstractmethod
    def arrange(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """The idea of a path; images come checked."""


class EightBitPath(PixelPath):
    """Through the image processor itself: pixels rounded to 256 levels, no gradient."""

    differentiable = False

    def __init__(self, image_processor: Any, reason: str, asked: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.image_processor = image_processor
        self.reason, self.asked = reason, asked
        self.difference = 0.0

    @property
    def tolerance(self) -> float:
        """It is the image processor."""
        return 0.0

    def arrange(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """Images as 8-bit pictures, on the device they came from."""
        device = images[0].device
        outputs = processed(self.image_processor, images, self.asked)
        return {name: tensor.to(device) for name, tensor in outputs.items()}


def pixel_path(model_type: str, processor: Any) -> PixelPath:
    """The proven path of a processor, or the 8-bit one with the reason why there is none.

    Args:
        model_type: Family as config.json names it; for the reason.
        processor: What AutoProcessor gives, or an image processor.
    """
    image_processor = getattr(processor, "image_processor", processor)
    kind = type(image_processor).__name__
    name = next((kind.removesuffix(ending) for ending in _ENDINGS if kind.endswith(ending)), kind)
    kept = f"the pixels of this '{model_type}' model go through its {kind} in 8 bits and have no gradient: "
    steps = PATHS.load(name if name in PATHS else "plain")
    try:
        path: PixelPath = steps(image_processor)
        path.difference = prove(path, image_processor)
        exact = path.difference <= path.tolerance
    except ConfigError as error:
        return EightBitPath(image_processor, f"{kept}{error}", steps.asked)
    # A family that nobody has met may lack any attribute and fail in any way; it is served in 8 bits.
    except Exception as error:
        if exhausted_memory(error):
            raise  # another run of the same model would have a gradient
        return EightBitPath(
            image_processor, f"{kept}its steps fail when repeated ({type(error).__name__}).", steps.asked
        )
    if exact:
        return path
    off = f"its steps, repeated, were off by {path.difference:.3g} on a probe, beyond {path.tolerance:.3g}."
    if math.isinf(path.difference):
        off = "its steps, repeated, gave other shapes on a probe."
    return EightBitPath(image_processor, kept + off, steps.asked)


def prove(path: PixelPath, processor: Any) -> float:
    """The largest difference between a path and the image processor on probe pictures.

    Infinite when the two give other names, shapes or whole numbers: that is no matter of rounding.
    """
    import torch

    image_processor = getattr(processor, "image_processor", processor)
    source = torch.Generator().manual_seed(0)
    worst = 0.0
    for height, width in _PROBES:
        # Noise has every frequency at full contrast: what a filter gets wrong, and where it is cut, shows.
        probe = torch.randint(0, 256, (3, height, width), generator=source).float() / 255.0
        with torch.no_grad():
            worst = max(worst, difference(path.inputs([probe]), processed(image_processor, [probe], path.asked)))
    return worst


def difference(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Largest difference of two sets of inputs; infinite when names, shapes or whole numbers differ."""
    if set(ours) != set(theirs):
        return math.inf
    worst = 0.0
    for name, mine in ours.items():
        other = theirs[name]
        if mine.shape != other.shape:
            return math.inf
        if mine.is_floating_point() and other.is_floating_point():
            worst = max(worst, float((mine - other).abs().max()))
        elif not bool((mine == other).all()):  # whole numbers on either side; some versions keep masks as floats
            return math.inf
    return worst


def processed(
    image_processor: Any, images: Sequence[Tensor], asked: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Tensor]:
    """What the image processor itself makes of images [1 or 3, H, W] in [0, 1], as 8-bit RGB, one image a sample."""
    import numpy as np
    from PIL import Image

    pictures = []
    for image in images:
        levels = (image.detach().float().cpu() * 255.0).round().clamp(0, 255).expand(3, -1, -1)
        pictures.append([Image.fromarray(levels.permute(1, 2, 0).numpy().astype(np.uint8))])
    outputs = image_processor(images=pictures, return_tensors="pt", **asked)
    return {name: outputs[name] for name in outputs if name not in _NOT_FOR_THE_MODEL}


def measure(size: Any, name: str) -> int:
    """One entry of a processor's size (a mapping or a record); 0 where it is not given."""
    value = size.get(name) if hasattr(size, "get") else getattr(size, name, None)
    return int(value or 0)


def three(value: Any) -> tuple[float, float, float]:
    """A number for all channels, or one each."""
    if isinstance(value, int | float):
        return (float(value),) * 3
    red, green, blue = (float(each) for each in value)
    return (red, green, blue)

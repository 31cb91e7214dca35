"""Every pixel path against its image processor, its gradient against a finite difference, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from tables import every_row

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.pixels import (
    BOX,
    EightBitPath,
    PixelPath,
    centre,
    difference,
    max_difference_to_processor,
    measure,
    pixel_path,
    processed,
    target,
)


def made(kind: str, **settings: Any) -> Callable[[], Any]:
    """An image processor, made when it is first needed: older versions make some only where torchvision is."""

    @cache
    def make() -> Any:
        try:
            return getattr(transformers, kind)(**settings)
        except ImportError:
            pytest.skip(f"transformers {transformers.__version__} has {kind} only with torchvision")

    return make


TILES = [[32, 64], [64, 32], [64, 64], [96, 32]]
SQUARE = {"height": 32, "width": 32}
EDGES = {"shortest_edge": 24, "longest_edge": 48}
PROCESSORS: dict[str, Callable[[], Any]] = {
    "clip": made("CLIPImageProcessorPil"),
    "clip-squeezed": made("CLIPImageProcessorPil", size=SQUARE, do_center_crop=False, resample=2),
    "clip-small-in-a-larger-crop": made(
        "CLIPImageProcessorPil", size={"shortest_edge": 30}, crop_size={"height": 41, "width": 35}
    ),
    "siglip": made("SiglipImageProcessorPil", size=SQUARE),
    "siglip-lanczos": made("SiglipImageProcessorPil", size=SQUARE, resample=1),
    "siglip-in-grey-levels": made("SiglipImageProcessorPil", size=SQUARE, do_rescale=False),
    "siglip-not-normalised": made("SiglipImageProcessorPil", size=SQUARE, do_normalize=False),
    "siglip-no-resize": made("SiglipImageProcessorPil", do_resize=False),
    "within-edges": made("SiglipImageProcessorPil", size={"shortest_edge": 30, "longest_edge": 50}),
    "within-height-and-width": made("SiglipImageProcessorPil", size={"max_height": 30, "max_width": 50}),
    "vit": made("ViTImageProcessorPil"),
    "bit": made("BitImageProcessorPil", size={"shortest_edge": 40}, crop_size=SQUARE),
    "llava": made("LlavaImageProcessorPil", size={"shortest_edge": 32}, crop_size=SQUARE),
    "llava-padded-plain": made(
        "LlavaImageProcessorPil", size={"shortest_edge": 32}, crop_size=SQUARE, do_pad=True, do_normalize=False
    ),
    "llava-padded": made("LlavaImageProcessorPil", size={"shortest_edge": 32}, crop_size=SQUARE, do_pad=True),
    "gemma3": made("Gemma3ImageProcessorPil", size=SQUARE),
    "gemma3-pan-and-scan-in-its-file": made("Gemma3ImageProcessorPil", size=SQUARE, do_pan_and_scan=True),
    "llava-next": made(
        "LlavaNextImageProcessorPil", size={"shortest_edge": 32}, crop_size=SQUARE, image_grid_pinpoints=TILES
    ),
    "llava-next-uneven-tiles": made(
        "LlavaNextImageProcessorPil",
        size={"shortest_edge": 40},
        crop_size=SQUARE,
        image_grid_pinpoints=[[48, 80], [80, 48]],
    ),
    "llava-onevision": made("LlavaOnevisionImageProcessorPil", size=SQUARE, image_grid_pinpoints=TILES),
    "idefics": made("IdeficsImageProcessorPil", image_size=32),
    "idefics2": made("Idefics2ImageProcessorPil", size=EDGES),
    "idefics2-split": made("Idefics2ImageProcessorPil", size=EDGES, do_image_splitting=True),
    "idefics2-square": made("Idefics2ImageProcessorPil", size=SQUARE),
    "idefics2-no-resize": made("Idefics2ImageProcessorPil", do_resize=False),
    "idefics3": made("Idefics3ImageProcessorPil", size={"longest_edge": 96}, max_image_size={"longest_edge": 32}),
    "idefics3-whole": made(
        "Idefics3ImageProcessorPil",
        size={"longest_edge": 96},
        max_image_size={"longest_edge": 32},
        do_image_splitting=False,
    ),
    "idefics3-one-tile": made(
        "Idefics3ImageProcessorPil", size={"longest_edge": 32}, max_image_size={"longest_edge": 32}
    ),
    "idefics3-square": made("Idefics3ImageProcessorPil", size=SQUARE, max_image_size={"longest_edge": 32}),
    "smolvlm": made("SmolVLMImageProcessorPil", size={"longest_edge": 64}, max_image_size={"longest_edge": 32}),
    "qwen2-vl": made("Qwen2VLImageProcessorPil", size={"shortest_edge": 28 * 28, "longest_edge": 12 * 28 * 28}),
    "qwen3-vl": made(
        "Qwen2VLImageProcessorPil", patch_size=16, size={"shortest_edge": 1024, "longest_edge": 64 * 1024}
    ),
}
SIZES = {"tiny": (20, 30), "portrait": (90, 61), "landscape": (50, 120), "large": (700, 500), "narrow": (300, 20)}
SHAPELESS = ("siglip-no-resize", "within-edges", "within-height-and-width")  # these keep the shape of an image


@cache
def path_of(name: str) -> PixelPath:
    return pixel_path("any", PROCESSORS[name]())


def image(height: int, width: int, channels: int = 3, seed: int = 0) -> torch.Tensor:
    """An 8-bit picture of noise in [0, 1]."""
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (channels, height, width), generator=source).float() / 255.0


@every_row("name", PROCESSORS)
def test_a_path_gives_what_its_processor_gives(name: str) -> None:
    """Same names, shapes and whole numbers; pixels within Pillow's rounding. Several sizes, alone and together."""
    path = path_of(name)
    assert path.differentiable, path.reason
    assert 0 <= path.difference <= path.tolerance
    images = [image(*size) for size in SIZES.values()]
    batches = [[each] for each in images] if name in SHAPELESS else [*([each] for each in images), images]
    for batch in batches:
        assert difference(path.inputs(batch), processed(PROCESSORS[name](), batch, path)) <= path.tolerance


@every_row("name", PROCESSORS)
def test_a_wrong_step_is_found_out(name: str) -> None:
    """The proof must be able to fail: another filter, or an image nine tenths as bright."""
    path, allowed = copy(path_of(name)), path_of(name).tolerance
    if not name.endswith("no-resize"):
        path.resample = BOX
        assert max_difference_to_processor(path, PROCESSORS[name]()) > allowed
    path = copy(path_of(name))
    path.scaling = replace(path.scaling, factor=path.scaling.factor * 0.9)
    assert max_difference_to_processor(path, PROCESSORS[name]()) > allowed


@every_row("name", PROCESSORS)
def test_a_grey_image_is_three_equal_channels(name: str) -> None:
    path = path_of(name)
    grey = image(60, 45, channels=1)
    assert difference(path.inputs([grey]), path.inputs([grey.expand(3, -1, -1)])) < 1e-5


@every_row("name", PROCESSORS)
def test_the_gradient_is_the_finite_difference(name: str) -> None:
    """In float64, for a weighted sum of the outputs, along a random direction in the middle of the grey scale."""
    path = path_of(name)
    source = torch.Generator().manual_seed(3)
    image = (torch.rand(3, 37, 52, generator=source, dtype=torch.float64) * 0.2 + 0.4).requires_grad_()
    direction = torch.randn(image.shape, generator=source, dtype=torch.float64)
    value = path.inputs([image])["pixel_values"]
    mixing = torch.randn(value.shape, generator=source, dtype=torch.float64)

    def total(picture: torch.Tensor) -> torch.Tensor:
        return (path.inputs([picture])["pixel_values"] * mixing).sum()

    (slope,) = torch.autograd.grad(total(image), image)
    assert bool(torch.isfinite(slope).all()) and float((slope != 0).double().mean()) > 0.5
    with torch.no_grad():
        step = (total(image + 1e-5 * direction) - total(image - 1e-5 * direction)) / 2e-5
    assert float((slope * direction).sum()) == pytest.approx(float(step), rel=1e-6)


def test_changes_below_a_grey_level_are_seen() -> None:
    """What an 8-bit processor rounds away is the point of a floating path."""
    path, images = pixel_path("any", PROCESSORS["clip"]()), image(224, 224)
    moved = path.inputs([images + 0.1 / 255])["pixel_values"] - path.inputs([images])["pixel_values"]
    expected = 0.1 / 255 / torch.tensor(path.scaling.std)
    torch.testing.assert_close(moved.mean(dim=(0, 2, 3)), expected, rtol=1e-2, atol=1e-6)


def test_a_image_of_even_mean_grey_is_not_taken_for_padding() -> None:
    """Idefics drops images of zeros alone, and 0.5 scales to zero: it must stay an image, next to none."""
    values = pixel_path("any", PROCESSORS["idefics3"]()).inputs([torch.full((1, 40, 60), 0.5)])["pixel_values"]
    assert bool((values != 0).any(dim=-1).any(dim=-1).any(dim=-1).all()) and float(values.abs().max()) < 1e-5


def test_a_family_without_a_path_is_served_in_eight_bits_and_says_so() -> None:
    """Pixtral's processor has steps of its own: no gradient, the reason, and the processor's own numbers."""
    processor = made("PixtralImageProcessorPil", size={"longest_edge": 64}, patch_size={"height": 16, "width": 16})()
    path = pixel_path("pixtral", processor)
    assert isinstance(path, EightBitPath) and not path.differentiable and path.tolerance == 0
    assert "'pixtral'" in path.reason and "8 bits" in path.reason and "PixtralImageProcessorPil" in path.reason
    images = [image(40, 50).requires_grad_()]
    given = path.inputs(images)
    assert difference(given, processed(processor, images)) == 0
    assert not given["pixel_values"].requires_grad


def test_a_path_that_is_off_or_fails_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off by a filter, and a setting that is not repeated: both times the reason names it."""
    monkeypatch.setattr(PixelPath, "resize", lambda self, image, size: torch.zeros(*image.shape[:-2], *size))
    off = pixel_path("llava", PROCESSORS["clip"]())
    assert not off.differentiable and "off by" in off.reason
    unpadded = pixel_path("idefics2", made("Idefics2ImageProcessorPil", do_pad=False)())
    assert not unpadded.differentiable and "do_pad" in unpadded.reason
    strange = pixel_path("odd", object())
    assert not strange.differentiable and "AttributeError" in strange.reason


def test_a_deviation_of_zero_is_no_crash_at_the_door() -> None:
    """The image processor divides by it too: served in 8 bits, and what comes out is refused as no numbers later."""
    path = pixel_path("llava", made("CLIPImageProcessorPil", size=SQUARE, image_std=[0.0] * 3)())
    assert not path.differentiable


def test_what_is_no_image_is_refused() -> None:
    path = pixel_path("any", PROCESSORS["siglip"]())
    with pytest.raises(DataError, match="at least one image"):
        path.inputs([])
    for wrong in (
        torch.zeros(8, 8),
        torch.zeros(2, 8, 8),
        torch.zeros(3, 8, 0),
        torch.zeros(3, 8, 8, dtype=torch.uint8),
    ):
        with pytest.raises(DataError, match="floating pixels"):
            path.inputs([wrong])


def test_images_of_other_shapes_make_no_batch_where_the_processor_keeps_them() -> None:
    path = pixel_path("any", PROCESSORS["siglip-no-resize"]())
    with pytest.raises(DataError, match="one by one"):
        path.inputs([image(20, 30), image(30, 20)])


@pytest.mark.parametrize("name", ["clip", "clip-squeezed", "siglip-lanczos", "siglip-no-resize", "llava-padded"])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_one_shape_together_are_the_images_one_by_one(name: str, channels: int) -> None:
    """They go through the steps as one tensor; so do their gradients."""
    path = pixel_path("any", PROCESSORS[name]())
    images = torch.rand(3, channels, 45, 37, generator=torch.Generator().manual_seed(channels), requires_grad=True)
    together = path.inputs(list(images))["pixel_values"]
    alone = torch.cat([path.inputs([one])["pixel_values"] for one in images])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)
    slopes = [torch.autograd.grad((pixels**2).sum(), images)[0] for pixels in (together, alone)]
    torch.testing.assert_close(*slopes, atol=1e-4, rtol=1e-5)


def test_a_image_too_thin_for_qwen_is_refused() -> None:
    path = pixel_path("any", PROCESSORS["qwen2-vl"]())
    with pytest.raises(DataError, match="too thin"):
        path.inputs([image(3, 700)])


def test_differences_that_are_no_rounding_are_infinite() -> None:
    """Other names, shapes or whole numbers; a mask that is held in floats is the same mask."""
    ours = {"a": torch.zeros(2), "b": torch.zeros(2, dtype=torch.long)}
    assert difference(ours, {**ours, "a": torch.full((2,), 0.5)}) == 0.5
    assert difference(ours, {**ours, "b": torch.zeros(2)}) == 0
    others: list[dict[str, torch.Tensor]] = [
        {"a": ours["a"]},
        {**ours, "a": torch.zeros(3)},
        {**ours, "b": torch.full((2,), 0.5)},
        {**ours, "b": torch.ones(2, dtype=torch.long)},
    ]
    assert all(difference(ours, other) == float("inf") for other in others)


def test_a_processor_as_a_whole_is_as_good_as_its_image_processor() -> None:
    class Whole:
        image_processor = PROCESSORS["siglip"]()

    assert pixel_path("any", Whole()).differentiable
    assert max_difference_to_processor(pixel_path("any", Whole()), Whole()) > 0


def test_sizes_are_read_from_mappings_and_records_alike() -> None:
    class Record:
        height = 7

    assert measure({"height": 7}, "height") == measure(Record(), "height") == 7
    assert measure({}, "height") == measure(Record(), "width") == 0
    with pytest.raises(ConfigError, match="width"):
        target(torch.zeros(3, 4, 4), {"width": 3})


def test_the_odd_line_of_padding() -> None:
    """5 pixels in 8: the Pillow processors put two lines before and one after, torchvision's one and two."""
    image = torch.ones(1, 5, 5)
    for before, odd_before in ((2, True), (1, False)):
        framed = centre(image, (8, 8), odd_before=odd_before)[0]
        assert framed.shape == (8, 8) and framed.sum() == 25
        assert bool((framed[before : before + 5, before : before + 5] == 1).all())


def test_a_lack_of_memory_takes_no_gradient_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 8 bits an attack would find a model robust that it finds weak on a larger machine."""

    def prove_nothing(*_: Any) -> float:
        raise MemoryError

    monkeypatch.setattr("cxrlab.models.hf.pixels.max_difference_to_processor", prove_nothing)
    with pytest.raises(MemoryError):
        pixel_path("llava", PROCESSORS["clip"]())

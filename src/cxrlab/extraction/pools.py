"""Pools of pictures to ask about: photographs, scenes, noise, images, and mixtures of them.

Every picture comes out as a square of grey, uint8 [size, size]: colour as its luminance (ITU-R 601), another shape
squeezed into the square as the image processors of the models squeeze images, small ones enlarged bilinearly. Only
what is drawn is decoded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.randomness import generator
from cxrlab.core.tables import Table
from cxrlab.data.images import grey_image
from cxrlab.extraction.records import Picture

POOLS = Table(
    "pool",
    {
        "cifar": "cxrlab.extraction.pool_kinds:Cifar",
        "folder": "cxrlab.extraction.pool_kinds:Folder",
        "scenes": "cxrlab.extraction.pool_kinds:Scenes",
        "noise": "cxrlab.extraction.pool_kinds:Noise",
        "corpus": "cxrlab.extraction.pool_kinds:Images",
        "mix": "cxrlab.extraction.pool_kinds:Mix",
    },
)
USAGE: Mapping[str, str] = {
    "cifar:DIR[@split]": "photographs of an unpacked cifar-100-python or cifar-10-batches-py; split train or test",
    "folder:DIR": "every PNG and JPEG picture under a folder",
    "scenes": "drawn scenes without a chest, without end",
    "noise": "normally distributed pixels, each picture scaled to 0 to 255, without end",
    "corpus:DIR[@split]": "frontal images of a corpus; split train when left out",
    "mix:R:IN+OUT": "a share R (0 to 1) of the pool IN, the rest of OUT, such as mix:0.1:corpus:runs/phantom+scenes",
}


class Pool(ABC):
    """Distinct pictures in an order that the seed decides.

    Args:
        argument: What stands behind the first colon of the name; empty where there is none.
        size: Side of the pictures in pixels.
        seed: Decides the order, and the pixels of pools that are drawn.
    """

    kind = ""
    takes_argument = True

    def __init__(self, argument: str, *, size: int, seed: int) -> None:
        if size < 1 or seed < 0:
            raise ConfigError(
                f"a pool of side {size} and seed {seed} is not usable; give a side above 0, a seed from 0."
            )
        if bool(argument) != self.takes_argument:
            raise ConfigError(f"'{self.kind}:{argument}' is no pool; write it as {usage(self.kind)}.")
        self.name = f"{self.kind}:{argument}" if argument else self.kind
        self.argument, self.size, self.seed = argument, size, seed

    @property
    @abstractmethod
    def count(self) -> int | None:
        """Pictures in the pool, unreadable ones included; None for a pool without end."""

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Key → reason of the pictures that were met and could not be read; they are passed over, never replaced."""
        return {}

    @property
    def readable(self) -> int | None:
        """Pictures that can be drawn, as far as is known by now; None for a pool without end."""
        return None if self.count is None else self.count - len(self.unreadable)

    def __len__(self) -> int:
        if self.count is None:
            raise TypeError(f"the pool '{self.name}' has no end, so it has no length; ask for `count`")
        return self.count

    def __bool__(self) -> bool:
        return self.count is None or self.count > 0

    @final
    def draw(self, n: int, skip: int = 0) -> list[Picture]:
        """The `n` pictures that follow the first `skip`; more than there are is a `DataError`.

        The same seed gives the same order, so that `draw(5)` begins `draw(10)` and `draw(5, skip=5)` ends it.
        """
        if n < 0 or skip < 0:
            raise ValueError(f"draw takes numbers from 0, not n={n} and skip={skip}")
        if self.count is not None and skip + n > self.count:
            raise self._too_few(skip + n)
        return self._take(skip, n) if n else []

    @abstractmethod
    def _take(self, skip: int, n: int) -> list[Picture]:
        """`draw` for numbers that were checked."""

    def _order(self, count: int) -> list[int]:
        return [int(place) for place in generator(self.seed, "pool", self.kind).permutation(count)]

    def _too_few(self, asked: int) -> DataError:
        lost = f", {len(self.unreadable)} of them unreadable" if self.unreadable else ""
        reason = f" (for example: {next(iter(self.unreadable.values()))})" if self.unreadable else ""
        return DataError(
            f"the pool '{self.name}' holds {self.count} pictures{lost}, but {asked} are asked for; "
            f"ask for fewer, or name a larger pool.{reason}"
        )


def open_pool(name: str, *, size: int, seed: int) -> Pool:
    """The pool of this name, see `USAGE`; kind and argument are split at the first colon.

    Args:
        name: Such as `scenes`, `cifar:DIR` or `mix:0.1:corpus:DIR+scenes`.
        size: Side of the pictures in pixels.
        seed: Decides which pictures come first, and the pixels of pools that are drawn.
    """
    kind, _, argument = name.partition(":")
    pool: Pool = POOLS.load(kind)(argument, size=size, seed=seed)
    return pool


def usage(kind: str) -> str:
    """How pools of a kind are named, such as `folder:DIR`."""
    return next(form for form in USAGE if form.partition(":")[0] == kind)


def square(picture: NDArray[Any], size: int) -> NDArray[np.uint8]:
    """Any picture as grey uint8 [size, size]: luminance, then squeezed or enlarged bilinearly.

    Args:
        picture: uint8, uint16 or float32 in [0, 1]; [H, W] or [H, W, 3].
        size: Side in pixels.
    """
    image = grey_image(picture)
    if image.shape != (size, size):
        grey = Image.fromarray(np.ascontiguousarray(image, np.float32))
        image = np.asarray(grey.resize((size, size), Image.Resampling.BILINEAR), np.float32)
    return to_uint8(image)

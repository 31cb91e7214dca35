"""Pools of query images: photographs, scenes, noise, images of a corpus, and mixtures of them.

Every image becomes a square, uint8 [size, size, 3] in colour, or [size, size] where the pool is grey: then colour becomes
luminance (ITU-R 601). Another shape is resized to the square as by the image processors of the models, bilinearly. Only
images that are drawn are decoded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.randomness import generator, stream_key
from cxrlab.core.records import SPLITS
from cxrlab.core.registry import Registry
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import grey_image, rgb_image
from cxrlab.data.sources.cifar100 import cifar_pool
from cxrlab.data.sources.image_folder import FolderPool, folder_pool
from cxrlab.data.synthetic_scenes import draw_scene
from cxrlab.data.views import load_selected_image
from cxrlab.extraction.records import QueryImage

if TYPE_CHECKING:
    from cxrlab.extraction.records import Pixels

POOLS = Registry(
    "pool",
    {
        "cifar": "cxrlab.extraction.query_pools:Cifar",
        "folder": "cxrlab.extraction.query_pools:Folder",
        "scenes": "cxrlab.extraction.query_pools:Scenes",
        "noise": "cxrlab.extraction.query_pools:Noise",
        "corpus": "cxrlab.extraction.query_pools:Images",
        "mix": "cxrlab.extraction.query_pools:Mix",
    },
)
USAGE: Mapping[str, str] = {
    "cifar:DIR[@split]": "photographs of an unpacked cifar-100-python or cifar-10-batches-py; split train or test",
    "folder:DIR": "every PNG and JPEG image in a folder and below",
    "scenes": "drawn scenes without a chest; unlimited",
    "noise": "normally distributed pixels, each image scaled to 0 to 255; unlimited",
    "corpus:DIR[@split]": "frontal images of a corpus; split train by default",
    "mix:R:IN+OUT": "a share R (0 to 1) of the pool IN, the rest of OUT, such as mix:0.1:corpus:runs/phantom+scenes",
}


class Pool(ABC):
    """Base class of pools: distinct images in an order that the seed decides.

    Args:
        argument: The name after its first colon; empty without one.
        size: Side of the images in pixels.
        seed: Of the order, and of the pixels of drawn images.
        colour: Whether images keep their colours.
    """

    kind = ""
    takes_argument = True

    def __init__(self, argument: str, *, size: int, seed: int, colour: bool = False) -> None:
        if size < 1 or seed < 0:
            raise ConfigError(f"size={size} seed={seed} is not usable for a pool; give a size above 0, a seed from 0.")
        if bool(argument) != self.takes_argument:
            raise ConfigError(f"'{self.kind}:{argument}' is not a pool; write it as {usage(self.kind)}.")
        self.name = f"{self.kind}:{argument}" if argument else self.kind
        self.argument, self.size, self.seed, self.colour = argument, size, seed, colour

    @property
    @abstractmethod
    def count(self) -> int | None:
        """Images in the pool, unreadable ones included; None if unlimited."""

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Key → reason of the unreadable images so far; they are skipped."""
        return {}

    @property
    def readable(self) -> int | None:
        """Images that can be drawn, as far as is known by now; None if unlimited."""
        return None if self.count is None else self.count - len(self.unreadable)

    def __len__(self) -> int:
        if self.count is None:
            raise TypeError(f"the pool '{self.name}' is unlimited and has no length; use `count`")
        return self.count

    def __bool__(self) -> bool:
        return self.count is None or self.count > 0

    @final
    def draw(self, n: int, skip: int = 0) -> list[QueryImage]:
        """The `n` images after the first `skip`; more than there are is a `DataError`.

        The same seed gives the same order, so that `draw(10)` equals `draw(5) + draw(5, skip=5)`.
        """
        if n < 0 or skip < 0:
            raise ValueError(f"draw takes numbers from 0, not n={n} and skip={skip}")
        if self.count is not None and skip + n > self.count:
            raise self._too_few(skip + n)
        return self._take(skip, n) if n else []

    @abstractmethod
    def _take(self, skip: int, n: int) -> list[QueryImage]:
        """`draw` for numbers that were checked."""

    def _order(self, count: int) -> list[int]:
        return [int(place) for place in generator(self.seed, "pool", self.kind).permutation(count)]

    def _too_few(self, needed: int) -> DataError:
        lost = f", {len(self.unreadable)} of them unreadable" if self.unreadable else ""
        reason = f" (for example: {next(iter(self.unreadable.values()))})" if self.unreadable else ""
        return DataError(
            f"The pool '{self.name}' holds {self.count} images{lost}, but {needed} are needed; lower --budget, or name a "
            f"larger --pool.{reason}"
        )


def open_pool(name: str, *, size: int, seed: int, colour: bool = False) -> Pool:
    """The pool of this name, such as `scenes`, `cifar:DIR` or `mix:0.1:corpus:DIR+scenes`; see `USAGE`."""
    kind, _, argument = name.partition(":")
    pool: Pool = POOLS.load(kind)(argument, size=size, seed=seed, colour=colour)
    return pool


def usage(kind: str) -> str:
    """How pools of a kind are named, such as `folder:DIR`."""
    return next(form for form in USAGE if form.partition(":")[0] == kind)


def square(picture: NDArray[Any], size: int, colour: bool = False) -> NDArray[np.uint8]:
    """Any image ([H, W] or [H, W, 3]; uint8, uint16 or float32 in [0, 1]) as a uint8 square, grey or [size, size, 3]."""
    if colour:
        image = rgb_image(picture)
        return to_uint8(np.stack([_resized(image[..., channel], size) for channel in range(3)], axis=-1))
    return to_uint8(_resized(grey_image(picture), size))


def _resized(channel: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    if channel.shape == (size, size):
        return channel
    picture = Image.fromarray(np.ascontiguousarray(channel, np.float32))
    return np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR), np.float32)


JOIN = "+"


class Scenes(Pool):
    """Drawn scenes, with a derived seed: a corpus of scenes with the same seed has others."""

    kind, takes_argument = "scenes", False
    count = None

    def _take(self, skip: int, n: int) -> list[QueryImage]:
        return [
            QueryImage(f"scene{number:06d}", partial(self._pixels, number), in_domain=False)
            for number in range(skip, skip + n)
        ]

    def _pixels(self, number: int) -> Pixels:
        scene = draw_scene(stream_key(self.seed, "pool", "scenes"), number, self.size)
        return square(scene.image, self.size, self.colour)


class Noise(Pool):
    """Standard normal pixels; in each image the smallest becomes 0 and the largest 255, linearly, then rounded."""

    kind, takes_argument = "noise", False
    count = None

    def _take(self, skip: int, n: int) -> list[QueryImage]:
        return [
            QueryImage(f"noise{number:06d}", partial(self._pixels, number), in_domain=False)
            for number in range(skip, skip + n)
        ]

    def _pixels(self, number: int) -> Pixels:
        shape = (self.size, self.size, *((3,) if self.colour else ()))
        values = generator(self.seed, "pool", "noise", number).standard_normal(shape)
        spread = float(np.ptp(values)) or 1.0  # an image of one pixel has none
        return to_uint8((values - values.min()) / spread)


class Cifar(Pool):
    """CIFAR's photographs; a draw reads the files once, up to the last image that it needs."""

    kind = "cifar"

    @cached_property
    def count(self) -> int:
        """Images of the split."""
        return sum(1 for _ in self._pictures())

    def _pictures(self) -> Iterable[Any]:
        folder, split = with_split(self.argument)
        return cifar_pool(folder, split)

    def _take(self, skip: int, n: int) -> list[QueryImage]:
        wanted = self._order(self.count)[skip : skip + n]
        found: dict[int, QueryImage] = {}
        left = set(wanted)
        for number, one in enumerate(self._pictures()):
            if number in left:
                # With the number: names may repeat between batches. The photograph is kept small, as it is in the file.
                pixels = partial(square, np.array(one.image), self.size, self.colour)
                found[number] = QueryImage(f"{number:05d}-{one.name}", pixels, in_domain=False)
                left.remove(number)
                if not left:
                    break
        return [found[number] for number in wanted]


class _Listed(Pool):
    """Images whose names are known before they are read; unreadable ones are skipped."""

    def __init__(self, argument: str, *, size: int, seed: int, colour: bool = False) -> None:
        super().__init__(argument, size=size, seed=seed, colour=colour)
        names = self._names()
        self._keys = [names[place] for place in self._order(len(names))]
        self._read: list[str] = []  # keys of readable images, in order
        self._unreadable: dict[str, str] = {}
        self._tried = 0

    @property
    def count(self) -> int:
        """Names, of unreadable images too."""
        return len(self._keys)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Those that could not be read, with the reason."""
        return self._unreadable

    @abstractmethod
    def _names(self) -> Sequence[str]:
        """Every name, in an order that does not depend on the seed."""

    @abstractmethod
    def _pixels(self, key: str) -> Pixels:
        """Pixels of one image; a `DataError` if it cannot be read."""

    def _in_domain(self, key: str) -> bool | None:
        """Whether it is a chest radiograph, if known."""
        return None

    def _take(self, skip: int, n: int) -> list[QueryImage]:
        # Every image is read once here, a skipped one too, since unreadable ones do not count.
        while len(self._read) < skip + n:
            if self._tried == len(self._keys):
                raise self._too_few(skip + n)
            key = self._keys[self._tried]
            self._tried += 1
            try:
                self._pixels(key)
            except DataError as error:
                self._unreadable[key] = str(error)
                continue
            self._read.append(key)
        return [
            QueryImage(key, partial(self._pixels, key), self._in_domain(key)) for key in self._read[skip : skip + n]
        ]


class Folder(_Listed):
    """A folder of images, which may or may not be chest radiographs."""

    kind = "folder"

    def _names(self) -> Sequence[str]:
        return folder_pool(self.argument).files

    def _pixels(self, key: str) -> Pixels:
        one = FolderPool(Path(self.argument), (key,))
        for picture in one:
            return square(picture.image, self.size, self.colour)
        raise DataError(one.unreadable[key])


class Images(_Listed):
    """The frontal image of each study of a split, as a model gets it; of a caption its image."""

    kind = "corpus"

    def _names(self) -> Sequence[str]:
        folder, split = with_split(self.argument)
        self._corpus = load_corpus(folder)
        if not (ids := self._corpus.ids(split)):
            raise DataError(f"{folder} has no study in its {split} split; name another one as corpus:DIR@split.")
        return ids

    def _pixels(self, key: str) -> Pixels:
        return square(load_selected_image(self._corpus, self._corpus[key]), self.size, self.colour)

    def _in_domain(self, key: str) -> bool:
        return self._corpus[key].caption is None


class Mix(Pool):
    """A share of one pool among another, the same in every prefix to within one image.

    Image number k (from 1) is of IN where k·R passes a whole number. The name is split at the last `+` before the name
    of a pool, so that both parts may hold colons. Keys start with `in/` or `out/`.
    """

    kind = "mix"

    def __init__(self, argument: str, *, size: int, seed: int, colour: bool = False) -> None:
        super().__init__(argument, size=size, seed=seed, colour=colour)
        share, _, parts = argument.partition(":")
        try:
            self.share = Fraction(share)  # exact: 0.29 of 100 is 29, which it is not among floats
        except (ValueError, ZeroDivisionError):
            self.share = Fraction(-1)
        if not 0 <= self.share <= 1:
            raise ConfigError(f"'{self.name}' has the share {share!r}; write it as {usage('mix')} with R from 0 to 1.")
        for place in range(len(parts) - 1, 0, -1):
            names = parts[:place], parts[place + 1 :]
            if parts[place] == JOIN and all(name.partition(":")[0] in POOLS for name in names):
                break
        else:
            raise ConfigError(f"'{self.name}' does not name two pools; write it as {usage('mix')}.")
        if names[0] == names[1]:
            raise ConfigError(f"'{self.name}' mixes '{names[0]}' with itself; name two pools.")
        self.inside, self.outside = (open_pool(name, size=size, seed=seed, colour=colour) for name in names)

    @property
    def count(self) -> int | None:
        """As many as keep the share until one of the two ends."""
        return self._until(self.inside.count, self.outside.count)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Those of both, by their keys in the mixture."""
        parts = (("in", self.inside), ("out", self.outside))
        return {f"{part}/{key}": reason for part, pool in parts for key, reason in pool.unreadable.items()}

    @property
    def readable(self) -> int | None:
        """As `count`, of the readable images of both; one unreadable image may cost many."""
        return self._until(self.inside.readable, self.outside.readable)

    def _until(self, inside: int | None, outside: int | None) -> int | None:
        most = []
        if inside is not None and self.share:
            most.append(ceil((inside + 1) / self.share) - 1)
        if outside is not None and self.share < 1:
            most.append(int(outside / (1 - self.share)))
        return min(most, default=None)

    def _take(self, skip: int, n: int) -> list[QueryImage]:
        before, after = int(skip * self.share), int((skip + n) * self.share)
        images = iter(self.inside.draw(after - before, before))
        others = iter(self.outside.draw(n - (after - before), skip - before))
        return [
            _of_part(next(images), "in", known=True)
            if self._is_inside(place)
            else _of_part(next(others), "out", known=False)
            for place in range(skip, skip + n)
        ]

    def _is_inside(self, place: int) -> bool:
        return int((place + 1) * self.share) > int(place * self.share)


def _of_part(picture: QueryImage, part: str, *, known: bool) -> QueryImage:
    """An image of a mixture; IN counts as in the domain if its own pool does not know."""
    domain = known if picture.in_domain is None else picture.in_domain
    return replace(picture, key=f"{part}/{picture.key}", in_domain=domain)


def with_split(argument: str) -> tuple[str, str]:
    """Folder and split of `DIR@split`; train if no split follows the last `@`."""
    folder, at, split = argument.rpartition("@")
    return (folder, split) if at and split in SPLITS else (argument, "train")

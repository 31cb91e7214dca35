"""Pools of pictures to ask about: photographs, scenes, noise, images, and mixtures of them.

Every picture comes out as a square of grey, uint8 [size, size]: colour as its luminance (ITU-R 601), another shape
squeezed into the square as the image processors of the models squeeze images, small ones enlarged bilinearly. Only
what is drawn is decoded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.randomness import generator, stream_key
from cxrlab.core.records import SPLITS
from cxrlab.core.tables import Table
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import grey_image
from cxrlab.data.scenes import draw_scene
from cxrlab.data.sources.cifar100 import cifar_pool
from cxrlab.data.sources.image_folder import FolderPool, folder_pool
from cxrlab.data.views import load_selected_image
from cxrlab.extraction.records import Picture

POOLS = Table(
    "pool",
    {
        "cifar": "cxrlab.extraction.pools:Cifar",
        "folder": "cxrlab.extraction.pools:Folder",
        "scenes": "cxrlab.extraction.pools:Scenes",
        "noise": "cxrlab.extraction.pools:Noise",
        "corpus": "cxrlab.extraction.pools:Images",
        "mix": "cxrlab.extraction.pools:Mix",
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


JOIN = "+"


class Scenes(Pool):
    """NewStudy scenes. Their seed is derived, so that a corpus of scenes with the same seed shows others."""

    kind, takes_argument = "scenes", False
    count = None

    def _take(self, skip: int, n: int) -> list[Picture]:
        seed = stream_key(self.seed, "pool", "scenes")
        return [
            Picture(f"scene{number:06d}", square(draw_scene(seed, number, self.size).image, self.size), in_domain=False)
            for number in range(skip, skip + n)
        ]


class Noise(Pool):
    """Standard normal pixels; of each picture the smallest becomes 0 and the largest 255, linearly, then rounded."""

    kind, takes_argument = "noise", False
    count = None

    def _take(self, skip: int, n: int) -> list[Picture]:
        return [
            Picture(f"noise{number:06d}", self._pixels(number), in_domain=False) for number in range(skip, skip + n)
        ]

    def _pixels(self, number: int) -> NDArray[np.uint8]:
        values = generator(self.seed, "pool", "noise", number).standard_normal((self.size, self.size))
        spread = float(np.ptp(values)) or 1.0  # a picture of one pixel has none
        return to_uint8((values - values.min()) / spread)


class Cifar(Pool):
    """CIFAR's photographs; a draw passes once through the files and stops at the last picture that it needs."""

    kind = "cifar"

    @cached_property
    def count(self) -> int:
        """Pictures of the split."""
        return sum(1 for _ in self._pictures())

    def _pictures(self) -> Iterable[Any]:
        folder, split = with_split(self.argument)
        return cifar_pool(folder, split)

    def _take(self, skip: int, n: int) -> list[Picture]:
        wanted = self._order(self.count)[skip : skip + n]
        found: dict[int, Picture] = {}
        left = set(wanted)
        for number, one in enumerate(self._pictures()):
            if number in left:
                # The number too: the archives do not promise that names differ between batches.
                found[number] = Picture(f"{number:05d}-{one.name}", square(one.image, self.size), in_domain=False)
                left.remove(number)
                if not left:
                    break
        return [found[number] for number in wanted]


class _Listed(Pool):
    """Pictures that are known by name before they are read; those that cannot be read are passed over."""

    def __init__(self, argument: str, *, size: int, seed: int) -> None:
        super().__init__(argument, size=size, seed=seed)
        names = self._names()
        self._keys = [names[place] for place in self._order(len(names))]
        self._read: list[str] = []  # keys that were found readable, in order
        self._unreadable: dict[str, str] = {}
        self._tried = 0

    @property
    def count(self) -> int:
        """Names, of unreadable pictures too."""
        return len(self._keys)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Those that were tried in vain, with the reason."""
        return self._unreadable

    @abstractmethod
    def _names(self) -> Sequence[str]:
        """Every name, in an order that does not depend on the seed."""

    @abstractmethod
    def _load(self, key: str) -> Picture:
        """One picture; a `DataError` where it cannot be read."""

    def _take(self, skip: int, n: int) -> list[Picture]:
        # A picture that was skipped is read once too: whether it counts depends on whether it can be.
        fresh: dict[str, Picture] = {}
        while len(self._read) < skip + n:
            if self._tried == len(self._keys):
                raise self._too_few(skip + n)
            key = self._keys[self._tried]
            self._tried += 1
            try:
                picture = self._load(key)
            except DataError as error:
                self._unreadable[key] = str(error)
                continue
            self._read.append(key)
            if len(self._read) > skip:
                fresh[key] = picture
        return [fresh[key] if key in fresh else self._load(key) for key in self._read[skip : skip + n]]


class Folder(_Listed):
    """A folder of pictures; whether they are chest radiographs nobody knows."""

    kind = "folder"

    def _names(self) -> Sequence[str]:
        return folder_pool(self.argument).files

    def _load(self, key: str) -> Picture:
        one = FolderPool(Path(self.argument), (key,))
        for picture in one:
            return Picture(key, square(picture.image, self.size))
        raise DataError(one.unreadable[key])


class Images(_Listed):
    """The frontal image of each study of a split, as it is shown to a model; of a caption its picture."""

    kind = "corpus"

    def _names(self) -> Sequence[str]:
        folder, split = with_split(self.argument)
        self._corpus = load_corpus(folder)
        if not (ids := self._corpus.ids(split)):
            raise DataError(f"{folder} has no study in its {split} split; name another one as corpus:DIR@split.")
        return ids

    def _load(self, key: str) -> Picture:
        study = self._corpus[key]
        image = load_selected_image(self._corpus, study)
        return Picture(key, square(image, self.size), in_domain=study.caption is None)


class Mix(Pool):
    """A share of one pool among another, the same in every prefix to within one picture.

    Picture number k (from 1) is of IN where k·R passes a whole number. The parts stand at the last `+` behind which
    a pool's name begins, so that both may hold colons. Keys begin with `in/` or `out/`.
    """

    kind = "mix"

    def __init__(self, argument: str, *, size: int, seed: int) -> None:
        super().__init__(argument, size=size, seed=seed)
        told, _, parts = argument.partition(":")
        self.share = _share(told, self.name)
        self.inside, self.outside = (open_pool(part, size=size, seed=seed) for part in _parts(parts, self.name))

    @property
    def count(self) -> int | None:
        """As many as keep to the share until one of the two runs out."""
        return self._until(self.inside.count, self.outside.count)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Those of both, by their names in the mixture."""
        parts = (("in", self.inside), ("out", self.outside))
        return {f"{part}/{key}": reason for part, pool in parts for key, reason in pool.unreadable.items()}

    @property
    def readable(self) -> int | None:
        """As `count`, of what can be drawn of the two; one lost image may cost many pictures."""
        return self._until(self.inside.readable, self.outside.readable)

    def _until(self, inside: int | None, outside: int | None) -> int | None:
        most = []
        if inside is not None and self.share:
            most.append(ceil((inside + 1) / self.share) - 1)
        if outside is not None and self.share < 1:
            most.append(int(outside / (1 - self.share)))
        return min(most, default=None)

    def _take(self, skip: int, n: int) -> list[Picture]:
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


def _of_part(picture: Picture, part: str, *, known: bool) -> Picture:
    """A picture of a mixture; where its own pool does not know the domain, whoever mixed them does."""
    domain = known if picture.in_domain is None else picture.in_domain
    return replace(picture, key=f"{part}/{picture.key}", in_domain=domain)


def _share(told: str, name: str) -> Fraction:
    """The share as it was typed, exactly: 0.29 of 100 is 29, which it is not among floats."""
    try:
        share = Fraction(told)
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 <= share <= 1:
        raise ConfigError(f"'{name}' has the share {told!r}; write it as {usage('mix')} with R from 0 to 1.")
    return share


def _parts(told: str, name: str) -> tuple[str, str]:
    for place in range(len(told) - 1, 0, -1):
        first, second = told[:place], told[place + 1 :]
        if told[place] == JOIN and second.partition(":")[0] in POOLS and first.partition(":")[0] in POOLS:
            if first == second:
                raise ConfigError(f"'{name}' mixes '{first}' with itself; name two pools.")
            return first, second
    raise ConfigError(f"'{name}' does not name two pools; write it as {usage('mix')}.")


def with_split(argument: str) -> tuple[str, str]:
    """Folder and split of `DIR@split`; train where no split of that name stands behind the last `@`."""
    folder, at, split = argument.rpartition("@")
    return (folder, split) if at and split in SPLITS else (argument, "train")

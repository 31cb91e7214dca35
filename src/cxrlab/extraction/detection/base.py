"""The detectors by name; each row is a class that takes `DetectorSettings`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, final

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.randomness import generator
from cxrlab.core.tables import Table
from cxrlab.extraction.detection.false_alarm_rates import (
    CONFIDENCE,
    alarm_count,
    conformal_rank,
    min_images_for_bound,
    score_at_rank,
    tolerance_rank,
)

if TYPE_CHECKING:
    from cxrlab.extraction.detection.config import DetectorSettings

DETECTORS = Table(
    "detector",
    {
        "prada": "cxrlab.extraction.detection.account_detectors:Prada",
        "mmd": "cxrlab.extraction.detection.account_detectors:Mmd",
        "coverage": "cxrlab.extraction.detection.account_detectors:Coverage",
        "chest-gate": "cxrlab.extraction.detection.image_detectors:ChestGate",
        "perturbation": "cxrlab.extraction.detection.image_detectors:Perturbation",
    },
)


_FITTED = 3  # one in so many benign images fits the idea; the others set the threshold


@dataclass(frozen=True)
class Seen:
    """What a detector says after one question.

    Args:
        score: The higher, the less benign; not-a-number while it cannot tell yet.
        flagged: Whether this image is; None for a detector that judges accounts alone.
        rings: Whether the alarm rings at this question.
    """

    score: float
    flagged: bool | None
    rings: bool


@dataclass(frozen=True, eq=False)
class StreamResult:
    """What a detector says of a stream.

    Args:
        scores: [N]; not-a-number where it cannot tell.
        flagged: Which images are flagged [N]; None for a detector that judges accounts alone.
        alarm: Questions of the whole stream until the alarm first rings; None when it never does.
        periods: For each stretch of `account_queries` questions of an account the question of it at which the alarm
            rings, from 1; None where it does not. A last stretch that is cut short counts when it is the only one.
    """

    scores: Vector
    flagged: NDArray[np.bool_] | None
    alarm: int | None
    periods: tuple[int | None, ...]


class Scorer(Protocol):
    """The state of an idea over the questions of one account."""

    def see(self, asked: Asked) -> float:
        """The score after this question; not-a-number while it cannot tell yet."""
        ...


class Watch:
    """A detector's eye on one account, one question at a time; what it keeps is bounded by `account_queries`.

    Args:
        detector: A calibrated one.
    """

    def __init__(self, detector: Detector) -> None:
        self._detector, self._seen = detector, 0
        self._begin()

    def see(self, asked: Asked) -> Seen:
        """Take the next question; the watch begins anew after `account_queries`."""
        if self._seen == self._detector.settings.account_queries:
            self._begin()
        self._seen += 1
        score = self._scorer.see(asked)
        over = score > self._detector.threshold
        self._over += over
        return Seen(score, over if self._detector.per_image else None, over and self._over >= self._detector.count)

    def _begin(self) -> None:
        self._seen, self._over, self._scorer = 0, 0, self._detector.start()


class Detector(ABC):
    """A way to tell an attacker's questions from benign ones.

    Args:
        settings: Bounds and sizes.

    Attributes:
        name: In the table.
        per_image: Judges every image for itself; the alarm rings when an account has too many flagged ones.
        needs_encoder: Needs the vectors of an encoder.
    """

    name: ClassVar[str] = ""
    per_image: ClassVar[bool] = False
    needs_encoder: ClassVar[bool] = True

    def __init__(self, settings: DetectorSettings) -> None:
        self.settings = settings
        self._threshold: float | None = None
        self.count = 1  # scores above the threshold, in one account, that ring the alarm

    def __init_subclass__(cls, **more: object) -> None:
        """A subclass that sets its threshold for itself is a mistake of the programmer."""
        super().__init_subclass__(**more)
        if {"calibrate", "watch", "begin"} & cls.__dict__.keys():
            raise TypeError(f"{cls.__name__} must not define calibrate, watch or begin; define fit and start.")

    @abstractmethod
    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Learn what benign traffic is like, from a part of it."""

    @abstractmethod
    def start(self) -> Scorer:
        """The state before the first question of an account."""

    @property
    def threshold(self) -> float:
        """Scores above it are flagged."""
        if self._threshold is None:
            raise RuntimeError(f"the detector '{self.name}' has no threshold yet; calibrate it on benign traffic")
        return self._threshold

    @final
    def calibrate(self, benign: Traffic, seed: int) -> None:
        """Fit the idea to a third of benign traffic and set the threshold on the rest.

        Args:
            benign: Benign images, all of one kind; too few for the bounds are a `DataError` that gives the number.
            seed: Decides which images do what.
        """
        self._refuse(benign)
        order = generator(seed, "detect", self.name, "parts").permutation(len(benign))
        cut = len(benign) // _FITTED
        self.fit(benign.take(order[:cut]), generator(seed, "detect", self.name, "fit"))
        kept = benign.take(order[cut:])
        if self.per_image:
            self._bound_images(kept)
        else:
            self._bound_accounts(kept, generator(seed, "detect", self.name, "accounts"))
        if not np.isfinite(self.threshold):
            raise DataError(f"benign images are so alike that '{self.name}' tells nothing of them; give other images.")

    @final
    def begin(self) -> Watch:
        """A watch on a new account."""
        return Watch(self)

    @final
    def watch(self, stream: Traffic) -> StreamResult:
        """Watch a whole stream, each account for itself."""
        scores, flagged, rings = np.full(len(stream), np.nan), np.zeros(len(stream), bool), np.zeros(len(stream), bool)
        periods: list[int | None] = []
        asked = list(stream)
        for places in stream.by_account().values():
            watch = self.begin()
            for place in places:
                seen = watch.see(asked[place])
                scores[place], flagged[place], rings[place] = seen.score, bool(seen.flagged), seen.rings
            periods += self._periods(rings[places])
        alarm = int(rings.argmax()) + 1 if rings.any() else None
        return StreamResult(scores, flagged if self.per_image else None, alarm, tuple(periods))

    def _bound_images(self, benign: Traffic) -> None:
        settings, scorer = self.settings, self.start()
        rank = tolerance_rank(len(benign), settings.image_bound)
        self._threshold = score_at_rank([scorer.see(asked) for asked in benign], rank)
        self.count = alarm_count(len(benign), rank, settings.account_queries, settings.account_bound)

    def _bound_accounts(self, benign: Traffic, rng: np.random.Generator) -> None:
        settings = self.settings
        drawn = draw_accounts(len(benign), settings.account_queries, settings.accounts, rng)
        highest = [self._highest(benign.take(places)) for places in drawn]
        self._threshold = score_at_rank(highest, conformal_rank(len(highest), settings.account_bound))

    def _periods(self, rings: NDArray[np.bool_]) -> list[int | None]:
        step = self.settings.account_queries
        whole = max(1, len(rings) // step)
        parts = [rings[start * step : (start + 1) * step] for start in range(whole)]
        return [int(part.argmax()) + 1 if part.any() else None for part in parts]

    def _highest(self, account: Traffic) -> float:
        """The highest score that a benign account comes to; minus infinity where none can be told."""
        scorer = self.start()
        scores = [scorer.see(asked) for asked in account]
        return max((score for score in scores if not np.isnan(score)), default=-np.inf)

    def _refuse(self, benign: Traffic) -> None:
        if self.needs_encoder and not benign.features.shape[1]:
            raise ConfigError(
                f"the detector '{self.name}' compares vectors of images and there is no encoder; name one with "
                "--encoder, or choose chest-gate and perturbation."
            )
        settings, kept, fitted = self.settings, len(benign) - len(benign) // _FITTED, len(benign) // _FITTED
        if self.per_image:
            needed = min_images_for_bound(settings.image_bound)
            # The fewest images of which two thirds, rounded up, are as many as needed.
            images = next(n for n in range(needed, 2 * needed + 2) if n - n // _FITTED >= needed)
            bound = math.ceil((1 - (1 - CONFIDENCE) ** (1 / kept)) * 1e4) / 1e4 if kept else 1.0
            looser = f", or image_bound={bound}" if bound < 1 else ""
        else:
            images = _FITTED * settings.account_queries
            # No shorter account is suggested than the other settings allow.
            looser = f", or account_queries={fitted}" if fitted > max(settings.window, settings.least, 11) else ""
        if len(benign) < images:
            raise DataError(
                f"{len(benign)} benign images are too few for the detector '{self.name}': its bound needs {images}; give "
                f"that many{looser}."
            )


Vector = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Asked:
    """One question.

    Args:
        features: Vector of an image encoder [D]; D is 0 where none is used.
        looks: Plain statistics [K] in the order of `looks.NAMES`.
    """

    features: Vector
    looks: Vector


@dataclass(frozen=True, eq=False)
class Traffic:
    """A stream of questions.

    Args:
        keys: Name of each picture [N]; several questions may show the same one.
        accounts: Who asked [N].
        features: Vectors of an image encoder [N, D].
        looks: Plain statistics [N, K].
    """

    keys: tuple[str, ...]
    accounts: tuple[str, ...]
    features: Vector
    looks: Vector

    def __post_init__(self) -> None:
        rows = {len(self.keys), len(self.accounts), len(self.features), len(self.looks)}
        if len(rows) > 1 or self.features.ndim != 2 or self.looks.ndim != 2:
            raise ValueError(
                f"{len(self.keys)} keys, {len(self.accounts)} accounts, features {self.features.shape} and looks "
                f"{self.looks.shape} are not one stream"
            )

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Asked]:
        return (Asked(*row) for row in zip(self.features, self.looks, strict=True))

    def take(self, indices: Sequence[int] | Indices) -> Traffic:
        """The questions at these places, in this order."""
        places = np.asarray(indices, np.intp)
        return Traffic(
            tuple(self.keys[place] for place in places),
            tuple(self.accounts[place] for place in places),
            self.features[places],
            self.looks[places],
        )

    def by_account(self) -> dict[str, list[int]]:
        """Places of each account's questions, accounts in the order of their first."""
        found: dict[str, list[int]] = {}
        for place, account in enumerate(self.accounts):
            found.setdefault(account, []).append(place)
        return found


def draw_accounts(images: int, queries: int, accounts: int, rng: np.random.Generator) -> Iterator[Indices]:
    """Places of the images that each of `accounts` benign accounts asks about, [queries] each.

    Within an account no image is asked twice. All images are cut into accounts before any image serves in a second cut,
    so that the first images // queries accounts have nothing in common.
    """
    if not 1 <= queries <= images:
        raise ValueError(f"an account of {queries} queries cannot be drawn from {images} images")
    made = 0
    while made < accounts:
        order = rng.permutation(images)
        for start in range(0, images - queries + 1, queries):
            if made < accounts:
                yield order[start : start + queries]
                made += 1

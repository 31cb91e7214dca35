"""Base class of detectors: fit on benign traffic, bound the false alarms, watch streams of queries."""

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
from cxrlab.core.registry import Registry
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

DETECTORS = Registry(
    "detector",
    {
        "prada": "cxrlab.extraction.detection.detectors:Prada",
        "mmd": "cxrlab.extraction.detection.detectors:Mmd",
        "coverage": "cxrlab.extraction.detection.detectors:Coverage",
        "chest-gate": "cxrlab.extraction.detection.detectors:ChestGate",
        "perturbation": "cxrlab.extraction.detection.detectors:Perturbation",
    },
)


Vector = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class QueryFeatures:
    """One query as detectors see it."""

    features: Vector  # vector of an image encoder [D]; D is 0 without one
    image_statistics: Vector  # image statistics [K] in the order of `features.NAMES`


@dataclass(frozen=True, eq=False)
class Traffic:
    """A stream of queries."""

    keys: tuple[str, ...]  # name of each image [N]; several queries may send the same one
    accounts: tuple[str, ...]  # account of each query [N]
    features: Vector  # vectors of an image encoder [N, D]
    image_statistics: Vector  # image statistics [N, K]

    def __post_init__(self) -> None:
        rows = {len(self.keys), len(self.accounts), len(self.features), len(self.image_statistics)}
        if len(rows) > 1 or self.features.ndim != 2 or self.image_statistics.ndim != 2:
            raise ValueError(
                f"{len(self.keys)} keys, {len(self.accounts)} accounts, features {self.features.shape} and image statistics "
                f"{self.image_statistics.shape} are not one stream"
            )

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[QueryFeatures]:
        return (QueryFeatures(*row) for row in zip(self.features, self.image_statistics, strict=True))

    def take(self, indices: Sequence[int] | Indices) -> Traffic:
        """The queries at these places, in this order."""
        places = np.asarray(indices, np.intp)
        return Traffic(
            tuple(self.keys[place] for place in places),
            tuple(self.accounts[place] for place in places),
            self.features[places],
            self.image_statistics[places],
        )

    def by_account(self) -> dict[str, list[int]]:
        """Places of the queries of each account, accounts in the order of their first."""
        found: dict[str, list[int]] = {}
        for place, account in enumerate(self.accounts):
            found.setdefault(account, []).append(place)
        return found


def draw_accounts(images: int, queries: int, accounts: int, rng: np.random.Generator) -> Iterator[Indices]:
    """Places of the images of each of `accounts` benign accounts, [queries] each.

    Within an account no image occurs twice. All images are used once before any is used again, so that the first
    images // queries accounts have no image in common.
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


_FITTED = 3  # one in so many benign images fits the detector; the others set the threshold


@dataclass(frozen=True)
class DetectorOutput:
    """The output of a detector after one query."""

    score: float  # the higher, the less benign; not-a-number while there are too few queries
    flagged: bool | None  # whether this image is flagged; None for a detector that judges only accounts
    alarm: bool  # whether this query raises the alarm


@dataclass(frozen=True, eq=False)
class StreamResult:
    """The output of a detector for a stream."""

    scores: Vector  # [N]; not-a-number where unknown
    flagged: NDArray[np.bool_] | None  # which images are flagged [N]; None for a detector that judges only accounts
    alarm: int | None  # queries of the whole stream until the first alarm; None if there is none
    # For each period of `account_queries` queries of an account the query that raised the alarm, from 1; None if none
    # did. A last period that is shorter counts only if it is the only one.
    periods: tuple[int | None, ...]


class Scorer(Protocol):
    """The state of a detector over the queries of one account."""

    def update(self, query: QueryFeatures) -> float:
        """The score after this query; not-a-number while there are too few."""
        ...


class Watch:
    """Applies a calibrated detector to one account, query by query; its memory is bounded by `account_queries`."""

    def __init__(self, detector: Detector) -> None:
        self._detector, self._seen = detector, 0
        self._begin()

    def update(self, query: QueryFeatures) -> DetectorOutput:
        """Process the next query; the state is reset after `account_queries`."""
        if self._seen == self._detector.settings.account_queries:
            self._begin()
        self._seen += 1
        score = self._scorer.update(query)
        over = score > self._detector.threshold
        self._over += over
        return DetectorOutput(
            score, over if self._detector.per_image else None, over and self._over >= self._detector.count
        )

    def _begin(self) -> None:
        self._seen, self._over, self._scorer = 0, 0, self._detector.start()


class Detector(ABC):
    """Base class of detectors. Subclasses implement `fit` and `start`; this class bounds their false alarms.

    Attributes:
        name: In the table.
        per_image: Judges every image for itself; an account with too many flagged images raises the alarm.
        needs_encoder: Needs the vectors of an encoder.
    """

    name: ClassVar[str] = ""
    per_image: ClassVar[bool] = False
    needs_encoder: ClassVar[bool] = True

    def __init__(self, settings: DetectorSettings) -> None:
        self.settings = settings
        self._threshold: float | None = None
        self.count = 1  # scores above the threshold, in one account, that raise the alarm

    def __init_subclass__(cls, **more: object) -> None:
        """Refuse subclasses that set their own threshold."""
        super().__init_subclass__(**more)
        if {"calibrate", "watch", "begin"} & cls.__dict__.keys():
            raise TypeError(f"{cls.__name__} must not define calibrate, watch or begin; define fit and start.")

    @abstractmethod
    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Fit to benign traffic."""

    @abstractmethod
    def start(self) -> Scorer:
        """The state before the first query of an account."""

    @property
    def threshold(self) -> float:
        """Scores above it are flagged."""
        if self._threshold is None:
            raise RuntimeError(f"the detector '{self.name}' has no threshold yet; calibrate it on benign traffic")
        return self._threshold

    @final
    def calibrate(self, benign: Traffic, seed: int) -> None:
        """Fit to a third of benign traffic and set the threshold on the rest.

        Too few benign images for the bounds are a `DataError` that gives the number; the seed splits them.
        """
        self._check_benign(benign)
        settings = self.settings
        order = generator(seed, "detect", self.name, "parts").permutation(len(benign))
        cut = len(benign) // _FITTED
        self.fit(benign.take(order[:cut]), generator(seed, "detect", self.name, "fit"))
        kept = benign.take(order[cut:])
        if self.per_image:
            scorer = self.start()
            rank = tolerance_rank(len(kept), settings.image_bound)
            self._threshold = score_at_rank([scorer.update(query) for query in kept], rank)
            self.count = alarm_count(len(kept), rank, settings.account_queries, settings.account_bound)
        else:
            rng = generator(seed, "detect", self.name, "accounts")
            highest = []  # score of each benign account; minus infinity without any
            for places in draw_accounts(len(kept), settings.account_queries, settings.accounts, rng):
                scorer = self.start()
                scores = [scorer.update(query) for query in kept.take(places)]
                highest.append(max((score for score in scores if not np.isnan(score)), default=-np.inf))
            self._threshold = score_at_rank(highest, conformal_rank(len(highest), settings.account_bound))
        if not np.isfinite(self.threshold):
            raise DataError(f"The benign images are too similar to calibrate the detector '{self.name}'; give others.")

    @final
    def begin(self) -> Watch:
        """A `Watch` on a new account."""
        return Watch(self)

    @final
    def watch(self, stream: Traffic) -> StreamResult:
        """Watch a whole stream, each account separately."""
        scores, flagged, alarms = np.full(len(stream), np.nan), np.zeros(len(stream), bool), np.zeros(len(stream), bool)
        periods: list[int | None] = []
        queries, step = list(stream), self.settings.account_queries
        for places in stream.by_account().values():
            watch = self.begin()
            for place in places:
                found = watch.update(queries[place])
                scores[place], flagged[place], alarms[place] = found.score, bool(found.flagged), found.alarm
            for start in range(0, max(1, len(places) // step) * step, step):
                period = alarms[places][start : start + step]
                periods.append(int(period.argmax()) + 1 if period.any() else None)
        first = int(alarms.argmax()) + 1 if alarms.any() else None
        return StreamResult(scores, flagged if self.per_image else None, first, tuple(periods))

    def _check_benign(self, benign: Traffic) -> None:
        if self.needs_encoder and not benign.features.shape[1]:
            able = ",".join(name for name in DETECTORS if not DETECTORS.load(name).needs_encoder)
            raise ConfigError(
                f"The detector '{self.name}' needs image vectors, but there is no encoder; name one with --encoder, or "
                f"choose --detectors {able}."
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
            looser = f", or account_queries={fitted}" if fitted > max(settings.window, settings.least, 11) else ""
        if len(benign) < images:
            raise DataError(
                f"{len(benign)} benign images are too few for the detector '{self.name}': its bound needs {images}; give "
                f"that many{looser}."
            )

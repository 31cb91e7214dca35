"""The defences without a key: a gate for chest radiographs, a quota, fixed sentences, and input transformations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cxrlab.attacks.input_transformations import InputTransformation, draws_by_pixels, fresh_draws
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import OBSERVATIONS, Side
from cxrlab.extraction.defence.base import Defence
from cxrlab.extraction.defence.finding_preservation import (
    ReportSentence,
    canonical,
    canonical_normal,
    difference,
    report_sentences,
)
from cxrlab.extraction.detection.base import DETECTORS, Detector, QueryFeatures, Traffic
from cxrlab.extraction.detection.config import DetectorSettings
from cxrlab.extraction.detection.features import image_statistics
from cxrlab.findings.reader import read

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image
    from cxrlab.extraction.config import DefenceSettings
    from cxrlab.extraction.defence.base import Benign
    from cxrlab.extraction.records import Pixels, QueryImage


class Gate(Defence):
    """Answers only images that look like a chest radiograph; the share of refused real ones is its benign cost."""

    name = "gate"
    refusal = "This picture was not recognised as a frontal radiograph; please check the upload and send it again."

    def __init__(self, is_chest_image: Callable[[Pixels], bool]) -> None:
        self.is_chest_image = is_chest_image

    @classmethod
    def from_settings(cls, settings: DefenceSettings, benign: Benign) -> Gate:
        """A gate whose rate of false refusals is bounded on benign images."""
        return cls(ChestImages(benign.pictures, bound=settings.gate_bound, seed=benign.seed))

    def admits(self, pixels: Pixels, account: str, number: int) -> bool:
        """Whether it looks like a chest radiograph."""
        return bool(self.is_chest_image(pixels))


_NONE = np.zeros(0)  # no encoder: the gate answers without any model


class ChestImages:
    """Accepts an image that is no farther from benign images than all but a share `bound` of them.

    Too few benign images for the bound are a `DataError` that gives the number.
    """

    def __init__(self, benign: Sequence[QueryImage], *, bound: float, seed: int) -> None:
        detector: Detector = DETECTORS.load("chest-gate")(DetectorSettings(image_bound=bound))
        statistics = np.stack([image_statistics(picture.pixels) for picture in benign])
        keys = tuple(picture.key for picture in benign)
        try:
            detector.calibrate(Traffic(keys, keys, np.zeros((len(keys), 0)), statistics), seed)
        except DataError as error:  # here the setting has another name
            raise DataError(str(error).replace("image_bound", "gate_bound")) from None
        self.detector, self.bound = detector, bound

    def __call__(self, pixels: Pixels) -> bool:
        """Whether an image, uint8 [H, W], passes."""
        # Every image is judged separately: a new watch for each keeps no state.
        return not self.detector.begin().update(QueryFeatures(_NONE, image_statistics(pixels))).flagged


class Quota(Defence):
    """Answers the first queries of an account in each window.

    The clock counts queries, refused ones too, rather than seconds, so that an audit does not depend on the machine.

    Args:
        answers: Per account and window, at least 1.
        window: Queries of all accounts together after which the quota is reset; None for never.
    """

    name = "quota"
    refusal = "This account has used up its quota; please try again later."

    def __init__(self, answers: int, window: int | None = None) -> None:
        if answers < 1 or (window is not None and window < 1):
            raise ConfigError(f"quota={answers} window={window} is not usable; give at least 1.")
        self.answers, self.window = answers, window
        self._given: Counter[tuple[str, int]] = Counter()

    @classmethod
    def from_settings(cls, settings: DefenceSettings, benign: Benign) -> Quota:
        """A quota; it needs no benign images."""
        return cls(settings.quota, settings.window)

    def admits(self, pixels: Pixels, account: str, number: int) -> bool:
        """Whether the account has an answer left in the window of this query; if so, use it."""
        place = (account, number // self.window if self.window else 0)
        if self._given[place] >= self.answers:
            return False
        self._given[place] += 1
        return True

    def count(self, account: str, number: int) -> None:
        """Count an earlier query."""
        place = (account, number // self.window if self.window else 0)
        self._given[place] = min(self.answers, self._given[place] + 1)


def benign_share_refused(images_per_window: float, answers: int) -> float:
    """Share of a benign account's requests that a quota refuses; the images per window have a Poisson distribution."""
    rate = images_per_window
    if not rate > 0 or answers < 0:
        raise ConfigError(f"images_per_window={rate} and answers={answers} are not usable; give numbers above 0.")
    # E[max(X - Q, 0)] = rate - E[min(X, Q)], and the latter is the sum of P(X >= k) for k = 1 … Q.
    answered = cumulative = 0.0
    for k in range(answers):
        cumulative += math.exp(k * math.log(rate) - rate - math.lgamma(k + 1))
        answered += max(0.0, 1.0 - cumulative)
    return min(1.0, max(0.0, (rate - answered) / rate))


def accounts_needed(queries: int, answers: int, window: int | None = None) -> int:
    """Accounts with which an attacker gets an answer to every query, so that the quota has no effect."""
    return math.ceil(min(queries, window or queries) / answers)


Kind = tuple[str, Side | None]
_ORDER = {name: place for place, name in enumerate(OBSERVATIONS)}


class Coarse(Defence):
    """States each finding in one fixed sentence, in the order of the vocabulary.

    Kept are observation, presence, certainty, side and the tip of a device; dropped are degree, size, place, change and
    style. Two findings of a kind on one side keep their places, or they would be read as one. A sentence without a
    fixed form, or that was not understood, is kept word for word: it leaks style, but a lost finding would be worse. So
    is a whole report whose fixed sentences together would be read differently.
    """

    name = "coarse"
    drops: ClassVar[tuple[str, ...]] = ("location", "severity", "size_mm", "change", "tip_mm")

    def reword(self, report: str) -> str:
        """The report in fixed sentences; idempotent."""
        pieces = [piece for piece in report_sentences(read(report)) if piece.findings or piece.normal or piece.unread]
        kinds = Counter(_kind(finding) for piece in pieces for finding in piece.findings if finding.present)
        several = frozenset(kind for kind, count in kinds.items() if count > 1)
        fixed: dict[tuple[int, int, str], int] = {}
        kept: list[str] = []
        for piece in pieces:
            sentences = self._fixed(piece, several)
            if sentences is None:
                kept.append(piece.text)
                continue
            for place, sentence, present in sentences:
                # A present finding that is stated twice is kept twice, since it may be two findings.
                fixed[(not present, place, sentence)] = fixed.get((not present, place, sentence), 0) * present + 1
        text = " ".join([*(key[2] for key in sorted(fixed) for _ in range(fixed[key])), *dict.fromkeys(kept)])
        return report if difference(report, text, self.drops) else text

    def _fixed(self, piece: ReportSentence, several: Collection[Kind]) -> list[tuple[int, str, bool]] | None:
        """(place in the order, fixed sentence, present) per finding of a sentence; None if one has no fixed form."""
        if piece.unread:
            return None
        rows = []
        for finding in piece.findings:
            placed = finding.present and _kind(finding) in several
            drops = tuple(name for name in self.drops if name != "location") if placed else self.drops
            sentence = canonical(replace(finding, span=None), drops)
            if sentence is None:
                return None
            rows.append((_ORDER[finding.observation], sentence, finding.present))
        for words in piece.normal:
            known = canonical_normal(words)
            if known is None:
                return None
            rows.append((len(_ORDER), known[1], False))
        return rows


def _kind(finding: Finding) -> Kind:
    return finding.observation, finding.side


class Plain(Coarse):
    """As `Coarse`, but with every detail kept: degree, size, place and change in fixed words."""

    name = "plain"
    drops = ()


class Preprocessing(Defence):
    """The model gets every image through an input transformation, which may drop an attacker's perturbation.

    The draw of a random one depends on the seed and the pixels, so that an audit can be repeated; an audit never sends the
    same pixels twice. Without a seed every call has new draws, as a server needs them.
    """

    def __init__(self, transformation: InputTransformation, seed: int | None) -> None:
        self.transformation, self._seed = transformation, seed

    @classmethod
    def from_settings(cls, settings: DefenceSettings, benign: Benign) -> Preprocessing:
        """With the strength of the settings; it needs no benign images."""
        return cls(settings.transformation(cls.name), benign.seed)

    def transform(self, images: list[Image]) -> list[Image]:
        """The transformed images, in their own shapes."""
        import torch

        found: list[Image] = []
        for image in images:  # they may have different shapes
            pixels = torch.from_numpy(np.array(image, np.float32))
            batch = pixels[None, None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)[None]
            seed = self._seed
            draws = fresh_draws(batch) if seed is None else draws_by_pixels(batch, seed, "defence")
            changed = self.transformation(batch, draws)[0]
            found.append((changed[0] if pixels.ndim == 2 else changed.permute(1, 2, 0)).numpy())
        return found


class Jpeg(Preprocessing):
    """JPEG compression."""

    name = "jpeg"


class Blur(Preprocessing):
    """Gaussian blur."""

    name = "blur"


class Bits(Preprocessing):
    """Fewer grey levels."""

    name = "bits"


class Noise(Preprocessing):
    """Gaussian noise."""

    name = "noise"


class Resample(Preprocessing):
    """Reduced and enlarged again."""

    name = "resample"


class RandomResample(Preprocessing):
    """Reduced to a random size and enlarged again."""

    name = "random-resample"

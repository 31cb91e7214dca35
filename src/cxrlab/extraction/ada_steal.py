"""Reports that the attack would like to see: the surrogate's own ones, enriched by what the oracle said.

For each of the five categories of each report a source is drawn by itself: an abnormal description, a
normal one, or the surrogate's own sentences. One draw a report would give reports that are abnormal
from end to end or not at all; a draw a description gives nearly every mixture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cxrlab.attacks.config import ATTACKS, AttackSettings, parse_eps
from cxrlab.attacks.objectives import Objective, report_losses
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.memory import BatchSize
from cxrlab.core.randomness import generator
from cxrlab.core.terminal import track
from cxrlab.extraction.config import SOURCES, Alignment, Shares, Source
from cxrlab.extraction.oracles import Descriptions
from cxrlab.extraction.records import Picture
from cxrlab.extraction.report_text import Category, split_by_category
from cxrlab.findings.contradictions import clash
from cxrlab.findings.reader import read

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cxrlab.models.dual_encoder import DualEncoder


@dataclass(frozen=True)
class Part:
    """What an enriched report says of one category.

    Args:
        category: Which of the five.
        source: Who says it.
        text: The words; empty where the source is `own` and the surrogate wrote nothing of the category.
    """

    category: Category
    source: Source
    text: str


@dataclass(frozen=True)
class Enriched:
    """One report to align a picture with.

    Args:
        text: The report; empty only where every part is.
        parts: One for each category, in their order.
    """

    text: str
    parts: tuple[Part, ...]

    def to_json(self) -> dict[str, Any]:
        """The text and category → [source, text], for the run folder."""
        return {"text": self.text, "parts": {part.category.value: [part.source, part.text] for part in self.parts}}


def enrich(
    surrogate_reports: Sequence[str],
    descriptions: Descriptions,
    shares: Shares | None = None,
    *,
    seed: int,
    keys: Sequence[str],
) -> list[Enriched]:
    """One enriched report for each report of the surrogate, in order.

    Args:
        surrogate_reports: What the surrogate wrote for each picture; an empty one says nothing of any category.
        descriptions: Of the oracle.
        shares: How often each source speaks; 80, 10 and 10 % when None.
        seed: Of the draws; give another one, or other keys, for another round.
        keys: A name for each report. The same seed, name and report give the same enriched report,
            whatever stands beside it.
    """
    if len(keys) != len(surrogate_reports) or len(set(keys)) != len(keys):
        raise DataError(
            f"{len(surrogate_reports)} reports came with {len(set(keys))} different keys; give each its own."
        )
    rows = []
    for report, key in zip(surrogate_reports, keys, strict=True):
        rng = generator(seed, "enrich", key)
        rows.append(_joined(_parts(report, descriptions, shares or Shares(), rng)))
    return rows


def keep_own_reports(surrogate_reports: Sequence[str]) -> list[Enriched]:
    """The surrogate's reports as they are: the attack without an oracle."""
    found = []
    for report in surrogate_reports:
        own = split_by_category(report)
        found.append(Enriched(report, tuple(Part(category, "own", own[category]) for category in Category)))
    return found


def contradictions(report: Enriched) -> int:
    """How often a report contradicts itself, as far as the reader sees it.

    Counts observations that it both states and denies, and pairs of stated findings that cannot be on one
    image. A statement that a part is normal as a whole ("the lungs are clear") is not held against anything.
    """
    reading = read(report.text)
    present = [finding for finding in reading if finding.present]
    denied = {finding.observation for finding in reading if not finding.present}
    both = len({finding.observation for finding in present} & denied)
    unlike = [pair for pair in combinations(present, 2) if pair[0].observation != pair[1].observation]
    return both + sum(clash(*pair) for pair in unlike)


def enrichment_summary(reports: Sequence[Enriched]) -> dict[str, Any]:
    """What was drawn, JSON-ready.

    Returns:
        `n` reports and `drawn` descriptions; `sources` with how many each gave; `unsaid`, own parts of which
        the surrogate had written nothing; `distinct` texts; `contradictory` reports and `contradictions` in all.
    """
    parts = [part for report in reports for part in report.parts]
    sources = Counter(part.source for part in parts)
    clashes = [contradictions(report) for report in reports]
    return {
        "n": len(reports),
        "drawn": len(parts),
        "sources": {source: sources[source] for source in SOURCES},
        "unsaid": sum(not part.text for part in parts),
        "distinct": len({report.text for report in reports}),
        "contradictory": sum(count > 0 for count in clashes),
        "contradictions": sum(clashes),
    }


def _parts(report: str, descriptions: Descriptions, shares: Shares, rng: np.random.Generator) -> list[Part]:
    own = split_by_category(report)
    parts = []
    for category in Category:
        source = shares.draw(rng)
        # The second number is drawn for every source, so that other shares leave the later draws as they were.
        u = rng.random()
        if source == "own":
            parts.append(Part(category, source, own[category]))
        else:
            options = descriptions.of(category, source)
            parts.append(Part(category, source, options[int(u * len(options))]))
    return parts


def _joined(parts: Sequence[Part]) -> Enriched:
    return Enriched(" ".join(part.text for part in parts if part.text), tuple(parts))


_REACH = 2.5  # of several steps together, in radii: enough to cross the ball and to turn


class ReportObjective(Objective):
    """The enriched report of each picture becomes likelier, or less likely.

    Args:
        model: The surrogate or another guide, with its `losses(images, reports, indications)`.
        reports: The enriched report of each picture.
        sign: -1 lowers the loss of the report, +1 raises it.
    """

    name = "enriched"

    def __init__(self, model: Any, reports: Sequence[str], sign: float) -> None:
        self.model, self.reports, self.sign = model, reports, sign

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """`sign` times the guide's loss: a surrogate's mean of −log p over the tokens of the enriched report."""
        return self.sign * report_losses(self.model, images, rows, self.reports, [None] * len(self.reports))

    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Nobody asks here: what a moved picture is worth, the victim says."""
        return torch.zeros(len(rows), dtype=torch.bool)


def align_images(
    model: Any, pictures: Sequence[Picture], reports: Sequence[str], settings: Alignment, *, seed: int, round: int,
    batch_size: BatchSize | None = None,
) -> tuple[list[Picture], list[dict[str, float]]]:  # fmt: skip
    """Every picture moved and rounded to 8 bits, and what each was moved by.

    Args:
        model: The surrogate or another guide.
        pictures: uint8 [S, S] each, all of one size.
        reports: The enriched report of each; a picture with an empty one stays as it is.
        settings: How far, how often and which way.
        seed: Of everything random.
        round: Named in the keys of the pictures that were moved.
        batch_size: Images at once; those of the settings when None.
    """
    found: list[tuple[Picture, dict[str, float]]] = []
    at_once = batch_size or BatchSize(settings.batch_size)
    pairs, size = list(zip(pictures, reports, strict=True)), settings.batch_size
    parts = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    for part in track(parts, f"moving images, round {round}", len(pairs), size=len):
        found += at_once.map(part, partial(_moved, model, settings=settings, seed=seed, round=round))
    return [picture for picture, _ in found], [told for _, told in found]


def _moved(
    model: Any, pairs: Sequence[tuple[Picture, str]], settings: Alignment, seed: int, round: int
) -> list[tuple[Picture, dict[str, float]]]:
    """One batch of `align_images`."""
    wished = [place for place, (_, text) in enumerate(pairs) if text.strip()]
    found: list[tuple[Picture, dict[str, float]]] = [(picture, {}) for picture, _ in pairs]
    if not wished:
        return found
    images = _images([pairs[place][0].pixels for place in wished], model)
    named = [pairs[place][0].key for place in wished]
    sign = _sign(settings)
    objective = ReportObjective(model, [pairs[place][1] for place in wished], sign)
    result = _attack(settings)(objective, images, parse_eps(settings.eps), keys=named, seed=seed)
    for place, image, before, after, linf in zip(
        wished, result.images.cpu().numpy(), result.initial_loss, result.final_loss, result.linf, strict=True
    ):
        picture = pairs[place][0]
        told = {"before": sign * float(before), "after": sign * float(after), "linf": float(linf)}
        found[place] = Picture(f"{picture.key}@{round}", to_uint8(image[0]), picture.in_domain), told
    return found


def _attack(settings: Alignment) -> Any:
    if settings.steps == 1:
        return ATTACKS.load("fgsm")(AttackSettings(steps=1))
    step = min(1.0, _REACH / settings.steps)
    return ATTACKS.load("pgd")(AttackSettings(steps=settings.steps, step_size=step, random_start=False))


def _sign(settings: Alignment) -> float:
    return -1.0 if settings.direction == "towards" else 1.0


def _images(pixels: Sequence[NDArray[np.uint8]], model: Any) -> Tensor:
    """[B, 1, S, S] float32 in [0, 1], where the guide is."""
    return torch.from_numpy(np.stack(pixels)).to(model.device).float().div(255.0)[:, None]


class EncoderGuide:
    """An encoder with the one method of a surrogate that moving pictures needs.

    Args:
        encoder: Of images and texts; reports longer than it reads are cut, as everywhere.
    """

    def __init__(self, encoder: DualEncoder) -> None:
        if not encoder.pixels.differentiable:
            raise ConfigError(f"{encoder.name} cannot guide pictures, since no gradient reaches them: "
                              f"{encoder.pixels.reason}")  # fmt: skip
        encoder.model.requires_grad_(False)
        self._encoder = encoder

    @property
    def device(self) -> Any:
        """Where the encoder is."""
        return self._encoder.device

    def losses(self, images: Tensor, reports: Sequence[str], indications: Sequence[str | None]) -> Tensor:
        """1 − cosine of each picture and its report [B], 0 to 2; differentiable to the pixels.

        Args:
            images: [B, 1, H, W] float32 in [0, 1].
            reports: One for each.
            indications: Of no use here.
        """
        import torch

        with torch.no_grad():
            wanted = self._encoder.text_vectors(reports)
        return 1.0 - (self._encoder.image_vectors(images[:, 0]) * wanted).sum(dim=1)

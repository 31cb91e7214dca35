"""Adaptive attackers, who know the defence; each is an option of the attack.

gate             `blend_chest`: blend a chest into the image until the gate passes it; `probe_gate` searches the share
quota            several accounts; see `accounts_needed`
coarse, plain    `rewrite`: varied words for the fixed sentences, so that the copy learns natural reports
watermark        `rewrite`: other words for the same findings before the copy is trained
transformations  `through`: ADA-Steal moves images by the gradient through the transformation (`alignment.through`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Change
from cxrlab.data.images import load_image
from cxrlab.extraction.attack_rounds import Attack, BlackBox
from cxrlab.extraction.config import SHARES
from cxrlab.extraction.defence.finding_preservation import (
    ReportSentence,
    canonical,
    canonical_normal,
    difference,
    report_sentences,
)
from cxrlab.extraction.query_pools import Pool, square
from cxrlab.extraction.records import QueryImage
from cxrlab.extraction.report_content import report_content
from cxrlab.findings.lexicon import agreed, capital, load_lexicon
from cxrlab.findings.reader import read
from cxrlab.findings.realiser import Realiser

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cxrlab.extraction.records import Pixels

_TRIALS = 4  # of rewording one report


@dataclass(frozen=True)
class Adaptation:
    """The adaptation of an attacker to a defence; the fields are those of `ExtractConfig` and its `alignment`."""

    blend_chest: float = 0.0
    probes: int = 0
    chest: Path | None = None
    rewrite: bool = False
    accounts: int = 1
    through: str | None = None


def blend_chest(pixels: Pixels, share: float, chest: Pixels | None = None) -> Pixels:
    """An image (uint8 [H, W] or [H, W, 3]) with a share, 0 to 1, of a grey chest of the same size, or of our drawing."""
    if not 0 <= share <= 1:
        raise ConfigError(f"blend_chest={share} is not usable; give a share from 0 to 1.")
    over = _draw_chest(*pixels.shape[:2]) if chest is None else chest
    over = over if pixels.ndim == over.ndim else over[..., None]
    return np.asarray(np.rint((1 - share) * pixels + share * over), dtype=np.uint8)


@lru_cache(maxsize=8)
def _draw_chest(height: int, width: int) -> NDArray[np.float32]:
    """A chest in a few strokes [H, W], 0 to 255: black air, shoulders and trunk, two lungs, spine, heart, diaphragm."""
    y, x = np.meshgrid((np.arange(height) + 0.5) / height, (np.arange(width) + 0.5) / width, indexing="ij")

    def blob(cx: float, cy: float, rx: float, ry: float, soft: float) -> NDArray[np.float64]:
        """1 inside an ellipse, 0 outside, with a soft edge."""
        distance = np.sqrt(((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2)
        return 1 / (1 + np.exp((distance - 1) / soft))

    # Shoulders reach the edges of the image, the trunk below them does not.
    body = np.maximum(blob(0.5, 0.42, 0.70, 0.36, 0.05), blob(0.5, 0.80, 0.43, 0.84, 0.03))
    image = 8 + 132 * body
    for cx, cy, rx, ry, soft, tone in (
        (0.30, 0.46, 0.15, 0.34, 0.12, 104),
        (0.70, 0.46, 0.15, 0.34, 0.12, 104),
        (0.5, 0.5, 0.065, 0.80, 0.25, 185),
        (0.55, 0.61, 0.13, 0.14, 0.15, 205),
        (0.33, 0.98, 0.24, 0.27, 0.05, 195),
        (0.67, 1.00, 0.24, 0.27, 0.05, 195),
    ):
        part = blob(cx, cy, rx, ry, soft) * body
        image = image * (1 - part) + tone * part
    return image.astype(np.float32)


def load_chest(file: Path, size: int) -> Pixels:
    """The attacker's own chest radiograph as uint8 [size, size], resized like the images of a pool."""
    return square(load_image(file), size)


def smallest_passing_share(
    pictures: Sequence[Pixels],
    passes: Callable[[Sequence[Pixels]], Sequence[bool]],
    wanted: float = 0.9,
    shares: Sequence[float] = SHARES,
    chest: Pixels | None = None,
) -> tuple[float | None, dict[float, float]]:
    """The smallest of rising shares of chest with which enough images pass a gate, and the share that passed at each.

    `passes` maps images to whether each was answered, which takes a query each. The first value is None if no share of
    chest is enough.
    """
    passed: dict[float, float] = {}
    for share in shares:
        passed[share] = sum(passes([blend_chest(picture, share, chest) for picture in pictures])) / len(pictures)
        if passed[share] >= wanted:
            return share, passed
    return None, passed


def rewrite(report: str, seed: int) -> str:
    """The findings of a report in other words, with a lexicon on which no model was trained.

    Sentences without findings are dropped. A finding that lacks a detail which the lexicon needs gets a fixed sentence,
    and a sentence that cannot be reworded is kept. Sentences may be read differently side by side: other words are then
    tried, and after a few trials the original sentences are returned.
    """
    kept = _statements(report)
    original = " ".join(piece.text for piece in kept)
    for trial in range(_TRIALS):
        words = Realiser(load_lexicon("B"), generator(seed, "rewrite", report, trial))
        text = " ".join(_reword_sentence(piece, words) for piece in kept)
        if difference(original, text) is None:
            return text
    return original


@lru_cache(1 << 10)  # a report that is reworded several times is read once
def _statements(report: str) -> tuple[ReportSentence, ...]:
    return tuple(piece for piece in report_sentences(read(report)) if piece.findings or piece.normal)


def _reword_sentence(piece: ReportSentence, words: Realiser) -> str:
    """The sentence in words of the lexicon; if that changes a finding in fixed sentences; else as it is."""
    for varied in (True, False):
        sentences: list[str | None] = []
        for finding in (replace(one, span=None) for one in piece.findings):
            try:
                sentences.append(_vary(finding, words) if varied else canonical(finding, ()))
            except (DataError, KeyError):  # KeyError: a place or tip that the lexicon does not have
                sentences.append(canonical(finding, ()))
        for phrase in piece.normal:
            known = canonical_normal(phrase)
            if known and varied:
                sentences.append(f"{capital(words.pick(words.lexicon.normal[known[0]]))}.")
            else:
                sentences.append(known[1] if known else None)
        text = " ".join(sentence for sentence in sentences if sentence)
        if None not in sentences and difference(piece.text, text) is None:
            return text
    return piece.text


def _vary(finding: Finding, words: Realiser) -> str:
    if finding.present:
        return f"{capital(words.present(finding, fragment=words.chance(0.3)))}."
    if finding.change is Change.RESOLVED:
        return f"{capital(words.resolved(finding))}."
    if finding.side or finding.location or finding.severity or finding.observation not in words.lexicon.observations:
        raise DataError("the lexicon has no words for a denial with details")
    name = words.pick(words.lexicon.observations[finding.observation].absent)
    frame, _ = words.pick([pair for pair in words.lexicon.denials if pair[1] != "nor" and "{list}" in pair[0]])
    many = name.startswith("+ ")
    return f"{capital(agreed(frame, many).replace('{list}', name.removeprefix('+ ')))}."


@dataclass(frozen=True)
class GateProbe:
    """The result of probing a gate."""

    # The smallest share of a chest with which enough images passed; if none did the one with which most passed, the
    # smallest of them.
    blend_chest: float
    queries: int  # queries that it took
    passed: Mapping[float, float]  # share of a chest → share of the images that were answered with it

    def to_json(self) -> dict[str, Any]:
        """With the shares as text, as keys must be."""
        passed = {f"{share:g}": value for share, value in self.passed.items()}
        return {"blend_chest": self.blend_chest, "queries": self.queries, "passed": passed}


def probe_gate(attack: Attack, client: BlackBox | None = None) -> tuple[Attack, GateProbe]:
    """Probe the gate, and return the blended attack with the rest of its budget and pool.

    Args:
        attack: Before its first query. After an interruption the same probes are answered from the ledger.
        client: Client for the rest of the attack, if another: one that probes expects refusals.
    """
    config = attack.config
    pictures = attack.pool.draw(config.probes)
    chest = load_chest(config.chest, config.size) if config.chest else None
    queries = 0

    def passes(blended: Sequence[Pixels]) -> list[bool]:
        """An attacker who sees only text takes an answer without any statement on the image for a refusal."""
        nonlocal queries
        probes = [replace(one, source=pixels, planned=None) for one, pixels in zip(pictures, blended, strict=True)]
        answers = attack.client.query(probes, 0, queries)
        queries += len(probes)
        return [report_content(text).has_statements for text in answers]

    share, passed = smallest_passing_share([one.pixels for one in pictures], passes, chest=chest)
    best = share if share is not None else max(passed, key=lambda one: (passed[one], -one))
    return replace(
        attack,
        client=_ClientAfterProbes(client or attack.client, queries),
        pool=_PoolAfterProbes(attack.pool, config.probes),
        config=replace(config, blend_chest=best, probes=0, budget=config.budget - queries, at=()),
    ), GateProbe(best, queries, passed)


@dataclass(frozen=True)
class _ClientAfterProbes:
    """A client whose query numbers start after those of the probes."""

    client: BlackBox
    after: int

    @property
    def left(self) -> int:
        return self.client.left

    def query(self, pictures: Sequence[QueryImage], round: int, first: int) -> list[str]:
        return self.client.query(pictures, round, self.after + first)


class _PoolAfterProbes(Pool):
    """The images of a pool after its first ones, in its order."""

    def __init__(self, pool: Pool, after: int) -> None:
        self.kind, self.takes_argument = pool.kind, pool.takes_argument
        super().__init__(pool.argument, size=pool.size, seed=pool.seed)
        self._pool, self._after = pool, after

    @property
    def count(self) -> int | None:
        return None if self._pool.count is None else self._pool.count - self._after

    @property
    def unreadable(self) -> Mapping[str, str]:
        return self._pool.unreadable

    @property
    def readable(self) -> int | None:
        return None if self._pool.readable is None else self._pool.readable - self._after

    def _take(self, skip: int, n: int) -> list[QueryImage]:
        return self._pool.draw(n, self._after + skip)

"""Attackers that know the defence: one for each, as an option of the attack.

    gate       `dress`: blend a chest into the picture until the gate lets it pass; see `probing` for how much it needs
    quota      several accounts; see `quotas.accounts_needed` for their number
    coarse     `rewrite`: varied words for what the fixed sentences say, so that the copy learns to speak; plain too
    watermark  `rewrite`: other words for the same findings before the copy is trained

None of them sees anything but pictures and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from cxrlab.extraction.config import SHARES
from cxrlab.extraction.defence.claims import ReportSentence, canonical, canonical_normal, difference, report_sentences
from cxrlab.extraction.pools import Pool, square
from cxrlab.extraction.records import Picture
from cxrlab.extraction.report_text import report_content
from cxrlab.extraction.rounds import Attack, BlackBox
from cxrlab.findings.lexicon import agreed, capital, load_lexicon
from cxrlab.findings.reader import read
from cxrlab.findings.realiser import Realiser

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cxrlab.extraction.records import Pixels

_TRIALS = 4  # of other words for one report


@dataclass(frozen=True)
class Adaptation:
    """What an attacker does about a defence; the fields are options of the attack.

    Args:
        dress: Share of a chest in each picture, 0 to 1.
        probes: Pictures with which that share is looked for instead, at the cost of queries.
        chest: File of the chest radiograph that is blended in; None for our drawing.
        rewrite: Say the answers in other words before the copy is trained.
        accounts: Accounts under which queries are put in turn.
    """

    dress: float = 0.0
    probes: int = 0
    chest: Path | None = None
    rewrite: bool = False
    accounts: int = 1


def dress(pixels: Pixels, share: float, chest: Pixels | None = None) -> Pixels:
    """A picture with a chest blended into it.

    Args:
        pixels: uint8 [H, W], 255 is white.
        share: 0 leaves it as it is, 1 leaves the chest alone.
        chest: A chest radiograph of the same shape, for an attacker who has one; our drawing when left out.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"dress={share} is not usable; give a share from 0 to 1.")
    over = _chest(*pixels.shape) if chest is None else chest
    return np.asarray(np.rint((1 - share) * pixels + share * over), dtype=np.uint8)


@lru_cache(maxsize=8)
def _chest(height: int, width: int) -> NDArray[np.float32]:
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
    """A chest radiograph of the attacker's own as uint8 [size, size], squeezed as the pictures of a pool are."""
    return square(load_image(file), size)


def smallest_passing_share(
    pictures: Sequence[Pixels],
    passes: Callable[[Sequence[Pixels]], Sequence[bool]],
    wanted: float = 0.9,
    shares: Sequence[float] = SHARES,
    chest: Pixels | None = None,
) -> tuple[float | None, dict[float, float]]:
    """The least share of chest with which enough pictures pass a gate.

    Args:
        pictures: A sample of the pool; an attacker pays one query for each picture and share.
        passes: uint8 [H, W] each → whether each was answered.
        wanted: Share of pictures that have to pass.
        shares: In rising order.
        chest: What is blended in; see `dress`.

    Returns:
        The share, None where none is enough; and the share of pictures that passed at each one tried.
    """
    passed: dict[float, float] = {}
    for share in shares:
        passed[share] = sum(passes([dress(picture, share, chest) for picture in pictures])) / len(pictures)
        if passed[share] >= wanted:
            return share, passed
    return None, passed


def rewrite(report: str, seed: int) -> str:
    """The findings of a report in other words: read, then told again with the lexicon that no model was trained on.

    Args:
        report: An answer; what is read of it is kept sentence by sentence, what is not read of it is dropped.
        seed: Decides the words, together with the report.

    A finding that lacks a detail which the lexicon needs is told in a fixed sentence, and a sentence that neither way
    renders is kept as it was. Sentences may be read otherwise side by side than alone: other words are then tried, and
    what cannot be told alike in a few trials stays as it was.
    """
    kept = _said(report)
    said = " ".join(piece.text for piece in kept)
    for trial in range(_TRIALS):
        words = Realiser(load_lexicon("B"), generator(seed, "rewrite", report, trial))
        text = " ".join(_retold(piece, words) for piece in kept)
        if difference(said, text) is None:
            return text
    return said


@lru_cache(1 << 10)
def _said(report: str) -> tuple[ReportSentence, ...]:
    """What a report says, sentence by sentence; one that is told in several wordings is read once."""
    return tuple(piece for piece in report_sentences(read(report)) if piece.findings or piece.normal)


def _retold(piece: ReportSentence, words: Realiser) -> str:
    for tell in (_varied, _plain):
        told = list(tell(piece, words))
        text = " ".join(sentence for sentence in told if sentence)
        if None not in told and difference(piece.text, text) is None:
            return text
    return piece.text


def _varied(piece: ReportSentence, words: Realiser) -> Iterator[str | None]:
    """The sentence in words of the lexicon; None for what it has no words for."""
    for finding in piece.findings:
        try:
            yield _told(replace(finding, span=None), words)
        except (DataError, KeyError):  # a place or tip that the lexicon has no row for is a KeyError
            yield canonical(replace(finding, span=None), ())
    for said in piece.normal:
        known = canonical_normal(said)
        yield f"{capital(words.pick(words.lexicon.normal[known[0]]))}." if known else None


def _told(finding: Finding, words: Realiser) -> str:
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


def _plain(piece: ReportSentence, words: Realiser) -> Iterator[str | None]:
    """The sentence as fixed ones."""
    for finding in piece.findings:
        yield canonical(replace(finding, span=None), ())
    for said in piece.normal:
        known = canonical_normal(said)
        yield known[1] if known else None


@dataclass(frozen=True)
class GateProbe:
    """What was found out, and what it took.

    Args:
        dress: The least share of a chest with which enough pictures passed; where none did the one with which most
            passed, the smallest of them.
        queries: Probes: pictures that were put to the victim for it.
        passed: Share of a chest → share of the pictures that were answered with it.
    """

    dress: float
    queries: int
    passed: Mapping[float, float]

    def to_json(self) -> dict[str, Any]:
        """With the shares as text, as keys must be."""
        passed = {f"{share:g}": value for share, value in self.passed.items()}
        return {"dress": self.dress, "queries": self.queries, "passed": passed}


def probe_gate(attack: Attack, client: BlackBox | None = None) -> tuple[Attack, GateProbe]:
    """Probe, and the attack as it goes on: dressed as was found out, with what is left of budget and pool.

    Args:
        attack: Before its first question; its settings name the number of pictures to probe with. After a stop the
            same probes are answered from the ledger.
        client: At which the attack goes on, where that is another: who probes expects refusals.
    """
    config = attack.config
    found = _probe(attack, attack.pool.draw(config.probes))
    left = replace(config, dress=found.dress, probes=0, budget=config.budget - found.queries, at=())
    return replace(
        attack,
        client=_Later(client or attack.client, found.queries),
        pool=_Rest(attack.pool, config.probes),
        config=left,
    ), found


def _probe(attack: Attack, pictures: Sequence[Picture]) -> GateProbe:
    chest = load_chest(attack.config.chest, attack.config.size) if attack.config.chest else None
    asked = 0

    def passes(dressed: Sequence[Pixels]) -> list[bool]:
        """Whoever sees words alone takes an answer that says nothing of an image for a refusal."""
        nonlocal asked
        shown = [replace(one, pixels=pixels) for one, pixels in zip(pictures, dressed, strict=True)]
        told = attack.client.ask(shown, 0, asked)
        asked += len(shown)
        return [report_content(text).has_statements for text in told]

    share, passed = smallest_passing_share([one.pixels for one in pictures], passes, chest=chest)
    best = share if share is not None else max(passed, key=lambda one: (passed[one], -one))
    return GateProbe(best, asked, passed)


@dataclass(frozen=True)
class _Later:
    """A client whose numbers begin behind those of the probes."""

    client: BlackBox
    after: int

    @property
    def left(self) -> int:
        return self.client.left

    def ask(self, pictures: Sequence[Picture], round: int, first: int) -> list[str]:
        return self.client.ask(pictures, round, self.after + first)


class _Rest(Pool):
    """What a pool holds behind its first pictures, in its order."""

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

    def _take(self, skip: int, n: int) -> list[Picture]:
        return self._pool.draw(n, self._after + skip)

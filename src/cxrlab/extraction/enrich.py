"""Reports that the attack would like to see: the surrogate's own ones, enriched by what the oracle said.

For each of the five categories of each report a source is drawn by itself: an abnormal description, a
normal one, or the surrogate's own sentences. One draw a report would give reports that are abnormal
from end to end or not at all; a draw a description gives nearly every mixture.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.randomness import generator
from cxrlab.extraction.anatomy import Category, split_by_category
from cxrlab.extraction.oracles import Descriptions
from cxrlab.findings.contradictions import clash
from cxrlab.findings.reader import read

Source = Literal["abnormal", "normal", "own"]
SOURCES: tuple[Source, ...] = ("abnormal", "normal", "own")


@dataclass(frozen=True)
class Shares:
    """How often a category of a report is told by each source.

    Args:
        abnormal: By an abnormal description of the oracle, 0 to 1.
        normal: By a normal description of the oracle, 0 to 1.
        own: By what the surrogate wrote of it, 0 to 1; the three sum to 1.
    """

    abnormal: float = 0.8
    normal: float = 0.1
    own: float = 0.1

    def __post_init__(self) -> None:
        values = (self.abnormal, self.normal, self.own)
        if not all(0.0 <= value <= 1.0 for value in values) or not math.isclose(sum(values), 1.0, abs_tol=1e-9):
            told = ", ".join(f"{name}={getattr(self, name)}" for name in SOURCES)
            raise ConfigError(f"the shares {told} must each be 0 to 1 and sum to 1; change one of them.")

    def draw(self, rng: np.random.Generator) -> Source:
        """One source, by these shares."""
        u = rng.random()
        return "abnormal" if u < self.abnormal else "normal" if u < self.abnormal + self.normal else "own"


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
    own_reports: Sequence[str],
    descriptions: Descriptions,
    shares: Shares | None = None,
    *,
    seed: int,
    keys: Sequence[str],
) -> list[Enriched]:
    """One enriched report for each report of the surrogate, in order.

    Args:
        own_reports: What the surrogate wrote for each picture; an empty one says nothing of any category.
        descriptions: Of the oracle.
        shares: How often each source speaks; 80, 10 and 10 % when None.
        seed: Of the draws; give another one, or other keys, for another round.
        keys: A name for each report. The same seed, name and report give the same enriched report,
            whatever stands beside it.
    """
    if len(keys) != len(own_reports) or len(set(keys)) != len(keys):
        raise DataError(f"{len(own_reports)} reports came with {len(set(keys))} different keys; give each its own.")
    rows = []
    for report, key in zip(own_reports, keys, strict=True):
        rng = generator(seed, "enrich", key)
        rows.append(_joined(_parts(report, descriptions, shares or Shares(), rng)))
    return rows


def enrich_without_oracle(own_reports: Sequence[str]) -> list[Enriched]:
    """The surrogate's reports as they are: the attack without an oracle."""
    found = []
    for report in own_reports:
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

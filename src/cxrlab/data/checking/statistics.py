"""A corpus in numbers: what `statistics.json` holds, and how values are summed up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Counts = Mapping[str, int]
# Value → split → count; "all" holds the sum of the splits.
BySplit = Mapping[str, Counts]


@dataclass(frozen=True)
class Quartiles:
    """Five numbers of many: a quartile is the least value that at least that share of all does not exceed."""

    n: int
    least: float
    first: float
    median: float
    third: float
    most: float
    mean: float


@dataclass(frozen=True)
class Repeats:
    """How often something stands in a corpus more than once.

    Args:
        groups: Different things that do.
        members: Studies or images in those groups.
        across_splits: Groups with members in more than one split.
    """

    groups: int
    members: int
    across_splits: int


@dataclass(frozen=True)
class Images:
    """The images of a corpus, as far as they can be read; grey values are of [0, 1]."""

    read: int
    width: Quartiles | None
    height: Quartiles | None
    depth: Counts
    colour: int
    mean_grey: Quartiles | None
    spread_of_grey: Quartiles | None
    suspects: Counts


@dataclass(frozen=True)
class Statistics:
    """What `statistics.json` holds.

    Args:
        splits: Studies by split; "none" counts those without one.
        views: View → split → images; "unknown" counts those whose view nobody stated.
        usable: What training takes by default, or why it leaves a study out → split → studies.
        sexes: Sex → split → studies.
        ages: Age band → split → studies.
        labels: CheXpert observation → split → value in words → studies; a study without the label counts as unknown.
        own_labels: The same for the corpus's own labels.
        texts: Kind of text → number of words in those studies that have one.
        masked: Mark of a word taken out → studies with a text that holds it.
        with_text: Studies with any source text.
        with_prior: Studies that name an earlier one.
        with_boxes: Studies with boxes.
        images: What their pixels tell.
        absent_images: Images that the source lists and does not hold; no defect of the corpus.
        repeats: Exact repeats of source texts and images, near ones too where they were looked for.
        dropped: Why studies of the source were left out, from the card.
        remarks: What was odd about studies that were kept, from the card.
    """

    splits: Counts
    views: BySplit
    usable: BySplit
    sexes: BySplit
    ages: BySplit
    labels: Mapping[str, BySplit]
    own_labels: Mapping[str, BySplit]
    texts: Mapping[str, Quartiles]
    masked: Counts
    with_text: int
    with_prior: int
    with_boxes: int
    images: Images
    absent_images: int
    repeats: Mapping[str, Repeats]
    dropped: Counts = field(default_factory=dict)
    remarks: Counts = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values; a kind of repeat that nobody looked for is absent."""
        return dataclasses.asdict(self)


def quartiles(values: Mapping[int, int], unit: int = 1) -> Quartiles:
    """Five numbers and the mean of at least one value.

    Args:
        values: Value → how often.
        unit: What one stands for: a value of 250 with a unit of 1000 is told as 0.25.
    """
    ordered = sorted(values.items())
    n = sum(values.values())

    def at(share: float) -> float:
        reached = 0
        for value, count in ordered:
            reached += count
            if reached >= share * n:
                return value / unit if unit > 1 else value
        raise ValueError("no values")

    mean = sum(value * count for value, count in ordered) / n / unit
    return Quartiles(n, at(0.0), at(0.25), at(0.5), at(0.75), at(1.0), round(mean, 4))

"""Metric cards, tallies (one row of counts per pair, and the function from sums of rows to the value), and families.

A metric never returns a bare mean. It returns a `Tally`: for each pair a row of sufficient statistics, and a function
from *sums of rows* to the value. The values of a corpus, of a bootstrap sample, of a slice and of a permuted pair of
systems are then all the same function of a matrix product, and no report is scored twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import UnknownName, did_you_mean
from cxrlab.core.registry import Registry

if TYPE_CHECKING:
    from cxrlab.metrics.report_pairs import Batch

Matrix = NDArray[np.float64]

# Raised when a metric gives another value for the same texts; it is part of every signature.
VERSION = 1


@dataclass(frozen=True)
class Metric:
    """The card of one metric."""

    name: str  # as a user types it, with the convention after the colon (`bleu4:coco`)
    direction: Literal["higher", "lower"]  # whether higher or lower is better
    range: tuple[float, float]  # smallest and largest possible value; infinite where there is no bound
    identity: float | None  # value of a corpus scored against itself; None where that depends on the texts
    undefined: str  # which pairs have no value and stay out of the mean, in words
    conventions: Mapping[str, str] = field(default_factory=dict)  # name → choice, in the order of the signature
    about: str = ""  # one line for `cxrlab metrics ls`
    quirk: str = ""  # a published oddity that is kept on purpose; empty for our own metrics
    by_pair: bool = True  # whether the value of a single pair means something on its own

    @property
    def signature(self) -> str:
        """Everything that must agree before two numbers may be compared: `bleu4:coco|case:lower|…|v:1`."""
        parts = [f"{key}:{value}" for key, value in self.conventions.items()]
        return "|".join([self.name, *parts, f"v:{VERSION}"])


@dataclass(frozen=True, eq=False)
class Tally:
    """One metric over a batch, before it is summed."""

    metric: Metric  # its card
    rows: Matrix  # sufficient statistics [N, K]; rows of undefined pairs are all zero
    defined: NDArray[np.bool_]  # [N], False where the pair has no value
    # Sums of rows [..., K] → values [...]; not-a-number where the sums do not define one.
    value_of: Callable[[Matrix], Matrix]

    @property
    def n(self) -> int:
        """Pairs that entered the value."""
        return int(self.defined.sum())

    @property
    def undefined(self) -> int:
        """Pairs without a value."""
        return int((~self.defined).sum())

    @property
    def value(self) -> float:
        """Over the whole batch; not-a-number when no pair has a value."""
        if not self.n:
            return float("nan")
        # Sums that do not depend on the order of the rows: a mean of fractions is summed exactly; wider rows hold whole
        # numbers, whose sums are exact in any order.
        exact = self.rows.shape[1] == 2
        sums = np.array([math.fsum(column) for column in self.rows.T]) if exact else self.rows.sum(axis=0)
        return float(self.value_of(sums))

    @property
    def by_pair(self) -> Matrix:
        """The value of each pair on its own [N]; not-a-number where undefined."""
        return np.where(self.defined, self.value_of(self.rows), np.nan)

    @property
    def condensed(self) -> Tally:
        """The same value in one row where sums of rows are exact: whole numbers add up alike in any order."""
        if not np.array_equal(self.rows, np.rint(self.rows)):
            return self
        return replace(self, rows=self.rows.sum(axis=0, keepdims=True), defined=np.array([self.defined.any()]))


Memory = tuple[int, tuple[int, ...], tuple[int, ...]]


def memory_key(array: NDArray[Any]) -> Memory:
    """Equal for two arrays on the same memory: metrics of a family often share their rows."""
    return array.__array_interface__["data"][0], array.shape, array.strides


def join_tallies(parts: Sequence[Sequence[Tally]]) -> list[Tally]:
    """Tallies of a batch from those of its parts, in order; metrics that share their rows still share them."""
    if len(parts) == 1:
        return list(parts[0])
    joined: dict[tuple[Memory, ...], NDArray[Any]] = {}

    def join(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        key = tuple(map(memory_key, arrays))
        if key not in joined:
            joined[key] = np.concatenate(arrays)
        return joined[key]

    return [
        replace(column[0], rows=join([one.rows for one in column]), defined=join([one.defined for one in column]))
        for column in zip(*parts, strict=True)
    ]


def mean_tally(metric: Metric, values: Sequence[float] | Matrix) -> Tally:
    """A metric that is the mean of one value per pair; a pair that is not-a-number is undefined."""
    column = np.asarray(values, dtype=np.float64).reshape(-1)
    defined = ~np.isnan(column)
    rows = np.stack([np.where(defined, column, 0.0), defined.astype(np.float64)], axis=1)
    return Tally(metric, rows, defined, mean_of)


def mean_of(sums: Matrix) -> Matrix:
    """[..., 2] of (sum, count) → mean."""
    return ratio(sums[..., 0], sums[..., 1])


def ratio(above: Matrix, below: Matrix) -> Matrix:
    """`above / below`, not-a-number (and no warning) where `below` is 0."""
    below = np.asarray(below, dtype=np.float64)
    quotient: Matrix = np.divide(above, below, out=np.full(below.shape, np.nan), where=below != 0)
    return quotient


class Family(Protocol):
    """Metrics that are counted together because they share their work.

    A family with `in_order = True` counts the parts of a batch one after the other in one process; the parts of others
    may be counted by several.
    """

    @property
    def metrics(self) -> Sequence[Metric]:
        """The cards, in the order of the tallies."""
        ...

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally per metric, over the whole batch."""
        ...


# Families that need two texts only; listing their names imports nothing. `evaluation/select_metrics.py` has the others.
FAMILIES = Registry(
    "metric family",
    {
        "coco": "cxrlab.metrics.coco_caption:Coco",
        "sacre": "cxrlab.metrics.bleu:SacreBleu",
        "rouge-n": "cxrlab.metrics.rouge:GoogleRuns",
        "rouge-l": "cxrlab.metrics.rouge:GoogleLongest",
        "rouge-unstemmed": "cxrlab.metrics.rouge:GoogleUnstemmed",
        "chexpert": "cxrlab.metrics.chexpert_labels:ChexpertLabels",
        "findings": "cxrlab.metrics.finding_scores:FindingsF1",
        "errors": "cxrlab.metrics.finding_scores:ErrorCounts",
        "rules": "cxrlab.metrics.finding_scores:RuleScores",
        "length": "cxrlab.metrics.finding_scores:LengthControlled",
        "published": "cxrlab.metrics.finding_scores:PublishedGreenRules",
    },
)


@cache
def ready() -> Mapping[str, Family]:
    """Every family that needs nothing more, by name, constructed once."""
    return {name: FAMILIES.load(name)() for name in FAMILIES}


def cards() -> dict[str, Metric]:
    """The card of every metric that is ready, by name, in table order."""
    return {metric.name: metric for family in ready().values() for metric in family.metrics}


def default_names() -> tuple[str, ...]:
    """The metrics that are scored by default: all of a family, or its own choice where it has many."""
    every = ((family, [metric.name for metric in family.metrics]) for family in ready().values())
    return tuple(name for family, names in every for name in getattr(family, "default", names))


def metric_names(wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of metrics from names, patterns (`bleu*`), families (`coco`) or "all"; the default when None.

    The result is in table order without repeats; an item that matches nothing raises `UnknownName`.
    """
    if wanted is None:
        return default_names()
    known = cards()
    found: set[str] = set()
    for item in wanted:
        if item == "all":
            found.update(known)
        elif item == "default":
            found.update(default_names())
        elif item in known:
            found.add(item)
        elif item in FAMILIES:
            found.update(metric.name for metric in ready()[item].metrics)
        elif matching := [name for name in known if fnmatchcase(name, item)]:
            found.update(matching)
        else:
            raise UnknownName(
                f"there is no metric '{item}'.{did_you_mean(item, [*known, *FAMILIES])} "
                f"`cxrlab metrics ls` lists the {len(known)} metrics; patterns such as 'bleu*' and 'all' work too."
            )
    return tuple(name for name in known if name in found)


def families(wanted: Sequence[str] | None = None) -> list[Family]:
    """The families that count the wanted metrics (see `metric_names`); the default ones when None."""
    names = set(metric_names(wanted))
    return [family for family in ready().values() if names & {metric.name for metric in family.metrics}]

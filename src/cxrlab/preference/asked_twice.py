"""What a model before alignment and one after it are asked about the same studies, and their difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cxrlab.core.json_form import dumps, plain
from cxrlab.core.progress import track
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.metrics.statistics.paired_tests import paired_difference
from cxrlab.metrics.tally import Metric, mean_tally

BEFORE, AFTER = "before", "after"


@dataclass(frozen=True)
class Asked:
    """One study; `reference` is its findings in words, "" where there are none."""

    id: str
    patient: str
    reference: str


def paired(
    name: str, before: Sequence[float], after: Sequence[float], patients: Sequence[str], seed: int
) -> dict[str, float]:
    """Means before and after, and the difference with its interval and p, by patient."""
    card = Metric(name, "higher", (-np.inf, np.inf), None, "")  # the direction plays no part here
    found = paired_difference(
        mean_tally(card, list(before)), mean_tally(card, list(after)), patients, rng=generator(seed, "cost", name)
    )
    told = {BEFORE: found.a, AFTER: found.b, "difference": found.difference}
    return {**told, "low": found.low, "high": found.high, "p": found.p}


def batches(items: Sequence[Any], size: int, label: str) -> Iterator[Sequence[Any]]:
    """The items so many at a time, with progress."""
    parts = [items[first : first + size] for first in range(0, len(items), size)]
    return track(parts, label, len(items), size=len)


def write_lines(run: Run, name: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a whole `.jsonl` file."""
    run.write(name, "".join(dumps(plain(record)) + "\n" for record in records))

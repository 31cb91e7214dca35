"""Pairs grouped by patient: rows of counts are summed once a patient, and everything after works on those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.tally import Matrix, Tally

# Entries of one block of trials × patients: 32 MiB as 64-bit numbers, whatever the size of the test set.
BLOCK = 1 << 22


class Clusters:
    """Which rows belong together.

    Args:
        names: One name a row, usually the patient. The numbering follows the sorted names, so that the
            order of the rows changes no draw.
    """

    def __init__(self, names: Sequence[str]) -> None:
        uniques, codes = np.unique(np.asarray(list(names), dtype=np.str_), return_inverse=True)
        self.count = len(uniques)
        self.codes: NDArray[np.intp] = codes.reshape(-1)
        self._order = np.argsort(self.codes, kind="stable")
        self._starts = np.searchsorted(self.codes[self._order], np.arange(self.count))

    def __len__(self) -> int:
        return len(self.codes)

    def sums(self, rows: Matrix) -> Matrix:
        """Rows [N, K] → their sums by cluster [C, K]."""
        if len(rows) != len(self):
            raise ValueError(f"{len(rows)} rows do not fit {len(self)} cluster names")
        if not len(rows):
            return np.zeros((0, rows.shape[1]))
        summed: Matrix = np.add.reduceat(rows[self._order].astype(np.float64, copy=False), self._starts, axis=0)
        return summed

    def holding(self, defined: NDArray[np.bool_]) -> int:
        """Number of clusters with at least one row that is True."""
        return len(np.unique(self.codes[defined]))


@dataclass(frozen=True, eq=False)
class Columns:
    """The cluster sums of many tallies side by side, so that one matrix product serves them all.

    Args:
        matrix: [C, K in all].
        places: For each tally its columns; tallies that share their rows share them here too.
    """

    matrix: Matrix
    places: tuple[slice, ...]


Place = tuple[int, tuple[int, ...], tuple[int, ...]]


def place_in_memory(rows: Matrix) -> Place:
    """The same for two arrays that are one and the same numbers: metrics of a family often share their rows."""
    return rows.__array_interface__["data"][0], rows.shape, rows.strides


def side_by_side(clusters: Clusters, rows: Sequence[Matrix]) -> Columns:
    """Cluster sums of several matrices of rows; one that occurs several times, also as a view, is held once."""
    blocks: list[Matrix] = []
    known: dict[Place, slice] = {}
    places = []
    width = 0
    for matrix in rows:
        memory = place_in_memory(matrix)
        if memory not in known:
            blocks.append(clusters.sums(matrix))
            known[memory] = slice(width, width := width + matrix.shape[1])
        places.append(known[memory])
    together = np.concatenate(blocks, axis=1) if blocks else np.zeros((clusters.count, 0))
    return Columns(together, tuple(places))


def blocks_of(trials: int, count: int) -> Iterator[tuple[int, int]]:
    """Ranges of trials whose [trials, count] matrices keep within `BLOCK`."""
    step = max(1, BLOCK // max(1, count))
    for start in range(0, trials, step):
        yield start, min(start + step, trials)


def check_rows(tallies: Sequence[Tally], clusters: Clusters) -> None:
    """A tally of another batch is a mistake of the programmer."""
    for tally in tallies:
        if len(tally.rows) != len(clusters):
            raise ValueError(f"{tally.metric.name} has {len(tally.rows)} rows for {len(clusters)} cluster names")


def check_trials(trials: int) -> int:
    """The number of trials, refused below 1."""
    if trials < 1:
        raise ConfigError(f"trials={trials} is not usable; give a whole number of at least 1.")
    return trials


def check_share(name: str, value: float) -> float:
    """A level or alpha, refused outside (0, 1)."""
    if not 0 < value < 1:
        raise ConfigError(f"{name}={value} is not usable; give a share between 0 and 1, such as 0.95.")
    return value

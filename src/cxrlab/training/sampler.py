"""In which order samples are learnt: a pure function of the seed, the same for any number of processes.

A step takes a fixed number of samples, however they are spread over forward passes and processes.
What does not fill a step at the end of an epoch is left out of it; the next epoch shuffles anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.core.randomness import generator

# Steps whose samples are sorted by length together; more would make the order less random, fewer leave more padding.
_POOL = 50


@dataclass(frozen=True)
class Part:
    """Consecutive rows that are learnt equally often: how many, and passes an epoch (0.5 is a random half)."""

    rows: int
    passes: float = 1.0

    @property
    def drawn(self) -> int:
        """Samples that an epoch takes of it."""
        return max(1, round(self.rows * self.passes)) if self.rows else 0


@dataclass(frozen=True)
class Order:
    """The rows of a whole training, step after step; iterate it for indices.

    Args:
        parts: The rows in their order in the data set.
        step: Samples a step, over all forward passes and processes.
        steps: Steps of the whole training.
        seed: Decides the order.
        lengths: Tokens of each row, to put like lengths into one step; None shuffles freely.
    """

    parts: tuple[Part, ...]
    step: int
    steps: int
    seed: int
    lengths: NDArray[np.integer] | None = None

    def __len__(self) -> int:
        return self.step * self.steps

    def __iter__(self) -> Iterator[int]:
        done, epoch = 0, 0
        while done < self.steps:
            for rows in self.epoch(epoch)[: self.steps - done]:
                yield from rows.tolist()
                done += 1
            epoch += 1

    def epoch(self, number: int) -> NDArray[np.int64]:
        """The rows of one epoch, [steps of the epoch, samples a step]; within a step the longest stand first."""
        rng = generator(self.seed, "order", number)
        rows = np.concatenate([part for part in self._drawn(rng)])
        rng.shuffle(rows)
        rows = rows[: len(rows) // self.step * self.step]
        if self.lengths is None:
            return rows.reshape(-1, self.step)
        pool = _POOL * self.step
        for start in range(0, len(rows), pool):
            piece = rows[start : start + pool]
            rows[start : start + pool] = piece[np.argsort(-self.lengths[piece].astype(np.int64), kind="stable")]
        return np.asarray(rng.permutation(rows.reshape(-1, self.step)))

    def _drawn(self, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        start = 0
        for part in self.parts:
            rows = np.arange(start, start + part.rows, dtype=np.int64)
            whole, rest = divmod(part.drawn, part.rows) if part.rows else (0, 0)
            yield np.concatenate([*[rows] * whole, rng.permutation(rows)[:rest]])
            start += part.rows


def plan(
    parts: Sequence[Part], step: int, epochs: float, steps: int | None, seed: int,
    lengths: NDArray[np.integer] | None = None,
) -> Order:  # fmt: skip
    """The order of so many epochs or steps; data that do not fill one step are a `ConfigError`."""
    an_epoch = sum(part.drawn for part in parts)
    if an_epoch < step:
        raise ConfigError(
            f"a step takes {step:,} samples (batch_size x accumulate x processes) and the data have {an_epoch:,}; "
            "make batch_size or accumulate smaller."
        )
    return Order(tuple(parts), step, steps or max(1, round(epochs * (an_epoch // step))), seed, lengths)

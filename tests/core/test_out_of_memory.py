"""Batches that do not fit: recognised, freed, halved, remembered."""

from __future__ import annotations

import json
import mmap
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import ConfigError, OutOfMemory
from cxrlab.core.out_of_memory import BATCH_FILE, CPU, GPU, BatchSize, exhausted_memory


class Tensor:
    """Stands for something large."""


class Machine:
    """Doubles numbers, so many at once as fit; the frame that fails holds a `Tensor`."""

    def __init__(self, fits: int, error: Exception | None = None) -> None:
        self.fits, self.error = fits, error or MemoryError()
        self.sizes: list[int] = []
        self.held: list[weakref.ref[Tensor]] = []
        self.alive: list[int] = []

    def __call__(self, batch: Sequence[int]) -> list[int]:
        self.alive.append(sum(one() is not None for one in self.held))
        self.sizes.append(len(batch))
        large = Tensor()
        self.held.append(weakref.ref(large))
        if len(batch) > self.fits:
            raise type(self.error)(*self.error.args)
        return [2 * item for item in batch]


def test_a_lack_of_memory_is_distinguished_from_other_errors() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as real:
        torch.empty(2**60, dtype=torch.uint8)
    assert exhausted_memory(real.value) == exhausted_memory(MemoryError()) == CPU
    assert exhausted_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")) == GPU
    assert exhausted_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling x")) == GPU
    with pytest.raises(OSError) as unmapped:
        mmap.mmap(-1, 2**60)
    assert exhausted_memory(unmapped.value) == CPU
    assert exhausted_memory(RuntimeError("unable to mmap 9 bytes from file: Cannot allocate memory (12)")) == CPU
    assert exhausted_memory(FileNotFoundError(2, "No such file or directory")) is None
    assert exhausted_memory(RuntimeError("shapes do not fit")) is None
    assert exhausted_memory(ConfigError("CUDA out of memory")) is None


@pytest.mark.parametrize(
    ("asked", "fits", "sizes", "used"),
    [(8, 8, [8, 2], 8), (8, 3, [8, 4, 2, 2, 2, 2, 2], 2), (5, 2, [5, 2, 2, 2, 2, 2], 2), (16, 7, [10, 5, 5], 5)],
)
def test_a_batch_is_halved_until_it_fits_and_stays_so(asked: int, fits: int, sizes: list[int], used: int) -> None:
    machine, size = Machine(fits), BatchSize(asked)
    assert size.map(range(10), machine) == [2 * item for item in range(10)]
    assert machine.sizes == sizes and size.current == used


def test_what_a_failed_batch_held_is_free_before_the_next_try() -> None:
    """An error keeps the frames that it came through, and with them their tensors."""
    machine = Machine(1)
    assert BatchSize(8).map([1, 2, 3, 4], machine) == [2, 4, 6, 8]
    assert machine.alive == [0] * len(machine.alive) and len(machine.alive) > 2


def test_the_smaller_batch_is_recorded_and_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    BatchSize(8, tmp_path).map(range(3), Machine(9))
    assert not (tmp_path / BATCH_FILE).exists()
    BatchSize(8, tmp_path).map(range(9), Machine(2))
    BatchSize(6, tmp_path, "alignment.batch_size").map(range(9), Machine(3))
    assert capsys.readouterr().err.splitlines() == [
        "Batch of 8 does not fit in memory; continuing with 4.",
        "Batch of 4 does not fit in memory; continuing with 2.",
        "Batch of 6 does not fit in memory; continuing with 3.",
    ]
    record = json.loads((tmp_path / BATCH_FILE).read_text())
    assert {name: (one["requested"], one["used"]) for name, one in record.items()} == {
        "batch_size": (8, 2), "alignment.batch_size": (6, 3),
    }  # fmt: skip
    machine, again = Machine(2), BatchSize(8, tmp_path)
    again.map(range(4), machine)
    assert machine.sizes == [2, 2] and again.note == record["batch_size"]["note"]
    # Another machine may have more memory, but who asks for more than what failed would fail again.
    assert BatchSize(16, tmp_path).current == 2 and BatchSize(4, tmp_path).current == 4


def test_a_batch_of_one_that_does_not_fit_is_an_error_and_others_pass() -> None:
    machine = Machine(0)
    with pytest.raises(OutOfMemory, match="memory ran out even with a batch of 1"):
        BatchSize(4).map(range(4), machine)
    assert machine.sizes == [4, 2, 1]
    with pytest.raises(ValueError, match="broken"):
        BatchSize(4).map(range(4), Machine(0, ValueError("broken")))


def test_nothing_is_no_batch() -> None:
    def never(_: Sequence[Any]) -> list[Any]:
        raise AssertionError

    assert BatchSize(4).map([], never) == []

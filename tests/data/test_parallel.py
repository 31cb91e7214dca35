"""The parallel map: order, bounded look-ahead, clean ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np  # loads the linear algebra whose threads are counted below
import pytest

from cxrlab.core.errors import DataError, RunError
from cxrlab.data.parallel import ordered_map, worker_count

assert np.__version__
MAPS = Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else ""


def slow_first(number: int) -> tuple[int, int]:
    time.sleep(0.05 if number == 0 else 0.0)
    return number, os.getpid()


def picky(number: int) -> int:
    if number == 5:
        raise DataError("item 5 is broken; leave it out.")
    return number


def dies(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def blas_threads(_: int) -> int:
    """Threads of the linear algebra that numpy has loaded, asked of the library itself."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    library = ctypes.CDLL(next(line.split()[-1] for line in lines if "openblas" in line))
    names = ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads")
    return int(next(getattr(library, name) for name in names if hasattr(library, name))())


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_keep_the_order_of_the_items(workers: int) -> None:
    """The first item is the slowest; its result still comes first."""
    assert [number for number, _ in ordered_map(slow_first, range(40), workers)] == list(range(40))


def test_one_worker_is_this_process_and_two_are_not() -> None:
    """In-process runs can be stepped through with a debugger."""
    assert {pid for _, pid in ordered_map(slow_first, range(4), 1)} == {os.getpid()}
    assert os.getpid() not in {pid for _, pid in ordered_map(slow_first, range(4), 2)}


def test_items_are_read_only_a_little_ahead() -> None:
    """Flat memory: after one result at most `ahead` + 1 items may have been taken."""
    taken = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = ordered_map(picky, items(), workers=2, ahead=4)
    assert next(results) == 0
    assert len(taken) <= 5
    results.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_at_its_turn_as_itself(workers: int) -> None:
    """What was done before it is kept, and the sentence reaches the user."""
    results = ordered_map(picky, range(10), workers)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match="^item 5 is broken; leave it out.$"):
        next(results)


def test_a_killed_worker_is_a_sentence() -> None:
    """The usual reason is the system's memory guard."""
    with pytest.raises(RunError, match="fewer workers"):
        list(ordered_map(dies, range(10), 2))


@pytest.mark.skipif("openblas" not in MAPS, reason="this numpy does not use OpenBLAS")
def test_workers_use_one_thread_each() -> None:
    """Two processes with two linear-algebra threads each would fight over two cores."""
    assert set(ordered_map(blas_threads, range(4), 2)) == {1}


def test_zero_workers_means_every_core() -> None:
    """As many as this process may use, not as many as the machine has."""
    assert worker_count(0) == len(os.sched_getaffinity(0)) and worker_count(3) == 3


PROGRAM = """
import sys, time
from cxrlab.data.parallel import ordered_map
def work(n):
    time.sleep(0.02); return n
try:
    for n in ordered_map(work, range(100000), 2):
        print(n, flush=True)
except KeyboardInterrupt:
    sys.exit(130)
"""


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to look at processes")
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_worker_outlives_the_program(how: signal.Signals, code: int) -> None:
    """Ctrl-C ends with exit code 130; even after a kill of the parent the workers leave by themselves."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], text=True, start_new_session=True, **pipes)
    assert program.stdout is not None and program.stdout.readline() == "0\n"
    workers = children(program.pid)
    assert len(workers) >= 2
    # A terminal sends Ctrl-C to the workers too; a kill hits the parent alone.
    os.killpg(program.pid, how) if how is signal.SIGINT else program.send_signal(how)
    _, errors = program.communicate(timeout=20)
    assert program.returncode == code
    assert "Traceback" not in errors
    limit = time.monotonic() + 5
    while not all(gone(pid) for pid in workers) and time.monotonic() < limit:
        time.sleep(0.05)
    assert all(gone(pid) for pid in workers)

"""The parallel map: order, bounded look-ahead, clean ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np  # loads the linear algebra whose threads are counted below
import pytest

from cxrlab.core.errors import DataError, RunError
from cxrlab.data import parallel
from cxrlab.data.parallel import ordered_map, worker_count

pytestmark = pytest.mark.slow

assert np.__version__
MAPS = Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else ""


CORES = 8


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on every machine."""
    monkeypatch.setattr(parallel, "usable_cores", lambda: CORES)
    parallel._remark.cache_clear()


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
    # numpy's own: another package may have loaded a second copy under other names.
    library = ctypes.CDLL(next(line.split()[-1] for line in lines if "openblas" in line and "numpy" in line))
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


def test_workers_do_not_wait_for_the_threads_of_torch() -> None:
    """A fork takes torch's count of threads along and none of the threads; the sum is large enough to be shared out."""
    pytest.importorskip("torch")
    program = (
        "import torch, sys; from cxrlab.data.parallel import ordered_map\n"
        "def total(n): return float(torch.full((1500, 1500), float(n)).t().contiguous().sum())\n"
        "torch.set_num_threads(2); total(1)\n"
        "print(list(ordered_map(total, [1, 2, 3], 2)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[2250000.0, 4500000.0, 6750000.0]\n", done.stderr


def test_zero_workers_means_every_core() -> None:
    """As many as this process may use, not as many as the machine has."""
    assert worker_count(0) == CORES and worker_count(3) == 3


def test_more_workers_than_cores_are_cut_and_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert [worker_count(1000), worker_count(1000)] == [CORES, CORES]
    assert capsys.readouterr().err == f"workers=1000 is more than the {CORES} cores of this machine; using {CORES}.\n"


def living_children(_: int) -> int:
    """Processes of the parent, seen from a worker when all that will be started have been."""
    time.sleep(0.3)
    return len(children(os.getppid()))


def test_no_more_processes_than_items() -> None:
    """Three items need three processes, whatever was asked for."""
    before = len(children(os.getpid()))
    assert max(ordered_map(living_children, range(3), 8)) == before + 3


def test_a_large_item_and_a_large_answer_cross_together() -> None:
    """Both are larger than a pipe holds: whoever waited for the other to read first would wait for ever."""
    items = [bytes([k]) * 3_000_000 for k in range(12)]
    assert list(ordered_map(bytes, items, 2)) == items


class Unsendable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raises_unsendable(_: int) -> int:
    raise Unsendable(1, 2)


def gives_unsendable(_: int) -> object:
    return lambda: None


@pytest.mark.parametrize(
    ("work", "words"), [(raises_unsendable, "Unsendable: 1 and 2"), (gives_unsendable, "pickle|local obj")]
)
def test_what_cannot_be_sent_is_an_error_and_no_hang(work: Callable[[int], object], words: str) -> None:
    """An error that cannot be rebuilt here, and a result that cannot travel: defects of the program, raised as such."""
    with pytest.raises(Exception, match=words) as caught:
        list(ordered_map(work, range(3), 2))
    assert "in raises_unsendable" in str(caught.value.__cause__) or work is gives_unsendable


def test_a_workers_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, errors with their traceback, errors that cannot be rebuilt; and it ends when the pipe closes."""
    monkeypatch.setattr(parallel, "_start_worker", lambda: None)  # what only a process of its own may do
    ours, theirs = multiprocessing.Pipe()
    spare, _ = multiprocessing.Pipe()
    worker = threading.Thread(target=parallel._work, args=(raises_or_not, theirs, spare))
    worker.start()
    answers = []
    for item in (1, 5, 6):
        ours.send(item)
        answers.append(ours.recv())
    ours.close()
    worker.join(10)
    assert not worker.is_alive() and answers[0] == (True, 1, "")
    assert isinstance(answers[1][1], DataError) and "item 5 is broken" in answers[1][2]
    assert isinstance(answers[2][1], RuntimeError) and str(answers[2][1]) == "Unsendable: 1 and 2"


def raises_or_not(number: int) -> int:
    return raises_unsendable(number) if number == 6 else picky(number)


def test_stopping_early_does_not_wait() -> None:
    """Workers on long items are ended at once when the caller has enough."""
    results = ordered_map(slow_last, range(4), 2)
    assert next(results) == 0
    start = time.monotonic()
    results.close()
    assert time.monotonic() - start < 3


def slow_last(number: int) -> int:
    time.sleep(30 if number else 0)
    return number


PROGRAM = """
import sys, time
from cxrlab.data.parallel import ordered_map
def work(n):
    time.sleep(0.02 if n < 20 else 60); return n
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
@pytest.mark.parametrize(
    ("how", "times", "codes"),
    [
        (signal.SIGINT, 1, {130}),
        # The second may come while the interpreter is ending, which a shell shows as 130 too.
        (signal.SIGINT, 2, {130, -signal.SIGINT}),
        (signal.SIGKILL, 1, {-signal.SIGKILL}),
    ],
)
def test_no_worker_outlives_the_program(how: signal.Signals, times: int, codes: set[int]) -> None:
    """Ctrl-C, also by an impatient hand, ends within a second or two although every worker is busy for a minute;
    even after a kill of the parent the workers leave by themselves."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], text=True, start_new_session=True, **pipes)
    assert program.stdout is not None and program.stdout.readline() == "0\n"
    workers = children(program.pid)
    assert len(workers) >= 2
    while program.stdout.readline() != "19\n":
        pass
    start = time.monotonic()
    for _ in range(times):
        # A terminal sends Ctrl-C to the workers too; a kill hits the parent alone.
        os.killpg(program.pid, how) if how is signal.SIGINT else program.send_signal(how)
        time.sleep(0.05)
    _, errors = program.communicate(timeout=20)
    assert program.returncode in codes and time.monotonic() - start < 5
    assert times == 2 or "Traceback" not in errors
    limit = time.monotonic() + 5
    while not all(gone(pid) for pid in workers) and time.monotonic() < limit:
        time.sleep(0.05)
    assert all(gone(pid) for pid in workers)


def test_a_library_in_a_folder_with_a_space_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is all that follows five columns of the memory map; one that is gone is passed over."""
    asked = []

    class Maps:
        def exists(self) -> bool:
            return True

        def read_text(self) -> str:
            start = "7f00-8000 r-xp 00000000 fe:00 42   "
            return f"{start}/my libs/libopenblas.so\n{start}/gone/libopenblas.so (deleted)\n"

    def open_library(path: str) -> object:
        asked.append(path)
        raise OSError(path)

    monkeypatch.setattr(parallel, "Path", lambda _: Maps())
    monkeypatch.setattr(parallel.ctypes, "CDLL", open_library)
    parallel._pin_loaded_blas()
    assert sorted(asked) == ["/gone/libopenblas.so (deleted)", "/my libs/libopenblas.so"]

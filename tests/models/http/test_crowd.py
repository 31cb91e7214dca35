from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from cxrlab.models.http_client import run_concurrently

pytestmark = pytest.mark.slow


def upto(count: int) -> Callable[[], int | None]:
    return partial(next, iter(range(count)), None)


def test_every_place_is_worked_on_once_and_no_more_at_once_than_allowed() -> None:
    together, most, lock, pair = 0, 0, threading.Lock(), threading.Barrier(4)

    def work(place: int, stop: threading.Event) -> int:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        pair.wait(10)  # four are under way at once, or nobody goes on
        with lock:
            together -= 1
        return place * place

    assert dict(run_concurrently(work, upto(20), 4)) == {place: place * place for place in range(20)}
    assert most == 4
    assert list(run_concurrently(work, upto(0), 4)) == []


def test_results_come_when_they_are_there() -> None:
    gate = threading.Event()

    def work(place: int, stop: threading.Event) -> int:
        if place == 0:
            gate.wait(10)
        return place

    coming = run_concurrently(work, upto(3), 2)
    assert {next(coming)[0], next(coming)[0]} == {1, 2}
    gate.set()
    assert next(coming) == (0, 0)


def test_after_a_failure_what_is_under_way_is_kept_and_nothing_new_begins() -> None:
    """Three at once; the second fails while the others are still at work."""
    begun: list[int] = []
    failed = threading.Event()
    all_there = threading.Barrier(3)

    def work(place: int, stop: threading.Event) -> int:
        begun.append(place)
        all_there.wait(10)
        if place == 1:
            failed.set()
            raise ValueError("one")
        assert stop.wait(10)  # what waits stops waiting
        return place

    found = []
    with pytest.raises(ValueError, match="one"):
        for place, _ in run_concurrently(work, upto(100), 3):
            found.append(place)
    assert sorted(found) == [0, 2] and sorted(begun) == [0, 1, 2] and failed.is_set()


def test_whoever_stops_listening_stops_the_work() -> None:
    begun: list[int] = []

    def work(place: int, stop: threading.Event) -> int:
        begun.append(place)
        time.sleep(0.01)
        return place

    coming = run_concurrently(work, upto(1000), 2)
    next(coming)
    coming.close()
    time.sleep(0.05)
    count = len(begun)
    time.sleep(0.05)
    assert count == len(begun) < 1000


def test_ctrl_c_keeps_what_is_under_way_and_a_second_one_ends_at_once() -> None:
    program = """
import os, signal, threading, time
from functools import partial
from cxrlab.models.http_client import run_concurrently

both = threading.Barrier(3)

def work(place, stop):
    both.wait(10)
    assert stop.wait(10)
    if place == 1:
        time.sleep(60)  # a server that keeps somebody waiting
    return place

def press():
    both.wait(10)
    for _ in range(2):
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
try:
    for place, _ in run_concurrently(work, partial(next, iter(range(50)), None), 2):
        print(place, flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.split() == ["0", "stopped"], done.stderr
    assert done.returncode == 0 and time.monotonic() - start < 9.0

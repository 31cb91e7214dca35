"""The engine of studies: parts in several processes, each after those that it needs; missing inputs and dry runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import DataError, RunError
from cxrlab.data import parallel
from cxrlab.studies import engine
from cxrlab.studies.engine import run_in_processes

pytestmark = pytest.mark.slow

NEEDS = {"roof": ("left", "right"), "left": ("floor",), "right": ("floor",), "floor": ()}


@pytest.fixture(autouse=True)
def found_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


def lay(folder: Path, piece: str) -> None:
    """Write a file; what the piece stands on must be there."""
    for below in NEEDS[piece]:
        assert (folder / below).is_file()
    (folder / piece).write_text(piece)


def break_left(folder: Path, piece: str) -> None:
    if piece == "left":
        raise DataError("it fell.")
    lay(folder, piece)


def test_a_part_runs_after_those_that_it_needs(tmp_path: Path) -> None:
    run_in_processes(partial(lay, tmp_path), NEEDS, 2)
    assert {path.name for path in tmp_path.iterdir()} == set(NEEDS)


def test_no_more_processes_than_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counted(engine.ProcessPoolExecutor):
        def __init__(self, most: int, **settings: Any) -> None:
            asked.append(most)
            super().__init__(most, **settings)

    monkeypatch.setattr(engine, "ProcessPoolExecutor", Counted)
    monkeypatch.setattr(parallel, "usable_cores", lambda: 2)
    run_in_processes(partial(lay, tmp_path), {"floor": ()}, 64)
    assert asked == [2]


def note(folder: Path, piece: str) -> None:
    with (folder / "order").open("a") as order:
        order.write(f"{piece} ")


def test_the_part_with_most_predecessors_starts_first(tmp_path: Path) -> None:
    needs = {"floor": (), "shed": (), "left": ("floor",), "right": ("floor",), "roof": ("left", "right")}
    run_in_processes(partial(note, tmp_path), needs, 1)
    assert (tmp_path / "order").read_text().split() == ["floor", "left", "right", "roof", "shed"]


def test_no_part_runs_after_one_that_it_needs_failed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^left: it fell\.$"):
        run_in_processes(partial(break_left, tmp_path), NEEDS, 1)
    assert not (tmp_path / "roof").exists()


def test_a_part_that_needs_an_unknown_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="roof needs a part that is not in the plan"):
        run_in_processes(partial(lay, tmp_path), {"roof": ("cellar",)}, 1)


def meet(folder: Path, piece: str) -> None:
    """Say that this one is here, and wait until the other is."""
    (folder / piece).touch()
    end = time.monotonic() + 60
    while not all((folder / name).exists() for name in ("left", "right")):
        assert time.monotonic() < end, "the other never came"
        time.sleep(0.01)


def fall_beside(folder: Path, piece: str) -> None:
    """One falls as soon as the other has begun what never ends."""
    if piece == "left":
        while not (folder / "right").exists():
            time.sleep(0.01)
        raise DataError("it fell.")
    (folder / "right").touch()
    time.sleep(600)


def vanish(folder: Path, piece: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_two_run_at_the_same_time(tmp_path: Path) -> None:
    run_in_processes(partial(meet, tmp_path), {"left": (), "right": ()}, 2)


def test_the_first_error_ends_the_others_and_nobody_else(tmp_path: Path) -> None:
    mine = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    mine.start()
    try:
        with pytest.raises(DataError, match="left: it fell"):
            run_in_processes(partial(fall_beside, tmp_path), {"left": (), "right": ()}, 2)
        assert multiprocessing.active_children() == [mine]
    finally:
        mine.kill()
        mine.join()


def test_a_process_that_is_killed_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="was killed, perhaps because memory ran out; run the command again"):
        run_in_processes(partial(vanish, tmp_path), {"left": ()}, 1)

"""An audit that is killed twenty times ends with the transcript of one that was not."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import recording_victims as helper

from cxrlab.extraction.query_ledger import read_ledger, read_summary
from cxrlab.extraction.records import Query, fingerprint

pytestmark = pytest.mark.slow

COUNT, KILLS, BATCH = 240, 20, 2


def killed(folder: Path, budget: int, kind: str, workers: int) -> list[set[str]]:
    """Hashes in flight at each kill."""
    line = [sys.executable, helper.__file__, "kills", str(folder), *map(str, (COUNT, budget, kind, workers, KILLS))]
    subprocess.run(line, check=True, timeout=120, env={**os.environ, "CXRLAB_QUIET": "1"})
    return [set(text.split()) for text in helper.read_lines(folder / "killed.txt")]


def content(queries: list[Query]) -> list[tuple[int, int, str, str, str]]:
    return [(one.number, one.round, one.key, one.sha256, one.report) for one in queries]


@pytest.mark.parametrize("workers", [1, 3])
def test_twenty_kills_lose_and_repeat_nothing(tmp_path: Path, workers: int) -> None:
    """A victim on this machine: what was in flight is asked again under its number and its unit."""
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    straight.mkdir()
    broken.mkdir()
    helper.audit(straight, COUNT, COUNT, remote=False, workers=workers, seconds=0.0)
    in_flight = killed(broken, COUNT, "local", workers)

    queries = read_ledger(broken / "ledger.sqlite")
    assert content(queries) == content(read_ledger(straight / "ledger.sqlite"))
    assert [one.number for one in queries] == list(range(COUNT))
    assert read_summary(broken / "ledger.sqlite").spent == COUNT

    assert len(in_flight) == KILLS
    puts = Counter(helper.read_lines(broken / helper.QUERY_LOG))
    expected = Counter(fingerprint(picture.pixels) for picture in helper.small_images(COUNT))
    for hashes in in_flight:
        expected.update(hashes)
    assert puts == expected  # once, and once more for each kill that met it in flight
    again = puts.total() - COUNT
    assert 0 < again <= KILLS * BATCH * workers, f"{again} queries were put twice"
    assert sorted(path.name for path in broken.iterdir()) == ["asked.txt", "killed.txt", "ledger.sqlite", "pictures"]
    assert len(list((broken / "pictures").glob("*.png"))) == COUNT


def test_a_remote_victim_is_never_queried_beyond_the_budget(tmp_path: Path) -> None:
    """What was in flight may have been billed: it stays spent, and the next attempt books another unit."""
    workers = 2
    budget = COUNT + KILLS * BATCH * workers  # enough for the worst that the kills can do
    in_flight = killed(tmp_path, budget, "remote", workers)
    queries, state = read_ledger(tmp_path / "ledger.sqlite"), read_summary(tmp_path / "ledger.sqlite")
    assert [one.number for one in queries] == list(range(COUNT))
    puts = len(helper.read_lines(tmp_path / helper.QUERY_LOG))
    assert puts == COUNT + sum(map(len, in_flight))
    assert state.answered == COUNT
    assert state.spent == COUNT + state.lost
    # A kill between booking and asking loses a unit that the victim never saw; never the other way round.
    assert puts <= state.spent <= budget
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as book:
        (noted,) = book.execute("SELECT COUNT(*) FROM failures WHERE counted").fetchone()
    assert noted == state.lost > 0

"""Victims that record their queries, and a program whose audits are killed at random moments.

Run as `python recording_victims.py kills FOLDER` or `… crowd FOLDER` it starts processes of its own by fork, so that
the interpreter starts once.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.extraction.query_ledger import BudgetExceeded, Ledger, Reservation, read_ledger
from cxrlab.extraction.records import AuditScope, PendingQuery, Query, QueryImage, Response, fingerprint
from cxrlab.extraction.victim_client import VictimClient

QUERY_LOG = "asked.txt"  # the victim's log, one line for each image it received


def small_images(count: int) -> list[QueryImage]:
    """Small images, all different: the first two pixels encode the number."""
    made = []
    for number in range(count):
        pixels = np.full((6, 5), 128, np.uint8)
        pixels[0, 0], pixels[0, 1] = divmod(number, 256)
        made.append(QueryImage(f"p{number}", pixels))
    return made


def report_of(pixels: Any) -> str:
    """The report of `RecordingVictim` for an image, uint8 [H, W]."""
    return f"Report {fingerprint(pixels)[:12]}."


@dataclass(frozen=True)
class Ticket:
    """One reservation with its ledger."""

    ledger: Ledger
    reservation: Reservation

    def settle(self, report: str, *, refused: bool = False, tokens: int | None = None, seconds: float = 0.0) -> Query:
        return self.ledger.settle([(self.reservation, Response(report, refused, tokens, seconds))])[0]

    def release(self, reason: str) -> None:
        self.ledger.release([self.reservation], reason)

    def abandon(self, reason: str) -> None:
        self.ledger.abandon([self.reservation], reason)


def reserve(
    ledger: Ledger, number: int, round: int, key: str, sha256: str, account: str = "attacker"
) -> Ticket | Query:
    """Reserve one query; a spent budget raises."""
    found = ledger.reserve([PendingQuery(number, round, key, sha256, account)])
    if not found:
        raise ledger.exceeded()
    return found[0] if isinstance(found[0], Query) else Ticket(ledger, found[0])


class RecordingVictim:
    """A victim that writes the hash of each image into its log, waits, and answers.

    Args:
        log: File of the log.
        seconds: Waiting time per batch.
        black_box: Its capability of this name.
        stalls_after: With this many lines in its log it stops answering.
    """

    name = "noting:victim"

    def __init__(
        self, log: Path, seconds: float = 0.0, *, black_box: bool = False, stalls_after: int = 1_000_000
    ) -> None:
        self.log = log
        self.stalls_after = stalls_after
        self.seconds = seconds
        self.capabilities = Capabilities(black_box=black_box)

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        bytes_ = [np.rint(image * 255).astype(np.uint8) for image in images]
        append_lines(self.log, *map(fingerprint, bytes_))
        time.sleep(self.seconds if len(read_lines(self.log)) < self.stalls_after else 600)
        return [Generated(report_of(pixels), tokens=3) for pixels in bytes_]


def append_lines(log: Path, *lines: str) -> None:
    """Append lines in one write, so that a kill loses none of them."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(handle, "".join(f"{line}\n" for line in lines).encode())
    os.close(handle)


def read_lines(log: Path) -> list[str]:
    """The lines of a log; empty if there is no log yet."""
    return log.read_text().splitlines() if log.exists() else []


def audit(
    folder: Path, count: int, budget: int, *, remote: bool, workers: int, seconds: float, stalls_after: int = 1_000_000
) -> None:
    """Query `count` images in two rounds, in batches of 2."""
    victim = RecordingVictim(folder / QUERY_LOG, seconds, black_box=workers > 1, stalls_after=stalls_after)
    terms = AuditScope(victim.name, budget, authorised="the owner, for this test" if remote else None)
    pool = small_images(count)
    with Ledger.open(folder / "ledger.sqlite", terms, remote=remote) as ledger:
        client = VictimClient(victim, ledger, folder, batch_size=2, workers=workers)
        client.query(pool[: count // 2], 0, 0)
        client.query(pool[count // 2 :], 1, count // 2)


def audit_with_kills(folder: Path, count: int, budget: int, remote: bool, workers: int, times: int) -> None:
    """Kill the audit `times` times, each time after some queries; then let it end.

    `killed.txt` gets a line for each kill: the hashes queried since the previous kill that have no recorded answer.
    """
    draw = random.Random(8)
    for _ in range(times):
        before = len(read_lines(folder / QUERY_LOG))
        enough = before + draw.randint(1, 3 * workers)
        child = os.fork()
        if child == 0:
            audit(folder, count, budget, remote=remote, workers=workers, seconds=0.004, stalls_after=enough + 4)
            os._exit(1)  # never reached: it stalls first
        while len(read_lines(folder / QUERY_LOG)) < enough:
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the audit failed by itself"
            time.sleep(0.0005)
        time.sleep(draw.uniform(0.0, 0.006))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        settled = {query.sha256 for query in read_ledger(folder / "ledger.sqlite")}
        append_lines(folder / "killed.txt", " ".join(sorted(set(read_lines(folder / QUERY_LOG)[before:]) - settled)))
    audit(folder, count, budget, remote=remote, workers=workers, seconds=0.0)


def concurrent_audits(folder: Path, processes: int = 8, budget: int = 50) -> None:
    """Run processes that reserve and query until the budget is spent, each with its own query numbers."""
    children = []
    for place in range(processes):
        child = os.fork()
        if child == 0:
            query_until_exceeded(folder, place, budget)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * processes, codes


def query_until_exceeded(folder: Path, place: int, budget: int) -> None:
    """Send up to 25 queries, one by one, until the budget is spent."""
    with Ledger.open(folder / "ledger.sqlite", AuditScope("crowded", budget)) as ledger:
        for number in range(100 * place, 100 * place + 25):
            try:
                ticket = reserve(ledger, number, 0, f"p{number}", f"{number:064x}", f"process {place}")
            except BudgetExceeded:
                return
            assert isinstance(ticket, Ticket)
            append_lines(folder / QUERY_LOG, str(number))  # the victim's side
            ticket.settle(f"answer {number}")


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "crowd":
        concurrent_audits(Path(where))
    else:
        audit_with_kills(Path(where), int(rest[0]), int(rest[1]), rest[2] == "remote", int(rest[3]), int(rest[4]))

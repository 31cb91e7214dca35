"""A served model under load: many clients at once beside the same requests one by one, answers a second.

    python benchmarks/serving.py                        64 clients for 60 s, then one client for 30 s
    python benchmarks/serving.py --rehearse             that it works, no claim

Starts `cxrlab serve` in a process of its own on this machine. Both ways send the same prepared requests, images in
turns, over connections that stay open; the ratio is theirs. Every answer is held against what the model here writes for
that image alone: *crossed* is the report of another image, which must never happen, *in other words* none of these
reports, which a batch can cause where two words are equally likely to the last bit. No two of the
images have the same report. Nothing is tried again: what fails or does not come is counted.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from cxrlab.core.image_codec import to_uint8, to_unit
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.phantom.corpus import make_phantom

AIM = 3.0  # times the answers a second of one client
NAME = "served"


@dataclass
class Load:
    """What came of one way of asking.

    Args:
        seconds: From the first request to the last answer.
        took: Seconds of each answer.
        counts: Answers by kind: own, crossed, in other words; and what went wrong.
    """

    seconds: float = 0.0
    took: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.took) / self.seconds


def main() -> None:
    """Serve, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin:reporter")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--alone-seconds", type=float, default=30.0)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--max-batch", type=int, default=64)
    parser.add_argument("--rehearse", action="store_true", help="a few seconds")
    given = parser.parse_args()
    if given.rehearse:
        given.clients, given.seconds, given.alone_seconds, given.images = 4, 1.0, 0.5, 4
    with tempfile.TemporaryDirectory() as folder:
        reports = own_reports(given.model, given.images, Path(folder) / "corpus")
        with served(given, Path(folder)) as (process, url):
            ask(url, reports, 1, 0.0)  # the first answer is slower
            before = memory_mb(process.pid)
            together = ask(url, reports, given.clients, given.seconds)
            after = memory_mb(process.pid)
            alone = ask(url, reports, 1, given.alone_seconds)
    show({f"{given.clients} clients": together, "1 client": alone})
    print(f"memory of the server: {before:.0f} MB before, {after:.0f} MB after {given.clients} clients")
    ratio = together.rate / alone.rate
    print(f"{given.clients} clients get {ratio:.2f} times the answers a second of one; aimed at {AIM:g} times")


def own_reports(model: str, count: int, folder: Path) -> dict[bytes, str]:
    """Request → report that the model here writes for its image alone; no two images have the same report."""
    from cxrlab.evaluation.open_models import load_model
    from cxrlab.models.http_models import data_url

    make_phantom(PhantomConfig(n=2 * count, size=128, seed=11, masks=False), folder)
    corpus, writer = load_corpus(folder), load_model(model)
    found: dict[str, bytes] = {}
    for study in corpus.studies():
        image = to_unit(to_uint8(corpus.image(study)))
        parts = [{"type": "image_url", "image_url": {"url": data_url(image)}}]
        body = {"model": NAME, "messages": [{"role": "user", "content": parts}]}
        found.setdefault(writer.generate([image])[0].text, json.dumps(body).encode())
        if len(found) == count:
            break
    return {request: report for report, request in found.items()}


@contextmanager
def served(given: argparse.Namespace, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and where it takes requests."""
    words = ["serve", "--model", given.model, "--name", NAME, "--port", "0", "--out", str(folder / "server")]
    words += ["--allowance.requests-in-flight", str(max(64, given.clients))]  # all clients are one account
    words += ["--max-batch", str(given.max_batch), "--log-file", str(folder / "log.jsonl")]
    process = subprocess.Popen(
        [sys.executable, "-m", "cxrlab", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        told = re.search(r"http://127\.0\.0\.1:\d+/v1", process.stdout.readline())
        if told is None:
            raise SystemExit("the server did not start")
        yield process, f"{told.group()}/chat/completions"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def ask(url: str, reports: dict[bytes, str], clients: int, seconds: float) -> Load:
    """So many clients, each with the next request as soon as it has an answer, until the time is up.

    Args:
        url: Where.
        reports: Requests with the reports that they should get.
        clients: How many.
        seconds: After which no request is begun; 0 for one request each.
    """
    load, lock = Load(), threading.Lock()
    every, known = list(reports), set(reports.values())
    begun = time.monotonic()

    def client(number: int) -> None:
        place = number
        with httpx.Client(timeout=120, headers={"Content-Type": "application/json"}) as http:
            while place == number or time.monotonic() < begun + seconds:
                request = every[place % len(every)]
                start = time.monotonic()
                kind = kind_of(http, url, request, reports[request], known)
                with lock:
                    load.counts[kind] += 1
                    if not kind.startswith("error"):
                        load.took.append(time.monotonic() - start)
                place += clients

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    load.seconds = time.monotonic() - begun
    return load


def kind_of(http: httpx.Client, url: str, request: bytes, own: str, known: set[str]) -> str:
    """Send one request; what came of it."""
    try:
        answer = http.post(url, content=request)
    except httpx.HTTPError as error:
        return f"error: {type(error).__name__}"
    if answer.status_code != 200:
        return f"error: {answer.status_code}"
    text: str = answer.json()["choices"][0]["message"]["content"]
    return "own" if text == own else "crossed" if text in known else "in other words"


def memory_mb(process: int) -> float:
    """Resident memory of a process; not a number where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * 4096 / 1e6


def show(loads: dict[str, Load]) -> None:
    """The table."""
    print("| asked by | seconds | answers | a second | median s | 95 % s | own | in other words | crossed | errors |")
    print("|---" * 10 + "|")
    for name, load in loads.items():
        middle, most = quantiles(load.took)
        errors = {kind: count for kind, count in load.counts.items() if kind.startswith("error")}
        times = (f"{load.rate:.2f}", f"{middle:.2f}", f"{most:.2f}")
        kinds = (load.counts[kind] for kind in ("own", "in other words", "crossed"))
        told = (f"{load.seconds:.1f}", len(load.took), *times, *kinds, errors or 0)
        print(f"| {name} | {' | '.join(map(str, told))} |")


def quantiles(values: list[float]) -> tuple[float, float]:
    """Median and 95 % quantile."""
    if not values:
        return float("nan"), float("nan")
    middle, most = np.quantile(values, [0.5, 0.95])
    return float(middle), float(most)


if __name__ == "__main__":
    main()

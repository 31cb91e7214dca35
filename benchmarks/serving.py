"""Responses per second of a served model: many concurrent clients compared with one client.

    python benchmarks/serving.py                        64 clients for 60 s, then one client for 30 s
    python benchmarks/serving.py --rehearse             a check that it runs

Starts `cxrlab serve` in a separate process on this machine. Both runs send the same prepared requests, one image each,
over persistent connections. Every response is compared with the report that the model generates in this process for the
image alone. *Crossed* is the report of another image, which must never happen. *Different* is none of these reports;
batching can cause it if two tokens have equal probability. No two images have the same report. Failed requests are
counted, not repeated.
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

TARGET = 3.0  # times the responses per second of one client
NAME = "served"


@dataclass
class Load:
    """Result of one load test.

    Args:
        seconds: From the first request to the last response.
        latencies: Seconds of each response.
        counts: Responses by kind: correct, crossed, different, and errors.
    """

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Responses per second."""
        return len(self.latencies) / self.seconds


def main() -> None:
    """Serve, send requests, print."""
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
        reports = expected_reports(given.model, given.images, Path(folder) / "corpus")
        with served(given, Path(folder)) as (process, url):
            send_requests(url, reports, 1, 0.0)  # warm-up
            before = memory_mb(process.pid)
            concurrent = send_requests(url, reports, given.clients, given.seconds)
            after = memory_mb(process.pid)
            single = send_requests(url, reports, 1, given.alone_seconds)
    show({f"{given.clients} clients": concurrent, "1 client": single})
    print(f"server memory: {before:.0f} MB before, {after:.0f} MB after {given.clients} clients")
    ratio = concurrent.rate / single.rate
    print(f"{given.clients} clients: {ratio:.2f} times the responses per second of one client; target {TARGET:g} times")


def expected_reports(model: str, count: int, folder: Path) -> dict[bytes, str]:
    """Request → report generated in this process for its image alone; no two images have the same report."""
    from cxrlab.evaluation.load_model import load_model
    from cxrlab.models.http_models import data_url

    make_phantom(PhantomConfig(n=2 * count, size=128, seed=11, masks=False), folder)
    corpus, local_model = load_corpus(folder), load_model(model)
    requests: dict[str, bytes] = {}
    for study in corpus.studies():
        image = to_unit(to_uint8(corpus.image(study)))
        parts = [{"type": "image_url", "image_url": {"url": data_url(image)}}]
        body = {"model": NAME, "messages": [{"role": "user", "content": parts}]}
        requests.setdefault(local_model.generate([image])[0].text, json.dumps(body).encode())
        if len(requests) == count:
            break
    return {request: report for report, request in requests.items()}


@contextmanager
def served(given: argparse.Namespace, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process, and the URL for its requests."""
    words = ["serve", "--model", given.model, "--name", NAME, "--port", "0", "--out", str(folder / "server")]
    words += ["--allowance.requests-in-flight", str(max(64, given.clients))]  # all clients are one account
    words += ["--max-batch", str(given.max_batch), "--log-file", str(folder / "log.jsonl")]
    process = subprocess.Popen(
        [sys.executable, "-m", "cxrlab", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        url = re.search(r"http://127\.0\.0\.1:\d+/v1", process.stdout.readline())
        if url is None:
            raise SystemExit("The server did not start.")
        yield process, f"{url.group()}/chat/completions"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def send_requests(url: str, reports: dict[bytes, str], clients: int, seconds: float) -> Load:
    """Send requests from concurrent clients until the time is up; each sends the next one after its response.

    Args:
        url: URL of the chat completions.
        reports: Requests with their expected reports.
        clients: Number of clients.
        seconds: After which no request is sent; 0 for one request per client.
    """
    load, lock = Load(), threading.Lock()
    requests, known = list(reports), set(reports.values())
    began = time.monotonic()

    def client(number: int) -> None:
        index = number
        with httpx.Client(timeout=120, headers={"Content-Type": "application/json"}) as http:
            while index == number or time.monotonic() < began + seconds:
                request = requests[index % len(requests)]
                start = time.monotonic()
                kind = response_kind(http, url, request, reports[request], known)
                with lock:
                    load.counts[kind] += 1
                    if not kind.startswith("error"):
                        load.latencies.append(time.monotonic() - start)
                index += clients

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    load.seconds = time.monotonic() - began
    return load


def response_kind(http: httpx.Client, url: str, request: bytes, expected: str, known: set[str]) -> str:
    """Send one request; returns the kind of its response."""
    try:
        response = http.post(url, content=request)
    except httpx.HTTPError as error:
        return f"error: {type(error).__name__}"
    if response.status_code != 200:
        return f"error: {response.status_code}"
    text: str = response.json()["choices"][0]["message"]["content"]
    return "correct" if text == expected else "crossed" if text in known else "different"


def memory_mb(process: int) -> float:
    """Resident memory of a process; NaN if the system does not report it."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * 4096 / 1e6


def show(loads: dict[str, Load]) -> None:
    """Print the table."""
    print(
        "| clients | seconds | responses | per second | median (s) | 95 % (s) | correct | different | crossed | errors |"
    )
    print("|---" * 10 + "|")
    for name, load in loads.items():
        middle, most = quantiles(load.latencies)
        errors = {kind: count for kind, count in load.counts.items() if kind.startswith("error")}
        times = (f"{load.rate:.2f}", f"{middle:.2f}", f"{most:.2f}")
        kinds = (load.counts[kind] for kind in ("correct", "different", "crossed"))
        cells = (f"{load.seconds:.1f}", len(load.latencies), *times, *kinds, errors or 0)
        print(f"| {name} | {' | '.join(map(str, cells))} |")


def quantiles(values: list[float]) -> tuple[float, float]:
    """Median and 95 % quantile."""
    if not values:
        return float("nan"), float("nan")
    middle, most = np.quantile(values, [0.5, 0.95])
    return float(middle), float(most)


if __name__ == "__main__":
    main()

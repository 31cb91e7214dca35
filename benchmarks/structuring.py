"""Structuring by an endpoint: reports per second beside a barrier after every batch, and peak memory at two sizes.

    python benchmarks/structuring.py                     throughput of 400 reports, 16 requests at a time
    python benchmarks/structuring.py --memory 33700      peak memory at 33,700 and at 337,000 reports
    python benchmarks/structuring.py --n 40 --median-s 0.02

The endpoint is a stub in a separate process: it repeats the report, after a latency drawn from a log-normal distribution by
the text of the request, so that both sides meet the same latencies. Every tenth first answer invents a finding and
is requested again. The barrier sends the next batch when the last answer of the previous one has come; both corpora
must be equal. Memory is measured with a model that answers inside the process, at once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import re
import resource
import tempfile
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import NormalDist

from cxrlab.core.egress import Connection
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.core.model_interfaces import Generated
from cxrlab.core.records import Report, Study
from cxrlab.core.terminal import silenced
from cxrlab.data.card import Card
from cxrlab.data.config import StructureConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.data.structuring.run import structure_corpus
from cxrlab.models.http_client import ChatClient
from cxrlab.models.http_models import HttpTextModel
from cxrlab.models.llm_cache import CachedTextModel

SIGMA, LONGEST_S = 0.8, 5.0  # of the latencies; 0.8 puts the 95th percentile at 3.7 times the median
SENTENCES = (
    "There is a small left pleural effusion.",
    "The heart is mildly enlarged.",
    "No pneumothorax is seen.",
    "There is mild pulmonary edema.",
    "Moderate atelectasis is seen at the right base.",
    "The lungs are otherwise clear.",
    "There is an old fracture of the right fifth rib.",
    "A pacemaker is in place.",
)
_SOURCE = re.compile(r"BEGIN REPORT\nINDICATION: (.*)\nFINDINGS: (.*)\nEND REPORT")


def reply(prompt: str) -> str:
    """The report of a prompt; every tenth first answer also states something that the report does not."""
    found = _SOURCE.search(prompt)
    assert found is not None
    indication, findings = found.groups()
    if int(indication.split()[-1].rstrip(".")) % 10 == 0 and "refused" not in prompt:
        findings += " There is a hiatal hernia."
    return json.dumps({"examination": None, "indication": indication, "findings": findings, "impression": None})


def corpus_of(folder: Path, count: int) -> Corpus:
    """Reports of one to eight sentences without images; each has an indication of its own."""
    card = Card("bench", source="benchmarks/structuring.py", licence="none", citation="none", synthetic=True)
    with silenced(), CorpusWriter(folder, card) as writer:
        for number in range(count):
            chosen = [line for place, line in enumerate(SENTENCES) if (number % 255 + 1) >> place & 1]
            sections = Report(indication=f"Cough, request {number}.", findings=" ".join(chosen))
            writer.add(Study(f"s{number}", f"p{number}", sections=sections, split="train"))
    return writer.finish()


def serve(pipe: Pipe, median_s: float) -> None:
    """The stub endpoint; sends its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = body["messages"][0]["content"]
            share = (int(hashlib.sha256(prompt.encode()).hexdigest()[:12], 16) + 1) / (16**12 + 1)
            time.sleep(min(median_s * math.exp(SIGMA * NormalDist().inv_cdf(share)), LONGEST_S))
            message = {"role": "assistant", "content": reply(prompt)}
            usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 50}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            data = json.dumps({"choices": choices, "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    pipe.send(server.server_address[1])
    server.serve_forever()


class WithBarrier:
    """An endpoint that is used batch by batch: all requests of a batch at once, the next batch after its last answer."""

    def __init__(self, model: HttpTextModel) -> None:
        self.name, self.complete = model.name, model.complete


class Inside:
    """A model that answers at once, inside this process."""

    name = "inside:stub"

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        return [Generated(reply(prompt), tokens=50) for prompt in prompts]


def throughput(n: int, concurrency: int, median_s: float) -> None:
    """Reports per second with a barrier after batches of several sizes, and without."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs, median_s), daemon=True)
    server.start()
    address = f"http://127.0.0.1:{ours.recv()}/v1#stub"
    seconds: dict[str, float] = {}
    lines: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder, silenced():
        source = corpus_of(Path(folder) / "source", n)
        ways = {"barrier, batches of 16": 16, "barrier, batches of 64": 64, "sliding window": 0}
        for name, batch in ways.items():
            endpoint = HttpTextModel(ChatClient(address, Connection(concurrency=concurrency), synthetic=True))
            out = Path(folder) / name
            config = StructureConfig(model=address, batch=batch or 16)
            start = time.monotonic()
            with CachedTextModel(WithBarrier(endpoint) if batch else endpoint, LLMConfig(), out) as model:
                structure_corpus(source, config, out, model)
            seconds[name] = time.monotonic() - start
            lines[name] = (out / "studies.jsonl").read_bytes()
    server.kill()
    assert len(set(lines.values())) == 1, "the corpora differ"
    print(
        f"{n:,} reports, {concurrency} requests at a time, median latency {median_s:g} s, log-normal with σ {SIGMA:g}"
    )
    for name, took in seconds.items():
        print(f"{name:24s} {n / took:8.1f} reports per second {took / seconds['sliding window']:6.2f} × the time")
    print("the corpora are equal")


def memory(n: int) -> None:
    """Peak memory of structuring n and 10 n reports, each in a process of its own."""
    peaks: list[float] = []
    for count in (n, 10 * n):
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("spawn").Process(target=_measure, args=(theirs, count))
        child.start()
        before, peak, took = ours.recv()
        child.join()
        peaks.append(peak - before)
        print(
            f"{count:9,} reports: peak {peak:7.1f} MiB, {peak - before:7.1f} MiB above the start, "
            f"{1024 * (peak - before) / count:6.2f} KiB per report, {count / took:7.1f} reports per second",
            flush=True,
        )
    print(f"10 × the reports take {peaks[1] / peaks[0]:.2f} × the memory above the start")


def _measure(pipe: Pipe, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder, silenced():
        # Written by another process, so that this one's peak is that of structuring alone.
        writer = multiprocessing.get_context("spawn").Process(target=corpus_of, args=(Path(folder) / "source", count))
        writer.start()
        writer.join()
        from cxrlab.data.corpus import load_corpus

        source, out = load_corpus(Path(folder) / "source"), Path(folder) / "out"
        before, start = _peak_mib(), time.monotonic()
        with CachedTextModel(Inside(), LLMConfig(), out) as model:
            structure_corpus(source, StructureConfig(model=Inside.name, batch=64), out, model)
        pipe.send((before, _peak_mib(), time.monotonic() - start))


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=400, help="reports of the throughput")
    parser.add_argument("--concurrency", type=int, default=16, help="requests at a time")
    parser.add_argument("--median-s", type=float, default=0.2, help="median latency of the stub")
    parser.add_argument("--memory", type=int, default=0, help="measure peak memory at so many reports and at ten times")
    args = parser.parse_args()
    if args.memory:
        memory(args.memory)
    else:
        throughput(args.n, args.concurrency, args.median_s)


if __name__ == "__main__":
    main()

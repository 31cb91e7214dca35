"""Time and peak memory at 1 ×, 10 × and 100 × the size: scoring report pairs, querying a victim, Parquet shards.

    python benchmarks/scale.py [--largest 100000] [--work score,query,adaptive,shards] [--sizes 300,3000,30000,100000]

Each size runs in a process of its own. The texts are narrated; the victim is `stub:normal` and answers at once. The
peak is that of the process with its workers: memory that they share counts once. `cpu s` is the processor time of all of
them, which other work on the machine changes little. The last columns are exponents fitted to it and to the peak over
all sizes so far (value = a · n^k): 1 is linear, 0 does not depend on the size.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event, Thread

SIZES = (100, 10, 1)  # the largest size divided by these
LIMIT_MB = 2048  # target for the largest size
WORDS = 60


def score(n: int, folder: Path) -> None:
    """Score n pairs by the default metrics, with intervals and floors, into a run folder."""
    from rouge import pairs

    from cxrlab.evaluation.config import ScoreConfig
    from cxrlab.evaluation.score import run_score

    references, candidates = folder / "references.jsonl", folder / "candidates.jsonl"
    if not candidates.is_file():  # in a process of its own: what is narrated must not count
        with references.open("w") as left, candidates.open("w") as right:
            for one in islice(pairs(WORDS), n):
                left.write(json.dumps({"id": one.id, "report": one.reference}) + "\n")
                right.write(json.dumps({"id": one.id, "report": one.candidate}) + "\n")
        return
    run_score(ScoreConfig(references=references, predictions=candidates), folder / "scores")


def query(n: int, folder: Path, policy: str = "random") -> None:
    """Send n images of noise to `stub:normal`, planned on disk and booked in a ledger, as `extract` does."""
    import torch  # noqa: F401  (imported in both processes, so that the peak without it is no part of the growth)

    from cxrlab import load_model
    from cxrlab.extraction.attack_rounds import Attack, run_attack
    from cxrlab.extraction.config import ExtractConfig, Policy
    from cxrlab.extraction.query_ledger import LEDGER, Ledger
    from cxrlab.extraction.query_pools import open_pool
    from cxrlab.extraction.records import AuditScope
    from cxrlab.extraction.victim_client import VictimClient

    if (folder / "prepared").is_file():
        config = ExtractConfig(
            victim="stub:normal", method="knockoff", data=folder, pool="noise", size=64, budget=n, seed=7,
            policy=Policy(kind=policy, rewards=("certainty", "diversity")),
        )  # fmt: skip
        with Ledger.open(folder / LEDGER, AuditScope(config.victim, n)) as ledger:
            client = VictimClient(load_model(config.victim), ledger, folder, batch_size=64)
            pool = open_pool(config.pool, size=config.size, seed=config.seed)
            run_attack(Attack(client, pool, None, config, folder))
    (folder / "prepared").touch()


def shards(n: int, folder: Path) -> None:
    """Export a corpus of n images of noise as Parquet shards, and make the corpus again from them."""
    import numpy as np

    from cxrlab.core.image_codec import encode_png
    from cxrlab.core.records import ImageFile, Study
    from cxrlab.data.card import Card
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.corpus_writer import CorpusWriter
    from cxrlab.data.export import export_corpus
    from cxrlab.data.parquet_shards import import_parquet

    if (folder / "corpus").is_dir():
        export_corpus("parquet", load_corpus(folder / "corpus"), folder / "exported", shard_mb=64)
        import_parquet(folder / "exported", folder / "again")
        return
    rng = np.random.default_rng(7)
    with CorpusWriter(folder / "corpus", Card("noise", synthetic=True)) as writer:
        for number in range(n):
            path = f"images/{number}.png"
            pixels = rng.integers(0, 256, (128, 128), dtype=np.uint8)
            writer.add(Study(f"s{number}", f"p{number}", (ImageFile(path),), split="train"), {path: encode_png(pixels)})


WORK = {"score": score, "query": query, "adaptive": partial(query, policy="adaptive"), "shards": shards}


def tree_mb(root: int) -> float:
    """Memory of a process and of its children now, shared pages divided among them; 0 where Linux does not tell."""
    total = 0.0
    try:
        below = Path(f"/proc/{root}/task/{root}/children").read_text().split()
        for process in (root, *map(int, below)):
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
            total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024
    except (OSError, StopIteration):  # a process has just ended
        return 0.0
    return total


def run(name: str, n: int, folder: str) -> tuple[float, float, float]:
    """Seconds, processor seconds and peak memory in MB of one size in a process of its own."""
    command = [sys.executable, __file__, "--one", name, str(n), folder]
    peak, done, before = 0.0, Event(), os.times()
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "CXRLAB_QUIET": "1"}
    ) as process:

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.5):
                peak = max(peak, tree_mb(process.pid))

        watcher = Thread(target=watch)
        watcher.start()
        out, _ = process.communicate()
        done.set()
        watcher.join()
    seconds, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    if process.returncode:
        raise SystemExit(f"{name} of {n:,} ended with exit code {process.returncode}")
    return seconds, cpu, max(peak, float(out.split()[-1]))


def exponent(sizes: list[int], values: list[float]) -> str:
    """The exponent k of value = a · n^k, by least squares on logarithms; empty with one size."""
    if len(set(sizes)) < 2:
        return ""
    slope = statistics.linear_regression([math.log(n) for n in sizes], [math.log(value) for value in values]).slope
    return f"{slope:.2f}"


def main() -> None:
    """Run every size of every work in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--largest", type=int, default=100_000, help="the other sizes are a hundredth and a tenth of it"
    )
    parser.add_argument("--sizes", help="sizes in rising order, instead of --largest")
    parser.add_argument("--work", default=",".join(WORK))
    parser.add_argument("--one", nargs=3, metavar=("WORK", "N", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, n, folder = args.one
        WORK[name](int(n), Path(folder))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    chosen = args.sizes or ",".join(str(max(1, args.largest // part)) for part in SIZES)
    print(f"{'work':10} {'n':>9} {'seconds':>9} {'cpu s':>9} {'peak MB':>9} {'cpu: n^k':>8} {'MB: n^k':>8}")
    for name in args.work.split(","):
        sizes: list[int] = []
        times: list[float] = []
        peaks: list[float] = []
        for n in map(int, chosen.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                run(name, n, folder)  # prepares
                seconds, cpu, peak = run(name, n, folder)
            sizes, times, peaks = [*sizes, n], [*times, cpu], [*peaks, peak]
            slopes = f"{exponent(sizes, times):>8} {exponent(sizes, peaks):>8}"
            print(f"{name:10} {n:9,} {seconds:9.1f} {cpu:9.1f} {peak:9.0f} {slopes}", flush=True)
        print(f"{name}: peak {peak:.0f} MB at {n:,} (target: under {LIMIT_MB} MB)", flush=True)


if __name__ == "__main__":
    main()

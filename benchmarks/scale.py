"""Time and peak memory at 1 ×, 10 × and 100 × the size: scoring report pairs, and querying a victim.

    python benchmarks/scale.py [--largest 100000] [--work score,extract]

Each size runs in a process of its own. The texts are narrated; the victim is `stub:normal` and answers at once.
The last column is the growth of the peak from size to size: 1 × means that memory does not depend on the size.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path

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


WORK = {"score": score, "query": query, "adaptive": partial(query, policy="adaptive")}


def main() -> None:
    """Run every size of every work in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--largest", type=int, default=100_000)
    parser.add_argument("--work", default=",".join(WORK))
    parser.add_argument("--one", nargs=3, metavar=("WORK", "N", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, n, folder = args.one
        WORK[name](int(n), Path(folder))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    print(f"{'work':10} {'n':>9} {'seconds':>9} {'peak MB':>9} {'growth':>8}")
    for name in args.work.split(","):
        before = None
        for part in SIZES:
            n = max(1, args.largest // part)
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "--one", name, str(n), folder]
                for _ in ("prepare", "measure"):
                    start = time.perf_counter()
                    environment = {**os.environ, "CXRLAB_QUIET": "1"}
                    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
                    seconds = time.perf_counter() - start
            peak = float(out.stdout.split()[-1])
            growth = "" if before is None else f"{peak / before:.2f} x"
            print(f"{name:10} {n:9,} {seconds:9.1f} {peak:9.0f} {growth:>8}", flush=True)
            before = peak
        print(f"{name}: peak {peak:.0f} MB at {n:,} (target: under {LIMIT_MB} MB)")


if __name__ == "__main__":
    main()

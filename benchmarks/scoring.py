"""A whole test set scored: every default metric, with intervals, slices and five floors, beside one metric of a peer.

    python benchmarks/scoring.py [--n 2461] [--words 60]

The peer, rouge-score, counts ROUGE-L alone, once, without interval or floor. The texts are narrated, never a
patient's. Also timed: a fresh process that imports cxrlab and scores ten pairs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from itertools import islice

from rouge import pairs as narrated  # beside this file
from rouge_score.rouge_scorer import RougeScorer

import cxrlab

LIMIT_S, SMALL_LIMIT_S = 20.0, 1.5  # what the project promises on two cores
TEN = "import cxrlab; cxrlab.score(['Small left effusion.'] * 10, ['The lungs are clear.'] * 10)"


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=2461)
    parser.add_argument("--words", type=int, default=60)
    args = parser.parse_args()
    chosen = list(islice(narrated(args.words), args.n))
    references = {pair.id: pair.reference for pair in chosen}
    candidates = {pair.id: pair.candidate for pair in chosen}

    start = time.perf_counter()
    sheet = cxrlab.score(references, candidates)
    ours = time.perf_counter() - start
    print(
        f"cxrlab       {ours:8.2f} s   {len(sheet)} metrics with intervals, {len(sheet.floors)} floors, {sheet.n} pairs"
    )

    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    start = time.perf_counter()
    for pair in chosen:
        scorer.score(pair.reference, pair.candidate)
    peer = time.perf_counter() - start
    print(f"rouge-score  {peer:8.2f} s   1 metric")

    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", TEN], check=True, env={"CXRLAB_QUIET": "1", "PATH": ""})
    small = time.perf_counter() - start
    print(f"ten pairs    {small:8.2f} s   with the import, in a fresh process (promised: under {SMALL_LIMIT_S:g})")
    scored = len(sheet) * (1 + len(sheet.floors))
    ratio = peer * scored / ours
    print(f"ratio        {ratio:8.1f} x  as many metrics a second as the peer (promised: {LIMIT_S:g} s in all)")


if __name__ == "__main__":
    main()

"""Time to score a test set with all default metrics, compared with one metric of rouge-score.

    python benchmarks/scoring.py [--n 2461] [--words 60]

cxrlab also computes intervals, slices and five floors. rouge-score computes ROUGE-L alone, once, without intervals or
floors. The texts are generated. Also measured: a new process that imports cxrlab and scores ten pairs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from itertools import islice

from rouge import pairs as narrated
from rouge_score.rouge_scorer import RougeScorer

import cxrlab

LIMIT_S, SMALL_LIMIT_S = 20.0, 1.5  # targets on two cores
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
    cxrlab_s = time.perf_counter() - start
    print(
        f"cxrlab       {cxrlab_s:8.2f} s   {len(sheet)} metrics with intervals, {len(sheet.floors)} floors, {sheet.n} pairs"
    )

    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    start = time.perf_counter()
    for pair in chosen:
        scorer.score(pair.reference, pair.candidate)
    rouge_score_s = time.perf_counter() - start
    print(f"rouge-score  {rouge_score_s:8.2f} s   1 metric")

    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", TEN], check=True, env={"CXRLAB_QUIET": "1", "PATH": ""})
    small = time.perf_counter() - start
    print(f"ten pairs    {small:8.2f} s   import included, in a new process (target: under {SMALL_LIMIT_S:g} s)")
    scored = len(sheet) * (1 + len(sheet.floors))
    ratio = rouge_score_s * scored / cxrlab_s
    print(f"ratio        {ratio:8.1f} x  the metrics per second of rouge-score (target: {LIMIT_S:g} s in total)")


if __name__ == "__main__":
    main()

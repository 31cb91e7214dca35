"""ROUGE-L, stemmed: ours beside rouge-score on the same pairs in the same run, with equal values.

    python benchmarks/rouge.py [--n 2461] [--words 60]

The texts are narrated, never a patient's: one visit told under two names, so that a pair agrees in part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import count, islice

from rouge_score.rouge_scorer import RougeScorer

from cxrlab.findings.cases import draw_patient
from cxrlab.findings.narrator import narrate
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.rouge import GoogleLongest

FLOOR = 50.0  # times as fast as rouge-score, which the project promises
SEED = 11


def pairs(least: int) -> Iterator[Pair]:
    """Endless pairs of narrated texts of at least so many words each; short reports are joined to one another."""
    kept: list[str] = ["", ""]
    for number in count():
        for visit in draw_patient(SEED, f"p{number}").visits:
            told = [narrate(visit, SEED, f"{visit.number}-{side}-{number}").report for side in "ab"]
            kept = [
                f"{text} {report.findings} {report.impression}".strip() for text, report in zip(kept, told, strict=True)
            ]
            if min(len(text.split()) for text in kept) >= least:
                yield Pair(f"p{number}-{visit.number}", *kept)
                kept = ["", ""]


def timed(work: Callable[[], list[float]]) -> tuple[list[float], float]:
    """What the work returns, and its seconds."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=2461)
    parser.add_argument("--words", type=int, default=60)
    args = parser.parse_args()
    batch = Batch(list(islice(pairs(args.words), args.n)))
    lengths = sorted(len(text.split()) for text in (*batch.references, *batch.candidates))
    print(f"{len(batch)} pairs, {lengths[0]} to {lengths[-1]} words, median {lengths[len(lengths) // 2]}")

    # Ours goes first, with nothing remembered from before.
    ours, our_s = timed(lambda: GoogleLongest().tallies(batch)[0].by_pair.tolist())
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    texts = list(zip(batch.references, batch.candidates, strict=True))
    theirs, their_s = timed(lambda: [scorer.score(r, c)["rougeL"].fmeasure for r, c in texts])
    if ours != theirs:
        raise SystemExit("the values differ from rouge-score's")
    print("values equal to the last digit")
    print(f"{'':12s} {'seconds':>9s} {'ms a pair':>10s} {'times as fast':>14s}")
    rows = (("rouge-score", their_s), ("ours", our_s))
    for name, seconds in rows:
        print(f"{name:12s} {seconds:9.3f} {1000 * seconds / len(batch):10.4f} {their_s / seconds:14.1f}")
    print(f"promised: {FLOOR:.0f} times")


if __name__ == "__main__":
    main()

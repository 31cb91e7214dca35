"""Time of stemmed ROUGE-L in cxrlab and in rouge-score on the same pairs; checks that the values are equal.

    python benchmarks/rouge.py [--n 2461] [--words 60]

The texts are generated: two different reports of the same visit, so that a pair agrees in part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import count, islice

from rouge_score.rouge_scorer import RougeScorer

from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import draw_patient
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.metrics.rouge import GoogleLongest

FLOOR = 50.0  # target speed-up over rouge-score
SEED = 11


def pairs(least: int) -> Iterator[Pair]:
    """Endless pairs of generated texts of at least `least` words each; short reports are joined."""
    kept: list[str] = ["", ""]
    for number in count():
        for visit in draw_patient(SEED, f"p{number}").visits:
            reports = [narrate(visit, SEED, f"{visit.number}-{side}-{number}").report for side in "ab"]
            kept = [
                f"{text} {report.findings} {report.impression}".strip()
                for text, report in zip(kept, reports, strict=True)
            ]
            if min(len(text.split()) for text in kept) >= least:
                yield Pair(f"p{number}-{visit.number}", *kept)
                kept = ["", ""]


def timed(work: Callable[[], list[float]]) -> tuple[list[float], float]:
    """The result of `work`, and its seconds."""
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

    # cxrlab runs first, with empty caches.
    values, cxrlab_s = timed(lambda: GoogleLongest().tallies(batch)[0].by_pair.tolist())
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    texts = list(zip(batch.references, batch.candidates, strict=True))
    expected, rouge_score_s = timed(lambda: [scorer.score(r, c)["rougeL"].fmeasure for r, c in texts])
    if values != expected:
        raise SystemExit("The values differ from those of rouge-score.")
    print("values equal to the last digit")
    print(f"{'':12s} {'seconds':>9s} {'ms per pair':>12s} {'speed-up':>9s}")
    for name, seconds in (("rouge-score", rouge_score_s), ("cxrlab", cxrlab_s)):
        print(f"{name:12s} {seconds:9.3f} {1000 * seconds / len(batch):12.4f} {rouge_score_s / seconds:9.1f}")
    print(f"target: {FLOOR:.0f} times as fast")


if __name__ == "__main__":
    main()

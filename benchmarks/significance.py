"""Time of a paired permutation test of corpus BLEU-4: from stored counts, and with recounting in every trial.

    python benchmarks/significance.py [--n 500] [--trials 10000] [--recounted 40]

The baseline swaps the reports of two systems and counts their n-grams again in every trial, as a test must that knows a
metric only as a function of texts. It gets tokenised texts, and its time is extrapolated from a few dozen trials. The
time of cxrlab includes tokenisation, counting, all trials, and a bootstrap interval that the baseline does not compute.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import count, islice

import numpy as np

from cxrlab.core.randomness import generator
from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import draw_patient
from cxrlab.metrics.base import Metric, Tally
from cxrlab.metrics.bleu import coco_bleu, rows_of_words
from cxrlab.metrics.statistics.intervals import Resamples
from cxrlab.metrics.statistics.paired_tests import PairedDifference, paired_difference
from cxrlab.metrics.tokenization import coco_words

FLOOR = 1000.0  # target speed-up over recounting
SEED = 5
CARD = Metric("bleu4:coco", "higher", (0.0, 1.0), None, "none")
Words = tuple[str, ...]


def texts(n: int) -> tuple[list[str], list[str], list[str]]:
    """References and the reports of two systems: three different reports of each visit."""
    visits = ((f"p{number}", visit) for number in count() for visit in draw_patient(SEED, f"p{number}").visits)
    sides: tuple[list[str], list[str], list[str]] = ([], [], [])
    for patient, visit in islice(visits, n):
        for side, name in zip(sides, ("reference", "a", "b"), strict=True):
            report = narrate(visit, SEED, f"{patient}-{visit.number}-{name}").report
            side.append(f"{report.findings} {report.impression}")
    return sides


def tally(references: Sequence[str], candidates: Sequence[str]) -> Tally:
    """Counts of one system, from its texts."""
    rows = rows_of_words([coco_words(text) for text in references], [coco_words(text) for text in candidates])
    return Tally(CARD, rows, np.ones(len(rows), dtype=bool), partial(coco_bleu, order=4))


def recounted_bleu(references: Sequence[Words], candidates: Sequence[Words]) -> float:
    """Corpus BLEU-4 from tokens, without stored counts."""
    matches, runs = [0.0] * 4, [0.0] * 4
    for reference, candidate in zip(references, candidates, strict=True):
        for order in range(1, 5):
            in_candidate = Counter(candidate[k : k + order] for k in range(len(candidate) - order + 1))
            in_reference = Counter(reference[k : k + order] for k in range(len(reference) - order + 1))
            matches[order - 1] += (in_candidate & in_reference).total()
            runs[order - 1] += in_candidate.total()
    length = sum(map(len, candidates)) / sum(map(len, references))
    value = math.prod((match + 1e-15) / (run + 1e-9) for match, run in zip(matches, runs, strict=True)) ** 0.25
    return value * math.exp(min(0.0, 1 - 1 / length))


def recounted_test(sides: Sequence[Sequence[Words]], trials: int) -> tuple[float, float, float]:
    """Difference b − a, p, and seconds per trial."""
    references, a, b = sides
    observed = recounted_bleu(references, b) - recounted_bleu(references, a)
    rng = generator(SEED, "peer")
    beyond, start = 0, time.perf_counter()
    for _ in range(trials):
        swap = rng.random(len(a)) < 0.5
        first = [y if swapped else x for x, y, swapped in zip(a, b, swap, strict=True)]
        second = [x if swapped else y for x, y, swapped in zip(a, b, swap, strict=True)]
        trial = recounted_bleu(references, second) - recounted_bleu(references, first)
        beyond += abs(trial) >= abs(observed) - 1e-12
    return observed, (beyond + 1) / (trials + 1), (time.perf_counter() - start) / trials


def stored_counts_test(sides: Sequence[Sequence[str]], trials: int) -> tuple[PairedDifference, float]:
    """The test from stored counts, and its seconds, tokenisation included."""
    references, a, b = sides
    start = time.perf_counter()
    names = [str(number) for number in range(len(a))]
    found = paired_difference(
        tally(references, a), tally(references, b), names, trials=trials, rng=generator(SEED, "ours")
    )
    return found, time.perf_counter() - start


def intervals_s(n: int, metrics: int) -> float:
    """Seconds for the intervals of many metrics with ten columns each, without shared columns."""
    rng = generator(SEED, "rows")
    ones = np.ones(n, dtype=bool)
    tallies = [
        Tally(CARD, rng.integers(1, 40, (n, 10)).astype(np.float64), ones, partial(coco_bleu, order=4))
        for _ in range(metrics)
    ]
    start = time.perf_counter()
    Resamples([str(number) for number in range(n)], rng=rng).estimates(tallies)
    return time.perf_counter() - start


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--recounted", type=int, default=40)
    parser.add_argument("--metrics", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=2461)
    args = parser.parse_args()
    sides = texts(args.n)
    found, stored_s = stored_counts_test(sides, args.trials)
    observed, p, trial_s = recounted_test([[coco_words(text) for text in side] for side in sides], args.recounted)
    if abs(observed - found.difference) > 1e-9:
        raise SystemExit(f"The differences disagree: {observed} recounted, {found.difference} from stored counts.")
    chance = math.sqrt(found.p * (1 - found.p) / args.recounted) + 1 / args.recounted
    if abs(p - found.p) > 4 * chance:
        raise SystemExit(f"The p-values disagree beyond chance: {p} recounted, {found.p} from stored counts.")
    words = sum(len(text.split()) for text in sides[0]) / args.n
    print(f"{args.n} reports of {words:.0f} words on average, {args.trials} permutations, corpus BLEU-4")
    print(f"difference {found.difference:+.6f}, equal in both; p {found.p:.4f} from stored counts, {p:.4f} recounted")
    print(
        f"recounted:     {trial_s * args.trials:9.1f} s, extrapolated from {args.recounted} trials of {trial_s:.3f} s"
    )
    print(f"stored counts: {stored_s:9.3f} s, from texts to p-value and interval")
    print(f"ratio:         {trial_s * args.trials / stored_s:9.0f}   (target: {FLOOR:.0f})")
    seconds = intervals_s(args.pairs, args.metrics)
    print(f"intervals of {args.metrics} metrics over {args.pairs} pairs, 1000 resamples: {seconds:.2f} s")


if __name__ == "__main__":
    main()

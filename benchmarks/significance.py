"""A paired permutation test of corpus BLEU-4: from rows of counts, beside counting every trial again.

    python benchmarks/significance.py [--n 500] [--trials 10000] [--recounted 40]

The peer swaps the two systems' reports and counts their n-grams anew in every trial, which is what a
test does that knows a metric only as a function of texts. It is given the words already split, a few
dozen of its trials are timed, and the rest is extrapolated from those and said to be. Ours is timed
from the texts on: splitting, counting, all trials, and a bootstrap interval that the peer does not give.
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
from cxrlab.findings.cases import draw_patient
from cxrlab.findings.narrator import narrate
from cxrlab.metrics.bleu import coco_bleu, rows_of_words
from cxrlab.metrics.statistics.intervals import Resamples
from cxrlab.metrics.statistics.paired_tests import PairedDifference, paired_difference
from cxrlab.metrics.tally import Metric, Tally
from cxrlab.metrics.tokenization import coco_words

FLOOR = 1000.0  # times as fast as counting again, which the project promises
SEED = 5
CARD = Metric("bleu4:coco", "higher", (0.0, 1.0), None, "none")
Words = tuple[str, ...]


def texts(n: int) -> tuple[list[str], list[str], list[str]]:
    """References and two systems: each tells the same visit under another name, and so in other words."""
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
    """Corpus BLEU-4 from words, everything counted on the spot."""
    matches, runs = [0.0] * 4, [0.0] * 4
    for reference, candidate in zip(references, candidates, strict=True):
        for order in range(1, 5):
            said = Counter(candidate[k : k + order] for k in range(len(candidate) - order + 1))
            told = Counter(reference[k : k + order] for k in range(len(reference) - order + 1))
            matches[order - 1] += (said & told).total()
            runs[order - 1] += said.total()
    length = sum(map(len, candidates)) / sum(map(len, references))
    value = math.prod((match + 1e-15) / (run + 1e-9) for match, run in zip(matches, runs, strict=True)) ** 0.25
    return value * math.exp(min(0.0, 1 - 1 / length))


def peer(sides: Sequence[Sequence[Words]], trials: int) -> tuple[float, float, float]:
    """Difference b − a, p, and seconds a trial."""
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


def ours(sides: Sequence[Sequence[str]], trials: int) -> tuple[PairedDifference, float]:
    """The test, and seconds from the texts on."""
    references, a, b = sides
    start = time.perf_counter()
    names = [str(number) for number in range(len(a))]
    found = paired_difference(
        tally(references, a), tally(references, b), names, trials=trials, rng=generator(SEED, "ours")
    )
    return found, time.perf_counter() - start


def intervals_s(n: int, metrics: int) -> float:
    """Seconds for the intervals of many metrics of ten columns each, none of them shared."""
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
    found, our_s = ours(sides, args.trials)
    observed, p, trial_s = peer([[coco_words(text) for text in side] for side in sides], args.recounted)
    if abs(observed - found.difference) > 1e-9:
        raise SystemExit(f"the differences disagree: {observed} counted again, {found.difference} from rows")
    chance = math.sqrt(found.p * (1 - found.p) / args.recounted) + 1 / args.recounted
    if abs(p - found.p) > 4 * chance:
        raise SystemExit(f"p disagrees beyond chance: {p} counted again, {found.p} from rows")
    words = sum(len(text.split()) for text in sides[0]) / args.n
    print(f"{args.n} reports of {words:.0f} words on average, {args.trials} swaps, BLEU-4 of the corpus")
    print(f"difference {found.difference:+.6f}, equal both ways; p {found.p:.4f} from rows, {p:.4f} counted again")
    print(
        f"counted again: {trial_s * args.trials:9.1f} s, extrapolated from {args.recounted} trials of {trial_s:.3f} s"
    )
    print(f"from rows:     {our_s:9.3f} s, texts to p and interval")
    print(f"ratio:         {trial_s * args.trials / our_s:9.0f}   (promised: {FLOOR:.0f})")
    seconds = intervals_s(args.pairs, args.metrics)
    print(f"intervals of {args.metrics} metrics over {args.pairs} pairs, 1000 resamples: {seconds:.2f} s")


if __name__ == "__main__":
    main()

"""Coverage of the intervals of `score` and `compare`, and how often a non-inferiority gate passes a worse system.

    python experiments/interval_coverage.py [--pool 3000] [--runs 1000] [--patients 5 10 20 30 60 120] [--seed 11]

Two systems report on a pool of phantom patients, each with one to four visits, with planted errors. The error rate is
drawn once per patient, so that patients and not reports are independent. The second system makes the same errors and
some more. The value on the whole pool is the truth. Sets of n patients are drawn from the pool with replacement, and
each gets the intervals of `cxrlab score` and the paired interval of `compare`.

Coverage is the share of sets whose 95 % interval contains the truth. Also printed are the mean width, and the coverage
of the plain percentile interval on the same resamples. `pass` is the share of sets in which a non-inferiority gate
passes the worse second system, with a margin equal to its true deficit (nominal: 2.5 %) and with 0.02. The gate's
minimum number of patients is not applied: with its default of 30 no smaller set passes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.randomness import generator
from cxrlab.findings.planted_errors import draw_error_plan, mistaken
from cxrlab.findings.simulated_patients import draw_patient
from cxrlab.metrics.base import Tally, families
from cxrlab.metrics.report_pairs import Batch, Context, Pair
from cxrlab.metrics.statistics.intervals import METHOD, Estimate, ResampledValue, Resamples

METRICS = ("findings.f1", "rougeL:coco", "bleu4:coco", "errors.significant")
GATED = "findings.f1"
MARGIN = 0.02
Pool = dict[str, Tally]


def drawn_pool(patients: int, seed: int) -> tuple[list[str], Pool, Pool]:
    """Patient of each pair, and the tallies of both systems."""
    first: list[Pair] = []
    second: list[Pair] = []
    for number in range(patients):
        name = f"p{number:05d}"
        rng = generator(seed, "rates", name)
        rate, more = rng.gamma(1.0, 1.5), rng.gamma(0.5, 1.2)
        for visit in draw_patient(seed, name).visits:
            key = f"{name}-{visit.number}"
            count = int(rng.poisson(rate))
            for side, mistakes in ((first, count), (second, count + int(rng.poisson(more)))):
                pair = mistaken(visit, seed, key, draw_error_plan(generator(seed, "plan", key), visit, mistakes))
                texts = pair.reference.report.findings, pair.candidate.report.findings
                side.append(Pair(key, *texts, name, None, Context(age=visit.age)))
    one, two = (_tallies(Batch(pairs)) for pairs in (first, second))
    return [pair.patient or "" for pair in first], one, two


def _tallies(batch: Batch) -> Pool:
    found = {tally.metric.name: tally for family in families(METRICS) for tally in family.tallies(batch)}
    return {name: found[name] for name in METRICS}


def main() -> None:
    """Draw, count, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pool", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--patients", type=int, nargs="+", default=[5, 10, 20, 30, 60, 120])
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    patients, one, two = drawn_pool(args.pool, args.seed)
    by_patient = np.split(np.arange(len(patients)), np.flatnonzero(np.array(patients[1:]) != patients[:-1]) + 1)
    gap = two[GATED].value - one[GATED].value
    truth = {**{name: tally.value for name, tally in one.items()}, "difference": gap}
    print(f"Intervals: {METHOD}. {len(patients)} reports of {len(by_patient)} patients, {args.runs} sets of each size.")
    print(f"Truth: {', '.join(f'{name} {value:.3f}' for name, value in truth.items())}.\n")
    heads = " | ".join(f"{name}: coverage (plain), width" for name in truth)
    gates = " | ".join(f"pass, margin {margin:.3f} (plain)" for margin in (-gap, MARGIN))
    print(f"| n | {heads} | {gates} |")
    print("|---" * (len(truth) + 3) + "|")
    for n in args.patients:
        sets = [_of_set(n, run, by_patient, one, two, args) for run in range(args.runs)]
        cells = []
        for name, true in truth.items():
            ends = np.array([[found[name].estimate().ends, plain(found[name]).ends] for found in sets])
            held = ((ends[:, :, 0] <= true) & (true <= ends[:, :, 1])).mean(axis=0)
            cells.append(f"{held[0]:.1%} ({held[1]:.1%}), {(ends[:, 0, 1] - ends[:, 0, 0]).mean():.3f}")
        lows = np.array([[found["difference"].estimate().low, plain(found["difference"]).low] for found in sets])
        for margin in (-gap, MARGIN):
            shares = (lows > -margin).mean(axis=0)
            cells.append(f"{shares[0]:.1%} ({shares[1]:.1%})")
        print(f"| {n} | " + " | ".join(cells) + " |", flush=True)


def _of_set(
    n: int, run: int, by_patient: Sequence[NDArray[np.intp]], one: Pool, two: Pool, args: argparse.Namespace
) -> dict[str, ResampledValue]:
    """The first system's estimates and the difference of the gated metric on one set; a patient may be drawn twice."""
    rng = generator(args.seed, "set", str(n), str(run))
    places = [by_patient[k] for k in rng.integers(len(by_patient), size=n)]
    rows = np.concatenate(places)
    names = np.repeat([f"{number:04d}" for number in range(n)], [len(place) for place in places])
    tallies = [*one.values(), two[GATED]]
    cut = [replace(tally, rows=tally.rows[rows], defined=tally.defined[rows]) for tally in tallies]
    found = Resamples(names.tolist(), trials=args.trials, rng=rng).resample(cut)
    kept = dict(zip(one, found, strict=False))
    return {**kept, "difference": found[-1].minus(kept[GATED])}


def plain(found: ResampledValue) -> Estimate:
    """The percentile interval without any correction."""
    return Estimate(found.value, *np.nanpercentile(found.draws, [2.5, 97.5]), found.patients, "percentile bootstrap")


if __name__ == "__main__":
    main()

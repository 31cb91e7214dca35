"""How much of `clinical:rules` on RadPref is fit: weights chosen on other studies, judged on those left out.

Studies are put into folds so that no text stands in two of them: candidates of RadPref reuse the
reports of other studies. In each fold every setting of a small grid is tried on the other folds, the
best is taken, and the pairs left out are scored with it. Printed are Kendall's τ-b against the mean
rating for the weights as they ship, for the weights chosen in each fold, and for ROUGE-L, with the
paired interval of the difference.

    python experiments/radpref_weights.py --root RADPREF [--folds 5] [--seed 7]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from cxrlab.core.randomness import generator
from cxrlab.evaluation.published_benchmarks import RadPref, read_radpref
from cxrlab.findings.significance import Urgency
from cxrlab.metrics.base import Matrix, families
from cxrlab.metrics.finding_comparison import Comparison
from cxrlab.metrics.finding_scores import WEIGHTS, Weights, clinical
from cxrlab.metrics.report_pairs import Batch
from cxrlab.metrics.statistics.agreement import kendall_tau, tau_difference, tau_with_interval


def grid() -> list[Weights]:
    """The settings that are tried."""
    found = []
    for start, significant, benign, hedged, omitted_attribute in product(
        (0.1, 0.2, 0.4), (0.25, 0.5, 1.0), (0.02, 0.05, 0.1), (0.5, 1.0), (0.0, 0.05, 0.1)
    ):
        finding = {**WEIGHTS.finding, Urgency.BENIGN: benign}
        found.append(
            replace(
                WEIGHTS,
                finding=finding,
                start=start,
                significant=significant,
                hedged=hedged,
                omitted_attribute=omitted_attribute,
            )
        )
    return found


def fold_of(data: RadPref, folds: int, seed: int) -> Matrix:
    """The fold of each pair; studies that share a text are in the same one."""
    leader = {study: study for study in data.studies}

    def root(study: str) -> str:
        while leader[study] != study:
            study = leader[study]
        return study

    first: dict[str, str] = {}
    for pair in data.pairs:
        for text in (pair.reference, pair.candidate):
            key = " ".join((text or "").lower().split())
            leader[root(pair.patient)] = root(first.setdefault(key, pair.patient))
    groups = sorted({root(study) for study in leader})
    order = generator(seed, "radpref", "folds").permutation(len(groups))
    place = {groups[index]: rank % folds for rank, index in enumerate(order)}
    return np.array([place[root(study)] for study in data.studies])


def scored(comparisons: list[Comparison], weights: Weights) -> Matrix:
    """The score of every pair, 0 for a candidate that says nothing of the image, as in `clinical:rules`."""
    return np.array([0.0 if comparison.states_nothing else clinical(comparison, weights) for comparison in comparisons])


def main() -> None:
    """Read, choose, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="the folder of RadPref")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    data = read_radpref(chosen.root)
    batch = Batch(data.pairs)
    comparisons = [comparison for comparison in batch.comparisons if comparison is not None]
    folds = fold_of(data, chosen.folds, chosen.seed)
    settings = grid()
    values = np.stack([scored(comparisons, weights) for weights in settings])
    held = np.empty(len(data.pairs))
    apart = []
    for fold in range(chosen.folds):
        out = folds == fold
        best = max(range(len(settings)), key=lambda k: kendall_tau(values[k, ~out], data.mean[~out]))
        held[out] = values[best, out]
        apart.append(kendall_tau(held[out], data.mean[out]))
    rouge = next(t for f in families(["rougeL:google"]) for t in f.tallies(batch)).by_pair
    shipped = scored(comparisons, WEIGHTS)
    print(
        f"{len(data.pairs)} pairs of {len(set(data.studies))} studies, {len(settings)} settings, {chosen.folds} folds"
    )
    for name, column in (("as shipped", shipped), ("chosen on other studies", held), ("rougeL:google", rouge)):
        tau = tau_with_interval(column, data.mean, data.studies, rng=generator(chosen.seed, "tau"))
        above = tau_difference(column, rouge, data.mean, data.studies, rng=generator(chosen.seed, "difference"))
        print(f"{name:26} tau {tau.tau:.3f} [{tau.low:.3f}, {tau.high:.3f}]   ", end="")
        print(f"above ROUGE-L {above.difference:+.3f} [{above.low:+.3f}, {above.high:+.3f}]")
    best = max(kendall_tau(column, data.mean) for column in values)
    print(f"best setting on all studies (fit): {best:.3f}; mean of the folds' own tau: {np.mean(apart):.3f}")


if __name__ == "__main__":
    main()

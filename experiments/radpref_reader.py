"""Preference noise of each reader of RadPref, fitted with several metrics as the reward.

A reader prefers report A to B with probability lapse / 2 + (1 - lapse) * logistic((r(A) - r(B)) / scale), where r is
the value of a metric on the words alone, without age and indication, as a judge sees them. Preferences are the order of
a reader's two ratings; equal ratings count as half a preference each way, as of a reader who must choose and flips a
coin (--ties out leaves them out). Printed are the log loss of every metric (a coin's is 0.693): fitted; on studies that
share no text with those of the fit; and on readers who were not of the fit either. Of the metric with the least loss on
other studies: scale and lapse of each reader with intervals by study, which the judge `reader:rules` has as constants,
and how often it agrees with the readers, and they among themselves.

    python experiments/radpref_reader.py --root RADPREF [--ties half|out] [--trials 1000] [--seed 7]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.randomness import generator
from cxrlab.evaluation.published_benchmarks import RadPref, read_radpref
from cxrlab.evaluation.validate_metrics import score_pairs
from cxrlab.metrics.base import Matrix
from cxrlab.metrics.report_pairs import Batch, Context
from cxrlab.metrics.statistics.intervals import Estimate, ResampledValue, Resamples
from cxrlab.preference.candidate_files import same_text
from cxrlab.preference.judges import ReaderNoise

BASES = ("errors.significant", "errors.total", "green:rules", "clinical:rules", "crimson:rules")
# Fits look through all of these: likelihoods of few pairs have several tops, and a ridge between scale and lapse.
_SCALES = np.logspace(-2, 2, 267)  # as multiples of the root mean square of the differences; steps of 3.5 %
_LAPSES = np.linspace(0.0, 1.0, 101)
_LARGEST = 700.0  # exp of more is infinite


@dataclass(frozen=True)
class Compared:
    """Every two candidates of a study that a reader rated both.

    Args:
        first: Place of the one among the benchmark's pairs [N].
        second: Place of the other [N].
        shares: 1 where the reader prefers the first, 0 the second, 0.5 neither [N, readers]; NaN if not rated.
        studies: Of each comparison [N].
        apart: Whether the studies of two comparisons share no text [N, N].
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    shares: Matrix
    studies: tuple[str, ...]
    apart: NDArray[np.bool_]


@dataclass(frozen=True)
class Losses:
    """Log loss of one metric, by comparison and reader [N, readers], on the comparisons that the reader decided on."""

    fitted: Matrix
    other_studies: Matrix
    other_readers: Matrix


def compared(data: RadPref, ties: str) -> Compared:
    """The comparisons of a benchmark; `ties` is half or out."""
    studies = np.array(data.studies)
    pairs = [(i, j) for i, j in combinations(range(len(studies)), 2) if studies[i] == studies[j]]
    first, second = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    shares = (np.sign(data.ratings[first] - data.ratings[second]) + 1) / 2
    if ties == "out":
        shares[shares == 0.5] = np.nan
    texts: dict[str, set[str]] = {}
    for pair in data.pairs:
        texts.setdefault(pair.patient, set()).update(same_text(text or "") for text in (pair.reference, pair.candidate))
    named = tuple(str(studies[place]) for place in first)
    apart = np.array([[texts[one].isdisjoint(texts[other]) for other in named] for one in named])
    return Compared(first, second, shares, named, apart)


def losses(by: Matrix, found: Compared) -> Losses:
    """Of a metric with these differences [N]."""
    readers = found.shares.shape[1]
    known, shares = ~np.isnan(found.shares), np.nan_to_num(found.shares, nan=0.5)
    apart = found.apart.astype(np.float64)
    fitted, left, others = (np.full(shares.shape, np.nan) for _ in range(3))
    for reader in range(readers):
        rated, rest = known[:, reader], [other for other in range(readers) if other != reader]
        alone = fit_noise(by[rated], shares[rated, reader])[0]
        fitted[rated, reader] = log_loss(alone, by[rated], shares[rated, reader])
        own = fit_noise(by, shares[:, reader], apart * rated)
        weights = np.concatenate([apart * known[:, other] for other in rest], axis=1)
        other_noise = fit_noise(np.tile(by, len(rest)), shares[:, rest].T.reshape(-1), weights)
        for place in np.flatnonzero(rated):
            one = by[place : place + 1], shares[place : place + 1, reader]
            left[place, reader] = log_loss(own[place], *one)[0]
            others[place, reader] = log_loss(other_noise[place], *one)[0]
    return Losses(fitted, left, others)


@dataclass(frozen=True)
class FittedNoise:
    """A fit with its uncertainty.

    Args:
        noise: Of the greatest likelihood.
        scale: Interval by study.
        lapse: Interval by study.
        n: Comparisons that entered.
    """

    noise: ReaderNoise
    scale: Estimate
    lapse: Estimate
    n: int


def fit_noise(differences: ArrayLike, shares: ArrayLike, weights: Matrix | None = None) -> list[ReaderNoise]:
    """The noise of the greatest likelihood, for every row of weights.

    Found on a grid: the scale to 3.5 %, the lapse to 0.01. Of equal likelihoods the smallest scale is taken, then the
    smallest lapse.

    Args:
        differences: r(first) − r(second) of each comparison [N].
        shares: 1 where the first was preferred, 0 where the second was, 0.5 for a tie: half a preference each way,
            as of a reader who must choose and flips a coin [N].
        weights: How often each comparison counts [T, N]; every one once, in a single row, when None.
    """
    by, preferred = np.asarray(differences, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    rows = np.ones((1, len(by))) if weights is None else weights
    size = float(np.sqrt(np.mean(by**2))) if len(by) else 0.0
    if not size > 0.0:
        raise DataError("no two compared reports differ in reward, so that no reader's noise can be fitted to them.")
    best = np.full(len(rows), -np.inf)
    scales, lapses = np.empty(len(rows)), np.empty(len(rows))
    for scale in _SCALES * size:
        likelihood = -_loss(by, preferred, scale, _LAPSES[:, None]) @ rows.T
        at = likelihood.argmax(axis=0)
        top = likelihood[at, np.arange(len(rows))]
        above = top > best
        best[above], scales[above], lapses[above] = top[above], scale, _LAPSES[at[above]]
    return [ReaderNoise(float(scale), float(lapse)) for scale, lapse in zip(scales, lapses, strict=True)]


def noise_with_interval(
    differences: ArrayLike,
    shares: ArrayLike,
    studies: Sequence[str],
    *,
    trials: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> FittedNoise:
    """The fit and the intervals of scale and lapse, whole studies drawn again.

    Args:
        differences: See `fit_noise`.
        shares: See `fit_noise`.
        studies: The study of each comparison [N].
        trials: Resamples.
        level: Of the intervals.
        rng: Source of the resamples.
    """
    draws = Resamples(studies, trials=trials, rng=rng)
    found: list[ReaderNoise] = []
    for _, times in draws.weights():
        found += fit_noise(differences, shares, times[:, draws.clusters.codes])
    noise = fit_noise(differences, shares)[0]
    # A fit takes too long to be made again without each study.
    scale, lapse = (
        ResampledValue(
            getattr(noise, key), np.array([getattr(one, key) for one in found]), np.empty(0), draws.clusters.count, span
        ).estimate(level)
        for key, span in (("scale", (0.0, np.inf)), ("lapse", (0.0, 1.0)))
    )
    return FittedNoise(noise, scale, lapse, len(studies))


def log_loss(noise: ReaderNoise, differences: ArrayLike, shares: ArrayLike) -> Matrix:
    """−log P of what was preferred, in nats, of each comparison [N]; a coin's is log 2.

    Args:
        noise: Of the reader.
        differences: See `fit_noise`.
        shares: See `fit_noise`.
    """
    by, preferred = np.asarray(differences, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    return _loss(by, preferred, noise.scale, np.array(noise.lapse))


def _loss(differences: Matrix, shares: Matrix, scale: float, lapse: Matrix) -> Matrix:
    """Both sides from their own logistic: 1 − p is nothing where p rounds to 1."""
    won, lost = (_preferred(sign * differences, scale, lapse) for sign in (1, -1))
    found: Matrix = -(shares * np.log(won) + (1 - shares) * np.log(lost))
    return found


def _preferred(differences: Matrix, scale: float, lapse: Matrix) -> Matrix:
    """P(first over second), as `ReaderNoise.probability` has it, for many lapses at once [L, N]."""
    steep = np.clip(differences / scale, -_LARGEST, _LARGEST)
    found: Matrix = lapse / 2 + (1 - lapse) / (1 + np.exp(-steep))
    return found


def above_with_interval(loss: Matrix, least: Matrix, studies: tuple[str, ...], trials: int, seed: int) -> str:
    """Mean loss above that of the best metric, with its interval by study."""
    more = np.nansum(loss - least, axis=1)
    rated = (~np.isnan(loss)).sum(axis=1)
    draws = Resamples(studies, trials=trials, rng=generator(seed, "above"))
    at = draws.clusters.codes
    found = draws.resample_value(lambda times: (times[:, at] @ more) / (times[:, at] @ rated), draws.clusters.count)
    ends = found.estimate()
    return f"{found.value:+.3f} [{ends.low:+.3f}, {ends.high:+.3f}]"


def agreement(one: Matrix, other: Matrix) -> tuple[float, float]:
    """How often two are expected to agree: where the other prefers one report, and on all pairs, a tie being a coin.

    Args:
        one: Probability that it prefers the first report; 0.5 for a tie.
        other: The same of the other.
    """
    both = one * other + (1 - one) * (1 - other)
    return float(np.nanmean(both[other != 0.5])), float(np.nanmean(both))


def largest_lapse(by: Matrix, shares: Matrix) -> float:
    """The largest lapse whose likelihood is within 1.92 of the greatest, the scale being free.

    The greatest is often at a lapse of 0, the end of the range, where resamples hardly move it.
    """
    lapses, scales = np.linspace(0, 1, 51), np.logspace(-2, 1, 61) * np.sqrt(np.mean(by**2))
    best = [min(log_loss(ReaderNoise(scale, lapse), by, shares).sum() for scale in scales) for lapse in lapses]
    return float(lapses[np.array(best) <= min(best) + 1.92].max())


def metric_table(differences: dict[str, Matrix], found: Compared, trials: int, seed: int) -> str:
    """Print the loss of every metric; the name of that with the least on other studies."""
    of = {name: losses(by, found) for name, by in differences.items()}
    best = min(of, key=lambda name: float(np.nanmean(of[name].other_studies)))
    print("\n| metric | agrees | ties | fitted | other studies | other readers | above the best, other studies |")
    print("|---|--:|--:|--:|--:|--:|---|")
    for name, by in differences.items():
        order = np.repeat(((np.sign(by) + 1) / 2)[:, None], found.shares.shape[1], axis=1)
        means = [np.nanmean(one) for one in (of[name].fitted, of[name].other_studies, of[name].other_readers)]
        above = above_with_interval(of[name].other_studies, of[best].other_studies, found.studies, trials, seed)
        print(f"| {name} | {agreement(order, found.shares)[0]:.3f} | {int((by == 0).sum())} | ", end="")
        print(" | ".join(f"{mean:.3f}" for mean in means), "|", "–" if name == best else above, "|")
    return best


def reader_table(by: Matrix, found: Compared, names: tuple[str, ...], trials: int, seed: int) -> list[ReaderNoise]:
    """Print the fit of every reader; their noises."""
    print("\n| reader | scale, 95 % by study | lapse | lapse by likelihood, up to | agrees with that reader |")
    print("|---|---|---|--:|--:|")
    fits = []
    for name, shares in zip(names, found.shares.T, strict=True):
        rated = ~np.isnan(shares)
        studies = [study for study, known in zip(found.studies, rated, strict=True) if known]
        fit = noise_with_interval(by[rated], shares[rated], studies, trials=trials, rng=generator(seed, "readers"))
        share = agreement(fit.noise.probability(by[rated]), shares[rated])[0]
        print(f"| {name} | {fit.noise.scale:.3f} [{fit.scale.low:.3f}, {fit.scale.high:.3f}] | ", end="")
        print(f"{fit.noise.lapse:.2f} [{fit.lapse.low:.2f}, {fit.lapse.high:.2f}] | ", end="")
        print(f"{largest_lapse(by[rated], shares[rated]):.2f} | {share:.3f} |")
        fits.append(fit.noise)
    return fits


def agreement_table(by: Matrix, found: Compared, fits: list[ReaderNoise]) -> None:
    """Print how often the judge, its base and the readers agree."""
    readers = found.shares.T
    drawn = np.mean([fit.probability(by) for fit in fits], axis=0)  # one of them judges, drawn anew for every study
    places = list(permutations(range(len(readers)), 2))
    ones, others = (readers[[pair[side] for pair in places]] for side in (0, 1))
    rows = {
        "the metric itself with a reader": agreement(np.tile((np.sign(by) + 1) / 2, (len(readers), 1)), readers),
        "reader:rules with a reader": agreement(np.tile(drawn, (len(readers), 1)), readers),
        "reader:rules with itself, drawn anew": (np.nan, agreement(drawn, drawn)[1]),  # it has no ties
        "a reader with another": agreement(ones, others),
    }
    print("\n| expected to agree | where the reader prefers one | on all pairs, a tie being a coin |")
    print("|---|--:|--:|")
    for name, shares in rows.items():
        print(f"| {name} |", " | ".join("–" if np.isnan(share) else f"{share:.3f}" for share in shares), "|")
    decided = (np.abs(ones - 0.5) == 0.5) & (np.abs(others - 0.5) == 0.5)
    same = int((decided & (ones == others)).sum()) // 2
    print(f"two readers who both prefer one prefer the same in {same} of {int(decided.sum()) // 2}")


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--ties", choices=("half", "out"), default="half")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    data = read_radpref(chosen.root)
    found = compared(data, chosen.ties)
    values = score_pairs(Batch([replace(pair, context=Context()) for pair in data.pairs]), BASES)
    differences = {name: values[name][found.first] - values[name][found.second] for name in BASES}
    decided = dict(zip(data.raters, (np.abs(found.shares - 0.5) == 0.5).sum(axis=0), strict=True))
    counts = ", ".join(f"{name} {count}" for name, count in decided.items())
    print(f"{len(found.first)} pairs of reports of {len(set(data.studies))} studies; preferences: {counts}")
    best = metric_table(differences, found, chosen.trials, chosen.seed)
    print(f"\nbase: {best}")
    fits = reader_table(differences[best], found, data.raters, chosen.trials, chosen.seed)
    agreement_table(differences[best], found, fits)


if __name__ == "__main__":
    main()

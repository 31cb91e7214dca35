"""What is measured of what a model said: each quantity with its value, its resampled values and its denominator.

All quantities of an audit are drawn on the same resamples of patients, so that the difference of two quantities'
draws is a paired one, whatever the two are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.records import Finding, chexpert_labels
from cxrlab.core.vocabulary import OBSERVATIONS, Side
from cxrlab.findings.merge import merged
from cxrlab.metrics.classification import brier, expected_calibration_error
from cxrlab.metrics.families import cards, families
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.statistics.bootstrap import BLOCK, Resamples
from cxrlab.metrics.statistics.intervals import Estimate, ResampledValue
from cxrlab.metrics.tally import Matrix, Metric, Tally, mean_of, mean_tally, ratio
from cxrlab.robustness.evidence import Evidence, Flags, Said

if TYPE_CHECKING:
    from cxrlab.findings.reader import Reading


Direction = Literal["higher", "lower", "neither"]

# Tested when two models are compared; few, since every test more makes each of them harder to pass.
HEADLINE = ("asked.accuracy", "asked.confidence", "findings.f1", "errors.significant", "report.confidence", "flip_rate")
AUROC = "asked.auroc"
ECE = "asked.ece"
LEVEL = 0.95

_LOWER = frozenset({"asked.brier", ECE, "report.loss", "errors.significant", "errors.added"})
# All others are shares and probabilities.
_SPANS = {"report.loss": (0.0, np.inf), "errors.added": (-np.inf, np.inf)}
_NEITHER = frozenset({"asked.confidence", "report.confidence"})
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
_ASKED = "studies whose known labels were not asked about"
_NO_REPORT = "studies without a report"


@dataclass(frozen=True, eq=False)
class Quantity:
    """One number of one model under one condition.

    Args:
        name: Such as asked.accuracy.
        resampled: Its value over all studies, not-a-number where nothing defines it, and in every resample.
        n: What it is a mean over: pairs of study and label, or studies.
        direction: Which way is better; neither for a confidence.
        tally: Its counts, kept of the quantities that are tested.
    """

    name: str
    resampled: ResampledValue
    n: int
    direction: Direction
    tally: Tally | None = None

    @property
    def value(self) -> float:
        """Over all studies."""
        return self.resampled.value

    def estimate(self, level: float = LEVEL) -> Estimate:
        """The value with its interval by patient."""
        return self.resampled.estimate(level)

    def to_json(self) -> dict[str, Any]:
        """Value, ends of the interval and n; null where undefined."""
        return {**ends(self), "n": self.n}


def ends(found: Quantity | ResampledValue) -> dict[str, float]:
    """A value and its interval."""
    return dict(zip(("value", "low", "high"), (found.value, *found.estimate(LEVEL).ends), strict=True))


def change(after: Quantity, before: Quantity) -> ResampledValue:
    """What `after` has more than `before`, paired by resample."""
    return after.resampled.minus(before.resampled)


def direction_of(name: str) -> Direction:
    """Which way is better; a share of flips is better low."""
    if name in _NEITHER:
        return "neither"
    return "lower" if name in _LOWER or "flip" in name else "higher"


def card(name: str, undefined: str = "") -> Metric:
    """The card of a tally of this room; a metric that has no better side is filed under higher."""
    direction = direction_of(name)
    span = _SPANS.get(name, (0.0, 1.0))
    return Metric(name, "higher" if direction == "neither" else direction, span, None, undefined)


class KeptResamples(Resamples):
    """Resamples that are asked hundreds of times: their draws are kept as long as they fit into one block."""

    _kept: tuple[tuple[int, Matrix], ...] | None = None

    def weights(self) -> Iterator[tuple[int, Matrix]]:
        """As of `Resamples`."""
        if self.trials * self.clusters.count > BLOCK:
            return super().weights()
        if self._kept is None:
            self._kept = tuple(super().weights())
        return iter(self._kept)


def quantities(tallies: Mapping[str, Tally], resamples: Resamples) -> dict[str, Quantity]:
    """Tallies by name into quantities of these names."""
    estimates = resamples.resample(list(tallies.values()))
    return {
        name: Quantity(
            name,
            estimate,
            counted(tally),
            direction_of(name),
            replace(tally, metric=card(name)) if name in HEADLINE else None,
        )
        for (name, tally), estimate in zip(tallies.items(), estimates, strict=True)
    }


def counted(tally: Tally) -> int:
    """The denominator of a mean, or of an error by bins; else the studies that entered."""
    if tally.value_of is mean_of:
        return int(tally.rows[:, 1].sum())
    return int(tally.rows[:, tally.rows.shape[1] // 2 :].sum()) if tally.metric.name == "ece" else tally.n


def mean_of_cells(name: str, cells: Matrix) -> Tally:
    """The mean over all cells [N, L] that are numbers, a row a study."""
    known = ~np.isnan(cells)
    rows = np.stack([np.where(known, cells, 0.0).sum(axis=1), known.sum(axis=1).astype(np.float64)], axis=1)
    return Tally(card(name, _ASKED), rows, rows[:, 1] > 0, mean_of)


def asked_tallies(said: Said, truth: Matrix) -> dict[str, Tally]:
    """Everything that is counted from probabilities, over all pairs of a study and a label that is known of it."""
    probs = np.where(np.isnan(truth), np.nan, said.probs)
    return {
        "asked.accuracy": mean_of_cells("asked.accuracy", right(probs, truth)),
        "asked.confidence": mean_of_cells("asked.confidence", confidence(probs)),
        "asked.truth": mean_of_cells("asked.truth", np.where(truth == 1, probs, 1 - probs)),
        "asked.brier": brier(probs, truth),
        ECE: expected_calibration_error(probs, truth),
    }


def written_tallies(said: Said, truth: Matrix) -> dict[str, Tally]:
    """What is counted from reports without reading them again."""
    wrote = np.where(np.isnan(truth) | ~said.written[:, None], np.nan, said.labels)
    sure = np.where(said.written, np.exp(said.logprob), np.nan)
    return {
        "written.accuracy": mean_of_cells("written.accuracy", agreement(wrote, truth)),
        "report.confidence": mean_tally(card("report.confidence", _NO_REPORT), sure),
        "report.loss": mean_tally(card("report.loss", _NO_REPORT), said.loss),
    }


def right(probs: Matrix, truth: Matrix) -> Matrix:
    """1 where the answer (present above 0.5) is the truth, 0 where not, not-a-number where either is unknown."""
    return agreement(np.where(np.isnan(probs), np.nan, probs > 0.5), truth)


def agreement(given: Matrix, truth: Matrix) -> Matrix:
    """1 where two labels are the same, 0 where not, not-a-number where either is unknown."""
    return np.where(np.isnan(given) | np.isnan(truth), np.nan, given == truth)


def confidence(probs: Matrix) -> Matrix:
    """The probability of the answer given, from 0.5 to 1."""
    return np.maximum(probs, 1 - probs)


def mean_auroc(probs: Matrix, truth: Matrix, resamples: Resamples) -> Quantity:
    """The area under the curve, the mean over the labels of which both kinds are known.

    A resample that holds only one kind of a label leaves that label out of its mean.

    Args:
        probs: Of being present, [N, L].
        truth: 1 or 0, [N, L]; not-a-number where unknown.
        resamples: Patients of the N studies.
    """
    labels = list(_usable(probs, truth))
    known = ~np.isnan(truth[:, labels]) & ~np.isnan(probs[:, labels])

    def mean_area(weights: Matrix) -> Matrix:
        times = weights.T.astype(np.float32)[resamples.clusters.codes]
        return _mean([_areas(probs[:, label], truth[:, label], times) for label in labels], len(weights))

    patients = resamples.clusters.count_with(known.sum(axis=1) > 0)
    return Quantity(AUROC, resamples.resample_value(mean_area, patients, (0.0, 1.0)), int(known.sum()), "higher")


def _usable(probs: Matrix, truth: Matrix) -> Iterator[int]:
    for label in range(truth.shape[1]):
        kinds = truth[~np.isnan(probs[:, label]), label]
        if (kinds == 1).any() and (kinds == 0).any():
            yield label


def _areas(scores: Matrix, truth: Matrix, times: NDArray[np.float32]) -> Matrix:
    """As `metrics.auroc.auroc`, for draws that lie study by study [N, T]: a fifth of the time for hundreds of areas."""
    ill = np.flatnonzero((truth == 1) & ~np.isnan(scores))
    well = np.flatnonzero((truth == 0) & ~np.isnan(scores))
    well, ill = well[np.argsort(scores[well])], ill[np.argsort(scores[ill])]
    # Negatives below each positive, and those not above it; a tie counts half.
    bounds = np.concatenate([np.searchsorted(scores[well], scores[ill], side) for side in _SIDES])
    cuts, place = np.unique(np.append(bounds, 0), return_inverse=True)
    steps = np.zeros((len(cuts) + 1, times.shape[1]))
    for row, (start, stop) in enumerate(pairwise([*cuts.tolist(), len(well)])):
        if stop > start:
            np.sum(times[well[start:stop]], axis=0, out=steps[row + 1])
    below = np.cumsum(steps, axis=0)
    drawn = times[ill].astype(np.float64)
    first, last = place[: len(ill)], place[len(ill) : 2 * len(ill)]
    ahead = 0.5 * np.einsum("nt,nt->t", drawn, below[first] + below[last])
    return ratio(ahead, drawn.sum(axis=0) * below[-1])


def _mean(areas: Sequence[Matrix], trials: int) -> Matrix:
    """Mean over the labels that have an area, [T]."""
    table = np.stack(areas) if areas else np.full((1, trials), np.nan)
    count = (~np.isnan(table)).sum(axis=0)
    return ratio(np.nansum(table, axis=0), count)


FLIP_RATE = "flip_rate"
_UNDEFINED = "studies without a report on either image"


def flip_tallies(said: Said, clean: Said, truth: Matrix, scores: ScoredReports) -> dict[str, Tally]:
    """Every kind of flip, and the significant errors that were added.

    Args:
        said: Of the changed images.
        clean: Of the clean ones.
        truth: [N, L]; flips of answers are counted where the truth is known.
        scores: What the reports say.
    """
    added = scores.errors(said) - scores.errors(clean)
    return {
        **_report_flips(said, clean, scores),
        **_answer_flips(said, clean, truth),
        "errors.added": mean_tally(card("errors.added", _UNDEFINED), added),
    }


def changed_findings(said: Said, clean: Said, scores: ScoredReports) -> Matrix:
    """Observations that only one of the two reports has, not-a-number without two reports, [N]."""
    both, contents = said.written & clean.written, scores.contents
    now, before = np.where(both, said.reports, 0), np.where(both, clean.reports, 0)
    if not both.any():
        return np.full(len(both), np.nan)
    return np.where(both, (contents.present[now] != contents.present[before]).sum(axis=1), np.nan)


def flipped_reports(said: Said, clean: Said, scores: ScoredReports) -> Matrix:
    """1 where the present observations differ, 0 where not, not-a-number without two reports, [N]."""
    changed = changed_findings(said, clean, scores)
    return np.where(np.isnan(changed), np.nan, changed > 0)


def flipped_answers(said: Said, clean: Said, truth: Matrix) -> Matrix:
    """1 where an answer of yes or no turns, 0 where not, not-a-number where it was not asked or is unknown, [N, L]."""
    asked = ~(np.isnan(said.probs) | np.isnan(clean.probs) | np.isnan(truth))
    return np.where(asked, (said.probs > 0.5) != (clean.probs > 0.5), np.nan)


def _report_flips(said: Said, clean: Said, scores: ScoredReports) -> dict[str, Tally]:
    both, contents = said.written & clean.written, scores.contents
    names = ("flips.normal_to_abnormal", "flips.abnormal_to_normal", "flips.side_swapped", "flips.to_silence")
    flipped = {FLIP_RATE: flipped_reports(said, clean, scores)}
    if not both.any():
        return {name: mean_tally(card(name, _UNDEFINED), np.full(len(both), np.nan)) for name in (FLIP_RATE, *names)}
    now, before = np.where(both, said.reports, 0), np.where(both, clean.reports, 0)
    normal, silent = contents.normal, contents.silent
    abnormal = ~normal & ~silent
    swapped = (contents.left[now] & contents.right[before]) | (contents.right[now] & contents.left[before])
    values = (
        _share(abnormal[now], both & normal[before]),
        _share(normal[now], both & abnormal[before]),
        _share(swapped.sum(axis=1) > 0, both),
        _share(silent[now], both & ~silent[before]),
    )
    flipped.update(zip(names, values, strict=True))
    return {name: mean_tally(card(name, _UNDEFINED), column) for name, column in flipped.items()}


def _answer_flips(said: Said, clean: Said, truth: Matrix) -> dict[str, Tally]:
    flipped, yes = flipped_answers(said, clean, truth), clean.probs > 0.5
    return {
        "asked.flips": mean_of_cells("asked.flips", flipped),
        "asked.flips.yes_to_no": mean_of_cells("asked.flips.yes_to_no", np.where(yes, flipped, np.nan)),
        "asked.flips.no_to_yes": mean_of_cells("asked.flips.no_to_yes", np.where(yes, np.nan, flipped)),
    }


def _share(happened: Flags, among: Flags) -> Matrix:
    return np.where(among, happened, np.nan)


REPORT_METRICS = ("findings.f1", "findings.f1.side", "chexpert14.micro.f1:uncertain-positive", "errors.significant")
ERRORS = "errors.significant"

# Pairs that are scored at once; what is read of them is dropped afterwards, so that memory stays flat.
_AT_ONCE = 2048
_COLUMN = {name: number for number, name in enumerate(OBSERVATIONS)}


@dataclass(frozen=True, eq=False)
class Contents:
    """What each of T texts says.

    Args:
        present: Whether an observation is said to be there, [T, O].
        left: Whether it is said to be on the left and nowhere else, [T, O].
        right: The same for the right.
        normal: Whether the text speaks of the image and names nothing but devices and the incidental, [T].
        silent: Whether it says nothing of an image, [T].
    """

    present: Flags
    left: Flags
    right: Flags
    normal: Flags
    silent: Flags

    @classmethod
    def unread(cls, texts: int) -> Contents:
        """Room for that many texts."""
        wide = (np.zeros((texts, len(_COLUMN)), dtype=bool) for _ in range(3))
        return cls(next(wide), next(wide), next(wide), np.zeros(texts, dtype=bool), np.zeros(texts, dtype=bool))

    def put(self, row: int, reading: Reading) -> None:
        """Note what one text says."""
        things = [thing for thing in merged(reading.findings) if thing.present]
        sides: dict[str, set[Side | None]] = {}
        for thing in things:
            sides.setdefault(thing.observation, set()).add(thing.side)
        for name, named in sides.items():
            column = _COLUMN[name]
            self.present[row, column] = True
            self.left[row, column] = named == {Side.LEFT}
            self.right[row, column] = named == {Side.RIGHT}
        self.silent[row] = not reading.has_statements
        self.normal[row] = reading.has_statements and _nothing_found(things)


def _nothing_found(things: Sequence[Finding]) -> bool:
    return chexpert_labels(things, complete=False).get("No Finding") == 1


class ScoredReports:
    """Counts of the report metrics for every different pair of study and text.

    Args:
        evidence: Whose reports are scored.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.contents = Contents.unread(len(evidence.texts))
        self._codes = _different(evidence)
        self._tallies = self._scored()

    def tally(self, name: str, said: Said) -> Tally:
        """One metric of what a model wrote, a row a study; undefined where there is no report or no reference."""
        if name not in self._tallies:
            return mean_tally(cards()[name], np.full(len(said.reports), np.nan))
        whole, written = self._tallies[name], said.written
        index = np.searchsorted(self._codes, np.where(written, self._code(said), self._codes[0]))
        defined = whole.defined[index] & written
        return Tally(whole.metric, whole.rows[index] * defined[:, None], defined, whole.value_of)

    def errors(self, said: Said) -> Matrix:
        """Significant errors of each report, [N]; not-a-number where undefined."""
        return self.tally(ERRORS, said).by_pair

    def _code(self, said: Said) -> NDArray[np.int64]:
        return np.arange(len(said.reports)) * len(self._evidence.texts) + said.reports

    def _scored(self) -> dict[str, Tally]:
        parts: list[dict[str, Tally]] = []
        for batch, numbers in self._batches():
            found = {tally.metric.name: tally for family in families(REPORT_METRICS) for tally in family.tallies(batch)}
            parts.append({name: found[name] for name in REPORT_METRICS})
            for number in numbers:
                self.contents.put(number, batch.read(self._evidence.texts[number]))
        return {name: _joined([part[name] for part in parts]) for name in REPORT_METRICS} if parts else {}

    def _batches(self) -> Iterator[tuple[Batch, list[int]]]:
        """Pairs study by study, so that a reference is read once, and the numbers of the texts that are new."""
        texts, studies = self._evidence.texts, self._evidence.studies
        count = max(1, len(texts))
        # A text of several studies, such as the normal report, is kept; the others are not needed again.
        times = np.bincount(self._codes % count, minlength=count)
        shared = {texts[number] for number in np.flatnonzero(times > 1)}
        readings: dict[str, Reading] = {}
        noted: set[int] = set()
        for start in range(0, len(self._codes), _AT_ONCE):
            pairs, numbers = [], []
            for code in self._codes[start : start + _AT_ONCE].tolist():
                study, number = studies[code // count], code % count
                pairs.append(Pair(f"{study.id}|{number}", study.reference, texts[number], "", study.findings))
                if number not in noted:
                    noted.add(number)
                    numbers.append(number)
            yield Batch(pairs, readings), numbers
            for text in [text for text in readings if text not in shared]:
                del readings[text]


def _different(evidence: Evidence) -> NDArray[np.int64]:
    """Each different pair of study and text as one number, in order of the studies."""
    rows = np.arange(len(evidence.studies)) * len(evidence.texts)
    found = [np.zeros(0, np.int64)]
    for table in evidence.tables.values():
        for said in (table.image, table.uint8):
            if said is not None:
                found.append((rows + said.reports)[said.written])
    return np.unique(np.concatenate(found))


def _joined(parts: Sequence[Tally]) -> Tally:
    first = parts[0]
    rows = np.concatenate([part.rows for part in parts])
    return Tally(first.metric, rows, np.concatenate([part.defined for part in parts]), first.value_of)

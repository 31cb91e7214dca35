"""Quantities of an audit: accuracy, confidence, report metrics and flips, with intervals by patient.

The records on file become arrays: one `Table` for each model and condition, with one row per study, the studies in the
same order everywhere. All quantities are computed on the same resamples of patients, so that the difference of any two
is a paired one.

A flip is counted against what the same model returned for the clean image, right or wrong. Two reports agree when they
state the same observations as present. A report is normal when it describes the image and names nothing but devices and
incidental findings; one that states nothing about an image (empty or unintelligible) is neither normal nor abnormal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.records import chexpert_labels
from cxrlab.core.vocabulary import OBSERVATIONS, Side
from cxrlab.findings.merge_statements import merged
from cxrlab.metrics.base import Matrix, Metric, Tally, cards, families, mean_of, mean_tally, ratio
from cxrlab.metrics.classification import (
    brier,
    expected_calibration_error,
    fixed_calibration_error,
    risk_coverage_area,
    scaled,
)
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.metrics.statistics.intervals import BLOCK, Estimate, ResampledValue, Resamples
from cxrlab.robustness.audit_records import (
    ANSWERS_FILE,
    CLEAN,
    TRUTH_FILE,
    Answer,
    Condition,
    ImageAnswer,
    StudyTruth,
    parse_condition,
    read_answers,
    read_truth,
)

if TYPE_CHECKING:
    from cxrlab.findings.reader import Reading

NO_REPORT = -1
TRACED = ("linf", "l2", "passes", "broken", "zero_gradients")

Flags = NDArray[np.bool_]
Direction = Literal["higher", "lower", "neither"]

ECE_FIXED, RISK, OUTSIDE = "closed_questions.ece_fixed", "closed_questions.risk_coverage", "closed_questions.outside"
SCALED = ".scaled"  # ends the names of quantities after temperature scaling
AUROC, ECE, FLIP_RATE, ERRORS = "closed_questions.auroc", "closed_questions.ece", "flip_rate", "errors.significant"
REPORT_METRICS = ("findings.f1", "findings.f1.side", "chexpert14.micro.f1:uncertain-positive", ERRORS)
# Tested when two models are compared; few, since every further test makes each of them harder to pass.
HEADLINE = (
    "closed_questions.accuracy",
    "closed_questions.confidence",
    "findings.f1",
    ERRORS,
    "report.confidence",
    FLIP_RATE,
)
LEVEL = 0.95

_LOWER = frozenset({"closed_questions.brier", ECE, ECE_FIXED, RISK, OUTSIDE, "report.loss", ERRORS, "errors.added"})
_NEITHER = frozenset({"closed_questions.confidence", "report.confidence"})
_RANGES = {"report.loss": (0.0, np.inf), "errors.added": (-np.inf, np.inf)}  # all others lie in [0, 1]
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
_NOT_ASKED = "studies whose known labels were not asked about"
_NO_REPORT = "studies without a report"
_NO_TWO_REPORTS = "studies without a report on either image"


@dataclass(frozen=True, eq=False)
class Outputs:
    """What one model returned for N images; not-a-number where it returned nothing."""

    reports: NDArray[np.int64]  # Number of the text in `Evidence.texts`, [N]; -1 where no report was generated
    logprob: Matrix  # Mean log-probability of the generated tokens, [N]
    loss: Matrix  # Mean of -log p over the reference's tokens, [N]
    probs: Matrix  # Probability of being present for each label, [N, L]
    labels: Matrix  # 1 or 0 for each label as read from the report, [N, L]
    outside: Matrix  # Mean probability of closed answers that are neither yes nor no, [N]

    @property
    def has_report(self) -> Flags:
        """Where there is a report, [N]."""
        generated: Flags = self.reports != NO_REPORT
        return generated

    @classmethod
    def empty(cls, studies: int, labels: int) -> Outputs:
        """Space for that many studies."""
        column, table = np.full(studies, np.nan), np.full((studies, labels), np.nan)
        reports = np.full(studies, NO_REPORT, np.int64)
        return cls(reports, column, column.copy(), table, table.copy(), column.copy())

    def put(self, row: int, answer: ImageAnswer, columns: Mapping[str, int], texts: dict[str, int]) -> None:
        """Fill one row; labels whose truth is known of no study have no column.

        Args:
            columns: Label → column.
            texts: Report → number; new reports are added.
        """
        if answer.report is not None:
            self.reports[row] = texts.setdefault(answer.report, len(texts))
        self.logprob[row] = np.nan if answer.mean_logprob is None else answer.mean_logprob
        self.loss[row] = np.nan if answer.loss is None else answer.loss
        self.outside[row] = np.nan if answer.outside is None else answer.outside
        for values, table in ((answer.label_probs, self.probs), (answer.labels, self.labels)):
            for name, value in values.items():
                if name in columns:
                    table[row, columns[name]] = value

    def select(self, others: Iterable[Outputs], report: NDArray[np.intp], answers: NDArray[np.intp]) -> Outputs:
        """For each study the report of one of several outputs and the answers of one of several.

        Args:
            others: Further outputs, numbered from 1; this one is 0.
            report: Number of the output whose report is taken, [N].
            answers: Number of the output whose probabilities are taken, [N].
        """
        every, row = [self, *others], np.arange(len(self.reports))
        return Outputs(
            np.stack([one.reports for one in every])[report, row],
            np.stack([one.logprob for one in every])[report, row],
            np.stack([one.loss for one in every])[report, row],
            np.stack([one.probs for one in every])[answers, row],
            np.stack([one.labels for one in every])[report, row],
            np.stack([one.outside for one in every])[answers, row],
        )

    def only(self, pairs: Flags, studies: Flags) -> Outputs:
        """The answers in `pairs` [N, L] and the reports in `studies` [N]; all others are empty."""
        return Outputs(
            np.where(studies, self.reports, NO_REPORT),
            np.where(studies, self.logprob, np.nan),
            np.where(studies, self.loss, np.nan),
            np.where(pairs, self.probs, np.nan),
            np.where(studies[:, None], self.labels, np.nan),
            np.where(pairs.any(axis=1), self.outside, np.nan),
        )


@dataclass(frozen=True, eq=False)
class Table:
    """One model under one condition."""

    model: str
    condition: Condition
    crafted_on: str | None  # Key of the model for which the images were perturbed; None where for none
    image: Outputs
    uint8: Outputs | None = None  # Outputs for the images rounded to 8 bits; None where these were not examined
    # How the attacks went: name of `TRACED` → [N], not-a-number where unknown
    trace: Mapping[str, Matrix] = field(default_factory=dict)

    @property
    def transferred(self) -> bool:
        """Whether the images were perturbed for another model."""
        return self.crafted_on not in (None, self.model)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All records of an audit as arrays."""

    studies: tuple[StudyTruth, ...]  # In the order of the file, N of them
    labels: tuple[str, ...]  # Names of the columns, L of them, in the order of first mention
    truth: Matrix  # 1 or 0, [N, L]; not-a-number where unknown
    texts: tuple[str, ...]  # Each different report once
    tables: Mapping[tuple[str, str, str | None], Table]  # (model, condition, crafted on) → table

    @property
    def with_blanks_negative(self) -> Evidence:
        """The same with 0 for every label that the source leaves blank."""
        filled = [[name in study.blank for name in self.labels] for study in self.studies]
        return replace(self, truth=np.where(np.array(filled, bool).reshape(self.truth.shape), 0.0, self.truth))

    @property
    def models(self) -> tuple[str, ...]:
        """Keys in order: the one under audit comes first."""
        return tuple(sorted({model for model, _, _ in self.tables}, key=lambda key: (len(key), key)))

    def clean(self, model: str) -> Table:
        """The clean images."""
        return self.tables[model, CLEAN, None]

    def own(self, model: str) -> dict[str, Table]:
        """Condition → table of changed images, without those that were perturbed for another model."""
        return {
            table.condition.text: table
            for table in self.tables.values()
            if table.model == model and not table.transferred and table.condition.kind != CLEAN
        }

    def transferred(self, model: str, crafted_on: str) -> dict[str, Table]:
        """Condition → table of images that were perturbed for another model."""
        return {
            table.condition.text: table
            for table in self.tables.values()
            if (table.model, table.crafted_on) == (model, crafted_on) and table.transferred
        }


def read_evidence(folder: Path) -> Evidence:
    """The evidence of a run folder."""
    return gather(read_truth(folder / TRUTH_FILE), read_answers(folder / ANSWERS_FILE))


def gather(truths: Iterable[StudyTruth], answers: Iterable[Answer]) -> Evidence:
    """Records into arrays; a `DataError` where a study is missing or stands twice."""
    studies = tuple(truths)
    rows = {study.id: row for row, study in enumerate(studies)}
    if not studies or len(rows) < len(studies):
        problem = "names a study twice" if studies else "has no study"
        raise DataError(f"{TRUTH_FILE} {problem}; it must have every study once.")
    labels = tuple(dict.fromkeys(name for study in studies for name in study.labels))
    columns = {name: number for number, name in enumerate(labels)}
    truth = np.array([[study.labels.get(name, np.nan) for name in labels] for study in studies], np.float64)
    texts: dict[str, int] = {}
    gathered: dict[tuple[str, str, str | None], _GatheredTable] = {}
    for answer in answers:
        if answer.study not in rows:
            raise DataError(
                f"{ANSWERS_FILE} line '{answer.id}': the study '{answer.study}' is not in {TRUTH_FILE}; add it there."
            )
        key = (answer.model, answer.condition, answer.crafted_on)
        table = gathered.setdefault(key, _GatheredTable(len(studies), len(labels)))
        table.put(rows[answer.study], answer, columns, texts)
    if not gathered:
        raise DataError(f"{ANSWERS_FILE} has no line; run the sweep first.")
    tables = {key: table.finish(*key, studies) for key, table in gathered.items()}
    evidence = Evidence(studies, labels, truth.reshape(len(studies), len(labels)), tuple(texts), tables)
    for model in evidence.models:
        if (model, CLEAN, None) not in tables:
            raise DataError(
                f"{ANSWERS_FILE} has no clean images of the model '{model}'; there is nothing to compare with."
            )
    return evidence


class _GatheredTable:
    """A table that is filled answer by answer."""

    def __init__(self, studies: int, labels: int) -> None:
        self.image, self.uint8 = Outputs.empty(studies, labels), Outputs.empty(studies, labels)
        self.trace = {name: np.full(studies, np.nan) for name in TRACED}
        self.filled, self.has_uint8, self.has_trace = np.zeros(studies, dtype=bool), False, False

    def put(self, row: int, answer: Answer, columns: Mapping[str, int], texts: dict[str, int]) -> None:
        """Fill the row of one study; see `Outputs.put`."""
        if self.filled[row]:
            raise DataError(f"{ANSWERS_FILE} has the image '{answer.id}' twice; delete one of the two lines.")
        self.filled[row] = True
        self.image.put(row, answer.image, columns, texts)
        if answer.uint8 is not None:
            self.has_uint8 = True
            self.uint8.put(row, answer.uint8, columns, texts)
        if answer.attack is not None:
            self.has_trace = True
            for name in TRACED:
                self.trace[name][row] = getattr(answer.attack, name)
            if answer.attack.start == answer.attack.end == 0:  # the aim does not apply here, see `WhereApplicable`
                self.trace["broken"][row] = np.nan

    def finish(self, model: str, condition: str, crafted_on: str | None, studies: Sequence[StudyTruth]) -> Table:
        """The table, which must have every study."""
        gaps = np.flatnonzero(~self.filled)
        if len(gaps):
            raise DataError(
                f"{ANSWERS_FILE}: {condition} of model '{model}' lacks {len(gaps)} of {len(studies)} studies, such as "
                f"'{studies[gaps[0]].id}'; resume the run, since conditions are compared on the same studies."
            )
        uint8 = self.uint8 if self.has_uint8 else None
        trace = self.trace if self.has_trace else {}
        return Table(model, parse_condition(condition), crafted_on, self.image, uint8, trace)


@dataclass(frozen=True, eq=False)
class Quantity:
    """One number of one model under one condition."""

    name: str
    resampled: ResampledValue  # Its value over all studies, not-a-number where undefined, and in every resample
    n: int  # Its denominator: pairs of study and label, or studies
    direction: Direction  # Which way is better; neither for a confidence
    tally: Tally | None = None  # Its counts, kept for the quantities that are tested

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
    """`after` minus `before`, paired by resample."""
    return after.resampled.minus(before.resampled)


def direction_of(name: str) -> Direction:
    """Which way is better; a share of flips is better low."""
    name = name.removesuffix(SCALED)
    if name in _NEITHER:
        return "neither"
    return "lower" if name in _LOWER or "flip" in name else "higher"


def metric_of(name: str, undefined: str = "") -> Metric:
    """The metric behind a quantity; one without a better direction counts as higher."""
    direction = direction_of(name)
    span = _RANGES.get(name, (0.0, 1.0))
    return Metric(name, "higher" if direction == "neither" else direction, span, None, undefined)


class CachedResamples(Resamples):
    """Resamples that are used hundreds of times: their draws are kept if they fit into one block."""

    _kept: tuple[tuple[int, Matrix], ...] | None = None

    def weights(self) -> Iterator[tuple[int, Matrix]]:
        """As of `Resamples`."""
        if self.trials * self.clusters.count > BLOCK:
            return super().weights()
        if self._kept is None:
            self._kept = tuple(super().weights())
        return iter(self._kept)


def quantities(tallies: Mapping[str, Tally], resamples: Resamples) -> dict[str, Quantity]:
    """Tallies by name into quantities of the same names."""
    estimates = resamples.resample(list(tallies.values()))
    found = {}
    for (name, tally), estimate in zip(tallies.items(), estimates, strict=True):
        n = tally.n  # studies
        if tally.value_of is mean_of:
            n = int(tally.rows[:, 1].sum())
        elif tally.metric.name.startswith("ece"):
            n = int(tally.rows[:, tally.rows.shape[1] // 2 :].sum())
        tested = replace(tally, metric=metric_of(name)) if name in HEADLINE else None
        found[name] = Quantity(name, estimate, n, direction_of(name), tested)
    return found


def mean_of_cells(name: str, cells: Matrix) -> Tally:
    """The mean over all cells [N, L] that are numbers, one row per study."""
    known = ~np.isnan(cells)
    rows = np.stack([np.where(known, cells, 0.0).sum(axis=1), known.sum(axis=1).astype(np.float64)], axis=1)
    return Tally(metric_of(name, _NOT_ASKED), rows, rows[:, 1] > 0, mean_of)


def answer_tallies(outputs: Outputs, truth: Matrix) -> dict[str, Tally]:
    """Quantities of probabilities, over all pairs of a study and a label that is known of it."""
    probs = np.where(np.isnan(truth), np.nan, outputs.probs)
    return {
        "closed_questions.accuracy": mean_of_cells("closed_questions.accuracy", correct_answers(probs, truth)),
        "closed_questions.confidence": mean_of_cells("closed_questions.confidence", confidence(probs)),
        "closed_questions.truth": mean_of_cells("closed_questions.truth", np.where(truth == 1, probs, 1 - probs)),
        "closed_questions.brier": brier(probs, truth),
        ECE: expected_calibration_error(probs, truth),
        ECE_FIXED: fixed_calibration_error(probs, truth),
        OUTSIDE: mean_tally(metric_of(OUTSIDE, _NOT_ASKED), outputs.outside),
    }


def scaled_tallies(outputs: Outputs, truth: Matrix, temperature: float) -> dict[str, Tally]:
    """Calibration after the logits of all answers were divided by a temperature; no answer changes."""
    probs = scaled(np.where(np.isnan(truth), np.nan, outputs.probs), temperature)
    confident = mean_of_cells(f"closed_questions.confidence{SCALED}", confidence(probs))
    return {
        f"closed_questions.confidence{SCALED}": confident,
        f"closed_questions.brier{SCALED}": brier(probs, truth),
        f"{ECE}{SCALED}": expected_calibration_error(probs, truth),
        f"{ECE_FIXED}{SCALED}": fixed_calibration_error(probs, truth),
    }


def report_tallies(outputs: Outputs, truth: Matrix) -> dict[str, Tally]:
    """Quantities of reports that need no reading of their text."""
    labels = np.where(np.isnan(truth) | ~outputs.has_report[:, None], np.nan, outputs.labels)
    mean_probability = np.where(outputs.has_report, np.exp(outputs.logprob), np.nan)
    return {
        "reports.accuracy": mean_of_cells("reports.accuracy", agreement(labels, truth)),
        "report.confidence": mean_tally(metric_of("report.confidence", _NO_REPORT), mean_probability),
        "report.loss": mean_tally(metric_of("report.loss", _NO_REPORT), outputs.loss),
    }


def correct_answers(probs: Matrix, truth: Matrix) -> Matrix:
    """1 where the answer (present above 0.5) is the truth, 0 where not, not-a-number where either is unknown."""
    return agreement(np.where(np.isnan(probs), np.nan, probs > 0.5), truth)


def agreement(given: Matrix, truth: Matrix) -> Matrix:
    """1 where two labels are the same, 0 where not, not-a-number where either is unknown."""
    return np.where(np.isnan(given) | np.isnan(truth), np.nan, given == truth)


def confidence(probs: Matrix) -> Matrix:
    """The probability of the answer given, from 0.5 to 1."""
    return np.maximum(probs, 1 - probs)


def risk_coverage(probs: Matrix, truth: Matrix, resamples: Resamples) -> Quantity:
    """The area under the risk-coverage curve of all answers whose truth is known, by the probability given."""
    known: Flags = ~(np.isnan(probs) | np.isnan(truth))
    rows = np.nonzero(known)[0]
    given, wrong = confidence(probs[known]), ((probs > 0.5) != (truth == 1))[known].astype(np.float64)

    def area(weights: Matrix) -> Matrix:
        step = max(1, BLOCK // max(1, len(given)))
        parts = [weights[start : start + step] for start in range(0, len(weights), step)]
        codes = resamples.clusters.codes[rows]
        return np.concatenate([risk_coverage_area(given, wrong, part[:, codes]) for part in parts])

    patients = resamples.clusters.count_with(known.sum(axis=1) > 0)
    return Quantity(RISK, resamples.resample_value(area, patients, (0.0, 1.0)), len(given), "lower")


def mean_auroc(probs: Matrix, truth: Matrix, resamples: Resamples) -> Quantity:
    """The area under the ROC curve, the mean over the labels that are present in some studies and absent in others.

    A resample with only one of the two leaves that label out of its mean.

    Args:
        probs: Of being present, [N, L].
        truth: 1 or 0, [N, L]; not-a-number where unknown.
    """
    labels = [
        label for label in range(truth.shape[1]) if {0, 1} <= set(truth[~np.isnan(probs[:, label]), label].tolist())
    ]
    known = ~np.isnan(truth[:, labels]) & ~np.isnan(probs[:, labels])

    def mean_area(weights: Matrix) -> Matrix:
        times = weights.T.astype(np.float32)[resamples.clusters.codes]
        if not labels:
            return np.full(len(weights), np.nan)
        areas = np.stack([_areas(probs[:, label], truth[:, label], times) for label in labels])
        return ratio(np.nansum(areas, axis=0), (~np.isnan(areas)).sum(axis=0))

    patients = resamples.clusters.count_with(known.sum(axis=1) > 0)
    return Quantity(AUROC, resamples.resample_value(mean_area, patients, (0.0, 1.0)), int(known.sum()), "higher")


def _areas(scores: Matrix, truth: Matrix, times: NDArray[np.float32]) -> Matrix:
    """As `metrics.classification.auroc`, for draws laid out by study [N, T]: a fifth of the time for hundreds of areas."""
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


def flip_tallies(outputs: Outputs, clean: Outputs, truth: Matrix, scores: ScoredReports) -> dict[str, Tally]:
    """Every kind of flip, and the significant errors that were added.

    Flips of answers are counted where the truth is known.
    """
    both, contents = outputs.has_report & clean.has_report, scores.contents
    columns = {FLIP_RATE: flipped_reports(outputs, clean, scores)}
    names = ("flips.normal_to_abnormal", "flips.abnormal_to_normal", "flips.side_swapped", "flips.to_silence")
    columns |= dict.fromkeys(names, np.full(len(both), np.nan))
    if both.any():
        now, before = np.where(both, outputs.reports, 0), np.where(both, clean.reports, 0)
        normal, silent = contents.normal, contents.silent
        abnormal = ~normal & ~silent
        swapped = (contents.left[now] & contents.right[before]) | (contents.right[now] & contents.left[before])
        values = (
            np.where(both & normal[before], abnormal[now], np.nan),
            np.where(both & abnormal[before], normal[now], np.nan),
            np.where(both, swapped.sum(axis=1) > 0, np.nan),
            np.where(both & ~silent[before], silent[now], np.nan),
        )
        columns |= zip(names, values, strict=True)
    flipped, yes = flipped_answers(outputs, clean, truth), clean.probs > 0.5
    added = scores.errors(outputs) - scores.errors(clean)
    return {
        **{name: mean_tally(metric_of(name, _NO_TWO_REPORTS), column) for name, column in columns.items()},
        "closed_questions.flips": mean_of_cells("closed_questions.flips", flipped),
        "closed_questions.flips.yes_to_no": mean_of_cells(
            "closed_questions.flips.yes_to_no", np.where(yes, flipped, np.nan)
        ),
        "closed_questions.flips.no_to_yes": mean_of_cells(
            "closed_questions.flips.no_to_yes", np.where(yes, np.nan, flipped)
        ),
        "errors.added": mean_tally(metric_of("errors.added", _NO_TWO_REPORTS), added),
    }


def changed_findings(outputs: Outputs, clean: Outputs, scores: ScoredReports) -> Matrix:
    """Observations that only one of the two reports has, not-a-number without two reports, [N]."""
    both, contents = outputs.has_report & clean.has_report, scores.contents
    now, before = np.where(both, outputs.reports, 0), np.where(both, clean.reports, 0)
    if not both.any():
        return np.full(len(both), np.nan)
    return np.where(both, (contents.present[now] != contents.present[before]).sum(axis=1), np.nan)


def flipped_reports(outputs: Outputs, clean: Outputs, scores: ScoredReports) -> Matrix:
    """1 where the present observations differ, 0 where not, not-a-number without two reports, [N]."""
    changed = changed_findings(outputs, clean, scores)
    return np.where(np.isnan(changed), np.nan, changed > 0)


def flipped_answers(outputs: Outputs, clean: Outputs, truth: Matrix) -> Matrix:
    """1 where an answer of yes or no flips, 0 where not, not-a-number where it was not asked or is unknown, [N, L]."""
    asked = ~(np.isnan(outputs.probs) | np.isnan(clean.probs) | np.isnan(truth))
    return np.where(asked, (outputs.probs > 0.5) != (clean.probs > 0.5), np.nan)


_PAIRS_PER_BATCH = 2048  # readings are dropped after each batch, so that memory does not grow
_COLUMN = {name: number for number, name in enumerate(OBSERVATIONS)}


@dataclass(frozen=True, eq=False)
class ReportContents:
    """What each of T reports states."""

    present: Flags  # Whether an observation is present, [T, O]
    left: Flags  # Whether it is on the left only, [T, O]
    right: Flags  # Whether it is on the right only, [T, O]
    normal: Flags  # Whether the report describes the image and names nothing but devices and incidental findings, [T]
    silent: Flags  # Whether it states nothing about an image, [T]

    @classmethod
    def empty(cls, texts: int) -> ReportContents:
        """Space for that many reports."""
        return cls(
            *(np.zeros((texts, len(_COLUMN)), dtype=bool) for _ in range(3)),
            *(np.zeros(texts, dtype=bool) for _ in range(2)),
        )

    def put(self, row: int, reading: Reading) -> None:
        """Fill the row of one report."""
        present = [finding for finding in merged(reading.findings) if finding.present]
        sides: dict[str, set[Side | None]] = {}
        for finding in present:
            sides.setdefault(finding.observation, set()).add(finding.side)
        for name, named in sides.items():
            column = _COLUMN[name]
            self.present[row, column] = True
            self.left[row, column] = named == {Side.LEFT}
            self.right[row, column] = named == {Side.RIGHT}
        self.silent[row] = not reading.has_statements
        no_finding = chexpert_labels(present, complete=False).get("No Finding") == 1
        self.normal[row] = reading.has_statements and no_finding


class ScoredReports:
    """Report metrics of every different pair of study and text, each scored once.

    Most changed images do not change the report, so that the same text of the same study occurs again and again.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._texts = evidence.texts
        self.contents = ReportContents.empty(len(self._texts))
        # Each different pair of study and text as one number, in order of the studies.
        rows = np.arange(len(evidence.studies)) * len(self._texts)
        codes = [np.zeros(0, np.int64)]
        for table in evidence.tables.values():
            for outputs in (table.image, table.uint8):
                if outputs is not None:
                    codes.append((rows + outputs.reports)[outputs.has_report])
        self._codes = np.unique(np.concatenate(codes))
        parts: list[dict[str, Tally]] = []
        for batch, numbers in self._batches(evidence):
            found = {tally.metric.name: tally for family in families(REPORT_METRICS) for tally in family.tallies(batch)}
            parts.append({name: found[name] for name in REPORT_METRICS})
            for number in numbers:
                self.contents.put(number, batch.read(self._texts[number]))
        self._tallies: dict[str, Tally] = {}
        for name in REPORT_METRICS if parts else ():
            scored = [part[name] for part in parts]
            rows_of = np.concatenate([one.rows for one in scored])
            defined = np.concatenate([one.defined for one in scored])
            self._tallies[name] = Tally(scored[0].metric, rows_of, defined, scored[0].value_of)

    def tally(self, name: str, outputs: Outputs) -> Tally:
        """One metric of the reports of a model, one row per study; undefined without a report or a reference."""
        if name not in self._tallies:
            return mean_tally(cards()[name], np.full(len(outputs.reports), np.nan))
        whole, has_report = self._tallies[name], outputs.has_report
        codes = np.arange(len(outputs.reports)) * len(self._texts) + outputs.reports
        index = np.searchsorted(self._codes, np.where(has_report, codes, self._codes[0]))
        defined = whole.defined[index] & has_report
        return Tally(whole.metric, whole.rows[index] * defined[:, None], defined, whole.value_of)

    def errors(self, outputs: Outputs) -> Matrix:
        """Significant errors of each report, [N]; not-a-number where undefined."""
        return self.tally(ERRORS, outputs).by_pair

    def _batches(self, evidence: Evidence) -> Iterator[tuple[Batch, list[int]]]:
        """Pairs study by study, so that a reference is read once, and the numbers of the texts that are new."""
        count = max(1, len(self._texts))
        # The reading of a text of several studies, such as the normal report, is kept; the others are dropped.
        times = np.bincount(self._codes % count, minlength=count)
        shared = {self._texts[number] for number in np.flatnonzero(times > 1)}
        readings: dict[str, Reading] = {}
        noted: set[int] = set()
        for start in range(0, len(self._codes), _PAIRS_PER_BATCH):
            pairs, numbers = [], []
            for code in self._codes[start : start + _PAIRS_PER_BATCH].tolist():
                study, number = evidence.studies[code // count], code % count
                pairs.append(Pair(f"{study.id}|{number}", study.reference, self._texts[number], "", study.findings))
                if number not in noted:
                    noted.add(number)
                    numbers.append(number)
            yield Batch(pairs, readings), numbers
            for text in [text for text in readings if text not in shared]:
                del readings[text]

"""ReXVal: candidate reports in which six radiologists counted errors of six kinds, significant or not.

    50_samples_gt_and_candidates.csv               study_id, gt_report, then one column a candidate type
    6_valid_raters_per_rater_error_categories.csv  study_number, candidate_type, error_category, rater_index,
                                                   clinically_significant, num_errors

The data are credentialed (PhysioNet) and not part of this project; the layout is. `study_number` is the row of the
first file, counted from 0, or its `study_id`. A count that a rater did not give is 0: the second file lists errors.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.randomness import generator
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.oriented import oriented
from cxrlab.evaluation.report_files import Row, read_reports
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.tally import Matrix

REPORTS = "50_samples_gt_and_candidates.csv"
COUNTS = "6_valid_raters_per_rater_error_categories.csv"
_NEEDED = ("study_number", "candidate_type", "rater_index", "clinically_significant", "num_errors")
_NOT_CANDIDATES = ("study_id", "gt_report", "")
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
# Ours in the raters' own unit, errors a report, so that they can be set beside a rater.
JUDGES = {"total": "errors.total", "significant": "errors.significant"}


@dataclass(frozen=True)
class RexVal:
    """The benchmark as read.

    Args:
        pairs: One a candidate; `patient` is the study.
        raters: Their indices, in order.
        total: Errors counted [pairs, raters].
        significant: Of these the significant ones.
    """

    pairs: tuple[Pair, ...]
    raters: tuple[str, ...]
    total: Matrix
    significant: Matrix

    @property
    def studies(self) -> tuple[str, ...]:
        """The study of each pair."""
        return tuple(pair.patient for pair in self.pairs)


def read_rexval(root: Path) -> RexVal:
    """Read the folder; a layout that is not ReXVal's is a `DataError` that names file and line."""
    reports = read_reports(root / REPORTS).rows
    counts = read_reports(root / COUNTS).rows
    if missing := [key for key in _NEEDED if key not in counts[0].values]:
        raise DataError(f"{root / COUNTS} has no column '{missing[0]}'; it needs {', '.join(_NEEDED)}.")
    pairs = _pairs(reports)
    place = {pair.id: index for index, pair in enumerate(pairs)}
    names = _study_names(reports, counts)
    raters = sorted({_cell(row, "rater_index") for row in counts}, key=lambda name: (len(name), name))
    total, significant = np.zeros((len(pairs), len(raters))), np.zeros((len(pairs), len(raters)))
    for row in counts:
        key = f"{names[_cell(row, 'study_number')]}:{_cell(row, 'candidate_type').lower()}"
        if key not in place:
            raise DataError(f"{row.place}: there is no candidate '{_cell(row, 'candidate_type')}' in {root / REPORTS}.")
        number, spot = _number(row), (place[key], raters.index(_cell(row, "rater_index")))
        total[spot] += number
        if _truth(row):
            significant[spot] += number
    return RexVal(tuple(pairs), tuple(raters), total, significant)


def validate_rexval(config: ValidateConfig) -> dict[str, Any]:
    """Kendall τ-b of every metric against the mean counts, and our counts beside the raters', one rater left out."""
    from cxrlab.metrics.statistics.agreement import leave_one_out_tau, tau_with_interval
    from cxrlab.metrics.statistics.raters import leave_one_rater_out

    assert config.root is not None  # the settings see to it
    data = read_rexval(config.root)
    values = oriented(Batch(data.pairs), config.metrics or None)
    truths = {"": data.total, "_significant": data.significant}
    metrics = {}
    for name, scores in values.items():
        row: dict[str, Any] = {}
        for suffix, counts in truths.items():
            rng = generator(config.seed, "rexval")
            # Fewer errors are better, as higher values are: both sides must point the same way.
            tau = tau_with_interval(scores, -counts.mean(axis=1), data.studies, trials=config.trials, rng=rng)
            row |= {f"{key}{suffix}": getattr(tau, key) for key in ("tau", "low", "high")} | {"n": tau.n}
        metrics[name] = row
    several = len(data.raters) > 1
    raters = {}
    for which, judge in JUDGES.items():
        if several and judge in values:
            found = leave_one_rater_out(getattr(data, which), -values[judge])
            raters[which] = {
                "judge": judge,
                "by_rater": {
                    data.raters[one.rater]: {k: v for k, v in asdict(one).items() if k != "rater"} for one in found
                },
            }
    return {
        "benchmark": "rexval",
        "n": len(data.pairs),
        "studies": len(set(data.studies)),
        "metrics": metrics,
        "ceiling": {
            "leave_one_out_tau": leave_one_out_tau(-data.total) if several else [],
            "leave_one_out_tau_significant": leave_one_out_tau(-data.significant) if several else [],
        },
        "raters": raters,
    }


def _pairs(reports: tuple[Row, ...]) -> list[Pair]:
    kinds = [key for key in reports[0].values if key not in _NOT_CANDIDATES]
    if not kinds:
        raise DataError(f"{reports[0].place} has no column with candidates beside gt_report.")
    return [
        Pair(f"{number}:{kind}", row.text("gt_report"), row.text(kind), str(number))
        for number, row in enumerate(reports)
        for kind in kinds
    ]


def _study_names(reports: tuple[Row, ...], counts: tuple[Row, ...]) -> dict[str, str]:
    """What the counts call a study → its row, counted from 0."""
    asked = {_cell(row, "study_number") for row in counts}
    by_row = {str(number): str(number) for number in range(len(reports))}
    by_id = {str(row.values.get("study_id")): str(number) for number, row in enumerate(reports)}
    for names in (by_row, by_id):
        if asked <= names.keys():
            return names
    stray = min(asked - by_row.keys())
    row = next(row for row in counts if _cell(row, "study_number") == stray)
    raise DataError(f"{row.place}: there is no study '{stray}' among the {len(reports)} of {REPORTS} (from 0).")


def _cell(row: Row, key: str) -> str:
    value = str(row.values[key] or "").strip()
    if not value:
        raise DataError(f"{row.place}: '{key}' is empty.")
    return value.removesuffix(".0")


def _number(row: Row) -> float:
    try:
        number = float(_cell(row, "num_errors"))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise DataError(
            f"{row.place}: 'num_errors' is {row.values['num_errors']!r}; it must be a number of at least 0."
        )
    return number


def _truth(row: Row) -> bool:
    word = _cell(row, "clinically_significant").lower()
    if word not in _TRUTH:
        raise DataError(f"{row.place}: 'clinically_significant' is {word!r}; it must be True or False.")
    return _TRUTH[word]

"""ReXVal: candidate reports in which six radiologists counted errors of six kinds, significant or not.

    50_samples_gt_and_candidates.csv               study_id, gt_report, then one column a candidate type
    6_valid_raters_per_rater_error_categories.csv  study_number, candidate_type, error_category, rater_index,
                                                   clinically_significant, num_errors

The data are credentialed (PhysioNet) and not part of this project; the layout is. `study_number` is the row of the
first file, counted from 0, or its `study_id`. A count that a rater did not give is 0: the second file lists errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.randomness import generator
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.metric_choice import OpenJudge
from cxrlab.evaluation.report_files import Row, read_rows
from cxrlab.evaluation.validate import compare_with_raters, score_pairs
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.statistics.bootstrap import METHOD
from cxrlab.metrics.tally import Matrix

REPORTS = "50_samples_gt_and_candidates.csv"
COUNTS = "6_valid_raters_per_rater_error_categories.csv"
_NEEDED = ("study_number", "candidate_type", "rater_index", "clinically_significant", "num_errors")
_NOT_CANDIDATES = ("study_id", "gt_report", "")
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
# Counts in the raters' own unit, errors a report, so that they can be set beside a rater: ours, and the judge's.
RULES = {"total": "errors.total", "significant": "errors.significant"}
COUNTING = "chexprompt"


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
    reports, counts = (tuple(row for _, row in read_rows(root / name)) for name in (REPORTS, COUNTS))
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


class RexValBenchmark:
    """Kendall τ-b of every metric against the mean counts, and whoever counts errors beside the raters.

    Args:
        config: Settings; the files are read at once.
    """

    def __init__(self, config: ValidateConfig) -> None:
        assert config.root is not None  # the settings see to it
        self._config, self._data = config, read_rexval(config.root)
        self._truths = {"": self._data.total, "_significant": self._data.significant}
        self.batch = Batch(self._data.pairs)

    def measured(self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = ()) -> dict[str, Any]:
        """The figures; see `validate.Benchmark`."""
        from cxrlab.metrics.statistics.agreement import leave_one_out_tau

        data = self._data
        values = score_pairs(self.batch, names, judges)
        several = len(data.raters) > 1
        counting = [judge for judge in judges if judge.kind == COUNTING]
        return {
            "benchmark": "rexval",
            "interval": METHOD,
            "n": len(data.pairs),
            "studies": len(set(data.studies)),
            "metrics": {name: self._agreement(scores) for name, scores in values.items()},
            "ceiling": {
                "leave_one_out_tau": leave_one_out_tau(-data.total) if several else [],
                "leave_one_out_tau_significant": leave_one_out_tau(-data.significant) if several else [],
            },
            "raters": self._raters(values, counting) if several else {},
            "differences": self._differences(values, counting),
        }

    def _agreement(self, scores: Matrix) -> dict[str, Any]:
        from cxrlab.metrics.statistics.agreement import tau_with_interval

        row: dict[str, Any] = {}
        for suffix, counts in self._truths.items():
            rng = generator(self._config.seed, "rexval")
            # Fewer errors are better, as higher values are: both sides must point the same way.
            tau = tau_with_interval(
                scores, -counts.mean(axis=1), self._data.studies, trials=self._config.trials, rng=rng
            )
            row |= {f"{key}{suffix}": getattr(tau, key) for key in ("tau", "low", "high")} | {"n": tau.n}
        return row

    def _raters(self, values: Mapping[str, Matrix], judges: Sequence[OpenJudge]) -> dict[str, Any]:
        """Our counts in a rater's seat, and those of every judge that counts, all errors and the significant ones."""
        rules = self._seats(values, RULES)
        each = {judge.name: self._seats(values, list_count_metrics(judge)) for judge in judges}
        return {**rules, "judges": each} if each else rules

    def _seats(self, values: Mapping[str, Matrix], metrics: Mapping[str, str]) -> dict[str, Any]:
        """`total` or `significant` → table of the raters; nothing for a count that was not asked for."""
        return {
            which: compare_with_raters(getattr(self._data, which), self._data.raters, name, -values[name])
            for which, name in metrics.items()
            if name in values
        }

    def _differences(self, values: Mapping[str, Matrix], judges: Sequence[OpenJudge]) -> dict[str, Any]:
        """How much better each further judge that counts orders the reports than the first, on the same resamples."""
        from cxrlab.metrics.statistics.agreement import tau_difference

        found: dict[str, Any] = {}
        for judge in judges[1:]:
            found[judge.name] = {"above": judges[0].name}
            for which, name in list_count_metrics(judge).items():
                first = list_count_metrics(judges[0])[which]
                if name not in values or first not in values:
                    continue
                rng = generator(self._config.seed, "rexval", "judges")
                truth = -getattr(self._data, which).mean(axis=1)
                trials, studies = self._config.trials, self._data.studies
                gap = tau_difference(values[name], values[first], truth, studies, trials=trials, rng=rng)
                found[judge.name][which] = {key: getattr(gap, key) for key in ("difference", "low", "high", "n")}
        return found


def list_count_metrics(judge: OpenJudge) -> dict[str, str]:
    """`total` and `significant` → what a judge that counts errors calls them."""
    model = judge.name.partition(":")[2]
    return {"total": f"{COUNTING}:{model}", "significant": f"{COUNTING}.significant:{model}"}


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

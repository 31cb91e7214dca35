"""The twelve counts: six kinds of error, clinically significant or not, by rule.

The kinds are those of CheXprompt and ReXVal; each error carries its words in both reports
(`Comparison.errors`). Beside the counts stand the shares of reports that are free of errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.comparison import Comparison
from cxrlab.metrics.pairs import Batch
from cxrlab.metrics.tally import Metric, Tally, mean_tally

_CONVENTIONS = {"kinds": "rexval-6", "reader": "rules", "average": "report"}
_UNDEFINED = "pairs whose reference has no word"


def _count(name: str, about: str) -> Metric:
    return Metric(name, "lower", (0.0, math.inf), 0.0, _UNDEFINED, _CONVENTIONS, about)


def _share(name: str, about: str) -> Metric:
    return Metric(name, "higher", (0.0, 1.0), 1.0, _UNDEFINED, _CONVENTIONS, about)


_CELLS = [(kind, weight) for weight in ("significant", "insignificant") for kind in ErrorKind]


class ErrorCounts:
    """Errors a report, in all, by significance and by kind."""

    metrics: Sequence[Metric] = (
        _count("errors.total", "errors a report"),
        _count("errors.significant", "errors a report that are likely to change what is done"),
        _share("error-free", "share of reports without an error"),
        _share("error-free.significant", "share of reports without a significant error"),
        *(
            _count(f"errors.{kind.value}.{weight}", f"{kind.value.replace('_', ' ')}, {weight}, a report")
            for kind, weight in _CELLS
        ),
    )
    default = tuple(metric.name for metric in metrics)

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally a metric, in the order of the cards."""
        rows = np.array([_values(c) if c else [math.nan] * len(self.metrics) for c in batch.comparisons])
        return [mean_tally(metric, rows[:, column]) for column, metric in enumerate(self.metrics)]


def _values(comparison: Comparison) -> list[float]:
    """The value of every metric for one report, in the order of the cards; a silent report is not free of errors."""
    errors, said = comparison.errors, not comparison.silent
    total, significant = len(errors), sum(error.significant for error in errors)
    cells = [
        sum(error.kind is kind and error.significant == (weight == "significant") for error in errors)
        for kind, weight in _CELLS
    ]
    return [float(value) for value in (total, significant, said and not total, said and not significant, *cells)]

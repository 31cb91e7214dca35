"""Two surrogates report by report: which of the two a judge prefers, and how often.

Every judge is asked twice, with the reports in both orders. Where the answers contradict each other the place decided,
not the report: such a study counts as equal and is counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.json_values import plain
from cxrlab.core.randomness import generator
from cxrlab.core.tables import Table
from cxrlab.evaluation.score_inputs import load_inputs
from cxrlab.metrics.finding_scores import FindingsF1
from cxrlab.metrics.pairs import Batch
from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.statistics.paired_tests import paired_difference
from cxrlab.metrics.tally import Matrix, Metric, Tally, mean_tally

JUDGES = Table("pairwise judge", {"rules": "cxrlab.extraction.pairwise:RulesJudge"})
OUTCOMES = {"a_better": 1, "equal": 0, "b_better": -1}


class PairwiseJudge(Protocol):
    """What prefers one of two reports of the same study."""

    @property
    def signature(self) -> str:
        """Everything that must agree before two tables of wins may be compared."""
        ...

    def opinions(self, first: Batch, second: Batch) -> Matrix:
        """1 where the first report is better, -1 where the second is, 0 where neither, not-a-number without opinion.

        Args:
            first: Reports of one system [N].
            second: Reports of the other, against the same references in the same order.
        """
        ...


class RulesJudge:
    """Prefers the report with fewer significant errors by rule, then the one with the higher F1 of findings.

    A report that says nothing of the image makes few errors and is no report: it loses to any that speaks.

    Args:
        seed: Unused; nothing is drawn.
    """

    signature = "rules|errors:significant|then:findings.f1|reader:rules|silent:loses|v:1"

    def __init__(self, seed: int = 7) -> None:
        del seed

    def opinions(self, first: Batch, second: Batch) -> Matrix:
        """See `PairwiseJudge`; a study without a reference has no opinion."""
        pairs = zip(_ranks(first), _ranks(second), strict=True)
        return np.array([np.nan if a is None or b is None else float(a < b) - float(b < a) for a, b in pairs])


def _ranks(batch: Batch) -> list[tuple[bool, int, float] | None]:
    """For each report what it is ordered by, the smaller the better; None where there is nothing to compare with."""
    f1 = next(tally for tally in FindingsF1().tallies(batch) if tally.metric.name == "findings.f1").by_pair
    return [
        None if one is None else (one.silent, sum(error.significant for error in one.errors), -float(f1[place]))
        for place, one in enumerate(batch.comparisons)
    ]


def pairwise_wins(
    a_run: Path, b_run: Path, data: Path, judge: str = "rules", seed: int = 7, section: str = "findings"
) -> dict[str, Any]:
    """How often the reports of one run are better than those of another.

    Args:
        a_run: Folder of a finished `generate`, or a file of predictions.
        b_run: The same of the other system, on the same studies.
        data: Corpus folder with the references.
        judge: Row of `JUDGES`.
        seed: For judges that draw, and for the resamples.
        section: Section of the reference report.

    Returns:
        `a_better`, `equal` and `b_better` as shares of the `n` studies with an opinion, each {value, low, high,
        count}; `net`, the share of a minus that of b with interval and p of swapping the two within patients;
        `contradicted`, studies whose verdict turned with the order; `undefined`, studies without an opinion.
    """
    judging: PairwiseJudge = JUDGES.load(judge)(seed)
    first, second = (Batch(load_inputs(data, run, section=section).pairs) for run in (a_run, b_run))
    if [pair.id for pair in first.pairs] != [pair.id for pair in second.pairs]:
        raise DataError(f"{a_run} and {b_run} were not written for the same studies; generate both on the same ones.")
    there, back = judging.opinions(first, second), -judging.opinions(second, first)
    verdicts = np.where(there == back, there, 0.0)
    verdicts[np.isnan(there) | np.isnan(back)] = np.nan
    told = counted(verdicts, [pair.patient or pair.id for pair in first.pairs], seed)
    contradicted = int(((there != back) & ~np.isnan(verdicts)).sum())
    return {"judge": judge, "signature": judging.signature, **told, "contradicted": contradicted}


def counted(verdicts: Matrix, patients: Sequence[str], seed: int) -> dict[str, Any]:
    """Verdicts [N] of 1, 0, -1 and not-a-number as shares with intervals by patient; see `pairwise_wins`."""
    shares = {name: _share(name, verdicts, value) for name, value in OUTCOMES.items()}
    ends = Resamples(patients, rng=generator(seed, "pairwise", "intervals")).estimates(list(shares.values()))
    # Under one name, as two systems of one metric: the share of wins.
    lost, won = (_share("wins", verdicts, OUTCOMES[name]) for name in ("b_better", "a_better"))
    net = paired_difference(lost, won, patients, rng=generator(seed, "pairwise", "net"))
    found = {
        name: {"value": tally.value, "low": end.low, "high": end.high, "count": int((verdicts == OUTCOMES[name]).sum())}
        for (name, tally), end in zip(shares.items(), ends, strict=True)
    }
    told: dict[str, Any] = plain(
        {
            **found,
            "net": {"value": net.difference, "low": net.low, "high": net.high, "p": net.p, "too_few": net.too_few},
            "n": won.n,
            "undefined": won.undefined,
        }
    )
    return told


def _share(name: str, verdicts: Matrix, value: int) -> Tally:
    card = Metric(name, "higher", (0.0, 1.0), None, "studies without an opinion")
    return mean_tally(card, np.where(np.isnan(verdicts), np.nan, verdicts == value))

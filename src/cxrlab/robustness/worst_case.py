"""The worst that any attack of some size does, study by study, and the smallest size that does harm.

An attacker tries everything and keeps what works. For each study and each size the most harmful image is taken among
all attacks of at most that size that were made for the model or for none (noise); corruptions are no attacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.tally import Matrix, mean_tally, ratio
from cxrlab.robustness.conditions import WORST, parse_condition
from cxrlab.robustness.flips import changed_findings
from cxrlab.robustness.quantities import Quantity, card, quantities, right
from cxrlab.robustness.scored_reports import ScoredReports
from cxrlab.robustness.tables import Evidence, Said, Table


@dataclass(frozen=True, eq=False)
class SmallestEps:
    """From which size on an attack does harm.

    Args:
        grid: Sizes as written, from the smallest.
        sizes: The same as numbers.
        by_study: Smallest harmful size of each study, [N]; infinite where none did harm, not-a-number where harm
            cannot be told.
        shares: Of each size the share of studies that are harmed by then.
        median: The size by which half of the studies are harmed; None where that is never reached.
    """

    grid: tuple[str, ...]
    sizes: tuple[float, ...]
    by_study: Matrix
    shares: tuple[Quantity, ...]
    median: str | None


def worst_tables(evidence: Evidence, scores: ScoredReports, model: str) -> dict[str, Table]:
    """`worst@2/255` → the most harmful answers of each study, for each size that was tried."""
    ranked, clean = _attacks(evidence, model), evidence.clean(model)
    found = {}
    for eps, text in _grid(ranked):
        # The clean image lies in every ball: an attacker who finds nothing worse leaves it as it is.
        among = [clean, *(table for table in ranked if _size(table) <= eps + _SAME)]
        image = worst([table.image for table in among], clean.image, evidence.truth, scores)
        rounded = [table.uint8 for table in among if table.uint8 is not None]
        before = clean.uint8 or clean.image
        uint8 = worst(rounded, before, evidence.truth, scores) if len(rounded) == len(among) else None
        key = f"{WORST}@{text}"
        found[key] = Table(model, parse_condition(key), model, image, uint8)
    return found


def worst(among: Sequence[Said], clean: Said, truth: Matrix, scores: ScoredReports) -> Said:
    """Of each study the most harmful report and, apart from it, the most harmful answers; the first of equals.

    Reports are ranked by significant errors (where no reference tells them, by observations that differ from the clean
    image's report), then by loss; answers by how many are wrong, then by how little probability the truth is given.
    """
    harm = [np.where(np.isnan(e := scores.errors(said)), changed_findings(said, clean, scores), e) for said in among]
    report = _most(harm, [said.loss for said in among])
    asked = _most([wrong_answers(said, truth) for said in among], [-_truth_given(said, truth) for said in among])
    return among[0].chosen(among[1:], report, asked)


def wrong_answers(said: Said, truth: Matrix) -> Matrix:
    """Answers of each study that are not the truth, [N]; not-a-number where none was asked."""
    cells = right(said.probs, truth)
    return np.where(np.isnan(cells).all(axis=1), np.nan, (cells == 0).sum(axis=1))


def smallest_harmful(
    clean: Table,
    worst_of: dict[str, Table],
    harm: Callable[[Said], Matrix],
    name: str,
    resamples: Resamples,
) -> SmallestEps:
    """The smallest size at which the worst case has more harm than the clean image.

    Args:
        clean: Of the model.
        worst_of: See `worst_tables`; from the smallest size.
        harm: A count of each study [N]: significant errors of its report, or wrong answers.
        name: Of the shares.
        resamples: Patients.
    """
    before = harm(clean.image)
    by_study = np.where(np.isnan(before), np.nan, np.inf)
    conditions = [table.condition for table in worst_of.values()]
    shares = {}
    for condition, table in zip(conditions, worst_of.values(), strict=True):
        after = harm(table.image)
        by_study = np.where(np.isnan(after), np.nan, by_study)
        by_study = np.where((after > before) & np.isinf(by_study), condition.eps or 0.0, by_study)
        harmed = np.where(np.isnan(by_study), np.nan, np.isfinite(by_study))
        shares[condition.text] = mean_tally(card(name), harmed)
    found = tuple(quantities(shares, resamples).values())
    reached = [condition for condition, share in zip(conditions, found, strict=True) if share.value >= 0.5]
    return SmallestEps(
        tuple(str(condition.eps_text) for condition in conditions),
        tuple(float(condition.eps or 0) for condition in conditions),
        by_study,
        found,
        reached[0].eps_text if reached else None,
    )


# Sizes that differ by less are one size written in two ways, such as 2/255 and 0.00784314.
_SAME = 1e-6


def _size(table: Table) -> float:
    return table.condition.eps or 0.0


def _attacks(evidence: Evidence, model: str) -> list[Table]:
    """From the smallest size, so that the first of equally harmful images is the least changed one."""
    tables = [table for table in evidence.own(model).values() if table.condition.kind == "attack"]
    return sorted(tables, key=lambda table: (_size(table), table.condition.text))


def _grid(ranked: Sequence[Table]) -> list[tuple[float, str]]:
    grid: list[tuple[float, str]] = []
    for table in ranked:
        if not grid or _size(table) > grid[-1][0] + _SAME:
            grid.append((_size(table), str(table.condition.eps_text)))
    return grid


def _most(first: Sequence[Matrix], then: Sequence[Matrix]) -> NDArray[np.intp]:
    """For each study which one has the most, equals told apart by `then`; what is unknown ranks last."""
    one, two = (np.where(np.isnan(columns), -np.inf, columns) for columns in (np.stack(first), np.stack(then)))
    tied = one == one.max(axis=0)
    top = np.where(tied, two, -np.inf)
    found: NDArray[np.intp] = np.argmax(tied & (top == top.max(axis=0)), axis=0)
    return found


def _truth_given(said: Said, truth: Matrix) -> Matrix:
    """Mean probability that a study's answers give to the truth, [N]; not-a-number where none was asked."""
    given = np.where(truth == 1, said.probs, np.where(truth == 0, 1 - said.probs, np.nan))
    count = (~np.isnan(given)).sum(axis=1)
    return ratio(np.nansum(given, axis=1), count)

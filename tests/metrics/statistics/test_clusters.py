from __future__ import annotations

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.statistics.intervals import (
    BLOCK,
    Clusters,
    check_share,
    check_trials,
    stack_cluster_sums,
    trial_blocks,
)


def test_rows_are_summed_by_patient_in_the_order_of_the_names() -> None:
    """Patient a has rows 1 and 3: 10 + 1; patient b has row 2."""
    clusters = Clusters(["b", "a", "b", "a"])
    assert clusters.sums(np.array([[1.0], [10.0], [100.0], [1.0]])).tolist() == [[11.0], [101.0]]


def test_names_that_look_like_numbers_stay_names() -> None:
    """'1' and '01' are two patients."""
    assert Clusters(["1", "01", "1"]).count == 2


def test_no_rows_at_all_are_no_error() -> None:
    clusters = Clusters([])
    assert clusters.count == 0 and clusters.sums(np.zeros((0, 3))).shape == (0, 3)


def test_rows_of_another_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rows do not fit 3"):
        Clusters(["a", "b", "c"]).sums(np.zeros((2, 1)))


def test_rows_that_metrics_share_are_summed_once() -> None:
    """A view on the same numbers counts as the same; an equal copy need not."""
    rows = np.arange(12.0).reshape(3, 2, 2)
    flat = rows.reshape(3, 4)
    matrix, places = stack_cluster_sums(Clusters("abc"), [flat, rows.reshape(3, 4), flat[:, :1]])
    assert matrix.shape == (3, 5)
    assert places == [slice(0, 4), slice(0, 4), slice(4, 5)]


def test_blocks_cover_every_trial_within_the_bound() -> None:
    """A hundred thousand patients: few trials at a time, none left out, none twice."""
    ranges = list(trial_blocks(1000, 100_000))
    assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, 1000)
    assert max(stop - start for start, stop in ranges) * 100_000 <= BLOCK
    assert list(trial_blocks(3, 10 * BLOCK)) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("share", [0, 1, -0.1, 95, float("nan")])
def test_a_level_outside_its_range_is_refused(share: float) -> None:
    """95 for 0.95 is the usual slip."""
    with pytest.raises(ConfigError, match="between 0 and 1"):
        check_share("level", share)


def test_no_trials_are_refused() -> None:
    with pytest.raises(ConfigError, match="trials=0"):
        check_trials(0)

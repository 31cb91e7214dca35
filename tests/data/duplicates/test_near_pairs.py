from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cxrlab.data.duplicates import MOST_NEIGHBOURS, linked


def close_by(values: np.ndarray) -> object:
    return lambda one, other: np.abs(values[one] - values[other]) <= 1


def test_only_things_with_a_common_key_are_compared_and_links_carry_on() -> None:
    """0~1~2 by two keys though 0 and 2 are far apart; 4 and 5 are close but share no key; 3 shares one with none."""
    values = np.array([0.0, 1.0, 2.0, 50.0, 8.0, 8.5])
    first, second = np.array([1, 1, 2, 3, 4, 5]), np.array([1, 2, 2, 3, 6, 7])
    assert linked([first, second], close_by(values), 6) == [[0, 1, 2]]
    assert linked([first], close_by(values), 6) == [[0, 1]]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_with_one_key_for_all_the_groups_are_the_gaps_of_the_line(numbers: list[int]) -> None:
    """Numbers are linked when no step between neighbours exceeds one: sort them and cut at the gaps."""
    values = np.array(numbers, float)
    found = linked([np.zeros(len(numbers), int)], close_by(values), len(numbers))
    order = np.argsort(values, kind="stable")
    cuts = np.flatnonzero(np.diff(values[order]) > 1) + 1
    wanted = sorted(sorted(part.tolist()) for part in np.split(order, cuts) if len(part) > 1)
    assert sorted(found) == wanted


def test_a_key_shared_by_very_many_does_not_cost_the_square() -> None:
    """Each is compared with a bounded number of neighbours."""
    count, compared = 20_000, []

    def never(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        compared.append(len(one))
        return np.zeros(len(one), bool)

    assert linked([np.zeros(count, int)], never, count) == []
    assert sum(compared) <= MOST_NEIGHBOURS * count

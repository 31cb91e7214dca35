"""Five numbers of many, by hand."""

from __future__ import annotations

import pytest

from cxrlab.data.statistics import Quartiles, quartiles


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({7: 1}, (1, 7, 7, 7, 7, 7, 7.0)),
        ({1: 1, 2: 1, 3: 1, 4: 1}, (4, 1, 1, 2, 3, 4, 2.5)),
        ({10: 3, 0: 1}, (4, 0, 0, 10, 10, 10, 7.5)),
        ({5: 99, 1000: 1}, (100, 5, 5, 5, 5, 1000, 14.95)),
    ],
)
def test_quartiles_are_values_that_occur(values: dict[int, int], expected: tuple[float, ...]) -> None:
    """A quartile is the least value that a quarter of all does not exceed; nothing is made up between two."""
    assert quartiles(values) == Quartiles(*expected)


def test_a_unit_divides_every_number() -> None:
    """Grey is counted in thousandths and reported as a share."""
    assert quartiles({250: 1, 750: 1}, 1000) == Quartiles(2, 0.25, 0.25, 0.25, 0.75, 0.75, 0.5)

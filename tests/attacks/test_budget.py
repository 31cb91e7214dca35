from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.attacks.config import Budget, parse_eps
from cxrlab.core.errors import ConfigError


def test_a_fraction_keeps_its_spelling() -> None:
    assert parse_eps(" 2 / 255 ") == Budget(2 / 255, "linf", "2/255")
    assert parse_eps("0.5", "l2") == Budget(0.5, "l2", "0.5")


@every_row("text", ["8", "-1", "nan", "inf", "1/0", "two", "2/255/3", ""])
def test_what_is_no_radius_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="eps"):
        parse_eps(text)


def test_grey_levels_in_place_of_shares_are_explained() -> None:
    """Eight of 255 grey levels, written as 8."""
    with pytest.raises(ConfigError, match="Did you mean 8/255"):
        parse_eps("8")
    assert parse_eps("8", "l2").eps == 8


@pytest.mark.parametrize(("typed", "label"), [("1E-2", "0.01"), ("2.", "2.0"), ("1e1", "10.0"), (" 2 / 255 ", "2/255")])
def test_a_radius_is_written_in_one_way_that_a_condition_can_hold(typed: str, label: str) -> None:
    assert parse_eps(typed, "l2").label == label

from __future__ import annotations

import sys

import pytest

from cxrlab.core.errors import UnknownName
from cxrlab.core.registry import Registry

ROWS = {"decimal": "decimal:Decimal", "colour": "colorsys:rgb_to_hsv"}


def test_names_come_in_order_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    table = Registry("thing", ROWS)
    assert table.names() == tuple(table) == ("decimal", "colour")
    assert len(table) == 2 and "colour" in table and "color" not in table
    assert "colorsys" not in sys.modules


def test_load_imports_the_one_row() -> None:
    import decimal

    assert Registry("thing", ROWS).load("decimal") is decimal.Decimal


def test_an_unknown_name_is_met_with_the_nearest_and_the_list() -> None:
    with pytest.raises(UnknownName, match=r"no thing 'color'. Did you mean 'colour'\? Known: decimal, colour"):
        Registry("thing", ROWS).load("color")
    with pytest.raises(UnknownName, match="none yet"):
        Registry("thing", {}).load("x")


@pytest.mark.parametrize("target", ["decimal", "decimal:", ":Decimal", "decimal.Decimal", "a b:c", "a:b:c", ""])
def test_a_malformed_row_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="package.module:attribute"):
        Registry("thing", {"x": target})


@pytest.mark.parametrize("rows", [("a-b", "a_b"), ("PGD", "pgd")])
def test_names_that_read_alike_are_refused(rows: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="read alike"):
        Registry("thing", dict.fromkeys(rows, "decimal:Decimal"))


@pytest.mark.parametrize("name", ["", " x"])
def test_an_unusable_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unusable"):
        Registry("thing", {name: "decimal:Decimal"})


def test_the_table_shows_its_names() -> None:
    assert repr(Registry("thing", ROWS)) == "Registry('thing', decimal, colour)"

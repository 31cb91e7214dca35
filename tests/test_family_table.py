"""The table of model families: what the page shows is what the tests run."""

from __future__ import annotations

import ast

import pytest
from family_table import BEGIN, COLUMNS, END, PAGE, TESTS, families_of_test, family_table
from tiny_families import FAMILIES

from cxrlab.models.hf.families import all_families


def test_the_page_has_the_table_that_the_tests_give() -> None:
    """After a change: python tests/helpers/family_table.py."""
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown == family_table()


def test_every_declared_family_has_a_tiny_model() -> None:
    assert {name for family in all_families() for name in family.model_types} == set(FAMILIES)


@pytest.mark.parametrize(("file", "name"), COLUMNS.values())
def test_every_column_names_a_test(file: str, name: str) -> None:
    functions = [node.name for node in ast.parse((TESTS / file).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert name in functions and families_of_test(file, name) == set(FAMILIES)


def test_a_test_of_some_families_counts_for_these_alone() -> None:
    found = families_of_test("extraction/test_surrogate.py", "test_a_surrogate_of_another_family_learns")
    assert {"idefics", "internvl"} <= found < set(FAMILIES)

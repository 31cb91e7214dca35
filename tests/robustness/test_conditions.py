"""Conditions as text: what they are taken apart into, and what is refused."""

from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.robustness.audit_records import parse_condition


def test_an_attack_with_a_fraction() -> None:
    found = parse_condition("pgd:answers@2/255")
    assert (found.kind, found.name, found.objective, found.eps_text) == ("attack", "pgd", "answers", "2/255")
    assert found.eps == pytest.approx(2 / 255)
    assert found.attack == "pgd:answers"


@pytest.mark.parametrize(("text", "eps"), [("square@0.01", 0.01), ("pgd@1e-3", 0.001), ("pgd@.5", 0.5)])
def test_an_attack_with_a_decimal(text: str, eps: float) -> None:
    assert parse_condition(text).eps == eps


def test_a_whole_number_is_a_severity() -> None:
    found = parse_condition("blur@3")
    assert (found.kind, found.name, found.severity, found.eps) == ("corruption", "blur", 3, None)


def test_clean_is_clean() -> None:
    assert parse_condition("clean").kind == "clean"


@every_row("text", ["", "pgd", "pgd@", "blur@6", "blur@0", "blur:fine@3", "pgd@2/0", "pgd@x", "a b@1"])
def test_anything_else_is_named_in_one_sentence(text: str) -> None:
    with pytest.raises(DataError, match="condition") as caught:
        parse_condition(text)
    assert f"'{text}'" in str(caught.value)

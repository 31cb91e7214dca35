"""Words of an indication are whole words."""

from __future__ import annotations

from cxrlab.findings.significance import indicates


def test_a_word_is_found_whole_in_the_plural_and_in_any_case() -> None:
    assert indicates(("line",), "Check LINES.") and not indicates(("line",), "Decline in function")
    assert indicates(("intubat*",), "Reintubated; intubation today") and not indicates(("tube",), "Tuberculosis")


def test_no_indication_holds_no_word() -> None:
    assert not indicates(("cough",), None) and not indicates(("cough",), "")

from __future__ import annotations

from cxrlab.core.records import PreferencePair
from cxrlab.preference.make_pairs import SingleReport, single_reports


def pair(chosen: str, rejected: str, *scores: float) -> PreferencePair:
    return PreferencePair("s", chosen, rejected, "j", *scores)


def test_a_pair_is_a_good_and_a_bad_report() -> None:
    rows, undecided = single_reports([pair("a", "b", 0.9, 0.1)])
    assert rows == [SingleReport("s", "a", True, 0.9), SingleReport("s", "b", False, 0.1)] and undecided == 0
    assert rows[1].to_json() == {"id": "s", "report": "b", "desirable": False, "score": 0.1}


def test_a_report_of_several_pairs_stands_once_with_the_majority() -> None:
    """A is chosen twice and rejected once; b is rejected twice; c chosen once, rejected once: nobody can say."""
    rows, undecided = single_reports([pair("A", "b", 1.0, 0.0), pair("a ", "c", 0.5, 0.5), pair("c", "a", 0.75, 0.25)])
    by_report = {row.report: (row.desirable, row.score) for row in rows}
    assert by_report == {"A": (True, (1.0 + 0.5 + 0.25) / 3), "b": (False, 0.0)} and undecided == 1


def test_no_score_stays_none_and_nothing_is_nothing() -> None:
    rows, _ = single_reports([pair("a", "b")])
    assert [row.score for row in rows] == [None, None] and "score" not in rows[0].to_json()
    assert single_reports([]) == ([], 0)

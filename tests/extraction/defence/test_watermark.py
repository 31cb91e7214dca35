from __future__ import annotations

import math

import pytest

from cxrlab.extraction.adaptive_attackers import rewrite
from cxrlab.extraction.defence.finding_preservation import claims, difference
from cxrlab.extraction.defence.watermark import (
    NORMAL,
    WAYS,
    Watermark,
    binomial_tail,
    chosen_forms,
    evidence_in,
    keyed_way,
    queries_needed,
    reports_for,
    watermark_test,
)

KEY = b"a key of the tests, 24 b"


def keys(count: int) -> list[bytes]:
    return [f"random key {number:06d}".encode() for number in range(count)]


def test_the_four_forms_of_a_normal_statement_are_read_alike() -> None:
    for rows in NORMAL.values():
        assert len(set(rows)) == WAYS
        assert all(difference(rows[0], other) is None for other in rows[1:])


def test_the_same_content_gets_the_same_form_whatever_it_was_written_in() -> None:
    mark = Watermark(KEY)
    forms = {
        mark.worded(text)
        for text in (
            "There is a small left pleural effusion.",
            "A small left pleural effusion is seen.",
            "A small left pleural effusion is noted.",
        )
    }
    assert len(forms) == 1
    denials = (
        "There is no pneumothorax.",
        "No pneumothorax is seen.",
        "No pneumothorax.",
        "Negative for pneumothorax.",
    )
    assert len({mark.worded(text) for text in denials}) == 1


def test_another_key_chooses_otherwise_and_each_form_comes_up_a_quarter_of_the_time() -> None:
    """400 keys: 100 of each form expected, standard deviation 8.7."""
    counts = [0] * WAYS
    for key in keys(400):
        counts[keyed_way(key, "absent|pneumothorax|")] += 1
    assert all(abs(count - 100) < 4 * 8.7 for count in counts)


def test_marking_changes_nothing_that_is_read_and_is_done_once(reports: list[str]) -> None:
    mark = Watermark(KEY)
    reworded = 0
    for report in reports:
        text = mark.worded(report)  # raises where anything read differs, degrees and sizes included
        assert mark.worded(text) == text
        reworded += text != report
        assert claims(text) == claims(report)
    assert reworded > 0.9 * len(reports)


def test_marked_text_is_found_and_unmarked_is_not(reports: list[str]) -> None:
    marked = [Watermark(KEY).worded(report) for report in reports]
    found = watermark_test(marked, KEY)
    assert found["rate"] > 0.95 and found["p"] < 1e-20
    assert found["z"] == pytest.approx(
        (found["green"] - found["n_choices"] / 4) / math.sqrt(found["n_choices"] * 3 / 16)
    )
    assert watermark_test(marked, b"some other key of 24 byt")["p"] > 0.001
    assert watermark_test(reports, KEY)["p"] > 0.001


def test_on_unmarked_text_p_is_below_a_level_as_rarely_as_it_says(reports: list[str]) -> None:
    """200 keys on one unmarked text. A p below 0.05 has probability at most 0.05, so that more than 19 of 200 have
    probability below 0.003; the distribution is not all at 1 either."""
    forms = chosen_forms(reports)
    values = [evidence_in(forms, key, len(reports))["p"] for key in keys(200)]
    assert sum(p < 0.05 for p in values) <= 19
    assert 60 <= sum(p < 0.5 for p in values) <= 120


def test_a_report_written_a_hundred_times_is_not_a_hundred_choices() -> None:
    report = "A small left pleural effusion is noted. No pneumothorax."
    once, often = watermark_test([report], KEY), watermark_test([report] * 100, KEY)
    assert (once["n_choices"], often["n_choices"]) == (2, 2)
    assert once["p"] == often["p"] and often["sentences"] == 200


def test_in_other_words_the_mark_is_gone(reports: list[str]) -> None:
    """An attacker who tells the findings again in other words removes it: measured, not hoped."""
    marked = [Watermark(KEY).worded(report) for report in reports]
    again = [rewrite(text, 1) for text in marked]
    assert all(difference(text, other) is None for text, other in zip(marked, again, strict=True))
    assert watermark_test(again, KEY)["p"] > 0.01
    assert watermark_test(again, KEY)["n_choices"] < watermark_test(marked, KEY)["n_choices"] / 3


def test_a_copy_that_half_learned_the_mark_is_found(reports: list[str]) -> None:
    half = [Watermark(KEY).worded(text) if place % 2 else text for place, text in enumerate(reports)]
    found = watermark_test(half, KEY)
    assert 0.4 < found["rate"] < 1 and found["p"] < 1e-6


def test_the_tail_of_the_binomial_by_hand() -> None:
    """Three of three at a quarter: 1/64. At least one of two: 1 - 9/16."""
    assert binomial_tail(3, 3, 0.25) == pytest.approx(1 / 64)
    assert binomial_tail(1, 2, 0.25) == pytest.approx(7 / 16)
    assert binomial_tail(0, 5, 0.25) == 1.0 and binomial_tail(6, 5, 0.25) == 0.0


def test_how_many_contexts_a_decision_needs() -> None:
    """A perfect copy is called one at 1 % when 1/4^n is below 0.01: n = 4. By chance nothing ever suffices."""
    assert queries_needed(1.0, 0.25, alpha=0.01, power=0.9) == 4
    assert queries_needed(0.25, 0.25) is None
    some, more = queries_needed(0.7), queries_needed(0.4)
    assert some is not None and more is not None and 4 < some < more
    critical = next(k for k in range(some + 1) if binomial_tail(k, some, 0.25) <= 0.01)
    assert binomial_tail(critical, some, 0.7) >= 0.9


def test_reports_until_enough_contexts() -> None:
    texts = ["No edema.", "No edema.", "No pneumothorax.", "No cardiomegaly."]
    assert [reports_for(texts, wanted) for wanted in (1, 2, 3, 4)] == [1, 3, 4, None]


def test_text_without_a_form_has_no_evidence() -> None:
    found = watermark_test(["Comparison with the image of last week."], KEY)
    assert (found["z"], found["p"], found["n_choices"]) == (None, 1.0, 0)

"""Two models under attack: signs, drops, tests and the part where both start alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from small_evidence import AIR, LEFT, NORMAL, audit, image, lines, truth

from cxrlab.metrics.statistics.intervals import ResampledValue
from cxrlab.metrics.statistics.paired_tests import holm
from cxrlab.robustness.comparison import HEADLINE, PairedTests, compare_all, drop_tally, swaps_for
from cxrlab.robustness.condition_results import Outcomes

PGD = "pgd@2/255"
NAMES = [f"s{number}" for number in range(1, 9)]
STUDIES = [truth(study, NORMAL, e=1) for study in NAMES]


def answers(right: int) -> dict[str, Any]:
    """Answers about effusion, which all have; the first `right` are right."""
    return {study: image(e=0.9 if place < right else 0.2) for place, study in enumerate(NAMES)}


def two(a_clean: int, a_attacked: int, b_clean: int, b_attacked: int) -> Outcomes:
    """Models of which so many of eight answers are right."""
    return audit(
        STUDIES,
        lines("a", "clean", answers(a_clean)),
        lines("a", PGD, answers(a_attacked)),
        lines("b", "clean", answers(b_clean)),
        lines("b", PGD, answers(b_attacked)),
    )


def compare(outcomes: Outcomes, names: Sequence[str] = HEADLINE) -> dict[str, Any]:
    found: dict[str, Any] = compare_all(outcomes, "a", ["b"], names)["a:b"]
    return found


def test_signs_and_drops_by_hand() -> None:
    """a falls from 8 to 2, b from 6 to 4: b is 2/8 better when attacked and drops 4/8 less."""
    found = compare(two(8, 2, 6, 4))
    row = found["conditions"][PGD]["closed_questions.accuracy"]
    assert (row["a"], row["b"], row["difference"]) == (2 / 8, 4 / 8, 2 / 8)
    assert row["low"] <= 2 / 8 <= row["high"]
    assert (row["drop"]["a"], row["drop"]["b"], row["drop"]["value"]) == (-6 / 8, -2 / 8, 4 / 8)
    assert (found["n"], found["patients"]) == (8, 8)


def test_p_is_exact_for_few_patients() -> None:
    """Two studies differ when attacked, both for b: two of the four ways to swap them differ as much.

    Four differ in their drop, all one way: two of sixteen.
    """
    row = compare(two(8, 2, 6, 4))["conditions"][PGD]["closed_questions.accuracy"]
    assert row["test"] == row["drop"]["test"] == "permutation by patient"
    assert row["p"] == pytest.approx(2 / 4)
    assert row["drop"]["p"] == pytest.approx(2 / 16)


def test_the_smallest_detectable_difference_is_2_8_standard_errors() -> None:
    made = two(8, 2, 6, 4)
    row = compare(made)["conditions"][PGD]["closed_questions.accuracy"]
    draws = [made.outcome(made.tables(model)[PGD]).image["closed_questions.accuracy"].resampled.draws for model in "ab"]
    assert row["smallest_detectable"] == pytest.approx(2.8 * np.std(draws[1] - draws[0], ddof=1))


def test_equal_models_leave_nothing_to_test() -> None:
    found = compare(two(8, 4, 8, 4))
    assert found["tests"] == 0
    assert found["conditions"][PGD]["closed_questions.accuracy"]["difference"] == 0
    assert math.isnan(found["conditions"][PGD]["closed_questions.accuracy"]["p_holm"])
    assert found["equal_clean"] is False, "eight patients alike do not show that all are"
    assert found["sentence"].startswith("On clean images the two models are not shown to be equal within 0.02")


def test_flips_are_counted_by_study() -> None:
    """From 8 to 2 six turn under a; from 6 to 4 two under b, the fifth and sixth, which turn under a as well."""
    row = compare(two(8, 2, 6, 4))["flips"][PGD]
    assert (row["of"], row["only_a"], row["only_b"], row["both"], row["n"]) == ("answers", 4, 0, 2, 8)
    assert row["p"] == pytest.approx(2 / 16)  # four of four to one side, by a fair coin


def test_flips_of_reports_come_before_those_of_answers() -> None:
    clean = {study: image(NORMAL, e=0.9) for study in NAMES}
    made = audit(
        STUDIES,
        *(lines(model, "clean", clean) for model in "ab"),
        lines("a", PGD, {**clean, "s1": image(AIR), "s2": image(AIR)}),
        lines("b", PGD, {**clean, "s2": image(AIR), "s3": image(AIR)}),
    )
    row = compare(made)["flips"][PGD]
    assert (row["of"], row["only_a"], row["only_b"], row["both"], row["p"]) == ("reports", 1, 1, 1, 1.0)


def test_unequal_starts_are_reported_and_matched() -> None:
    """a has all right when clean, b six: of those six, which both have, a keeps two when attacked and b four."""
    found = compare(two(8, 2, 6, 4))
    assert found["equal_clean"] is False
    assert found["clean"]["closed_questions.accuracy"]["value"] == -2 / 8
    assert "not shown to be equal" in found["sentence"]
    assert (found["matched"]["pairs"], found["matched"]["studies"]) == (6, 0)
    row = found["matched"]["conditions"][PGD]["closed_questions.accuracy"]
    assert (row["a"]["value"], row["b"]["value"], row["a"]["n"]) == (pytest.approx(2 / 6), pytest.approx(4 / 6), 6)
    assert row["difference"] == pytest.approx(2 / 6)


def test_reports_are_matched_where_both_make_no_significant_error() -> None:
    """b is wrong about s1 when clean, so s1 is left out, though only there a is harmed."""
    clean = {study: image(NORMAL) for study in NAMES}
    made = audit(
        STUDIES,
        lines("a", "clean", clean),
        lines("b", "clean", {**clean, "s1": image(LEFT), "s2": image(LEFT)}),
        lines("a", PGD, {**clean, "s1": image(AIR)}),
        lines("b", PGD, {**clean, "s8": image(AIR)}),
    )
    matched = compare(made)["matched"]
    row = matched["conditions"][PGD]["errors.significant"]
    assert matched["studies"] == 6
    assert (row["a"]["value"], row["b"]["value"]) == (0, pytest.approx(1 / 6))


def test_equal_within_the_margin_means_the_whole_interval() -> None:
    """200 patients for whom both answer alike: at most 1 - 0.025^(1/200) = 1.8 % are unlike these, which is within 0.02.

    With two patients nothing is known, and that is no equality.
    """
    names = [f"s{number}" for number in range(200)]
    labels = [truth(study, patient=f"p{place}", e=1) for place, study in enumerate(names)]
    good = {study: image(e=0.9) for study in names}
    found = compare(audit(labels, *(lines(model, "clean", good) for model in "ab")))
    assert list(found["clean"]["closed_questions.accuracy"].values()) == pytest.approx([0, -0.0183, 0.0183], abs=1e-4)
    assert found["equal_clean"] is True and found["matched"] is None
    assert found["sentence"].startswith("On clean images the two models are equal within 0.02")
    few = names[:1] + names[100:101]
    scant = [lines(model, "clean", {study: image(e=0.9) for study in few}) for model in "ab"]
    scant[1] = lines("b", "clean", {few[0]: image(e=0.9), few[1]: image(e=0.1)})
    wide = compare(audit([labels[0], labels[100]], *scant))
    assert wide["equal_clean"] is False


def test_all_pairs_are_one_family() -> None:
    """With c beside b every test counts for both: Holm's correction over the p of all of them, and no others."""
    made = audit(
        STUDIES,
        *(lines(model, "clean", answers(8)) for model in "abc"),
        *(lines(model, PGD, answers(right)) for model, right in (("a", 0), ("b", 8), ("c", 7))),
    )
    found = compare_all(made, "a", ["b", "c"])
    rows: list[dict[str, Any]] = []
    for pair in found.values():
        for condition in pair["conditions"]:
            for row in pair["conditions"][condition].values():
                rows += [row, row["drop"]] if "drop" in row else [row]
            rows.append(pair["flips"][condition])
    counted = [row for row in rows if not math.isnan(row["p_holm"])]
    assert [row["p_holm"] for row in counted] == pytest.approx(holm([row["p"] for row in counted]))
    assert {pair["tests"] for pair in found.values()} == {len(counted)}
    # b and c against a, at pgd and at the worst: accuracy and its drop, confidence and its drop, and flips of answers.
    assert len(counted) == 2 * 2 * 5


@pytest.mark.parametrize("name", ["findings.f1", "errors.significant"])
def test_what_is_swapped_for_a_drop_is_the_drop(name: str) -> None:
    """One of two effusions is missed under attack: F1 falls from 1 to 2/3, errors rise from 0 to 1/2."""
    studies = [truth("s1", LEFT), truth("s2", LEFT)]
    clean = {"s1": image(LEFT), "s2": image(LEFT)}
    made = audit(studies, lines("a", "clean", clean), lines("a", PGD, {**clean, "s2": image(NORMAL)}))
    before, after = made.clean("a").image[name], made.outcome(made.tables("a")[PGD]).image[name]
    found = drop_tally(before, after)
    assert found is not None
    assert found.value == pytest.approx({"findings.f1": 2 / 3 - 1, "errors.significant": 1 / 2}[name])


def test_a_quantity_without_counts_to_swap_is_tested_by_resampling() -> None:
    row = compare(two(8, 2, 6, 4), ["closed_questions.ece"])["conditions"][PGD]["closed_questions.ece"]
    assert row["test"] == row["drop"]["test"] == "bootstrap by patient"
    assert 0 < row["p"] <= 1


def test_the_p_of_resamples_by_hand() -> None:
    """Of 99 differences four are not above 0: twice five of a hundred."""

    def p(value: float, draws: list[float], patients: int = 50) -> float:
        return ResampledValue(value, np.array(draws), np.empty(0), patients).p_value()

    assert p(0.5, [0.5] * 95 + [-0.5] * 4) == pytest.approx(2 * 5 / 100)
    assert p(0.0, [0.0] * 9) == 1.0
    assert math.isnan(p(0.0, [math.nan] * 9)) and math.isnan(p(0.5, [0.5] * 9, patients=1))
    # Of five patients a draw counts as if it lay 1.58 times as far from the value: 0.1 becomes -0.13.
    assert p(0.5, [0.5] * 95 + [0.1] * 4, patients=5) == pytest.approx(2 * 5 / 100)


def test_enough_swaps_are_tried_for_the_family() -> None:
    """The least p that the swaps can give, times the number of tests, is below 5 %."""
    for tests in (1, 300, 5000):
        assert tests / (swaps_for(tests) + 1) < 0.05


def test_a_test_of_flips_is_handed_out_and_kept_for_the_correction() -> None:
    made = PairedTests()
    entry = made.flips("reports", np.array([1.0, 1, 1, np.nan]), np.array([0.0, 0, 0, 1]))
    assert made.others[0] is entry
    assert (entry["n"], entry["only_a"], entry["p"]) == (3, 3, pytest.approx(2 / 8))

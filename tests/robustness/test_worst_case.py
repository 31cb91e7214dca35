"""The worst of all attacks, study by study, and the smallest size that does harm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from small_evidence import AIR, LEFT, NORMAL, audit, image, lines, truth

from cxrlab.robustness.condition_results import Outcomes, smallest_harmful, wrong_answers_by_study

STUDIES = [truth("s1", NORMAL, e=1, o=1), truth("s2", NORMAL, e=0, o=0), truth("s3", NORMAL, e=1, o=1)]
CLEAN = {"s1": image(NORMAL, 0.9, 0.9), "s2": image(NORMAL, 0.1, 0.1), "s3": image(NORMAL, 0.9, 0.9)}
BOTH = f"{LEFT} {AIR}"


def four_attacks() -> Outcomes:
    """Small: fgsm turns the report of s1, noise an answer of s2. Large: pgd turns an answer of s1 and s2's report."""
    return audit(
        STUDIES,
        lines("a", "clean", CLEAN),
        lines("a", "fgsm@1/255", {**CLEAN, "s1": image(LEFT, 0.9, 0.9)}),
        lines("a", "noise@1/255", {**CLEAN, "s2": image(NORMAL, 0.7, 0.1)}),
        lines("a", "pgd@2/255", {**CLEAN, "s1": image(NORMAL, 0.2, 0.9), "s2": image(BOTH, 0.1, 0.1)}),
        lines("a", "blur@5", {study: image(BOTH, 1 - value.label_probs["edema"]) for study, value in CLEAN.items()}),
    )


def test_each_study_takes_its_own_worst() -> None:
    made = four_attacks()
    small, large = made.worst("a").values()
    assert [table.condition.text for table in (small, large)] == ["worst@1/255", "worst@2/255"]
    texts = made.evidence.texts
    assert [texts[number] for number in small.image.reports] == [LEFT, NORMAL, NORMAL]
    assert [texts[number] for number in large.image.reports] == [LEFT, BOTH, NORMAL]
    assert wrong_answers_by_study(small.image, made.evidence.truth).tolist() == [0, 1, 0]
    assert wrong_answers_by_study(large.image, made.evidence.truth).tolist() == [1, 1, 0]


def test_corruptions_and_images_made_for_others_are_left_out() -> None:
    """Blur turns everything, and so would an image made for b: neither enters the worst case of a."""
    turned = {study: image(BOTH, 0.5) for study in CLEAN}
    made = audit(
        STUDIES,
        lines("a", "clean", CLEAN),
        lines("b", "clean", CLEAN),
        lines("a", "fgsm@1/255", CLEAN),
        lines("a", "fgsm@1/255", turned, crafted_on="b"),
        lines("a", "blur@5", turned),
    )
    worst = made.outcome(made.worst("a")["worst@1/255"]).image
    assert worst["closed_questions.accuracy"].value == 1
    assert worst["flip_rate"].value == 0


def test_equal_harm_is_distinguished_by_loss_and_by_the_probability_of_the_truth() -> None:
    low = {study: image(NORMAL, 0.8, 0.8, loss=1.0) for study in CLEAN}
    high = {study: image(NORMAL, 0.6, 0.8, loss=2.0) for study in CLEAN}
    made = audit(STUDIES, lines("a", "clean", CLEAN), lines("a", "x@0.1", low), lines("a", "y@0.1", high))
    found = made.worst("a")["worst@0.1"].image
    assert found.loss.tolist() == [2.0, 2.0, 2.0]
    # s2 knows both to be absent: 0.8 is the more wrong of the two answers; the others know both to be present.
    assert found.probs[:, 0].tolist() == [0.6, 0.8, 0.6]


@pytest.mark.parametrize("seed", range(4))
def test_the_worst_never_gets_better_with_size(seed: int) -> None:
    """Whatever attacks do at random, harm at a larger size includes harm at a smaller one."""
    rng = np.random.default_rng(seed)

    def at_random() -> dict[str, object]:
        return {study: image(str(rng.choice([NORMAL, LEFT, BOTH])), *rng.random(2)) for study in CLEAN}

    several = [lines("a", f"{name}@{size}/255", at_random()) for name in ("fgsm", "pgd") for size in (1, 2, 4, 8)]
    made = audit(STUDIES, lines("a", "clean", CLEAN), *several)
    found = [made.outcome(table).image for table in made.worst("a").values()]
    errors = [one["errors.significant"].value for one in found]
    accuracy = [one["closed_questions.accuracy"].value for one in found]
    assert errors == sorted(errors)
    assert accuracy == sorted(accuracy, reverse=True)


def test_the_smallest_harmful_size_by_hand() -> None:
    """Reports: s1 from 1/255, s2 from 2/255, s3 never. By 1/255 a third is harmed, by 2/255 two thirds: the median."""
    made = four_attacks()
    found = smallest_harmful(made.evidence.clean("a"), made.worst("a"), made.scores.errors, "harmed", made.resamples)
    assert {text: row["value"] for text, row in found["harmed"].items()} == pytest.approx(
        {"1/255": 1 / 3, "2/255": 2 / 3}
    )
    assert (found["n"], found["median"]) == (3, "2/255") and found["harmed"]["2/255"]["eps"] == 2 / 255


def test_harm_that_never_reaches_half_has_no_median() -> None:
    made = audit(STUDIES, lines("a", "clean", CLEAN), lines("a", "fgsm@1/255", {**CLEAN, "s1": image(LEFT)}))
    found = smallest_harmful(made.evidence.clean("a"), made.worst("a"), made.scores.errors, "harmed", made.resamples)
    assert found["median"] is None


def test_harm_that_is_unknown_is_not_no_harm() -> None:
    """An encoder writes no reports: nothing is known of their errors."""
    asked = {study: image(e=0.9) for study in CLEAN}
    made = audit(STUDIES, lines("a", "clean", asked), lines("a", "fgsm@1/255", asked))
    found = smallest_harmful(made.evidence.clean("a"), made.worst("a"), made.scores.errors, "harmed", made.resamples)
    assert found["n"] == 0 and math.isnan(found["harmed"]["1/255"]["value"])
    assert found["median"] is None


def test_one_size_written_in_two_ways_is_one_size() -> None:
    made = audit(
        STUDIES, lines("a", "clean", CLEAN), lines("a", "fgsm@2/255", CLEAN), lines("a", "pgd@0.00784314", CLEAN)
    )
    assert list(made.worst("a")) == ["worst@2/255"]


def test_without_a_reference_the_report_that_changed_most_is_the_worst() -> None:
    """NIH publishes no reports: errors are not defined, and the first condition by name must not win for that."""
    bare = [truth("s1", None, e=1), truth("s2", None, e=1)]
    said = {study: image(NORMAL, 0.9) for study in ("s1", "s2")}
    made = audit(
        bare,
        lines("a", "clean", said),
        lines("a", "noise@1/255", said),
        lines("a", "pgd@1/255", {"s1": image(BOTH, 0.9), "s2": image(LEFT, 0.9)}),
    )
    assert made.outcome(made.worst("a")["worst@1/255"]).image["flip_rate"].value == 1

"""What turns round under an attack, report by report and answer by answer."""

from __future__ import annotations

import math

import pytest
from small_evidence import AIR, BABBLE, LEFT, NORMAL, RIGHT, audit, image, lines, truth

from cxrlab.robustness.audit_metrics import Quantity

STUDIES = [truth(f"s{number}", NORMAL, e=0) for number in range(1, 7)]
BEFORE = dict(zip("123456", (NORMAL, NORMAL, LEFT, LEFT, LEFT, RIGHT), strict=True))
AFTER = dict(zip("123456", (NORMAL, AIR, NORMAL, RIGHT, BABBLE, RIGHT), strict=True))


def attacked(before: dict[str, str], after: dict[str, str]) -> dict[str, Quantity]:
    """Quantities of the reports after, against those before."""
    kept = [study for study in STUDIES if study.id[1:] in before]
    images = [{f"s{key}": image(text) for key, text in said.items()} for said in (before, after)]
    made = audit(kept, lines("a", "clean", images[0]), lines("a", "pgd@2/255", images[1]))
    return dict(made.outcome(made.tables("a")["pgd@2/255"]).image)


def test_reports_by_hand() -> None:
    """Six reports: normal stays, normal gets air, left vanishes, left turns right, left becomes babble, right stays.

    Present findings differ in the second, third and fifth. Two were normal, one of them is not any more; four were
    abnormal, one of them became normal (babble is not normal); one turns its side; one of six falls silent.
    """
    found = attacked(BEFORE, AFTER)
    wanted = {
        "flip_rate": (3 / 6, 6),
        "flips.normal_to_abnormal": (1 / 2, 2),
        "flips.abnormal_to_normal": (1 / 4, 4),
        "flips.side_swapped": (1 / 6, 6),
        "flips.to_silence": (1 / 6, 6),
    }
    assert {name: (found[name].value, found[name].n) for name in wanted} == wanted


def test_errors_added_are_those_beyond_the_clean_report() -> None:
    """The truth is normal: air is one significant error more, an effusion that vanishes one less, others as before."""
    found = attacked({"1": NORMAL, "3": LEFT, "6": RIGHT}, {"1": AIR, "3": NORMAL, "6": RIGHT})
    clean_errors = found["errors.significant"].value - found["errors.added"].value
    assert found["errors.added"].n == 3
    assert found["errors.significant"].value == pytest.approx(2 / 3)  # the air and the right effusion
    assert clean_errors == pytest.approx(2 / 3)  # the left and the right effusion
    assert found["errors.added"].value == pytest.approx(0.0)


def test_without_normal_reports_their_share_is_unknown() -> None:
    found = attacked({"3": LEFT, "4": LEFT}, {"3": NORMAL, "4": LEFT})["flips.normal_to_abnormal"]
    assert math.isnan(found.value)
    assert found.n == 0


@pytest.mark.parametrize("both", ["There are moderate bilateral pleural effusions.", f"{LEFT} {RIGHT}"])
def test_both_sides_of_a_chest_are_no_swap(both: str) -> None:
    assert attacked({"3": LEFT, "4": RIGHT}, {"3": both, "4": both})["flips.side_swapped"].value == 0.0


@pytest.mark.parametrize(
    ("before", "after", "share"), [(LEFT, RIGHT, 1), (RIGHT, LEFT, 1), (LEFT, LEFT, 0), (RIGHT, RIGHT, 0)]
)
def test_a_swap_counts_either_way_and_a_side_that_stays_does_not(before: str, after: str, share: int) -> None:
    found = attacked({"3": before, "4": before}, {"3": after, "4": after})
    assert found["flips.side_swapped"].value == share
    assert found["flip_rate"].value == 0


def test_a_normal_report_that_becomes_babble_is_silent_and_not_abnormal() -> None:
    found = attacked({"1": NORMAL, "2": NORMAL}, {"1": BABBLE, "2": NORMAL})
    assert found["flips.normal_to_abnormal"].value == 0.0
    assert found["flips.to_silence"].value == 0.5


def test_devices_alone_leave_a_report_normal_though_its_findings_differ() -> None:
    tube = f"{NORMAL} An endotracheal tube is in place."
    found = attacked({"1": NORMAL, "2": NORMAL}, {"1": tube, "2": NORMAL})
    assert found["flip_rate"].value == 0.5
    assert found["flips.normal_to_abnormal"].value == 0.0


def test_answers_by_hand() -> None:
    """Clean yes, yes, no, no; then no, yes, yes, no. The fifth label is unknown and does not count."""
    known = [truth("s1", e=1, o=1), truth("s2", e=0, o=0), truth("s3", e=1)]
    before = {"s1": image(e=0.9, o=0.8), "s2": image(e=0.2, o=0.1), "s3": image(e=0.9, o=0.9)}
    after = {"s1": image(e=0.4, o=0.8), "s2": image(e=0.6, o=0.1), "s3": image(e=0.9, o=0.1)}
    made = audit(known, lines("a", "clean", before), lines("a", "fgsm@0.01", after))
    found = made.outcome(made.tables("a")["fgsm@0.01"]).image
    assert (found["closed_questions.flips"].value, found["closed_questions.flips"].n) == (pytest.approx(2 / 5), 5)
    assert (found["closed_questions.flips.yes_to_no"].value, found["closed_questions.flips.yes_to_no"].n) == (
        pytest.approx(1 / 3),
        3,
    )
    assert (found["closed_questions.flips.no_to_yes"].value, found["closed_questions.flips.no_to_yes"].n) == (
        pytest.approx(1 / 2),
        2,
    )
    assert math.isnan(found["flip_rate"].value)

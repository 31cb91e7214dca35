"""No defence may change what a report says: planted ones that do are caught, whatever they do."""

from __future__ import annotations

import numpy as np
import pytest
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.extraction.defence.base import Defence, DefenceRejected, FindingChanged, check_on_benign
from cxrlab.extraction.defence.finding_preservation import claims, difference

REPORT = "There is a small left pleural effusion. No pneumothorax. The lungs are clear."
IMAGE = np.zeros((8, 8), np.uint8)


class Planted(Defence):
    """Replaces one text by another."""

    name = "planted"

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def reword(self, report: str) -> str:
        return report.replace(self.old, self.new)


class MayDrop(Planted):
    drops = ("severity",)


@every_row(
    ("old", "new", "fault"),
    [
        ("left", "right", "it no longer states 'pleural effusion, present, left, mild'"),
        ("No pneumothorax. ", "", "it no longer states 'pneumothorax, absent'"),
        ("No pneumothorax", "Pneumothorax", "it no longer states 'pneumothorax, absent'"),
        ("There is a", "Possible", "it no longer states 'pleural effusion, present, left, mild'"),
        ("small ", "large ", "it no longer states 'pleural effusion, present, left, mild'"),
        ("small ", "", "it no longer states 'pleural effusion, present, left, mild'"),
        ("No pneumothorax.", "No pneumothorax. Cardiomegaly.", "it adds 'cardiomegaly, present'"),
        (" The lungs are clear.", "", "it no longer states that something is normal"),
    ],
)
def test_a_planted_bad_defence_hands_out_nothing_and_is_rejected(old: str, new: str, fault: str) -> None:
    bad = Planted(old, new)
    with pytest.raises(FindingChanged, match="changed a finding") as caught:
        bad.answer(IMAGE, REPORT, "someone", 0)
    assert fault in str(caught.value)
    with pytest.raises(DefenceRejected, match="was rejected on benign report 2 of 3") as rejected:
        check_on_benign(bad, ["No edema.", REPORT, REPORT])
    assert fault in str(rejected.value)


def test_a_detail_may_be_dropped_where_the_class_says_so_and_never_changed() -> None:
    assert MayDrop("small ", "").answer(IMAGE, REPORT, "someone", 0).text == REPORT.replace("small ", "")
    with pytest.raises(FindingChanged):
        MayDrop("left ", "").answer(IMAGE, REPORT, "someone", 0)


def test_a_denial_keeps_its_details_even_then() -> None:
    """No large effusion is not no effusion."""
    with pytest.raises(FindingChanged):
        MayDrop("large ", "").answer(IMAGE, "No large pleural effusion.", "someone", 0)


def test_two_things_are_not_one_and_a_repeated_denial_is_one() -> None:
    twice = "There is a left nodule. There is another left nodule."
    assert difference(twice, "There is a left nodule.") is not None
    assert difference("No edema. No edema.", "No edema.") is None
    assert claims(twice).present.total() == 2


def test_nothing_may_become_normal() -> None:
    assert difference("No edema.", "No edema. The lungs are clear.") == "it calls normal what the report does not"


def test_a_class_that_wants_to_drop_a_side_or_to_refuse_with_a_finding_cannot_be_written() -> None:
    with pytest.raises(TypeError, match="may not drop side"):
        type("Sideless", (Defence,), {"name": "x", "drops": ("side",)})
    with pytest.raises(TypeError, match="The lungs are clear"):
        type("Reassuring", (Defence,), {"name": "x", "refusal": "The lungs are clear."})


def test_a_harmless_defence_passes_with_its_bound() -> None:
    """None of 10 unsafe: the exact upper end p solves (1 - p)^10 = 0.05, so p = 1 - 0.05^0.1 = 0.2589."""
    found = check_on_benign(Planted("There is a", "A"), [REPORT] * 10)
    assert (found.n, found.reworded) == (10, 10)
    assert found.most_unsafe == pytest.approx(0.2589, abs=1e-4)
    with pytest.raises(DataError, match="without a report"):
        check_on_benign(Planted("a", "b"), [])

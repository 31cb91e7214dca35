"""Credit between neighbouring findings."""

from __future__ import annotations

import pytest

from cxrlab.core.vocabulary import OBSERVATIONS
from cxrlab.findings.relatedness import IN_CONTEXT, RELATED, RelatedInContext, implies, relatedness, restates
from cxrlab.findings.significance import INDICATIONS


def test_every_row_names_two_different_observations_once_with_a_reason() -> None:
    pairs = [frozenset((row.one, row.other)) for row in RELATED]
    assert all(len(pair) == 2 and pair <= set(OBSERVATIONS) for pair in pairs)
    assert len(set(pairs)) == len(pairs)
    assert all(row.reason and 0 < row.credit < 1 for row in RELATED)


def test_credit_is_the_same_both_ways() -> None:
    assert all(relatedness(a, b) == relatedness(b, a) for a in OBSERVATIONS for b in OBSERVATIONS)


def test_the_same_is_one_and_unrelated_names_are_nothing() -> None:
    assert relatedness("edema", "edema") == 1
    assert relatedness("pneumothorax", "scoliosis") == 0


@pytest.mark.parametrize("row", IN_CONTEXT, ids=lambda row: f"{row.one}-{row.other}")
def test_the_indication_can_make_a_sign_and_its_cause_one(row: RelatedInContext) -> None:
    word = INDICATIONS[row.indication][0].upper()
    assert row.reason and relatedness(row.one, row.other, f"Patient with {word}.") == row.credit
    for indication in (None, "Preoperative."):
        assert relatedness(row.one, row.other, indication) < row.credit


def test_an_unnamed_device_is_half_of_any_device() -> None:
    assert relatedness("port", "other device") == 0.5
    assert relatedness("monitoring leads", "other device") == 0


def test_a_sign_and_its_cause_restate_each_other_and_two_lesions_do_not() -> None:
    assert restates("lung opacity", "pneumonia") and restates("port", "other device")
    assert not restates("nodule", "mass") and not restates("mass", "nodule")
    assert not restates("edema", "edema") and not restates("edema", "scoliosis")


def test_the_more_exact_name_implies_the_other_and_not_the_reverse() -> None:
    assert implies("pneumonia", "lung opacity") and not implies("lung opacity", "pneumonia")
    assert implies("rib fracture", "other fracture") and not implies("edema", "edema")


def test_only_rows_that_could_stand_for_each_other_need_to_be_kept_apart() -> None:
    """Below a half two names are two findings anyway; a flag there would say nothing."""
    assert all(row.credit >= 0.5 for row in RELATED if row.apart)

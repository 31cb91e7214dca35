from __future__ import annotations

import math

import pytest
from tables import every_row
from tallies import f1_of, mean

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Presence
from cxrlab.evaluation.score import get_age_band, mentions_device, score_slices, select_slices
from cxrlab.evaluation.score_inputs import Attributes


@every_row(
    ("age", "band"),
    [
        (0, "<18"),
        (17.99, "<18"),
        (18, "18-39"),
        (39.9, "18-39"),
        (40, "40-59"),
        (60, "60-79"),
        (79.5, "60-79"),
        (80, "80+"),
        (104, "80+"),
        (math.nan, "unknown"),
        (-1, "unknown"),
    ],
)
def test_bands_begin_at_their_lower_end(age: float, band: str) -> None:
    assert get_age_band(age) == band


def test_a_device_must_be_there() -> None:
    """A tube that was denied or removed is no device in place."""
    there, gone = Finding("endotracheal tube", Presence.PRESENT), Finding("endotracheal tube", Presence.ABSENT)
    assert mentions_device([there]) and not mentions_device([gone]) and not mentions_device([])
    assert not mentions_device([Finding("pleural effusion", Presence.PRESENT)])


def test_slices_are_named_and_ordered() -> None:
    """Ages by age, not by alphabet; what is unknown last; what is the same everywhere makes no slice."""
    reported = [
        Attributes("PA", "F", 85, True),
        Attributes("AP", "M", 5, False),
        Attributes("PA", None, 45, True),
    ]
    masks = select_slices(reported)
    assert list(masks) == [
        "view=AP", "view=PA", "sex=F", "sex=M", "sex=unknown", "age=<18", "age=40-59", "age=80+",
        "device=absent", "device=present",
    ]  # fmt: skip
    assert masks["view=PA"].tolist() == [True, False, True]


def test_an_attribute_that_tells_nothing_makes_no_slice() -> None:
    assert select_slices([Attributes(), Attributes()]) == {}
    assert select_slices([Attributes(view="PA"), Attributes(view="PA")]) == {}
    assert list(select_slices([Attributes(view="PA"), Attributes()])) == ["view=PA", "view=unknown"]


def test_every_slice_has_size_value_and_interval() -> None:
    """Women score 1, men 0 with one undefined; forty women of forty patients, four men of two."""
    values = [1.0] * 40 + [0.0, 0.0, 0.0, math.nan]
    patients = [f"f{k}" for k in range(40)] + ["m1", "m1", "m2", "m2"]
    reported = [Attributes(sex="F")] * 40 + [Attributes(sex="M")] * 4
    found = score_slices([mean(values)], patients, reported, rng=generator(1))
    women, men = found["sex=F"]["mean"], found["sex=M"]["mean"]
    assert (women.value, women.high, women.n, women.patients, women.small) == (1, 1, 40, 40, False)
    assert women.low == pytest.approx(0.025 ** (1 / 40))
    assert (men.value, men.n, men.undefined, men.patients, men.small) == (0, 3, 1, 2, True)


def test_a_slice_of_one_patient_has_a_value_and_no_interval() -> None:
    found = score_slices([mean([0.2, 0.4])], ["a", "b"], [Attributes(sex="F"), Attributes(sex="M")], rng=generator(1))
    assert found["sex=F"]["mean"].value == 0.2 and math.isnan(found["sex=F"]["mean"].low)


def test_metrics_of_sums_are_summed_within_the_slice() -> None:
    """F1 from the two rows of the view: 2·2 / (2·2 + 1 + 1)."""
    counts = [[1, 1, 0, 0], [1, 0, 1, 0], [0, 9, 9, 0]]
    reported = [Attributes(view="PA"), Attributes(view="PA"), Attributes(view="AP")]
    one, two = f1_of(counts, "one"), f1_of(counts, "two")
    found = score_slices([one, two], list("abc"), reported, rng=generator(1))
    assert found["view=PA"]["one"].value == pytest.approx(4 / 6)
    assert found["view=PA"]["one"] == found["view=PA"]["two"]


def test_attributes_of_another_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="1 attributes do not fit 2 patients"):
        score_slices([mean([1, 2])], ["a", "b"], [Attributes()], rng=generator(1))

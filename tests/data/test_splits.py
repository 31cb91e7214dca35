"""Splits follow the patient and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.records import Study
from cxrlab.data.corpus import FRACTIONS, assign_split, check_fractions, leakage, with_splits


def test_shares_are_kept_over_many_patients() -> None:
    """40,000 patients: one standard deviation of a 10 % share is 0.15 points, so 0.6 is four of them."""
    counts = Counter(assign_split(f"p{number}", 7) for number in range(40_000))
    for name, share in FRACTIONS.items():
        assert abs(counts[name] / 40_000 - share) < 0.006


def test_a_split_depends_on_patient_and_seed_alone() -> None:
    """Adding patients must not move those already there; another seed must."""
    few = {p: assign_split(p, 7) for p in ("a", "b", "c")}
    assert few == {p: assign_split(p, 7) for p in ("c", "x", "b", "y", "a") if p in few}
    moved = sum(assign_split(f"p{n}", 7) != assign_split(f"p{n}", 8) for n in range(2000))
    assert 0.27 < moved / 2000 < 0.41  # independent draws differ with probability 1 - (0.64 + 0.01 + 0.01) = 0.34


def test_a_share_of_zero_or_one() -> None:
    """The ends of the range: everything in test, nothing elsewhere."""
    assert {assign_split(f"p{n}", 7, {"test": 1.0}) for n in range(200)} == {"test"}
    assert "val" not in {assign_split(f"p{n}", 7, {"train": 0.5, "val": 0.0, "test": 0.5}) for n in range(200)}


def test_growing_train_moves_no_train_patient_out() -> None:
    """The order of the splits is fixed, so that a larger share only takes in more."""
    for number in range(500):
        if assign_split(f"p{number}", 7, {"train": 0.5, "test": 0.5}) == "train":
            assert assign_split(f"p{number}", 7, {"train": 0.7, "test": 0.3}) == "train"


def test_studies_of_one_patient_stay_together() -> None:
    """That is the point of it."""
    studies = [Study(f"s{n}", f"p{n // 4}", split="test") for n in range(400)]
    divided = list(with_splits(studies, 7))
    assert leakage((study.patient, study.split) for study in divided) == {}
    assert {study.split for study in divided} == {"train", "val", "test"}


def test_leakage_names_the_patient_and_the_splits() -> None:
    """A study without a split is in none."""
    places = [("p1", "test"), ("p1", "train"), ("p2", "val"), ("p2", None)]
    assert leakage(places) == {"p1": ("train", "test")}


@pytest.mark.parametrize(
    ("fractions", "message"),
    [({"train": 0.8, "val": 0.1}, "sum to 0.9"), ({"trian": 1.0}, "'train'"), ({"train": 1.5, "val": -0.5}, "0 to 1")],
)
def test_bad_shares_are_refused(fractions: dict[str, float], message: str) -> None:
    """Shares that do not sum to 1 would quietly enlarge the last split."""
    with pytest.raises(ConfigError, match=message):
        check_fractions(fractions)

"""Images made for one model and shown to another."""

from __future__ import annotations

import math
from typing import Any

import pytest
from small_evidence import audit, image, lines, truth

from cxrlab.robustness.comparison import transfer

NAMES = [f"s{number}" for number in range(1, 9)]
STUDIES = [truth(study, e=1) for study in NAMES]
PGD = "pgd@2/255"


def answers(right: int) -> dict[str, Any]:
    return {study: image(e=0.9 if place < right else 0.2) for place, study in enumerate(NAMES)}


def moved(own: int, foreign: int) -> dict[str, Any]:
    """What becomes of b, right about all eight when clean, under its own images and under those of a."""
    made = audit(
        STUDIES,
        lines("a", "clean", answers(8)),
        lines("b", "clean", answers(8)),
        lines("b", PGD, answers(own)),
        lines("b", PGD, answers(foreign), crafted_on="a"),
    )
    return transfer(made, "a", "b")[PGD]


def test_the_share_of_harm_by_hand() -> None:
    """Its own images take six of eight answers, those of a three: half of the harm goes along."""
    found = moved(own=2, foreign=5)
    assert set(found) == {"a_to_b"}
    row = found["a_to_b"]
    assert row["closed_questions.accuracy"]["value"] == 5 / 8
    assert row["closed_questions.accuracy"]["difference"]["value"] == -3 / 8
    assert row["ratio"]["value"] == pytest.approx(3 / 6)
    assert row["ratio"]["low"] <= 0.5 <= row["ratio"]["high"]
    assert row["flip_rate"]["n"] == 0


def test_a_share_of_no_harm_is_not_a_number() -> None:
    assert math.isnan(moved(own=8, foreign=5)["a_to_b"]["ratio"]["value"])


def test_a_share_that_divides_by_next_to_nothing_has_no_interval() -> None:
    """One of eight answers falls under its own attack: a resample without that study has no harm to divide by."""
    ratio = moved(own=7, foreign=7)["a_to_b"]["ratio"]
    assert ratio["value"] == 1
    assert math.isnan(ratio["low"])

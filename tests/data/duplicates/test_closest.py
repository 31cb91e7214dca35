"""Texts beside a library of texts, and texts inside others."""

from __future__ import annotations

import pytest

from cxrlab.data.duplicates import NEAR_SHARE, Phrases, closest

LONG = (
    "The heart is mildly enlarged and the aorta is tortuous, there is a small effusion at the left base with some "
    "atelectasis, and no pneumothorax is seen on either side of the chest today."
)
OTHER = "Degenerative changes of the thoracic spine are present without an acute fracture of any rib."


def test_the_same_words_are_1_whatever_their_case_and_changed_words_less() -> None:
    """One word of thirty-two changed takes three of its thirty phrases: 27 of 33 are common."""
    changed = LONG.replace("small", "large")
    shares = closest([LONG.upper().replace(",", " ;"), changed, OTHER, "", "clear"], [LONG])
    assert shares[0] == 1 and shares[2] < 0.1 and shares[3] == shares[4] == 0
    assert shares[1] == pytest.approx(27 / 33, abs=0.1) and shares[1] < 1
    assert closest([LONG], []).tolist() == [0.0]
    assert closest([LONG, LONG], [OTHER, LONG]).tolist() == [1.0, 1.0]


def test_a_text_is_found_behind_another_beginning_and_cut_short() -> None:
    whole = Phrases(LONG)
    doubled = Phrases(f"{OTHER} {LONG}")
    assert whole.share(doubled) == doubled.share(whole) == 1
    assert whole.share(Phrases(LONG[: len(LONG) // 2])) >= NEAR_SHARE, "half of its words"
    assert whole.share(Phrases(OTHER)) < NEAR_SHARE and whole.share(Phrases("")) == 0
    assert Phrases("").share(Phrases("")) == 0
    assert whole.share(Phrases("There is a small effusion")) == 0, "too short to be distinguished from chance"
    assert Phrases("Clear lungs.").share(Phrases("clear lungs")) == 1 and 0 < NEAR_SHARE < 1
    one, two = "abcdefghijklmnopqr", "abcdefghij01234567"
    assert Phrases(" ".join(one)).share(Phrases(" ".join(two))) == 8 / 16, "abc, bcd, …, hij of sixteen phrases"

from __future__ import annotations

import numpy as np
import pytest

from cxrlab.data.duplicates import HASHES, NEAR_SHARE, share, signature, words


def true_share(one: list[str], other: list[str]) -> float:
    a, b = ({tuple(text[k : k + 3]) for k in range(len(text) - 2)} for text in (one, other))
    return len(a & b) / len(a | b)


def estimate(one: list[str], other: list[str]) -> float:
    return float(share(signature(one)[None], signature(other)[None])[0])


def test_words_are_what_counts() -> None:
    assert words("The HEART, is___normal!\n 2.5 cm") == ["the", "heart", "is", "normal", "2", "5", "cm"]
    assert words("Área   cardíaca\tnormal.") == ["área", "cardíaca", "normal"]
    assert words(" … ___ ") == []


@pytest.mark.parametrize("changed", [0.0, 0.02, 0.05, 0.2, 1.0])
def test_the_estimate_is_the_share_of_common_phrases(changed: float) -> None:
    """Unbiased: over 60 texts the mean error is a few times 0.045 / sqrt(60); single ones stay within four errors."""
    rng = np.random.default_rng(int(changed * 100))
    vocabulary = [f"w{k}" for k in range(400)]
    errors = []
    for _ in range(60):
        one = rng.choice(vocabulary, 70).tolist()
        other = [str(rng.choice(vocabulary)) if rng.random() < changed else word for word in one]
        errors.append(estimate(one, other) - true_share(one, other))
    assert abs(np.mean(errors)) < 0.02 and np.abs(errors).max() < 0.18


def test_one_word_in_thirty_is_a_near_duplicate_by_the_true_share() -> None:
    """28 phrases, of which a changed word touches three: 25 common of 31 together = 0.806."""
    text = [f"w{k}" for k in range(30)]
    other = [*text[:15], "other", *text[16:]]
    assert true_share(text, other) == pytest.approx(25 / 31) and 25 / 31 > NEAR_SHARE


def test_order_matters_and_short_texts_have_one_phrase() -> None:
    assert signature(["clear"]).shape == (HASHES,)
    assert estimate(["lungs", "clear"], ["lungs", "clear"]) == 1.0
    assert estimate(["lungs", "clear"], ["clear", "lungs"]) < 0.2
    text = [f"w{k}" for k in range(40)]
    assert estimate(text, text[::-1]) < 0.2

"""BLEU from counts: published values, and numbers a person can check."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from cxrlab.metrics.bleu import coco_bleu, rows_of_words, sacre_bleu
from cxrlab.metrics.ngrams import NgramIndex
from cxrlab.metrics.rouge import rouge_l, rouge_n

CASES = json.loads((Path(__file__).parent / "cases" / "radeval_counts.json").read_text())["cases"]
REFERENCES = [
    "Mild cardiomegaly with small bilateral pleural effusions and basilar atelectasis.",
    "No pleural effusions or pneumothoraces.",
]
CANDIDATES = [
    "Mildly enlarged cardiac silhouette with small pleural effusions and dependent bibasilar atelectasis.",
    "No pleural effusions or pneumothoraces.",
]


def test_hand_worked_row_and_values() -> None:
    """`a b c d e` for `a b c d f g`: 4, 3, 2, 1 matches of 5, 4, 3, 2; six words wanted, so exp(1 - 6/5)."""
    row = rows_of_words(["a b c d f g".split()], ["a b c d e".split()])
    assert row.tolist() == [[4, 3, 2, 1, 5, 4, 3, 2, 6, 1]]
    brevity = math.exp(1 - 6 / 5)
    assert coco_bleu(row, 1)[0] == pytest.approx(brevity * 4 / 5)
    assert coco_bleu(row, 2)[0] == pytest.approx(brevity * (4 / 5 * 3 / 4) ** (1 / 2))
    assert coco_bleu(row, 4)[0] == pytest.approx(brevity * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4))
    assert sacre_bleu(row)[0] == pytest.approx(brevity * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4))


def test_a_word_counts_no_oftener_than_the_reference_has_it() -> None:
    """The one-word floor: seven times `the` against two of them."""
    row = rows_of_words(["the cat is on the mat x".split()], [["the"] * 7])
    assert coco_bleu(row, 1)[0] == pytest.approx(2 / 7)


def test_exponential_smoothing() -> None:
    """`a c b` for `a b c d`: no run of two or three words matches: 1/2 of 2 runs, 1/4 of 1; none of four: 0."""
    assert sacre_bleu(rows_of_words([list("abcd")], [list("acb")]))[0] == 0.0
    smoothed = (3 / 4 * 1 / 2 / 3 * 1 / 4 / 2 * 1 / 8 / 1) ** (1 / 4)
    assert sacre_bleu(rows_of_words([list("abcd")], [list("acbx")]))[0] == pytest.approx(smoothed)


def test_sums_of_any_shape() -> None:
    """A bootstrap hands in [samples, 10]; a sample without a pair has no value."""
    rows = rows_of_words([list("abcd"), list("efgh")], [list("abcd"), list("efgx")])
    sums = np.stack([rows.sum(axis=0), 2 * rows[0], 0 * rows[0]])
    for values in (coco_bleu(sums, 4), sacre_bleu(sums)):
        assert values.shape == (3,)
        assert values[1] == pytest.approx(1.0) and 0 < values[0] < 1 and np.isnan(values[2])


def test_published_two_pairs() -> None:
    """RadEval's example: white-space words, case kept, to the last digit."""
    rows = rows_of_words([text.split() for text in REFERENCES], [text.split() for text in CANDIDATES])
    assert round(float(coco_bleu(rows.sum(axis=0), 4)), 4) == 0.3605
    assert coco_bleu(rows, 4).tolist() == pytest.approx([3.50843969530069e-05, 0.9999999994791672], rel=1e-12)


def test_published_oddity_of_three_words() -> None:
    """An identical report of three words has no run of four: (tiny / small) ** (1/4)."""
    words = ["No pleural effusion.".split()]
    assert coco_bleu(rows_of_words(words, words), 4)[0] == pytest.approx(0.0316, abs=5e-5)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_published_values_of_numbered_words(case: dict[str, dict[str, object]]) -> None:
    """Five and six pairs of RadEval's tests, to as many digits as are published."""
    words, stems, expected = case["words"], case["stems"], case["expected"]
    rows = rows_of_words(words["references"], words["candidates"])
    index = NgramIndex(2)
    reported, said = index.add(stems["references"]), index.add(stems["candidates"])
    longest = rouge_l(stems["references"], stems["candidates"])
    ours = {f"bleu{order}": coco_bleu(rows.sum(axis=0), order) for order in (1, 2, 3, 4)}
    ours |= {f"rouge{order}": rouge_n(index.counts[order - 1], reported, said).mean() for order in (1, 2)}
    ours |= {"rougeL": longest.mean(), "rougeL_by_pair": longest, "bleu4_by_pair": coco_bleu(rows, 4)}
    for name, value in expected.items():
        digits = 5e-5 if isinstance(value, float) and round(value, 4) == value else 1e-12
        assert ours[name] == pytest.approx(value, rel=1e-9, abs=digits if isinstance(value, float) else 0), name

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.model_interfaces import TokenEncoder, TokenVectors
from cxrlab.metrics.bertscore import DISTILROBERTA_5, Baseline, BertScore, Idf, bert_score
from cxrlab.metrics.report_pairs import Batch, Pair

# Unit vectors in a plane: "b" stands 60° from "a" (cosine 1/2) and 30° from "c".
TURN = {"[CLS]": 180.0, "a": 0.0, "b": 60.0, "c": 90.0, ".": 240.0}


class Plane:
    """Every word a fixed vector of its own length; [CLS] before each text."""

    name = "plane/1"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        self.seen += texts
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> TokenVectors:
        tokens = ("[CLS]", *text.split())
        angles = np.radians([TURN[token] for token in tokens])
        length = np.arange(1, len(tokens) + 1)[:, None]
        vectors = length * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return TokenVectors(tokens, vectors.astype(np.float32), np.array([token == "[CLS]" for token in tokens]))


def pair(reference: str, candidate: str, idf: Idf | None = None) -> list[float]:
    reported, said = Plane().encode_tokens([reference, candidate])
    return bert_score(reported, said, idf).tolist()


def test_the_fixture_is_an_encoder() -> None:
    assert isinstance(Plane(), TokenEncoder)


def test_each_token_takes_its_best_match_by_cosine() -> None:
    """Candidate "b" meets "c" at cos 30°. Of the reference, "a" meets "b" at 1/2, "c" at cos 30°."""
    third = math.cos(math.radians(30))
    precision, recall = third, (0.5 + third) / 2
    assert pair("a c", "b") == pytest.approx(
        [precision, recall, 2 * precision * recall / (precision + recall)], abs=1e-6
    )


def test_identity_is_1() -> None:
    assert pair("a b c", "a b c") == pytest.approx([1, 1, 1])


def test_special_tokens_can_be_matched_and_weigh_nothing() -> None:
    """[CLS] lies opposite to "a" on both sides: it matches itself at 1 and must not raise the score of "a" and "b"."""
    assert pair("a", "b") == pytest.approx([0.5, 0.5, 0.5], abs=1e-6)
    far = TokenVectors(("[CLS]", "x"), np.array([[0, 1], [1, 0]], np.float32), np.array([True, False]))
    near = TokenVectors(("[CLS]", "y"), np.array([[1, 0], [0, -1]], np.float32), np.array([True, False]))
    # "x" meets the other text's [CLS] at 1 and "y" at 0; "y" meets [CLS] of the first at -1 and "x" at 0.
    assert bert_score(far, near).tolist() == pytest.approx([0.0, 1.0, 0.0])


def test_an_empty_candidate_scores_0_and_an_empty_reference_is_undefined() -> None:
    assert pair("a", "") == [0, 0, 0]
    assert all(math.isnan(x) for x in pair("", "a"))
    assert all(math.isnan(x) for x in pair("", ""))


def test_opposite_signs_that_cancel_give_0_and_not_a_crash() -> None:
    up = TokenVectors(("x",), np.array([[1, 0]], np.float32), np.array([False]))
    blank = TokenVectors(("y",), np.array([[0, 0]], np.float32), np.array([False]))
    assert bert_score(up, blank).tolist() == [0, 0, 0]


def test_idf_weighs_rare_tokens_more() -> None:
    """Of two documents both hold ".", one holds "a": weights log(3/3) = 0 and log(3/2); unknown "b" has log 3."""
    idf = Idf.of(["a .", "c ."], Plane())
    assert idf.weights([".", "a", "b", "[CLS]"]).tolist() == pytest.approx([0, math.log(3 / 2), math.log(3), 0])
    weighted = pair("b . .", "a . .", idf)
    assert weighted[0] == pytest.approx(0.5, abs=1e-6)  # the stops match at 1 and weigh nothing
    assert pair("b . .", "a . .")[0] == pytest.approx(2.5 / 3, abs=1e-6)


def test_a_text_whose_every_token_weighs_nothing_counts_them_equally() -> None:
    """The package divides 0 by 0 here and calls an exact match 0."""
    idf = Idf.of(["a .", "c ."], Plane())
    assert pair(". .", ". .", idf) == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("corpus", [[], ["a"], ["a", " a "]])
def test_weights_from_a_single_text_are_refused(corpus: list[str]) -> None:
    with pytest.raises(ConfigError, match="at least two different texts"):
        Idf.of(corpus, Plane())


def test_rescaling_maps_the_baseline_to_0_and_1_to_1() -> None:
    """The published artefact: a raw F of 0 becomes -5.55 with distilroberta-base's baseline."""
    base = [DISTILROBERTA_5.precision, DISTILROBERTA_5.recall, DISTILROBERTA_5.f1]
    rescaled = DISTILROBERTA_5.rescale(np.array([base, [1, 1, 1], [0, 0, 0]]))
    np.testing.assert_allclose(rescaled[:2], [[0, 0, 0], [1, 1, 1]], atol=1e-12)
    assert rescaled[2, 2] == pytest.approx(-5.5501568, abs=1e-6)
    with pytest.raises(ConfigError, match="recall is 1"):
        Baseline(0.5, 1.0, 0.5)


def test_a_batch_encodes_each_text_once_and_keeps_every_pair() -> None:
    encoder = Plane()
    family = BertScore(encoder)
    pairs = [
        Pair("1", "a  c", "b"),
        Pair("2", " a c", "b"),
        Pair("3", "a", None),
        Pair("4", None, "a"),
        Pair("5", "", "a"),
    ]
    f, precision, recall = family.tallies(Batch(pairs))
    assert sorted(encoder.seen) == ["", "a", "a c", "b"]
    assert f.by_pair[0] == f.by_pair[1] and f.by_pair[2] == 0
    assert f.defined.tolist() == [True, True, True, False, False]
    assert precision.by_pair[0] == pytest.approx(math.cos(math.radians(30)), abs=1e-6)
    assert recall.by_pair[0] < precision.by_pair[0]
    np.testing.assert_array_equal(family.f1(Batch(pairs)), f.by_pair)


def test_order_and_company_never_change_a_score() -> None:
    pairs = [Pair("1", "a c", "b"), Pair("2", "a b .", "c a"), Pair("3", "c", "c b")]
    family = BertScore(Plane(), baseline=DISTILROBERTA_5, idf=Idf.of(["a .", "b c"], Plane()))
    together = family.f1(Batch(pairs))
    assert family.f1(Batch(pairs[::-1]))[::-1].tolist() == together.tolist()
    assert [float(family.f1(Batch([one]))[0]) for one in pairs] == together.tolist()


def test_the_signature_names_encoder_weights_and_baseline() -> None:
    idf = Idf.of(["a .", "b c"], Plane())
    raw, full = BertScore(Plane()).metrics[0], BertScore(Plane(), baseline=DISTILROBERTA_5, idf=idf).metrics[0]
    assert "encoder:plane/1|idf:none|rescaled:no" in raw.signature and raw.range == (-1, 1)
    assert f"idf:{idf.name}|rescaled:0.84732/0.84759504/0.8473319" in full.signature
    assert full.range == (-math.inf, 1) and idf.name != Idf.of(["a .", "b ."], Plane()).name

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.radcliq import MODELS, PARTS, RadCliq, bleu2, bleu2_of, semb
from cxrlab.metrics.report_pairs import Batch, Pair

BATCH = Batch([Pair("1", "a b c", "a b c"), Pair("2", "a b c", ""), Pair("3", None, "a")])


@pytest.mark.parametrize(
    ("version", "parts", "value"),
    [
        ("radcliq0", [1, 1, 1, 1], -0.24213342),
        ("radcliq0", [0, 0, 0, 0], 5.51616080),
        ("radcliq1", [1, 1, 1, 1], -1.44069028),
        ("radcliq1", [0, 0, 0, 0], 2.45014308),
        # Equal reports without a relation: RadGraph's part is one half.
        ("radcliq1", [0.5, 1, 1, 1], -0.81808),
        # All else perfect and BERTScore lost to weights of 0: the published "floor" of an exact match.
        ("radcliq1", [1, (0 - 0.8473319) / (1 - 0.8473319), 1, 1], 9.3726),
    ],
)
def test_the_closed_form_gives_the_published_values(version: str, parts: list[float], value: float) -> None:
    assert MODELS[version](np.array(parts, float)) == pytest.approx(value, abs=5e-5)


def test_each_component_moves_the_score_by_its_flat_coefficient() -> None:
    """Coefficient over scale; BLEU is the one that raises v0, and is nothing in v1."""
    steps = {name: MODELS[name](np.eye(4)) - MODELS[name](np.zeros(4)) for name in MODELS}
    np.testing.assert_allclose(steps["radcliq0"], [-1.5890342, -3.0098301, -1.8733717, 0.7139419], atol=1e-7)
    np.testing.assert_allclose(steps["radcliq1"], [-1.2452163, -1.6508453, -0.9947717, 0.0], atol=1e-7)


def test_better_is_lower_and_never_a_reciprocal() -> None:
    """The order perfect < partly right < wrong holds; 1/x would put the perfect report last."""
    perfect, part, wrong = (float(MODELS["radcliq1"](np.full(4, x))) for x in (1.0, 0.5, 0.0))
    assert perfect < part < wrong and perfect < 0
    family = RadCliq({"radgraph": np.ones(3), "bertscore": np.ones(3), "semb": np.ones(3)})
    assert all(metric.direction == "lower" for metric in family.metrics)
    assert [metric.identity for metric in family.metrics] == pytest.approx([-0.24213342, -1.44069028], abs=1e-8)


def test_a_pair_with_an_undefined_component_is_undefined() -> None:
    family = RadCliq(
        {"radgraph": np.array([1, np.nan, 1]), "bertscore": lambda batch: np.ones(len(batch)), "semb": np.ones(3)}
    )
    v0, v1 = family.tallies(BATCH)
    assert (v1.n, v1.undefined) == (1, 2)
    assert v0.by_pair[0] == pytest.approx(-0.24213342) and v1.value == pytest.approx(-1.44069028)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "RadCliQ needs radgraph, bertscore, semb too"),
        ({"radgraf": np.ones(3)}, "no component 'radgraf'. Did you mean 'radgraph'"),
        ({"radgraph": np.ones(2), "bertscore": np.ones(3), "semb": np.ones(3)}, r"shape \[2\] for 3 pairs"),
    ],
)
def test_components_that_do_not_fit_are_refused(parts: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RadCliq(parts).tallies(BATCH)


def test_the_signature_says_what_the_components_came_from() -> None:
    parts = {name: np.ones(3) for name in PARTS}
    metric = RadCliq(parts, {"radgraph": "radgraph", "bertscore": "distilroberta-base/5"}).metrics[1]
    assert metric.signature.startswith("radcliq1|form:raw|radgraph:radgraph|bertscore:distilroberta-base/5|semb:given|")


def test_bleu2_by_hand() -> None:
    """Four of five words and two of four bigrams agree, equal length: √(4/5 · 2/4)."""
    assert bleu2("no large left effusion.", "no large right effusion.") == pytest.approx(math.sqrt(4 / 5 * 2 / 4))
    assert bleu2("Clear lungs.", "clear  LUNGS .") == 1


def test_bleu2_smooths_and_shortens_as_published() -> None:
    """No bigram agrees: 0.1 over the one bigram. Half as long: e^(1 - 4/2)."""
    assert bleu2("x y", "x z") == pytest.approx(math.sqrt(1 / 2 * 0.1))
    assert bleu2("a b c d", "a b") == pytest.approx(math.exp(-1))
    assert bleu2("edema", "edema") == pytest.approx(math.sqrt(0.1))
    assert bleu2("a b", "a b c d") == pytest.approx(math.sqrt(2 / 4 * 1 / 3))


def test_bleu2_is_0_where_no_word_agrees() -> None:
    for reference, candidate in (("", ""), ("a", ""), ("", "a"), ("a b", "c d")):
        assert bleu2(reference, candidate) == 0


def test_a_repeated_word_counts_as_often_as_the_reference_has_it() -> None:
    assert bleu2("the lungs", "the the the the") == pytest.approx(math.sqrt(1 / 4 * (0.1 / 3)))


def test_bleu2_of_a_batch_is_undefined_without_a_reference() -> None:
    np.testing.assert_array_equal(bleu2_of(BATCH), [1, 0, np.nan])


class Axes:
    """Each text on its own axis of a plane."""

    name = "axes"

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        assert len(set(texts)) == len(texts)
        turn = {"a b c": 0.0, "": math.pi / 2, "a": 0.0}
        return np.array([[math.cos(turn[t]), math.sin(turn[t])] for t in texts], np.float32)


def test_semb_is_the_cosine_of_the_two_embeddings() -> None:
    np.testing.assert_allclose(semb(Axes())(BATCH), [1, 0, np.nan], atol=1e-6)

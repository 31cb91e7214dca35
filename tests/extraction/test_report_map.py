import json
import math

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.extraction.transcript_analysis import (
    MappedReport,
    divergence_gradient,
    joint_probabilities,
    neighbour_probabilities,
    principal_plane,
    report_map,
    tfidf,
    trustworthiness,
    tsne,
)


def clusters(count: int = 30) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(size=(count, 50)), rng.normal(size=(count, 50)) + 1.5])


def swiss_roll(count: int = 160) -> np.ndarray:
    rng = np.random.default_rng(1)
    angle = 1.5 * np.pi * (1 + 2 * rng.random(count))
    return np.stack([angle * np.cos(angle), 21 * rng.random(count), angle * np.sin(angle)], axis=1)


@pytest.mark.parametrize("perplexity", [2.0, 10.0, 40.0])
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_every_row_reaches_its_perplexity_in_any_unit(perplexity, unit):
    chances = neighbour_probabilities(clusters() * unit, perplexity)
    entropy = -(chances * np.log(np.where(chances > 0, chances, 1))).sum(axis=1)
    assert np.abs(entropy - math.log(perplexity)).max() < 1e-5
    assert np.allclose(chances.sum(axis=1), 1) and not chances.diagonal().any()


def test_joint_probabilities_are_symmetric_and_sum_to_one():
    joint = joint_probabilities(clusters(), 10)
    assert np.array_equal(joint, joint.T) and joint.sum() == pytest.approx(1)


def test_the_gradient_is_that_of_the_divergence():
    """Central differences of Σ p ln(p / q) with Student's q at twelve points."""
    rng = np.random.default_rng(2)
    joint, places = joint_probabilities(rng.normal(size=(6, 4)), 3), rng.normal(size=(6, 2))

    def divergence(at: np.ndarray) -> float:
        close = 1 / (1 + ((at[:, None] - at[None, :]) ** 2).sum(axis=2))
        np.fill_diagonal(close, 0)
        off = ~np.eye(6, dtype=bool)
        return float((joint[off] * np.log(joint[off] / (close / close.sum())[off])).sum())

    slope = divergence_gradient(joint, places)
    for index in np.ndindex(6, 2):
        step = np.zeros((6, 2))
        step[index] = 1e-5
        assert (divergence(places + step) - divergence(places - step)) / 2e-5 == pytest.approx(slope[index], abs=1e-8)


def test_two_clusters_in_fifty_dimensions_stay_apart():
    """Every point lies nearer to its own cluster's centre, and the centres are far from both clusters' spread."""
    places = tsne(clusters(), perplexity=10, iterations=300)
    first, second = places[:30], places[30:]
    gap = np.linalg.norm(first.mean(axis=0) - second.mean(axis=0))
    spread = max(np.linalg.norm(side - side.mean(axis=0), axis=1).max() for side in (first, second))
    assert gap > 2 * spread
    assert np.allclose(places.mean(axis=0), 0, atol=1e-9)


def test_the_map_of_a_rolled_sheet_keeps_neighbours_that_a_projection_mixes():
    roll = swiss_roll()
    kept = trustworthiness(roll, tsne(roll, perplexity=20, iterations=300))
    assert kept > 0.97 > trustworthiness(roll, principal_plane(roll)) + 0.05


def test_the_same_vectors_give_the_same_map():
    assert np.array_equal(tsne(clusters(), iterations=50), tsne(clusters(), iterations=50))


@pytest.mark.parametrize("vectors", [np.zeros((0, 3)), np.ones((1, 3)), np.ones((7, 3)), np.eye(4), np.ones((6, 1))])
def test_few_or_equal_points_have_finite_places(vectors):
    places = tsne(vectors, perplexity=2, iterations=20)
    assert places.shape == (len(vectors), 2) and np.isfinite(places).all()


def test_a_perplexity_that_the_points_cannot_have_is_refused():
    with pytest.raises(ConfigError, match="perplexity=30.0 .* 1 to 9"):
        tsne(np.eye(10), perplexity=30.0)


def test_trustworthiness_is_one_for_the_same_points_and_falls_for_shuffled_ones():
    points = swiss_roll(60)
    assert trustworthiness(points, points) == 1
    assert trustworthiness(points, points[np.random.default_rng(0).permutation(60)]) < 0.7
    with pytest.raises(DataError, match="12 points are too few"):
        trustworthiness(points[:12], points[:12])


def test_trustworthiness_by_hand():
    """Points 0, 1, 3, 7 on a line, drawn at 0, 7, 1, 3, with one neighbour each.

    On the map the nearest are 0→2, 1→3, 2→0 and 3→2 (by number). In truth these are the second, third, second and
    first: intrusions 1 + 2 + 1 + 0, so that 1 - 2 · 4 / (4 · 1 · (8 - 3 - 1)) = 0.5.
    """
    line, drawn = np.array([[0.0], [1.0], [3.0], [7.0]]), np.array([[0.0], [7.0], [1.0], [3.0]])
    assert trustworthiness(line, drawn, neighbours=1) == pytest.approx(0.5)


def test_word_counts_weigh_rare_words_more():
    """Three texts, 'a' in two: ln(4/3) + 1; 'b' in one: ln(4/2) + 1."""
    vectors = tfidf(["a b", "a a", ""])
    a, b = math.log(4 / 3) + 1, math.log(4 / 2) + 1
    assert vectors[0] == pytest.approx(np.array([a, b]) / math.hypot(a, b))
    assert vectors[1] == pytest.approx([1, 0]) and not vectors[2].any()


REPORTS = [
    MappedReport("The lungs are clear. The heart is normal.", 0, "clean"),
    MappedReport("The lungs are clear. The heart is normal.", 0, "clean"),
    MappedReport("The lungs are clear. The heart is enlarged.", 1, "perturbed"),
]


def test_rows_hold_each_sentence_once_for_a_round_and_source():
    found = report_map(REPORTS)
    rows = {(row["round"], row["source"], row["text"]): row for row in found["rows"]}
    assert {key: (row["count"], row["abnormal"]) for key, row in rows.items()} == {
        (0, "clean", "The lungs are clear."): (2, False),
        (0, "clean", "The heart is normal."): (2, False),
        (1, "perturbed", "The lungs are clear."): (1, False),
        (1, "perturbed", "The heart is enlarged."): (1, True),
    }
    clear = [(row["x"], row["y"]) for row in rows.values() if row["text"] == "The lungs are clear."]
    assert clear[0] == clear[1]  # one sentence, one place
    assert (found["sentences"], found["left_out"], found["trustworthiness"]) == (3, 0, None)
    json.dumps(found, allow_nan=False)


def test_more_sentences_than_the_map_holds_are_drawn_by_the_seed():
    reports = [MappedReport(f"Nodule {i}.", 0, "clean") for i in range(40)]
    first, again, other = (report_map(reports, most=25, iterations=20, seed=seed) for seed in (0, 0, 1))
    assert first == again and (first["sentences"], first["left_out"]) == (25, 15)
    assert {row["text"] for row in first["rows"]} != {row["text"] for row in other["rows"]}


def test_a_map_of_nothing_is_empty():
    assert report_map([])["rows"] == []

"""A map of the sentences that a victim wrote, for untouched pictures and for perturbed ones.

Sentences become vectors, by a text encoder where one is given, else by counts of their words; t-SNE
(van der Maaten and Hinton, 2008) lays them out in the plane. The package does not depend on
scikit-learn, and a transcript has a few hundred different sentences, so the exact method in numpy
is fast enough: 600 points and 1,000 steps take some seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.protocols import TextEmbedder
from cxrlab.core.randomness import generator
from cxrlab.extraction.anatomy import sentences_of
from cxrlab.extraction.oracles import words_of
from cxrlab.findings.reader import read

Matrix = NDArray[np.float64]
Key = tuple[int, str, str]  # round, source and text of a sentence
MOST = 600  # sentences on one map
NEIGHBOURS = 10  # of each point, for the trustworthiness of a map
EXAGGERATION = 12.0  # of the attraction in the first steps, which lets clusters pass through one another
SMALL = 1e-12  # keeps divisions and logarithms finite


@dataclass(frozen=True)
class MappedReport:
    """A report to be put on the map.

    Args:
        text: The answer of the victim.
        round: Round in which it was asked, from 0.
        source: Whether the picture asked was untouched or perturbed.
    """

    text: str
    round: int
    source: Literal["clean", "perturbed"]


def report_map(
    reports: Sequence[MappedReport],
    *,
    embedder: TextEmbedder | None = None,
    perplexity: float = 30.0,
    iterations: int = 1000,
    most: int = MOST,
    seed: int = 0,
) -> dict[str, Any]:
    """Where each different sentence lies, JSON-ready.

    Args:
        reports: Their sentences are mapped; a sentence written twice is one point with a count.
        embedder: Turns sentences into vectors; None for word counts weighted by rarity.
        perplexity: How many neighbours a sentence minds; lowered to a third of the points where there are few.
        iterations: Steps of the layout.
        most: Different sentences that are mapped; of more, so many are drawn.
        seed: Of that draw, and of nothing else: the layout starts from the principal components.

    Returns:
        `rows` of x, y, round, source, text, abnormal (states something present) and count, one for each different
        sentence of a round and source; `sentences` on the map and `left_out`; `embedding`, `perplexity`; and
        `trustworthiness` of the map, None below twenty sentences.
    """
    counts: Counter[Key] = Counter(
        (row.round, row.source, part.text) for row in reports for part in sentences_of(row.text)
    )
    every = sorted({text for _, _, text in counts})
    texts = _some(every, most, seed)
    vectors = _vectors(texts, embedder)
    used = _bounded(perplexity, len(texts))
    places = tsne(vectors, perplexity=used, iterations=iterations)
    enough = len(texts) >= 2 * NEIGHBOURS
    return {
        "rows": _rows(counts, texts, places),
        "sentences": len(texts),
        "left_out": len(every) - len(texts),
        "embedding": embedder.name if embedder else "tf-idf of words",
        "perplexity": used,
        "trustworthiness": trustworthiness(vectors, places) if enough else None,
    }


def tfidf(texts: Sequence[str]) -> Matrix:
    """Texts [N] → vectors [N, V] of length 1: the count of each word times ln((1 + N) / (1 + texts with it)) + 1.

    A text without a word has a vector of zeros.
    """
    bags = [Counter(words_of(text)) for text in texts]
    column = {word: index for index, word in enumerate(sorted({word for bag in bags for word in bag}))}
    matrix = np.zeros((len(texts), len(column)))
    for row, bag in enumerate(bags):
        for word, count in bag.items():
            matrix[row, column[word]] = count
    matrix *= np.log((1 + len(texts)) / (1 + (matrix > 0).sum(axis=0))) + 1
    length = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(length > 0, length, 1.0)


def tsne(vectors: Matrix, *, perplexity: float = 30.0, iterations: int = 1000) -> Matrix:
    """Vectors [N, D] → places in the plane [N, 2], centred; the same input gives the same places.

    Gradient descent with momentum and a gain for each coordinate, from the two principal components. Fewer
    than five points keep those components, since there is no neighbourhood to preserve.
    """
    places = principal_plane(vectors)
    if len(vectors) < 5:
        return places
    attraction = joint_probabilities(vectors, perplexity)
    places *= 1e-4 / max(float(places[:, 0].std()), SMALL)
    # A rate far above the first number throws a few points about: the map then depends on the last bits of a processor.
    rate = max(len(vectors) / EXAGGERATION / 4, 5.0)
    move, gains = np.zeros_like(places), np.ones_like(places)
    early = iterations // 4
    for step in range(iterations):
        slope = _gradient(attraction * EXAGGERATION if step < early else attraction, places)
        gains = np.where(slope * move < 0, gains + 0.2, gains * 0.8).clip(0.01)
        move = (0.5 if step < early else 0.8) * move - rate * gains * slope
        places += move
        places -= places.mean(axis=0)
    return places


def principal_plane(vectors: Matrix) -> Matrix:
    """The first two principal components [N, 2]; missing ones are 0, and the largest entry of each axis is positive."""
    centred = vectors - vectors.mean(axis=0) if len(vectors) else vectors
    places = np.zeros((len(vectors), 2))
    if min(centred.shape) == 0:
        return places
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    kept = min(2, len(sizes))
    places[:, :kept] = left[:, :kept] * sizes[:kept]
    # The sign of a component is arbitrary and differs between machines.
    signs = np.sign(places[np.abs(places).argmax(axis=0), [0, 1]])
    return places * np.where(signs == 0, 1.0, signs)


def neighbour_probabilities(vectors: Matrix, perplexity: float) -> Matrix:
    """Row i [N, N]: how likely i picks j as its neighbour, by a Gaussian whose width gives this perplexity.

    The entropy of every row is ln(perplexity) to 1e-5, unless more points than that coincide with i.
    """
    count = len(vectors)
    if not 1.0 <= perplexity <= count - 1:
        raise ConfigError(f"perplexity={perplexity} needs more than {count} points; use 1 to {max(count - 1, 1)}.")
    apart = _squared_distances(vectors)
    scale = np.maximum(apart.sum(axis=1, keepdims=True) / max(count - 1, 1), SMALL)
    apart = apart / scale  # a precision of 1 is then a sensible first guess in any unit
    low, high = np.full((count, 1), -60.0), np.full((count, 1), 60.0)  # log2 of the precision
    for _ in range(60):
        middle = (low + high) / 2
        chances, entropy = _gaussian_rows(apart, 2.0**middle)
        wide = entropy > math.log(perplexity)
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return chances


def joint_probabilities(vectors: Matrix, perplexity: float) -> Matrix:
    """Symmetric [N, N] with a diagonal of 0 and a sum of 1."""
    chances = neighbour_probabilities(vectors, perplexity)
    return np.maximum((chances + chances.T) / (2 * len(vectors)), 0.0)


def trustworthiness(vectors: Matrix, places: Matrix, neighbours: int = NEIGHBOURS) -> float:
    """Share of each point's neighbours on the map that are true ones, 0 to 1, intruders weighted by how far they are.

    After Venna and Kaski (2001). Needs more than 1.5 times as many points as neighbours.
    """
    count = len(vectors)
    if 3 * neighbours + 1 >= 2 * count:
        raise DataError(f"{count} points are too few to judge {neighbours} neighbours of each.")
    ranks = np.empty((count, count), dtype=np.int64)  # 0 for the point itself, 1 for its nearest
    np.put_along_axis(ranks, _order(vectors), np.arange(count)[None, :].repeat(count, axis=0), axis=1)
    near = _order(places)[:, 1 : neighbours + 1]
    intrusion = np.maximum(np.take_along_axis(ranks, near, axis=1) - neighbours, 0).sum()
    return float(1 - 2 * intrusion / (count * neighbours * (2 * count - 3 * neighbours - 1)))


def _order(points: Matrix) -> NDArray[np.intp]:
    """For each point all points from near to far, itself first."""
    apart = _squared_distances(points)
    np.fill_diagonal(apart, -1.0)
    return np.argsort(apart, axis=1, kind="stable")


def _squared_distances(points: Matrix) -> Matrix:
    squares = (points**2).sum(axis=1)
    apart: Matrix = np.maximum(squares[:, None] + squares[None, :] - 2 * points @ points.T, 0.0)
    np.fill_diagonal(apart, 0.0)
    return apart


def _gaussian_rows(apart: Matrix, precision: Matrix) -> tuple[Matrix, Matrix]:
    """Chances of each row [N, N] and their entropies [N, 1] in nats."""
    logits = -apart * precision
    np.fill_diagonal(logits, -np.inf)
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    total = weights.sum(axis=1, keepdims=True)
    chances = weights / total
    np.fill_diagonal(logits, 0.0)
    return chances, np.log(total) - (chances * logits).sum(axis=1, keepdims=True)


def _gradient(attraction: Matrix, places: Matrix) -> Matrix:
    """Of the divergence from `attraction` to the map's own neighbourhoods, whose tails are Student's t."""
    closeness = 1 / (1 + _squared_distances(places))
    np.fill_diagonal(closeness, 0.0)
    pull = (attraction - closeness / max(float(closeness.sum()), SMALL)) * closeness
    slope: Matrix = 4 * (pull.sum(axis=1, keepdims=True) * places - pull @ places)
    return slope


def _some(texts: Sequence[str], most: int, seed: int) -> list[str]:
    if len(texts) <= most:
        return list(texts)
    chosen = generator(seed, "report map").choice(len(texts), size=most, replace=False)
    return [texts[index] for index in sorted(chosen)]


def _vectors(texts: Sequence[str], embedder: TextEmbedder | None) -> Matrix:
    return np.asarray(embedder.embed_texts(texts), dtype=np.float64) if embedder and texts else tfidf(texts)


def _bounded(perplexity: float, count: int) -> float:
    return max(1.0, min(float(perplexity), (count - 1) / 3))


def _rows(counts: Counter[Key], texts: Sequence[str], places: Matrix) -> list[dict[str, Any]]:
    where = dict(zip(texts, places.tolist(), strict=True))
    abnormal = {text: any(finding.present for finding in read(text)) for text in texts}
    return [
        {
            "x": where[text][0], "y": where[text][1], "round": number, "source": source,
            "text": text, "abnormal": abnormal[text], "count": count,
        }
        for (number, source, text), count in sorted(counts.items())
        if text in where
    ]  # fmt: skip

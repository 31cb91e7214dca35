"""How varied the answers of a victim are: what a transcript can teach at most.

A victim that answers every natural picture with the same normal report teaches one sentence, however
many queries were paid for. The finding set of a report is every (observation, side) that it states.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.protocols import TextEmbedder
from cxrlab.core.randomness import generator
from cxrlab.extraction.records import Query
from cxrlab.extraction.report_text import FindingSet, report_content, sentences_of, words_of
from cxrlab.findings.excerpts import changed_spans
from cxrlab.findings.reader import read
from cxrlab.metrics.statistics.intervals import ResampledValue

SAMPLE = 100  # reports; what transcripts of different lengths are compared at
TRIALS = 1000
Z_95 = 1.959963984540054


def transcript_diversity(reports: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """The variety of reports, JSON-ready; a number that the reports cannot give is None.

    Args:
        reports: Answers of the victim.
        seed: Of the resampling behind the intervals.

    Returns:
        n: Reports.
        silent: Those that say nothing of an image; they are neither normal nor abnormal and have no finding set.
        distinct_reports: Different texts.
        distinct_finding_sets: Different finding sets, the empty one of a normal report among them.
        distinct_finding_sets_in_100: Expected number in 100 of the reports, for transcripts of other lengths;
            None below 100 reports.
        abnormal_share: Share of speaking reports that state a finding; with `abnormal_share_low`, `_high`
            (95 %, Wilson) and `abnormal_share_n`.
        finding_entropy: Shannon entropy of the finding sets in bits, 0 when all are the same and at most log2(n);
            with `_low` and `_high` (95 %, bootstrap moved by its own bias).
        vocabulary: Distinct words.
        words: Mean words a report, with `words_low` and `words_high` (95 %, bootstrap).
        commonest_report: Share of the commonest text.
        findings: Observation → number of reports that state it, commonest first.
    """
    answers = [report_content(report) for report in reports]
    speaking = [answer for answer in answers if answer.has_statements]
    sets = Counter(answer.findings for answer in speaking)
    abnormal = sum(bool(answer.findings) for answer in speaking)
    low, high = wilson(abnormal, len(speaking))
    texts = Counter(reports)
    return {
        "n": len(reports),
        "silent": len(reports) - len(speaking),
        "distinct_reports": len(texts),
        "distinct_finding_sets": len(sets),
        f"distinct_finding_sets_in_{SAMPLE}": expected_distinct(list(sets.values()), SAMPLE),
        "abnormal_share": abnormal / len(speaking) if speaking else None,
        "abnormal_share_low": low,
        "abnormal_share_high": high,
        "abnormal_share_n": len(speaking),
        **_entropy(list(sets.values()), seed),
        "vocabulary": len({word for text in texts for word in words_of(text)}),
        **_words(np.array([answer.words for answer in answers], dtype=np.float64), seed),
        "commonest_report": max(texts.values()) / len(reports) if reports else None,
        "findings": _counts(answer.findings for answer in speaking),
    }


def diversity_by_round(queries: Sequence[Query], seed: int = 0) -> dict[str, Any]:
    """The variety of a whole transcript and under `rounds` that of each round.

    Refused queries taught nothing: they stay out of every other number and are counted under `refused`.
    """
    answered = [query for query in queries if not query.refused]
    rounds = {
        str(number): transcript_diversity([query.report for query in answered if query.round == number], seed)
        for number in sorted({query.round for query in answered})
    }
    whole = transcript_diversity([query.report for query in answered], seed)
    return {**whole, "refused": len(queries) - len(answered), "rounds": rounds}


def wilson(successes: int, n: int, z: float = Z_95) -> tuple[float | None, float | None]:
    """The Wilson score interval of a share, which keeps its width at 0 and 1; two Nones for n = 0."""
    if n == 0:
        return None, None
    share, spread = successes / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def entropy_bits(counts: Sequence[int]) -> float:
    """Shannon entropy of these counts in bits; 0 when at most one of them is not 0."""
    total = sum(counts)
    return math.fsum(-count / total * math.log2(count / total) for count in counts if 0 < count < total)


def expected_distinct(counts: Sequence[int], sample: int) -> float | None:
    """Expected number of kinds in `sample` drawn without replacement; None when there are fewer than that."""
    total = sum(counts)
    if total < sample:
        return None
    every = math.comb(total, sample)
    return math.fsum(1 - math.comb(total - count, sample) / every for count in counts)


def _entropy(counts: Sequence[int], seed: int) -> dict[str, float | None]:
    total = sum(counts)
    if total == 0:
        return {"finding_entropy": None, "finding_entropy_low": None, "finding_entropy_high": None}
    shares = np.array(counts) / total
    drawn = generator(seed, "diversity", "entropy").multinomial(total, shares, size=TRIALS) / total
    bits = -(drawn * np.log2(drawn, out=np.zeros_like(drawn), where=drawn > 0)).sum(axis=1)
    value = entropy_bits(counts)
    # A resample repeats some sets and misses others, so that its entropy is lower throughout; that is taken off.
    moved = bits - bits.mean() + value
    low, high = ResampledValue(value, moved, np.empty(0), total, (0.0, math.log2(total))).estimate().ends
    return {"finding_entropy": value, "finding_entropy_low": low, "finding_entropy_high": high}


def _words(lengths: np.ndarray[Any, np.dtype[np.float64]], seed: int) -> dict[str, float | None]:
    if not len(lengths):
        return {"words": None, "words_low": None, "words_high": None}
    # Reports of one length are alike here, so a resample is a draw of how often each length comes.
    values, times = np.unique(lengths, return_counts=True)
    drawn = generator(seed, "diversity", "words").multinomial(len(lengths), times / len(lengths), size=TRIALS)
    mean = float(lengths.mean())
    found = ResampledValue(mean, drawn @ values / len(lengths), np.empty(0), len(lengths), (0.0, math.inf))
    low, high = found.estimate().ends
    return {"words": mean, "words_low": low, "words_high": high}


def _counts(sets: Iterable[FindingSet]) -> dict[str, int]:
    counts = Counter(name for findings in sets for name in {name for name, _ in findings})
    return dict(sorted(counts.items(), key=lambda row: (-row[1], row[0])))


Matrix = NDArray[np.float64]
Key = tuple[int, str, str]  # round, source and text of a sentence
MAX_SENTENCES = 600  # sentences on one map
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
    most: int = MAX_SENTENCES,
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


MAX_EXAMPLES = 6


def examples(run: Path, queries: Sequence[Query], most: int = MAX_EXAMPLES) -> list[dict[str, Any]]:
    """Moved pictures, each beside what it was before where that was asked too; the most telling come first.

    Those pairs tell most whose second answer names most new findings; of pictures that were never asked as they were,
    as a guide moves them, those whose answer has most of the wanted findings.

    Args:
        run: Run folder, for what was wanted of each picture.
        queries: All that was answered.
        most: Pictures.
    """
    plain = {query.key: query for query in queries if query.round == 0}
    wanted = {round: _targets(run, round) for round in {query.round for query in queries}}
    rows = []
    for query in queries:
        if query.key not in wanted[query.round]:
            continue
        before = plain.get(query.key.removesuffix(f"@{query.round}")) if query.round else None
        said = report_content(query.report).findings
        if before is not None:
            telling = said - report_content(before.report).findings
        else:
            telling = said & report_content(wanted[query.round][query.key]).findings
        rows.append((before is None, -len(telling), query.number, before, query))
    rows.sort(key=lambda row: row[:3])
    return [
        {
            "key": after.key.removesuffix(f"@{after.round}"),
            "round": after.round,
            "before": {"sha256": before.sha256, "report": before.report} if before else None,
            "after": {"sha256": after.sha256, "report": after.report},
            "spans": changed_spans(before.report, after.report) if before else {},
            "wanted": wanted[after.round][after.key],
        }
        for *_, before, after in rows[:most]
    ]


def _targets(run: Path, round: int) -> dict[str, str]:
    """Key → the enriched report that the picture was moved towards; empty for a round without a plan."""
    plan = run / "rounds" / str(round) / "plan.jsonl"
    rows = (row for _, row in read_jsonl(plan)) if plan.is_file() else ()
    return {str(row["key"]): row["target"]["text"] for row in rows if "target" in row}

"""Analysis of a transcript: the variety of the victim's answers, a map of their sentences (t-SNE), and examples.

A victim that answers every natural image with the same normal report teaches one sentence, however many queries were
paid for. The finding set of a report is every (observation, side) that it states.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.randomness import generator
from cxrlab.extraction.records import Query
from cxrlab.extraction.report_content import report_content, sentences_of, words_of
from cxrlab.findings.finding_sentences import changed_spans
from cxrlab.findings.reader import read
from cxrlab.metrics.statistics.intervals import ResampledValue, wilson

SAMPLE = 100  # reports, for which transcripts of different lengths are compared
TRIALS = 1000


def transcript_diversity(reports: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """The variety of reports, JSON-ready; a number that the reports cannot give is None.

    Returns:
        n: Reports.
        silent: Those that state nothing about an image; they are neither normal nor abnormal.
        distinct_reports: Different texts.
        distinct_finding_sets: Different finding sets, the empty one of a normal report among them.
        distinct_finding_sets_in_100: Expected number in 100 of the reports, to compare transcripts of other lengths;
            None below 100 reports.
        abnormal_share: Share of the other reports that state a finding; with `abnormal_share_low`, `_high` (95 %,
            Wilson) and `abnormal_share_n`.
        finding_entropy: Shannon entropy of the finding sets in bits, 0 if all are the same and at most log2(n); with
            `_low` and `_high` (95 %, bootstrap, corrected for its bias).
        vocabulary: Distinct words.
        words: Mean words per report, with `words_low` and `words_high` (95 %, bootstrap).
        commonest_report: Share of the commonest text.
        findings: Observation → number of reports that state it, commonest first.
    """
    answers = [report_content(report) for report in reports]
    speaking = [answer for answer in answers if answer.has_statements]
    sets = Counter(answer.findings for answer in speaking)
    abnormal = sum(bool(answer.findings) for answer in speaking)
    low, high = wilson(abnormal, len(speaking)).ends if speaking else (None, None)
    texts = Counter(reports)
    unknown: tuple[float | None, ...] = (None, None, None)  # value, low, high
    entropy = words = unknown
    if total := len(speaking):
        drawn = generator(seed, "diversity", "entropy").multinomial(
            total, np.array([*sets.values()]) / total, size=TRIALS
        )
        shares = drawn / total
        bits = -(shares * np.log2(shares, out=np.zeros_like(shares), where=shares > 0)).sum(axis=1)
        value = entropy_bits(list(sets.values()))
        # Resamples miss some sets, so that their entropy is lower on average; that bias is removed.
        moved = bits - bits.mean() + value
        resampled = ResampledValue(value, moved, np.empty(0), total, (0.0, math.log2(total)))
        entropy = (value, *resampled.estimate().ends)
    if answers:
        # Reports of one length are alike here, so a resample is a draw of how often each length comes.
        lengths = np.array([answer.words for answer in answers], dtype=np.float64)
        sizes, times = np.unique(lengths, return_counts=True)
        draws = generator(seed, "diversity", "words").multinomial(len(lengths), times / len(lengths), size=TRIALS)
        mean = float(lengths.mean())
        resampled = ResampledValue(mean, draws @ sizes / len(lengths), np.empty(0), len(lengths), (0.0, math.inf))
        words = (mean, *resampled.estimate().ends)
    stated = Counter(name for answer in speaking for name in {name for name, _ in answer.findings})
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
        "finding_entropy": entropy[0],
        "finding_entropy_low": entropy[1],
        "finding_entropy_high": entropy[2],
        "vocabulary": len({word for text in texts for word in words_of(text)}),
        "words": words[0],
        "words_low": words[1],
        "words_high": words[2],
        "commonest_report": max(texts.values()) / len(reports) if reports else None,
        "findings": dict(sorted(stated.items(), key=lambda row: (-row[1], row[0]))),
    }


def diversity_by_round(queries: Sequence[Query], seed: int = 0) -> dict[str, Any]:
    """The variety of a whole transcript and under `rounds` that of each round, without refused queries."""
    answered = [query for query in queries if not query.refused]
    rounds = {
        str(number): transcript_diversity([query.report for query in answered if query.round == number], seed)
        for number in sorted({query.round for query in answered})
    }
    whole = transcript_diversity([query.report for query in answered], seed)
    return {**whole, "refused": len(queries) - len(answered), "rounds": rounds}


def entropy_bits(counts: Sequence[int]) -> float:
    """Shannon entropy of these counts in bits; 0 when at most one of them is not 0."""
    total = sum(counts)
    return math.fsum(-count / total * math.log2(count / total) for count in counts if 0 < count < total)


def expected_distinct(counts: Sequence[int], sample: int) -> float | None:
    """Expected number of kinds in `sample` drawn without replacement; None if there are fewer than that."""
    total = sum(counts)
    if total < sample:
        return None
    every = math.comb(total, sample)
    return math.fsum(1 - math.comb(total - count, sample) / every for count in counts)


Matrix = NDArray[np.float64]
Key = tuple[int, str, str]  # round, source and text of a sentence
MAX_SENTENCES = 600  # sentences on one map
NEIGHBOURS = 10  # of each point, for the trustworthiness of a map
EXAGGERATION = 12.0  # of the attraction in the first steps, which lets clusters pass through one another
SMALL = 1e-12  # keeps divisions and logarithms finite


@dataclass(frozen=True)
class MappedReport:
    """A report for the map: an answer of the victim to a clean or perturbed image of a round."""

    text: str
    round: int
    source: Literal["clean", "perturbed"]


def report_map(
    reports: Sequence[MappedReport],
    *,
    perplexity: float = 30.0,
    iterations: int = 1000,
    most: int = MAX_SENTENCES,
    seed: int = 0,
) -> dict[str, Any]:
    """The place of each different sentence on a plane (t-SNE), JSON-ready.

    Args:
        reports: Their sentences are mapped; a repeated sentence is one point with a count.
        perplexity: Lowered to a third of the points if there are few.
        iterations: Steps of the layout.
        most: Different sentences that are mapped; of more, so many are drawn.
        seed: Of that draw alone: the layout starts from the principal components.

    Returns:
        `rows` of x, y, round, source, text, abnormal (states something present) and count, one for each different
        sentence of a round and source; `sentences` on the map and `left_out`; `embedding`, `perplexity`; and
        `trustworthiness` of the map, None below twenty sentences.
    """
    counts: Counter[Key] = Counter(
        (row.round, row.source, part.text) for row in reports for part in sentences_of(row.text)
    )
    every = sorted({text for _, _, text in counts})
    texts = every
    if len(every) > most:
        chosen = generator(seed, "report map").choice(len(every), size=most, replace=False)
        texts = [every[index] for index in sorted(chosen)]
    vectors = tfidf(texts)
    used = max(1.0, min(float(perplexity), (len(texts) - 1) / 3))
    places = tsne(vectors, perplexity=used, iterations=iterations)
    place_of = dict(zip(texts, places.tolist(), strict=True))
    abnormal = {text: any(finding.present for finding in read(text)) for text in texts}
    rows = [
        {
            "x": place_of[text][0], "y": place_of[text][1], "round": number, "source": source,
            "text": text, "abnormal": abnormal[text], "count": count,
        }
        for (number, source, text), count in sorted(counts.items())
        if text in place_of
    ]  # fmt: skip
    return {
        "rows": rows,
        "sentences": len(texts),
        "left_out": len(every) - len(texts),
        "embedding": "tf-idf of words",
        "perplexity": used,
        "trustworthiness": trustworthiness(vectors, places) if len(texts) >= 2 * NEIGHBOURS else None,
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

    Gradient descent with momentum and a gain for each coordinate, from the two principal components. Fewer than five
    points keep those components.
    """
    places = principal_plane(vectors)
    if len(vectors) < 5:
        return places
    attraction = joint_probabilities(vectors, perplexity)
    places *= 1e-4 / max(float(places[:, 0].std()), SMALL)
    # With a much higher rate a few points move so far that the map depends on the last bits of a processor.
    rate = max(len(vectors) / EXAGGERATION / 4, 5.0)
    move, gains = np.zeros_like(places), np.ones_like(places)
    early = iterations // 4
    for step in range(iterations):
        slope = divergence_gradient(attraction * EXAGGERATION if step < early else attraction, places)
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
        logits = -apart * 2.0**middle
        np.fill_diagonal(logits, -np.inf)
        logits -= logits.max(axis=1, keepdims=True)
        weights = np.exp(logits)
        total = weights.sum(axis=1, keepdims=True)
        chances: Matrix = weights / total
        np.fill_diagonal(logits, 0.0)
        wide = np.log(total) - (chances * logits).sum(axis=1, keepdims=True) > math.log(perplexity)  # entropy in nats
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


def divergence_gradient(attraction: Matrix, places: Matrix) -> Matrix:
    """Gradient of the divergence from `attraction` to the map's own neighbourhoods, whose tails are Student's t."""
    closeness = 1 / (1 + _squared_distances(places))
    np.fill_diagonal(closeness, 0.0)
    pull = (attraction - closeness / max(float(closeness.sum()), SMALL)) * closeness
    slope: Matrix = 4 * (pull.sum(axis=1, keepdims=True) * places - pull @ places)
    return slope


MAX_EXAMPLES = 6


def examples(run: Path, queries: Sequence[Query], most: int = MAX_EXAMPLES) -> list[dict[str, Any]]:
    """Moved images with the victim's reports before and after, those with most new findings first.

    Images that were sent only moved (by a guide) are ranked by the findings of their target report in the answer.

    Args:
        run: Run folder with the plans, which hold the target reports.
        queries: All answered queries.
        most: Images.
    """
    plain = {query.key: query for query in queries if query.round == 0}
    wanted: dict[int, dict[str, str]] = {}  # round → key → target report
    for round in {query.round for query in queries}:
        plan = run / "rounds" / str(round) / "plan.jsonl"
        planned = [row for _, row in read_jsonl(plan)] if plan.is_file() else []
        wanted[round] = {str(row["key"]): row["target"]["text"] for row in planned if "target" in row}
    rows = []
    for query in queries:
        if query.key not in wanted[query.round]:
            continue
        before = plain.get(query.key.removesuffix(f"@{query.round}")) if query.round else None
        found = report_content(query.report).findings
        if before is not None:
            found -= report_content(before.report).findings
        else:
            found &= report_content(wanted[query.round][query.key]).findings
        rows.append((before is None, -len(found), query.number, before, query))
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

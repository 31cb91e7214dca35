"""How varied the answers of a victim are: what a transcript can teach at most.

A victim that answers every natural picture with the same normal report teaches one sentence, however
many queries were paid for. The finding set of a report is every (observation, side) that it states.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from cxrlab.core.randomness import generator
from cxrlab.extraction.oracles import words_of
from cxrlab.extraction.records import Query
from cxrlab.findings.reader import read
from cxrlab.metrics.statistics.intervals import ResampledValue

FindingSet = frozenset[tuple[str, str]]
SAMPLE = 100  # reports; what transcripts of different lengths are compared at
TRIALS = 1000
Z_95 = 1.959963984540054


@dataclass(frozen=True)
class Answer:
    """What one report says.

    Args:
        findings: (observation, side) of everything stated as present or possible, side empty where none is given.
        has_statements: Whether the text says anything of an image at all.
        words: Number of words.
    """

    findings: FindingSet
    has_statements: bool
    words: int


@lru_cache(1 << 14)
def answer_of(report: str) -> Answer:
    """Read one report; equal ones, which a poor transcript is full of, are read once."""
    reading = read(report)
    found = frozenset((f.observation, f.side.value if f.side else "") for f in reading if f.present)
    return Answer(found, reading.has_statements, len(words_of(report)))


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
    answers = [answer_of(report) for report in reports]
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

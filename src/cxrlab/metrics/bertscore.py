"""BERTScore: each token of a report matched to the most similar token of the other, by cosine.

The arithmetic is that of the `bert-score` package: special tokens can be matched and have no weight themselves. Two
things differ. Weights by document frequency come from a fixed corpus, not from the scored references, so that a score
never depends on the other pairs. A text whose every token has weight 0 counts its tokens equally, where the package
divides 0 by 0 and reports an F of 0.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.core.model_interfaces import TokenEncoder, TokenVectors
from cxrlab.metrics.base import Matrix, Metric, Tally, mean_tally
from cxrlab.metrics.report_pairs import Batch, Status

_NOTHING = "pairs whose reference is absent or has no token"


@dataclass(frozen=True)
class Baseline:
    """Scores of unrelated sentences with an encoder, each in [0, 1); rescaling maps them to 0, and 1 to 1."""

    precision: float
    recall: float
    f1: float

    def __post_init__(self) -> None:
        for name, value in (("precision", self.precision), ("recall", self.recall), ("f1", self.f1)):
            if not 0 <= value < 1:
                raise ConfigError(f"the baseline's {name} is {value}; it must be at least 0 and below 1.")

    def rescale(self, scores: Matrix) -> Matrix:
        """Raw scores [..., 3] → rescaled ones [..., 3]; a raw 0 becomes strongly negative."""
        base = np.array([self.precision, self.recall, self.f1])
        return np.asarray((scores - base) / (1 - base))


# The published line for English, distilroberta-base, layer 5: what RadCliQ and ReXrank rescale with.
DISTILROBERTA_5 = Baseline(precision=0.84732, recall=0.84759504, f1=0.8473319)


@dataclass(frozen=True)
class Idf:
    """Weights of tokens by inverse document frequency in a fixed corpus: log((N + 1) / (n + 1))."""

    documents: int  # n, at least 2
    containing: Mapping[str, int]  # token → n, documents with it
    name: str  # of the corpus, for the signature

    @classmethod
    def of(cls, corpus: Sequence[str], encoder: TokenEncoder) -> Idf:
        """From texts that are not the ones to be scored, such as the training split."""
        texts = [_spaced(text) for text in corpus]
        if len(set(texts)) < 2:
            raise ConfigError(
                "weights by document frequency need at least two different texts: with one, every weight is 0. "
                "Give a larger corpus, or score without idf."
            )
        containing = Counter(token for text in encoder.encode_tokens(texts) for token in set(text.tokens))
        digest = hashlib.sha256("\0".join(sorted(texts)).encode()).hexdigest()
        return cls(len(texts), dict(containing), f"{len(texts)}-{digest[:8]}")

    def weights(self, tokens: Sequence[str]) -> Matrix:
        """Weights [T] ≥ 0; a token outside the corpus has the largest."""
        return np.array([math.log((self.documents + 1) / (self.containing.get(token, 0) + 1)) for token in tokens])


def bert_score(reference: TokenVectors, candidate: TokenVectors, idf: Idf | None = None) -> Matrix:
    """Precision, recall and F [3] in [-1, 1] of one pair, before rescaling.

    All 0 where the candidate has no token of its own; not-a-number where the reference has none.
    """
    if reference.special.all():
        return np.full(3, np.nan)
    if candidate.special.all():
        return np.zeros(3)
    similarity: Matrix = _unit(candidate.vectors) @ _unit(reference.vectors).T
    precision = float(similarity.max(axis=1) @ _weights(candidate, idf))
    recall = float(similarity.max(axis=0) @ _weights(reference, idf))
    total = precision + recall
    return np.array([precision, recall, 2 * precision * recall / total if total else 0.0])


def _weights(text: TokenVectors, idf: Idf | None) -> Matrix:
    """Weights [T] that sum to 1; special tokens weigh nothing."""
    own = (~text.special).astype(np.float64)
    weights = own if idf is None else own * idf.weights(text.tokens)
    if not weights.any():
        weights = own
    return np.asarray(weights / weights.sum())


def _unit(vectors: NDArray[np.float32]) -> Matrix:
    wide = np.asarray(vectors, dtype=np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12))


class BertScore:
    """BERTScore of each pair.

    Args:
        encoder: Such as `models.text_encoders.LocalTokenEncoder`.
        baseline: For rescaling; raw cosines when None.
        idf: Weights of tokens; equal when None.
    """

    def __init__(self, encoder: TokenEncoder, *, baseline: Baseline | None = None, idf: Idf | None = None) -> None:
        self.encoder, self.baseline, self.idf = encoder, baseline, idf
        self.metrics = tuple(self._card(name) for name in ("bertscore", "bertscore.precision", "bertscore.recall"))
        self.default = ("bertscore",)

    def tallies(self, batch: Batch) -> list[Tally]:
        """F, precision and recall; each text is encoded once."""
        scores = self.scores(batch)
        columns = (scores[:, 2], scores[:, 0], scores[:, 1])
        return [mean_tally(metric, column) for metric, column in zip(self.metrics, columns, strict=True)]

    def f1(self, batch: Batch) -> Matrix:
        """F of each pair [N], not-a-number where undefined: a component of RadCliQ."""
        return self.scores(batch)[:, 2]

    def scores(self, batch: Batch) -> Matrix:
        """Precision, recall and F of each pair [N, 3], rescaled where there is a baseline."""
        texts = sorted({_spaced(text) for text in (*batch.references, *batch.candidates)})
        encoded = dict(zip(texts, self.encoder.encode_tokens(texts), strict=True))
        rows = [
            np.full(3, np.nan)
            if status is Status.NO_REFERENCE
            else bert_score(encoded[_spaced(reference)], encoded[_spaced(candidate)], self.idf)
            for status, reference, candidate in zip(batch.statuses, batch.references, batch.candidates, strict=True)
        ]
        raw = np.stack(rows)
        return raw if self.baseline is None else self.baseline.rescale(raw)

    def _card(self, name: str) -> Metric:
        what = name.partition(".")[2] or "F"
        baseline = self.baseline
        return Metric(
            name=name,
            direction="higher",
            range=(-1.0, 1.0) if baseline is None else (-math.inf, 1.0),
            identity=1.0,
            undefined=_NOTHING,
            conventions={
                "encoder": self.encoder.name,
                "idf": "none" if self.idf is None else self.idf.name,
                "rescaled": "no" if baseline is None else f"{baseline.precision}/{baseline.recall}/{baseline.f1}",
                "spaces": "collapsed",
            },
            about=f"BERTScore {what}: tokens matched by the cosine of contextual vectors",
            quirk="a candidate without a token scores 0 before rescaling" + (", below 0 after" if baseline else ""),
        )


def _spaced(text: str) -> str:
    """Without spaces at the ends, and with single spaces, as RadCliQ's authors do."""
    return re.sub(" +", " ", text).strip()

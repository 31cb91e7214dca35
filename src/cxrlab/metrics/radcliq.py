"""RadCliQ in closed form: the number of errors that radiologists would count, from four scores of a pair.

Lower is better, and v1 crosses zero: its reciprocal, which some tables print, ranks a perfect report below a useless
one, so it is not offered. The coefficients are those of the published models.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.model_interfaces import TextEmbedder
from cxrlab.metrics.base import Matrix, Metric, Tally, mean_tally
from cxrlab.metrics.report_pairs import Batch, Status

PARTS = ("radgraph", "bertscore", "semb", "bleu2")
"""RadGraph's combined F1, rescaled BERTScore (distilroberta-base, layer 5, no idf), cosine of CheXbert
embeddings, and BLEU-2: the order of the components everywhere in this file."""

Part = Callable[[Batch], Matrix]
"""One value per pair [N], not-a-number where undefined."""


@dataclass(frozen=True)
class Model:
    """A published linear model on standardised scores, components in the order of `PARTS`."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    coefficient: tuple[float, ...]
    intercept: float

    def __call__(self, parts: Matrix) -> Matrix:
        """Components [..., 4] → RadCliQ [...]."""
        standard = (np.asarray(parts, dtype=np.float64) - self.mean) / self.scale
        return np.asarray(standard @ np.asarray(self.coefficient) + self.intercept)


MODELS = {
    "radcliq0": Model(
        mean=(0.5398376019082272, 0.6312549595000001, 0.7716797866672277, 0.4607372064809605),
        scale=(0.3018344440559102, 0.22466950746141123, 0.24750333805236252, 0.30336670936092264),
        coefficient=(-0.4796252644863446, -0.6762170542369337, -0.46366575161751994, 0.2165861905287535),
        intercept=1.641666666666666,
    ),
    "radcliq1": Model(
        mean=(0.5379231241355762, 0.6175725628125001, 0.7647942121140658, 0.44738335396242174),
        scale=(0.3028258411486429, 0.22430938459304575, 0.2539439110169773, 0.2989271671041838),
        coefficient=(-0.37708368261038905, -0.37030009974480316, -0.25261621789593225, 4.315048405024756e-12),
        intercept=2.466552561323256e-10,
    ),
}


class RadCliq:
    """RadCliQ v0 and v1 of each pair; undefined where a component is.

    Args:
        parts: Component → a function of the batch (`RadGraphF1(…).combined`, `BertScore(…).f1`, `semb(…)`) or its
            values [N]. `bleu2` may be left out.
        names: Component → what it was computed with, for the signature.
    """

    def __init__(self, parts: Mapping[str, Part | Matrix], names: Mapping[str, str] | None = None) -> None:
        given = {"bleu2": bleu2_of, **parts}
        for name in (*given, *(names or {})):
            if name not in PARTS:
                raise ConfigError(
                    f"RadCliQ has no component '{name}'.{did_you_mean(name, PARTS)} It takes: {', '.join(PARTS)}."
                )
        missing = [name for name in PARTS if name not in given]
        if missing:
            raise ConfigError(f"RadCliQ needs {', '.join(missing)} too; give a value or a function for each component.")
        self.parts = {name: given[name] for name in PARTS}
        self.metrics = tuple(self._card(name, dict(names or {})) for name in MODELS)
        self.default = tuple(MODELS)

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally per version; each component is computed once."""
        columns = []
        for name, part in self.parts.items():
            values = np.asarray(part(batch) if callable(part) else part, dtype=np.float64)
            if values.shape != (len(batch),):
                raise ConfigError(
                    f"RadCliQ's component '{name}' has shape {list(values.shape)} for {len(batch)} pairs; "
                    "give one value per pair."
                )
            columns.append(values)
        parts = np.stack(columns, axis=1)
        return [mean_tally(metric, MODELS[metric.name](parts)) for metric in self.metrics]

    def _card(self, name: str, names: dict[str, str]) -> Metric:
        identity = float(MODELS[name](np.ones(len(PARTS))))
        return Metric(
            name=name,
            direction="lower",
            range=(-math.inf, math.inf),
            identity=identity,
            undefined="pairs of which a component is undefined",
            conventions={"form": "raw", **{part: names.get(part, "given") for part in PARTS if part != "bleu2"}},
            about=f"RadCliQ v{name[-1]} from RadGraph, BERTScore, CheXbert similarity and BLEU-2",
            quirk="below 0 for good reports; equal reports without a RadGraph relation stay above that of identity",
        )


def semb(embedder: TextEmbedder) -> Part:
    """CheXbert similarity as a component: the cosine in [-1, 1] of the two reports' embeddings of length 1."""

    def values(batch: Batch) -> Matrix:
        texts = sorted({*batch.references, *batch.candidates})
        vectors = np.asarray(embedder.embed_texts(texts), dtype=np.float64)
        row = {text: index for index, text in enumerate(texts)}
        references = vectors[[row[text] for text in batch.references]]
        candidates = vectors[[row[text] for text in batch.candidates]]
        return _with_reference(batch, (references * candidates).sum(axis=1))

    return values


def bleu2_of(batch: Batch) -> Matrix:
    """BLEU-2 as RadCliQ's authors compute it, for each pair [N]."""
    pairs = zip(batch.references, batch.candidates, strict=True)
    return _with_reference(batch, np.array([bleu2(reference, candidate) for reference, candidate in pairs]))


def bleu2(reference: str, candidate: str) -> float:
    """Sentence BLEU-2 in [0, 1]: lower case, full stops split off, split at spaces, NLTK's first smoothing.

    0 where no word agrees; a bigram precision of 0 becomes 0.1 over the number of bigrams, so a report of one word
    scores below 1 even against itself.
    """
    wanted, words = (
        [word for word in text.lower().replace(".", " .").split(" ") if word] for text in (reference, candidate)
    )
    precisions = []
    for n in (1, 2):
        in_reference, in_candidate = (
            Counter(zip(*(side[i:] for i in range(n)), strict=False)) for side in (wanted, words)
        )
        precisions.append((in_reference & in_candidate).total() / max(1, in_candidate.total()))
    if precisions[0] == 0:
        return 0.0
    shorter = math.exp(1 - len(wanted) / len(words)) if len(words) <= len(wanted) else 1.0
    return shorter * math.sqrt(precisions[0] * (precisions[1] or 0.1 / max(1, len(words) - 1)))


def _with_reference(batch: Batch, values: Matrix) -> Matrix:
    absent = [status is Status.NO_REFERENCE for status in batch.statuses]
    return np.where(absent, np.nan, values)

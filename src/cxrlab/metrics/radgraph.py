"""RadGraph F1: how many entities and relations of two reports' graphs agree.

All are F1 of two sets, so an entity that is named twice counts once. A pair is undefined when
neither report has an entity and 0 when only one has; the published code gives 0 to both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from cxrlab.metrics.graphs import Entity, Graph, GraphSource
from cxrlab.metrics.pairs import Batch, Status
from cxrlab.metrics.tally import Matrix, Metric, Tally, mean_tally

Items = set[Hashable]


def simple(graph: Graph) -> Items:
    """(tokens, label) of each entity."""
    return {(entity.tokens, entity.label) for entity in graph}


def partial(graph: Graph) -> Items:
    """(tokens, label, whether any relation starts at it) of each entity; the level that most papers report."""
    return {(entity.tokens, entity.label, bool(entity.relations)) for entity in graph}


def complete(graph: Graph) -> Items:
    """(tokens, label, kind, target's tokens) of each relation, and (tokens, label) of entities without one.

    Tokens of relations are compared in lower case whatever the rest does, as in the released package.
    """
    out: Items = set()
    for entity in graph:
        tokens = entity.tokens.lower()
        arrows: Items = {(tokens, entity.label, arrow.kind, arrow.tokens.lower()) for arrow in entity.relations}
        out |= arrows or {(entity.tokens, entity.label)}
    return out


def relations(graph: Graph) -> Items:
    """((tokens, label), (tokens, label), kind) of each relation, as RadCliQ counts them."""
    return {
        ((entity.tokens, entity.label), (arrow.tokens, arrow.label), arrow.kind)
        for entity in graph
        for arrow in entity.relations
    }


LEVELS: dict[str, Callable[[Graph], Items]] = {"simple": simple, "partial": partial, "complete": complete}


def set_f1(reference: Items, candidate: Items) -> float:
    """2 |both| / (|reference| + |candidate|) in [0, 1]; 0 when both are empty, as published."""
    total = len(reference) + len(candidate)
    return 2 * len(reference & candidate) / total if total else 0.0


def reward(reference: Graph, candidate: Graph, level: str) -> float:
    """F1 at one of `LEVELS`, case as it stands; not-a-number when neither graph has an entity."""
    if not reference and not candidate:
        return float("nan")
    return set_f1(LEVELS[level](reference), LEVELS[level](candidate))


def combined(reference: Graph, candidate: Graph) -> float:
    """RadCliQ's part: the mean of entity F1 and relation F1; not-a-number when neither graph has an entity.

    Relations that neither report has count 0, so two equal reports without a relation score one half.
    """
    if not reference and not candidate:
        return float("nan")
    return (set_f1(simple(reference), simple(candidate)) + set_f1(relations(reference), relations(candidate))) / 2


def lowered(graph: Graph) -> Graph:
    """The same graph with all tokens in lower case."""
    return tuple(
        Entity(
            entity.tokens.lower(),
            entity.label,
            tuple(type(arrow)(arrow.kind, arrow.tokens.lower(), arrow.label) for arrow in entity.relations),
        )
        for entity in graph
    )


class RadGraphF1:
    """RadGraph F1 at three levels, without regard to case and, as the released package had it, with.

    Args:
        source: Where the graphs come from (`graphs.GraphFile`, `graphs.from_package`).
    """

    def __init__(self, source: GraphSource) -> None:
        self.source = source
        self.metrics = (*(self._card(level, cased) for cased in (False, True) for level in LEVELS), self._combined())
        self.default = tuple(f"radgraph.{level}" for level in LEVELS)

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally a metric; the graphs are fetched once."""
        graphs = self._graphs(batch)
        small = [pair and (lowered(pair[0]), lowered(pair[1])) for pair in graphs]
        out = []
        for metric in self.metrics[:-1]:
            level = metric.name.partition(":")[0].removeprefix("radgraph.")
            source = graphs if metric.name.endswith(":cased") else small
            out.append(mean_tally(metric, [reward(*pair, level) if pair else np.nan for pair in source]))
        return [*out, mean_tally(self.metrics[-1], self._combine(graphs))]

    def combined(self, batch: Batch) -> Matrix:
        """RadCliQ's RadGraph part of each pair [N]; not-a-number where undefined."""
        return self._combine(self._graphs(batch))

    def _graphs(self, batch: Batch) -> list[tuple[Graph, Graph] | None]:
        references = self.source.graphs(batch.pairs, "reference")
        candidates = self.source.graphs(batch.pairs, "candidate")
        return [
            None if status is Status.NO_REFERENCE else (reference, candidate)
            for status, reference, candidate in zip(batch.statuses, references, candidates, strict=True)
        ]

    @staticmethod
    def _combine(graphs: list[tuple[Graph, Graph] | None]) -> Matrix:
        return np.array([combined(*pair) if pair else np.nan for pair in graphs], dtype=np.float64)

    def _card(self, level: str, cased: bool) -> Metric:
        words = {
            "simple": "entities by tokens and label",
            "partial": "entities by tokens, label and whether a relation starts there",
            "complete": "entities by tokens and label, with each relation and its target",
        }
        return Metric(
            name=f"radgraph.{level}" + (":cased" if cased else ""),
            direction="higher",
            range=(0.0, 1.0),
            identity=1.0,
            undefined="pairs without a reference, or where neither report has an entity",
            conventions={"graphs": self.source.name, "case": "kept" if cased else "lower"},
            about=f"RadGraph F1: {words[level]}",
            quirk="tokens that differ in case alone do not match, as in the released package 0.1.18" if cased else "",
        )

    def _combined(self) -> Metric:
        return Metric(
            name="radgraph.combined",
            direction="higher",
            range=(0.0, 1.0),
            identity=None,
            undefined="pairs without a reference, or where neither report has an entity",
            conventions={"graphs": self.source.name, "case": "kept"},
            about="mean of RadGraph entity F1 and relation F1, as RadCliQ takes it",
            quirk="equal reports without a relation score 0.5",
        )

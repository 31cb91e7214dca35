"""RadGraph F1: agreement of the entities and relations of two reports' graphs.

All are F1 of two sets, so an entity that is named twice counts once. A pair is undefined when neither report has an
entity and 0 when only one has; the published code gives 0 to both.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from cxrlab.core.errors import DataError, MissingExtra, short_repr
from cxrlab.core.files import read_json
from cxrlab.metrics.base import Matrix, Metric, Tally, mean_tally
from cxrlab.metrics.report_pairs import Batch, Pair, Status, wordless

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
    """RadGraph F1 at three levels, without regard to case and, as in the released package, with."""

    def __init__(self, source: GraphSource) -> None:
        self.source = source
        self.metrics = (*(self._card(level, cased) for cased in (False, True) for level in LEVELS), self._combined())
        self.default = tuple(f"radgraph.{level}" for level in LEVELS)

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally per metric; the graphs are fetched once."""
        graphs = self._graphs(batch)
        small = [pair and (lowered(pair[0]), lowered(pair[1])) for pair in graphs]
        out = []
        for metric in self.metrics[:-1]:
            level = metric.name.partition(":")[0].removeprefix("radgraph.")
            source = graphs if metric.name.endswith(":cased") else small
            out.append(mean_tally(metric, [reward(*pair, level) if pair else np.nan for pair in source]))
        return [*out, mean_tally(self.metrics[-1], self.combined(batch, graphs))]

    def combined(self, batch: Batch, graphs: list[tuple[Graph, Graph] | None] | None = None) -> Matrix:
        """RadCliQ's RadGraph part of each pair [N]; not-a-number where undefined."""
        pairs = self._graphs(batch) if graphs is None else graphs
        return np.array([combined(*pair) if pair else np.nan for pair in pairs], dtype=np.float64)

    def _graphs(self, batch: Batch) -> list[tuple[Graph, Graph] | None]:
        references = self.source.graphs(batch.pairs, "reference")
        candidates = self.source.graphs(batch.pairs, "candidate")
        return [
            None if status is Status.NO_REFERENCE else (reference, candidate)
            for status, reference, candidate in zip(batch.statuses, references, candidates, strict=True)
        ]

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


Side = Literal["reference", "candidate"]


@dataclass(frozen=True)
class Relation:
    """A relation from an entity to another of the same report: its kind and the target's tokens and label."""

    kind: str
    tokens: str
    label: str


@dataclass(frozen=True)
class Entity:
    """A word or phrase of a report with its RadGraph label and the relations that start at it."""

    tokens: str
    label: str
    relations: tuple[Relation, ...] = ()


Graph = tuple[Entity, ...]


class GraphSource(Protocol):
    """Where the graphs of a batch come from."""

    @property
    def name(self) -> str:
        """Which graphs; it goes into the signature."""
        ...

    def graphs(self, pairs: Sequence[Pair], side: Side) -> list[Graph]:
        """The graph of each pair's reference or candidate, in order; empty for a text without a word."""
        ...


def parse_graph(value: Any, place: str) -> Graph:
    """The graph in one JSON object `{"entities": {id: {tokens, label, relations}}}`; `place` names it in errors."""
    entities = value.get("entities") if isinstance(value, Mapping) else None
    if not isinstance(entities, Mapping):
        raise DataError(f'{place} is not a RadGraph graph: it must be an object with "entities", from id to entity.')
    for key, entity in entities.items():
        words = (entity.get("tokens"), entity.get("label")) if isinstance(entity, Mapping) else (None,)
        if not all(isinstance(word, str) for word in words):
            raise DataError(f"{place}, entity '{key}': it must be an object with the texts tokens and label.")
    graph = []
    for key, entity in entities.items():
        arrows, spot = entity.get("relations", []), f"{place}, entity '{key}'"
        if not isinstance(arrows, list):
            raise DataError(
                f"{spot}: relations is {short_repr(arrows)}; it must be a list of [kind, id of the target]."
            )
        relations = []
        for arrow in arrows:
            if not (isinstance(arrow, list) and len(arrow) == 2 and str(arrow[1]) in entities):
                raise DataError(
                    f"{spot}: the relation {short_repr(arrow)} must be [kind, id of an entity of the same graph]."
                )
            target = entities[str(arrow[1])]
            relations.append(Relation(str(arrow[0]), target["tokens"], target["label"]))
        graph.append(Entity(entity["tokens"], entity["label"], tuple(relations)))
    return tuple(graph)


class GraphFile:
    """Graphs from JSON files, by id or by text.

    A file is one object from key to graph, or a list of graphs. A pair's graph is the one whose key or own `text` has
    the letters and digits of the pair's text, since RadGraph splits tokens and changes some signs; else the one under
    the pair's id, unless it has another text. RadGraph's own numbers ("0", "1", …) can therefore not be taken for ids.

    Args:
        references: File with the graphs of the references.
        candidates: File with those of the candidates; None when the first has both, by text, or under `references`
            and `candidates`.
    """

    def __init__(self, references: str | os.PathLike[str], candidates: str | os.PathLike[str] | None = None) -> None:
        self.paths = (os.fspath(references), os.fspath(candidates if candidates is not None else references))
        first = read_json(references)
        if candidates is not None:
            halves = (first, read_json(candidates))
        elif isinstance(first, Mapping) and set(first) == {"references", "candidates"}:
            halves = (first["references"], first["candidates"])
        else:
            halves = (first, first)
        # With one table for both sides an id cannot tell a reference from its candidate.
        self._ids_count = halves[0] is not halves[1]
        self._tables = tuple(_table(half, path) for half, path in zip(halves, self.paths, strict=True))

    @property
    def name(self) -> str:
        """`file`: the graphs do not name their model."""
        return "file"

    def graphs(self, pairs: Sequence[Pair], side: Side) -> list[Graph]:
        """The graph of each pair; texts that have a word and no graph raise one `DataError` with their count."""
        by_id, by_text = self._tables[side == "candidate"]
        out: list[Graph] = []
        missing: list[str] = []
        for pair in pairs:
            text = (pair.reference if side == "reference" else pair.candidate) or ""
            graph = by_text.get(_squeezed(text))
            if graph is None and self._ids_count:
                graph = by_id.get(pair.id)
            if graph is None and not wordless(text):
                missing.append(pair.id)
            out.append(graph or ())
        if missing:
            raise DataError(
                f"{self.paths[side == 'candidate']} has no graph for {len(missing)} of {len(pairs)} {side}s, such as "
                f"{', '.join(missing[:3])}; key the graphs by id, or give each its text."
            )
        return out


def _table(value: Any, path: str) -> tuple[dict[str, Graph], dict[str, Graph]]:
    """(id → graph that carries no text, squeezed text → graph) of one file's object or list."""
    if isinstance(value, list):
        value = {f"[{index}]": graph for index, graph in enumerate(value)}
    if not isinstance(value, Mapping):
        raise DataError(
            f"{path} holds {short_repr(value)}; it must be an object from id or text to graph, or a list of graphs."
        )
    by_id: dict[str, Graph] = {}
    by_text: dict[str, Graph] = {}
    for key, item in value.items():
        graph = parse_graph(item, f"{path}, graph '{key}'")
        text = item.get("text")
        if isinstance(text, str):
            by_text[_squeezed(text)] = graph
        else:
            by_id[key] = by_text[_squeezed(key)] = graph
    return by_id, by_text


def _squeezed(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


class PackageGraphs:
    """Graphs by a model of the `radgraph` package (texts → {"0": graph, …}), one call for all texts of a side."""

    def __init__(self, annotate: Callable[[list[str]], Mapping[str, Any]], name: str) -> None:
        self._annotate, self._name = annotate, name

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    def graphs(self, pairs: Sequence[Pair], side: Side) -> list[Graph]:
        """The graph of each pair; texts without a word are not passed to the model, which reads them as "None"."""
        texts = [(pair.reference if side == "reference" else pair.candidate) or "" for pair in pairs]
        spoken = sorted({text for text in texts if not wordless(text)})
        answers = self._annotate(spoken) if spoken else {}
        lost = [index for index in range(len(spoken)) if str(index) not in answers]
        if lost:
            study = pairs[texts.index(spoken[lost[0]])].id  # not the text: a message may end up in a log
            raise DataError(
                f"the radgraph package gave no graph for {len(lost)} of {len(spoken)} texts, such as the {side} of "
                f"{study}; score without RadGraph, or give it graphs in a file."
            )
        graphs = {text: parse_graph(answers[str(i)], f"graph {i} of {self.name}") for i, text in enumerate(spoken)}
        return [graphs.get(text, ()) for text in texts]


PACKAGE_MODELS = ("radgraph", "radgraph-xl", "modern-radgraph-xl")


def by_package(where: Path) -> bool:
    """Whether this is the name of a model of the package and not a file."""
    return str(where) in PACKAGE_MODELS and not where.exists()


def graph_source(where: Path) -> GraphSource:
    """Graphs from a JSON file, or from the model of this name in the `radgraph` package."""
    return from_package(str(where)) if by_package(where) else GraphFile(where)


def from_package(model: str = "radgraph-xl") -> PackageGraphs:
    """Graphs by one of `PACKAGE_MODELS` of the installed `radgraph` package, whose weights must be in its cache."""
    remedy = "write the graphs to a JSON file where the package works, and give that file"
    try:
        package = importlib.import_module("radgraph")
    except ImportError as error:
        raise MissingExtra(
            f"RadGraph graphs by model need the package 'radgraph', which cannot be imported ({error}); "
            f"install it with: pip install radgraph requests — or {remedy}."
        ) from error
    try:
        annotate = package.RadGraph(model_type=model)
    except Exception as error:  # the package raises bare exceptions, also for a failed download
        raise DataError(f"the radgraph package could not load '{model}' ({error}); {remedy}.") from error
    return PackageGraphs(annotate, model)

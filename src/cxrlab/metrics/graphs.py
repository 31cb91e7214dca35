"""RadGraph graphs of reports: from a file the user has, or from the `radgraph` package where it works.

A graph is what RadGraph and RadGraph-XL write: entities with tokens, a label (`OBS-DP`, or
`Observation::definitely present`) and relations to other entities of the same report.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from cxrlab.core.errors import DataError, MissingExtra, shown
from cxrlab.core.files import read_json
from cxrlab.metrics.pairs import Pair, wordless

Side = Literal["reference", "candidate"]


@dataclass(frozen=True)
class Relation:
    """An arrow from an entity to another of the same report: its kind and the target's tokens and label."""

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
        raise DataError(f'{place} is no RadGraph graph: it must be an object with "entities", from id to entity.')
    for key, entity in entities.items():
        words = (entity.get("tokens"), entity.get("label")) if isinstance(entity, Mapping) else (None,)
        if not all(isinstance(word, str) for word in words):
            raise DataError(f"{place}, entity '{key}': it must be an object with the texts tokens and label.")
    return tuple(
        Entity(entity["tokens"], entity["label"], _relations(entity, entities, f"{place}, entity '{key}'"))
        for key, entity in entities.items()
    )


def _relations(entity: Mapping[str, Any], entities: Mapping[str, Any], place: str) -> tuple[Relation, ...]:
    arrows = entity.get("relations", [])
    if not isinstance(arrows, list):
        raise DataError(f"{place}: relations is {shown(arrows)}; it must be a list of [kind, id of the target].")
    out = []
    for arrow in arrows:
        if not (isinstance(arrow, list) and len(arrow) == 2 and str(arrow[1]) in entities):
            raise DataError(f"{place}: the relation {shown(arrow)} must be [kind, id of an entity of the same graph].")
        target = entities[str(arrow[1])]
        out.append(Relation(str(arrow[0]), target["tokens"], target["label"]))
    return tuple(out)


class GraphFile:
    """Graphs from JSON files, by id or by text.

    A file is one object from key to graph, or a list of graphs. A pair's graph is the one whose key or own
    `text` is the pair's text, by letters and digits alone, since RadGraph sets tokens apart and changes some
    signs; else the one under the pair's id, unless it carries another text. RadGraph's own numbering
    ("0", "1", …) can therefore not be taken for ids.

    Args:
        references: File with the graphs of the references.
        candidates: File with those of the candidates; None when the first holds both, which then must be
            by text, or hold one object each under `references` and `candidates`.
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
        """`file`: which model drew the graphs is not written in them."""
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
            f"{path} holds {shown(value)}; it must be an object from id or text to graph, or a list of graphs."
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
    """Graphs drawn by the `radgraph` package, one call for all texts of a side.

    Args:
        annotate: Its model: texts → {"0": graph, …}.
        name: Which model, for the signature.
    """

    def __init__(self, annotate: Callable[[list[str]], Mapping[str, Any]], name: str) -> None:
        self._annotate, self._name = annotate, name

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    def graphs(self, pairs: Sequence[Pair], side: Side) -> list[Graph]:
        """The graph of each pair; texts without a word never reach the model, which reads them as "None"."""
        texts = [(pair.reference if side == "reference" else pair.candidate) or "" for pair in pairs]
        spoken = sorted({text for text in texts if not wordless(text)})
        answers = self._annotate(spoken) if spoken else {}
        lost = [index for index in range(len(spoken)) if str(index) not in answers]
        if lost:
            study = pairs[texts.index(spoken[lost[0]])].id  # never the text itself: a message may end in a log
            raise DataError(
                f"the radgraph package gave no graph for {len(lost)} of {len(spoken)} texts, such as the {side} of "
                f"{study}; score without RadGraph, or give it graphs in a file."
            )
        drawn = {text: parse_graph(answers[str(i)], f"graph {i} of {self.name}") for i, text in enumerate(spoken)}
        return [drawn.get(text, ()) for text in texts]


PACKAGE_MODELS = ("radgraph", "radgraph-xl", "modern-radgraph-xl")


def by_package(where: Path) -> bool:
    """Whether this names a model of the package and not a file."""
    return str(where) in PACKAGE_MODELS and not where.exists()


def graph_source(where: Path) -> GraphSource:
    """Graphs from a JSON file, or drawn by the model of the `radgraph` package that bears this name."""
    return from_package(str(where)) if by_package(where) else GraphFile(where)


def from_package(model: str = "radgraph-xl") -> PackageGraphs:
    """Graphs by the installed `radgraph` package; an error that says what to do where it is absent or does not work.

    Args:
        model: One of `PACKAGE_MODELS`; the weights must be where the package keeps them.
    """
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

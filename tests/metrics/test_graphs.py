from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cxrlab.core.errors import DataError, MissingExtra
from cxrlab.metrics.radgraph import Entity, GraphFile, PackageGraphs, Relation, from_package, parse_graph
from cxrlab.metrics.report_pairs import Pair


def entity(tokens: str, label: str = "OBS-DP", relations: list[list[str]] | None = None) -> dict[str, Any]:
    return {"tokens": tokens, "label": label, "start_ix": 0, "end_ix": 0, "relations": relations or []}


def graph(*tokens: str, **extra: Any) -> dict[str, Any]:
    return {"entities": {str(k + 1): entity(word) for k, word in enumerate(tokens)}, **extra}


def save(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


PAIR = Pair("s1", "No edema.", "Clear lungs.")
EDEMA, LUNGS = (Entity("edema", "OBS-DP"),), (Entity("lungs", "OBS-DP"),)


def test_entities_of_both_versions_are_read_with_the_target_of_each_relation() -> None:
    value = {
        "entities": {
            "1": entity("chest", "Anatomy::definitely present"),
            "2": entity("tube", "Observation::definitely present", [["located_at", "1"]]),
        },
        "text": "chest tube",
        "data_source": None,
    }
    assert parse_graph(value, "here") == (
        Entity("chest", "Anatomy::definitely present"),
        Entity(
            "tube",
            "Observation::definitely present",
            (Relation("located_at", "chest", "Anatomy::definitely present"),),
        ),
    )
    assert parse_graph({"entities": {}}, "here") == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "here is not a RadGraph graph"),
        ({"entities": []}, "here is not a RadGraph graph"),
        ({"entities": {"1": {"tokens": "edema"}}}, "here, entity '1': it must be an object with the texts"),
        ({"entities": {"1": "edema"}}, "here, entity '1'"),
        ({"entities": {"1": {**entity("x"), "relations": 3}}}, "relations is 3; it must be a list"),
        ({"entities": {"1": entity("x", relations=[["modify", "9"]])}}, "must be \\[kind, id of an entity"),
        ({"entities": {"1": entity("x", relations=[["modify"]])}}, "must be \\[kind, id of an entity"),
    ],
)
def test_a_graph_that_is_none_is_refused_by_place(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_graph(value, "here")


def test_two_files_by_id(tmp_path: Path) -> None:
    source = GraphFile(
        save(tmp_path / "r.json", {"s1": graph("edema")}), save(tmp_path / "c.json", {"s1": graph("lungs")})
    )
    assert source.graphs([PAIR], "reference") == [EDEMA]
    assert source.graphs([PAIR], "candidate") == [LUNGS]


def test_one_file_with_both_sides_by_id(tmp_path: Path) -> None:
    both = {"references": {"s1": graph("edema")}, "candidates": {"s1": graph("lungs")}}
    source = GraphFile(save(tmp_path / "both.json", both))
    assert source.graphs([PAIR], "reference") + source.graphs([PAIR], "candidate") == [EDEMA, LUNGS]


@pytest.mark.parametrize("as_list", [True, False])
def test_one_file_by_text_as_the_package_writes_it(tmp_path: Path, as_list: bool) -> None:
    """Tokens are set apart and the numbering is the package's own."""
    drawn = [graph("lungs", text="Clear lungs ."), graph("edema", text="no edema .")]
    value = drawn if as_list else {str(k): item for k, item in enumerate(drawn)}
    source = GraphFile(save(tmp_path / "g.json", value))
    assert source.graphs([PAIR], "reference") + source.graphs([PAIR], "candidate") == [EDEMA, LUNGS]


def test_one_file_keyed_by_text(tmp_path: Path) -> None:
    source = GraphFile(save(tmp_path / "g.json", {"No edema.": graph("edema"), "CLEAR  LUNGS": graph("lungs")}))
    assert source.graphs([PAIR], "reference") + source.graphs([PAIR], "candidate") == [EDEMA, LUNGS]


def test_a_number_of_the_package_is_never_taken_for_an_id(tmp_path: Path) -> None:
    """Pairs numbered from 1 beside graphs numbered from 0 would each get their neighbour's graph."""
    source = GraphFile(
        save(tmp_path / "r.json", {"0": graph("edema", text="No edema ."), "1": graph("lungs", text="Clear lungs .")}),
        save(tmp_path / "c.json", {}),
    )
    assert source.graphs([Pair("1", "No edema.", "")], "reference") == [EDEMA]
    with pytest.raises(DataError, match="has no graph for 1 of 1 references, such as 1"):
        source.graphs([Pair("1", "Some other report.", "")], "reference")


def test_texts_without_a_word_need_no_graph(tmp_path: Path) -> None:
    source = GraphFile(save(tmp_path / "g.json", {}))
    pairs = [Pair("a", "", None), Pair("b", None, " "), Pair("c", "___", "...")]
    assert source.graphs(pairs, "reference") == source.graphs(pairs, "candidate") == [(), (), ()]


def test_a_missing_graph_is_an_error_with_count_and_examples(tmp_path: Path) -> None:
    """An absent graph is not an empty one: 0 would be a verdict on a report that nobody parsed."""
    source = GraphFile(save(tmp_path / "g.json", {}))
    pairs = [Pair(f"s{k}", "No edema.", "") for k in range(5)]
    with pytest.raises(DataError, match=r"g\.json has no graph for 5 of 5 references, such as s0, s1, s2; key"):
        source.graphs(pairs, "reference")


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="it must be an object from id or text to graph"):
        GraphFile(save(tmp_path / "g.json", 3))
    with pytest.raises(DataError, match="graph 's1' is not a RadGraph graph"):
        GraphFile(save(tmp_path / "g.json", {"s1": {}}))


def test_the_package_sees_each_text_once_and_never_an_empty_one() -> None:
    seen: list[list[str]] = []

    def annotate(texts: list[str]) -> dict[str, Any]:
        seen.append(texts)
        return {str(k): graph(text) for k, text in enumerate(texts)}

    source = PackageGraphs(annotate, "radgraph-xl")
    pairs = [Pair("1", "edema", ""), Pair("2", "lungs", None), Pair("3", "edema", " ")]
    assert source.graphs(pairs, "reference") == [EDEMA, LUNGS, EDEMA]
    assert source.graphs(pairs, "candidate") == [(), (), ()]
    assert seen == [["edema", "lungs"]] and source.name == "radgraph-xl"


def test_a_text_that_the_package_lost_is_an_error() -> None:
    """The package prints and skips what it cannot read; the texts after it would shift."""
    with pytest.raises(DataError, match="gave no graph for 1 of 1 texts, such as the reference of 1;"):
        PackageGraphs(lambda texts: {}, "radgraph").graphs([Pair("1", "edema", "")], "reference")


def test_an_absent_package_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "radgraph", None)
    with pytest.raises(MissingExtra, match="pip install radgraph requests — or write the graphs to a JSON file"):
        from_package()


def test_a_package_that_cannot_load_its_weights_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("radgraph")

    def load(model_type: str) -> Any:
        if model_type == "radgraph":
            return lambda texts: {"0": graph("edema")}
        raise Exception("Cannot download the file")

    package.RadGraph = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "radgraph", package)
    assert from_package("radgraph").graphs([Pair("1", "edema", "")], "reference") == [EDEMA]
    with pytest.raises(DataError, match=r"could not load 'radgraph-xl' \(Cannot download the file\); write"):
        from_package()

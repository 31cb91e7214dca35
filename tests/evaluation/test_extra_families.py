from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cxrlab.core.errors import DataError, RunError, UnknownName
from cxrlab.evaluation.compare import compare
from cxrlab.evaluation.config import MetricResources, ScoreConfig
from cxrlab.evaluation.score import run_score, score
from cxrlab.evaluation.select_metrics import build_extra_families


def graph(text: str, *words: str) -> dict[str, object]:
    entities = {
        str(place): {"tokens": word, "label": "OBS-DP", "start_ix": place, "end_ix": place, "relations": []}
        for place, word in enumerate(words, 1)
    }
    return {"text": text, "entities": entities}


def test_nothing_gives_nothing() -> None:
    assert build_extra_families(MetricResources()) == []


def test_graphs_in_a_file_give_radgraph_beside_the_other_metrics(tmp_path: Path) -> None:
    """One of two entities is shared: precision 1/2, recall 1, F1 2/3."""
    graphs = {"references": {"a": graph("x", "effusion")}, "candidates": {"a": graph("y", "effusion", "edema")}}
    (tmp_path / "graphs.json").write_text(json.dumps(graphs))
    families = build_extra_families(MetricResources(graphs=tmp_path / "graphs.json"))
    sheet = score({"a": "x"}, {"a": "y"}, metrics=["bleu1:coco"], extra=families)
    assert sheet["radgraph.simple"].value == pytest.approx(2 / 3)
    assert set(sheet) == {"bleu1:coco", "radgraph.simple", "radgraph.partial", "radgraph.complete"}


def test_metrics_of_ones_own_graphs_are_chosen_by_name(tmp_path: Path) -> None:
    """Alone, with others, by pattern, and also one that the family does not count by default."""
    graphs = {"references": {"a": graph("x", "effusion")}, "candidates": {"a": graph("y", "effusion", "edema")}}
    (tmp_path / "graphs.json").write_text(json.dumps(graphs))
    families = build_extra_families(MetricResources(graphs=tmp_path / "graphs.json"))
    for wanted, counted in {
        ("radgraph.partial",): {"radgraph.partial"},
        ("radgraph.simple:cased", "bleu1:coco"): {"radgraph.simple:cased", "bleu1:coco"},
        ("radgraph.[sp]*[el]",): {"radgraph.simple", "radgraph.partial"},
    }.items():
        assert set(score({"a": "x"}, {"a": "y"}, metrics=wanted, extra=families)) == counted
    with pytest.raises(UnknownName, match="'bertscore' needs --encoder"):
        score({"a": "x"}, {"a": "y"}, metrics=["radgraph.partial", "bertscore"], extra=families)
    for name, flags in {
        "radgraph.partial": "--graphs FILE",
        "radcliq1": "--graphs, --encoder, --chexbert and --bert",
    }.items():
        with pytest.raises(UnknownName, match=f"'{name}' needs {flags}"):
            score({"a": "x"}, {"a": "y"}, metrics=[name])


def test_graphs_drawn_again_under_the_same_name_are_another_input(tmp_path: Path) -> None:
    for name in ("r.json", "p.json"):
        (tmp_path / name).write_text('{"a": "x"}')
    config = ScoreConfig(tmp_path / "r.json", tmp_path / "p.json", graphs=tmp_path / "g.json", metrics=("bleu1:coco",))
    for word in ("effusion", "edema"):
        graphs = {"references": {"a": graph("x", "effusion")}, "candidates": {"a": graph("x", word)}}
        (tmp_path / "g.json").write_text(json.dumps(graphs))
        if word == "effusion":
            assert run_score(config, tmp_path / "run") == run_score(config, tmp_path / "run")
    with pytest.raises(RunError, match="other texts"):
        run_score(config, tmp_path / "run")


def test_runs_with_the_same_graphs_are_compared_by_them(tmp_path: Path) -> None:
    """Whatever both runs hold stands under 'all'."""
    for name in ("r.json", "p.json"):
        (tmp_path / name).write_text('{"a": "x", "b": "x"}')
    drawn = {key: graph("x", "effusion") for key in ("a", "b")}
    (tmp_path / "g.json").write_text(json.dumps({"references": drawn, "candidates": drawn}))
    config = ScoreConfig(tmp_path / "r.json", tmp_path / "p.json", graphs=tmp_path / "g.json", metrics=("bleu1:coco",))
    for run in ("one", "two"):
        run_score(config, tmp_path / run)
    found = compare([tmp_path / "one", tmp_path / "two"], metrics=["all"], trials=10)
    assert {one.metric for one in found.metrics} == {
        "bleu1:coco", "radgraph.simple", "radgraph.partial", "radgraph.complete"
    }  # fmt: skip


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        build_extra_families(MetricResources(graphs=tmp_path / "no.json"))


def test_weights_of_all_three_give_radcliq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for the weights: which families come out, and what RadCliQ gets of its parts."""
    import cxrlab.models.text_encoders as chexbert
    import cxrlab.models.text_encoders as encoder

    class Named:
        name = "stand-in"

        def __init__(self, *_: object) -> None: ...

    monkeypatch.setattr(chexbert, "CheXbert", Named)
    monkeypatch.setattr(encoder, "LocalTokenEncoder", Named)
    (tmp_path / "graphs.json").write_text(json.dumps({"references": {}, "candidates": {}}))
    extras = MetricResources(
        graphs=tmp_path / "graphs.json", encoder=tmp_path, chexbert=tmp_path / "chexbert.pth", bert=tmp_path
    )
    names = [metric.name for family in build_extra_families(extras) for metric in family.metrics]
    assert {"radgraph.partial", "bertscore", "chexbert14.micro.f1:uncertain-positive", "radcliq0", "radcliq1"} <= set(
        names
    )
    without = MetricResources(encoder=tmp_path, chexbert=tmp_path / "chexbert.pth", bert=tmp_path)
    assert "radcliq1" not in [metric.name for family in build_extra_families(without) for metric in family.metrics]


def test_a_model_of_the_radgraph_package_draws_the_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name instead of a file; here a stand-in that makes every word an entity: one of two is shared."""

    class RadGraph:
        def __init__(self, model_type: str) -> None:
            assert model_type == "radgraph-xl"

        def __call__(self, texts: list[str]) -> dict[str, object]:
            return {str(place): graph(text, *text.split()) for place, text in enumerate(texts)}

    monkeypatch.setitem(sys.modules, "radgraph", SimpleNamespace(RadGraph=RadGraph))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.csv").write_text("id,reference,candidate\na,effusion,effusion edema\n")
    config = ScoreConfig(tmp_path / "pairs.csv", graphs=Path("radgraph-xl"), metrics=("radgraph.simple",))
    found = run_score(config, tmp_path / "run")["metrics"]["radgraph.simple"]
    assert found["value"] == pytest.approx(2 / 3) and "radgraph-xl" in found["signature"]

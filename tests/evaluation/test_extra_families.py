from __future__ import annotations

import json
from pathlib import Path

import pytest

from cxrlab.core.errors import DataError
from cxrlab.evaluation.config import Extras
from cxrlab.evaluation.extra_families import extra_families
from cxrlab.evaluation.score import score


def graph(text: str, *words: str) -> dict[str, object]:
    entities = {
        str(place): {"tokens": word, "label": "OBS-DP", "start_ix": place, "end_ix": place, "relations": []}
        for place, word in enumerate(words, 1)
    }
    return {"text": text, "entities": entities}


def test_nothing_gives_nothing() -> None:
    assert extra_families(Extras()) == []


def test_graphs_in_a_file_give_radgraph_beside_the_other_metrics(tmp_path: Path) -> None:
    """One of two entities is shared: precision 1/2, recall 1, F1 2/3."""
    graphs = {"references": {"a": graph("x", "effusion")}, "candidates": {"a": graph("y", "effusion", "edema")}}
    (tmp_path / "graphs.json").write_text(json.dumps(graphs))
    families = extra_families(Extras(graphs=tmp_path / "graphs.json"))
    sheet = score({"a": "x"}, {"a": "y"}, metrics=["bleu1:coco"], extra=families)
    assert sheet["radgraph.simple"].value == pytest.approx(2 / 3)
    assert set(sheet) == {"bleu1:coco", "radgraph.simple", "radgraph.partial", "radgraph.complete"}


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        extra_families(Extras(graphs=tmp_path / "no.json"))


def test_weights_of_all_three_give_radcliq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for the weights: which families come out, and what RadCliQ is told of its parts."""
    import cxrlab.models.chexbert as chexbert
    import cxrlab.models.token_encoder as encoder

    class Named:
        name = "stand-in"

        def __init__(self, *_: object) -> None: ...

    monkeypatch.setattr(chexbert, "CheXbert", Named)
    monkeypatch.setattr(encoder, "LocalTokenEncoder", Named)
    (tmp_path / "graphs.json").write_text(json.dumps({"references": {}, "candidates": {}}))
    extras = Extras(tmp_path / "graphs.json", tmp_path, 5, tmp_path / "chexbert.pth", tmp_path)
    names = [metric.name for family in extra_families(extras) for metric in family.metrics]
    assert {"radgraph.partial", "bertscore", "chexbert14.micro.f1:uncertain-positive", "radcliq0", "radcliq1"} <= set(
        names
    )
    without = Extras(encoder=tmp_path, chexbert=tmp_path / "chexbert.pth", bert=tmp_path)
    assert "radcliq1" not in [metric.name for family in extra_families(without) for metric in family.metrics]

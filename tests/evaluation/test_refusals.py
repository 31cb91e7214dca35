"""A refusal to write is no report: it is counted, listed and asked for again, and never stands among predictions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from corpora import toy_corpus

from cxrlab.core.errors import DataError
from cxrlab.core.model_interfaces import REFUSED, Capabilities, Generated
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.records import Report
from cxrlab.core.runs import Run
from cxrlab.data.corpus import Corpus
from cxrlab.evaluation import generate as room
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import (
    PREDICTIONS,
    SUMMARY,
    Images,
    ReportGenerator,
    generate,
    generate_predictions,
    make_prediction,
)
from cxrlab.models.decoding import Decoding

COUNT = 7
SAID = "This picture is not answered."


class Guarded:
    """A served model that answers with the indication, and declines those that it should decline."""

    name, capabilities = "test:guarded", Capabilities(batch=True, black_box=True)

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.asked: list[str] = []

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        asked = [text or "" for text in indications or ()]
        self.asked += asked
        return [Generated(SAID, extra={REFUSED: True}) if text in self.refused else Generated(text) for text in asked]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    changes = {
        k: {"sections": Report(indication=f"reason {k}", findings="Clear."), "split": "test"} for k in range(COUNT)
    }
    return toy_corpus(tmp_path / "corpus", COUNT, changes)


def settings(corpus: Corpus, **changes: Any) -> GenerateConfig:
    plain = {"model": "test:guarded", "data": corpus.path, "batch_size": 2, "control_studies": 0, "examples": 0}
    return GenerateConfig(**{**plain, **changes})


def written(folder: Path) -> dict[str, str]:
    lines = [json.loads(line) for line in (folder / PREDICTIONS).read_text().splitlines()]
    return {line["id"]: line["report"] for line in lines}


def test_a_refused_study_is_missing_and_the_next_run_asks_for_it_alone(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Guarded("reason 2", "reason 5")
    monkeypatch.setattr(room, "open_model", lambda *given: model)
    out = tmp_path / "run"
    with pytest.raises(DataError, match=r"the model refused 2 of 7 studies .* 's2': '" + SAID) as caught:
        generate(settings(corpus), out)
    assert "readable" not in str(caught.value)
    assert written(out) == {f"s{k}": f"reason {k}" for k in range(COUNT) if k not in (2, 5)}
    assert SAID not in (out / PREDICTIONS).read_text()
    missing = json.loads((out / SUMMARY).read_text())["missing"]
    assert [(one["id"], one["refused"]) for one in missing] == [("s2", True), ("s5", True)]
    model.refused, model.asked = {"reason 5"}, []
    done = generate(settings(corpus, allow_missing=True), out)
    assert model.asked == ["reason 2", "reason 5"], "what was answered is not asked, and paid for, again"
    assert (done.predictions, [one.id for one in done.missing]) == (6, ["s5"])
    assert generate(settings(corpus), out) == done  # a finished run is returned as it is


def test_unreadable_and_refused_are_told_apart(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (corpus.path / corpus["s1"].images[0].path).unlink()
    monkeypatch.setattr(room, "open_model", lambda *given: Guarded("reason 3", "reason 4"))
    reported = "1 of 7 studies have no readable frontal image and the model refused 2 of 7 studies"
    with pytest.raises(DataError, match=reported):
        generate(settings(corpus), tmp_path / "run")


def test_a_control_that_is_refused_has_no_answers(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right images are answered, wrong ones with the same reasons are not: nothing stands in the controls' files."""
    model = Guarded()
    monkeypatch.setattr(room, "open_model", lambda *given: model)

    def after_the_right_images(images: Sequence[Any], indications: Sequence[str | None]) -> list[Generated]:
        if len(model.asked) >= COUNT:
            model.refused = {f"reason {k}" for k in range(COUNT)}
        return Guarded.generate(model, images, indications)

    model.generate = after_the_right_images  # type: ignore[method-assign, assignment]
    done = generate(settings(corpus, control_studies=COUNT), tmp_path / "run")
    assert done.predictions == COUNT and dict(done.controls) == {"noise": 0, "blank": 0, "swapped": 0}
    assert SAID not in "".join(file.read_text() for file in (tmp_path / "run").glob("*.jsonl"))
    assert len(model.asked) == COUNT + 3  # of each kind the first: a guard stops who sends such pictures


def test_of_several_answers_the_refused_ones_are_left_out(corpus: Corpus, tmp_path: Path) -> None:
    class Drawing(Guarded):
        def answers(
            self, images: Sequence[Any], indications: Sequence[str | None] | None, decoding: Decoding
        ) -> list[list[Generated]]:
            refusal = Generated(SAID, extra={REFUSED: True})
            return [[refusal, Generated("first"), Generated("second")] for _ in images]

    with Run.open(tmp_path / "run", {"made": "for a test"}) as run:
        lost = generate_predictions(
            run, "c.jsonl", ReportGenerator(Drawing(), Decoding()), Images(corpus), ["s0"], BatchSize(1), "drawing"
        )
    line = json.loads((tmp_path / "run" / "c.jsonl").read_text())
    assert lost == () and line == make_prediction("s0", [Generated("first"), Generated("second")]).to_json()


def test_only_a_plain_true_is_a_refusal() -> None:
    """Whatever else a server puts there is not taken for one, nor is a report that speaks of refusing."""
    reported = [Generated("x", extra={REFUSED: value}).refused for value in (True, 1, "true", None)]
    assert reported == [True, False, False, False] and not Generated("The patient refused contrast.").refused


def test_answers_that_cost_are_on_file_batch_by_batch(corpus: Corpus, tmp_path: Path) -> None:
    """Killed in the third batch of two: the first four answers are kept and not asked again."""
    model = Guarded()

    def dying(images: Sequence[Any], indications: Sequence[str | None]) -> list[Generated]:
        if len(model.asked) == 4:
            raise KeyboardInterrupt
        return Guarded.generate(model, images, indications)

    model.generate = dying  # type: ignore[method-assign, assignment]
    ids = list(corpus.ids())
    with pytest.raises(KeyboardInterrupt), Run.open(tmp_path / "run", {"made": "for a test"}) as run:
        generate_predictions(
            run, PREDICTIONS, ReportGenerator(model, Decoding()), Images(corpus), ids, BatchSize(2), "llm"
        )
    assert list(written(tmp_path / "run")) == ids[:4]
    again = Guarded()
    with Run.open(tmp_path / "run", {"made": "for a test"}) as run:
        generate_predictions(
            run, PREDICTIONS, ReportGenerator(again, Decoding()), Images(corpus), ids, BatchSize(2), "llm"
        )
    assert again.asked == ["reason 4", "reason 5", "reason 6"] and list(written(tmp_path / "run")) == ids

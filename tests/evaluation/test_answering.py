from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from corpora import toy_corpus

from cxrlab.core.errors import ConfigError
from cxrlab.core.protocols import Capabilities, Generated
from cxrlab.core.records import Report
from cxrlab.core.runs import Run
from cxrlab.evaluation.answering import ANSWERS, WINDOW, Films, Writer, answer_all, prediction, try_longest
from cxrlab.models.decoding import Decoding
from cxrlab.models.stub import Stub

COUNT = 41


class Listener:
    """Writes down which indications it was asked with, batch by batch, and answers with them."""

    name, capabilities = "test:listener", Capabilities(batch=True)

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        raise AssertionError("a model that chooses its words is asked for answers")

    def answers(
        self, images: Sequence[Any], indications: Sequence[str | None] | None = None, decoding: Decoding | None = None
    ) -> list[list[Generated]]:
        asked = [text or "" for text in indications or ()]
        self.batches.append(asked)
        # The batch's own number stands in the answer: another grouping would be seen in the file.
        return [[Generated(f"{text} {len(asked)} {max(map(len, asked))}")] for text in asked]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Films:
    """Studies whose indications have very different lengths, without order."""
    changes = {n: {"sections": Report(indication="x" * (n * 37 % 50))} for n in range(COUNT)}
    return Films(toy_corpus(tmp_path_factory.mktemp("toy") / "corpus", COUNT, changes))


def run_all(films: Films, folder: Path, size: int = 2) -> tuple[Listener, list[str]]:
    model = Listener()
    ids = list(films.corpus.ids())
    with Run.open(folder, {"made": "for a test"}) as run:
        assert answer_all(run, "predictions.jsonl", Writer(model, Decoding()), films, ids, size, "asking") == ()
    lines = (folder / "predictions.jsonl").read_text().splitlines()
    return model, [json.loads(line)["id"] for line in lines]


def test_batches_hold_prompts_of_like_length_and_the_file_keeps_the_order_of_the_corpus(
    films: Films, tmp_path: Path
) -> None:
    model, written = run_all(films, tmp_path / "run")
    assert written == list(films.corpus.ids())
    padded = sum(max(map(len, batch)) * len(batch) - sum(map(len, batch)) for batch in model.batches)
    unsorted = [films.indication(key) or "" for key in films.corpus.ids()]
    pairs = [unsorted[n : n + 2] for n in range(0, COUNT, 2)]
    plain = sum(max(map(len, pair)) * len(pair) - sum(map(len, pair)) for pair in pairs)
    assert padded < plain / 3
    assert [len(batch) for batch in model.batches] == [2] * (COUNT // 2) + [1]


@pytest.mark.parametrize("kept", range(0, COUNT, 5))
def test_a_run_that_was_stopped_anywhere_ends_with_the_same_bytes(films: Films, tmp_path: Path, kept: int) -> None:
    """A batch that was begun is answered in the same company again, and nothing before it is asked twice."""
    _, _ = run_all(films, tmp_path / "whole")
    whole = (tmp_path / "whole" / "predictions.jsonl").read_bytes()
    stopped = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt), Run.open(stopped, {"made": "for a test"}) as run:
        for line in whole.splitlines()[:kept]:
            run.append("predictions.jsonl", json.loads(line))
        raise KeyboardInterrupt
    model, _ = run_all(films, stopped)
    assert (stopped / "predictions.jsonl").read_bytes() == whole
    assert sum(map(len, model.batches)) <= COUNT - kept // (2 * WINDOW) * 2 * WINDOW


def test_the_longest_prompt_is_tried_first(films: Films) -> None:
    """What would fail after hours fails at the door; a model that costs money is not asked for nothing."""
    model, ids = Listener(), list(films.corpus.ids())
    try_longest(Writer(model, Decoding()), films, ids)
    longest = max((films.indication(key) or "" for key in ids), key=len)
    assert model.batches == [[longest]] and longest == "x" * 49
    model.capabilities = Capabilities(black_box=True)
    try_longest(Writer(model, Decoding()), films, ids)
    assert len(model.batches) == 1


def test_a_film_that_cannot_be_read_is_not_tried(tmp_path: Path) -> None:
    corpus = toy_corpus(tmp_path / "corpus", 2)
    for key in corpus.ids():
        (corpus.path / corpus[key].images[0].path).unlink()
    model = Listener()
    try_longest(Writer(model, Decoding()), Films(corpus), list(corpus.ids()))
    assert model.batches == []


def test_a_model_without_a_choice_of_words_takes_no_decoding() -> None:
    Writer(Stub("normal"), Decoding())
    with pytest.raises(ConfigError, match="'stub:normal' cannot be told how to choose its words"):
        Writer(Stub("normal"), Decoding(strategy="beam"))


def test_several_answers_stand_beside_the_best() -> None:
    two = [Generated("a", -0.5, 3, {"truncated": True}), Generated("b", -0.7, 2)]
    found = prediction("s1", two).to_json()
    assert found["report"] == "a" and found["confidence"] == {"mean_logprob": -0.5, "tokens": 3}
    assert found[ANSWERS] == [
        {"report": "a", "confidence": {"mean_logprob": -0.5, "tokens": 3}, "truncated": True},
        {"report": "b", "confidence": {"mean_logprob": -0.7, "tokens": 2}},
    ]
    assert ANSWERS not in prediction("s1", two[:1]).to_json()

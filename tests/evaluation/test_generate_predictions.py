from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from corpora import toy_corpus

from cxrlab.core.errors import ConfigError, OutOfMemory
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.core.out_of_memory import BATCH_FILE, BatchSize
from cxrlab.core.records import Report
from cxrlab.core.runs import Run
from cxrlab.evaluation.generate import (
    ANSWERS_KEY,
    WINDOW,
    Images,
    ReportGenerator,
    generate_predictions,
    make_prediction,
    try_longest_indication,
)
from cxrlab.models.baselines import Stub
from cxrlab.models.decoding import Decoding

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
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """Studies whose indications have very different lengths, without order."""
    changes = {n: {"sections": Report(indication="x" * (n * 37 % 50))} for n in range(COUNT)}
    return Images(toy_corpus(tmp_path_factory.mktemp("toy") / "corpus", COUNT, changes))


def run_all(images: Images, folder: Path, size: int = 2) -> tuple[Listener, list[str]]:
    model = Listener()
    ids = list(images.corpus.ids())
    with Run.open(folder, {"made": "for a test"}) as run:
        assert (
            generate_predictions(
                run, "predictions.jsonl", ReportGenerator(model, Decoding()), images, ids, BatchSize(size), "llm"
            )
            == ()
        )
    lines = (folder / "predictions.jsonl").read_text().splitlines()
    return model, [json.loads(line)["id"] for line in lines]


def test_batches_hold_prompts_of_like_length_and_the_file_keeps_the_order_of_the_corpus(
    images: Images, tmp_path: Path
) -> None:
    model, written = run_all(images, tmp_path / "run")
    assert written == list(images.corpus.ids())
    padded = sum(max(map(len, batch)) * len(batch) - sum(map(len, batch)) for batch in model.batches)
    unsorted = [images.indication(key) or "" for key in images.corpus.ids()]
    pairs = [unsorted[n : n + 2] for n in range(0, COUNT, 2)]
    plain = sum(max(map(len, pair)) * len(pair) - sum(map(len, pair)) for pair in pairs)
    assert padded < plain / 3
    assert [len(batch) for batch in model.batches] == [2] * (COUNT // 2) + [1]


@pytest.mark.parametrize("kept", range(0, COUNT, 5))
def test_a_run_that_was_stopped_anywhere_ends_with_the_same_bytes(images: Images, tmp_path: Path, kept: int) -> None:
    """A batch that was begun is answered in the same company again, and nothing before it is asked twice."""
    _, _ = run_all(images, tmp_path / "whole")
    whole = (tmp_path / "whole" / "predictions.jsonl").read_bytes()
    stopped = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt), Run.open(stopped, {"made": "for a test"}) as run:
        for line in whole.splitlines()[:kept]:
            run.append("predictions.jsonl", json.loads(line))
        raise KeyboardInterrupt
    model, _ = run_all(images, stopped)
    assert (stopped / "predictions.jsonl").read_bytes() == whole
    assert sum(map(len, model.batches)) <= COUNT - kept // (2 * WINDOW) * 2 * WINDOW


def test_the_longest_prompt_is_tried_first(images: Images) -> None:
    """What would fail after hours fails at the door; a model that costs money is not asked for nothing."""
    model, ids = Listener(), list(images.corpus.ids())
    try_longest_indication(ReportGenerator(model, Decoding()), images, ids)
    longest = max((images.indication(key) or "" for key in ids), key=len)
    assert model.batches == [[longest]] and longest == "x" * 49
    model.capabilities = Capabilities(black_box=True)
    try_longest_indication(ReportGenerator(model, Decoding()), images, ids)
    assert len(model.batches) == 1


def test_a_image_that_cannot_be_read_is_not_tried(tmp_path: Path) -> None:
    corpus = toy_corpus(tmp_path / "corpus", 2)
    for key in corpus.ids():
        (corpus.path / corpus[key].images[0].path).unlink()
    model = Listener()
    try_longest_indication(ReportGenerator(model, Decoding()), Images(corpus), list(corpus.ids()))
    assert model.batches == []


def test_a_model_without_a_choice_of_words_takes_no_decoding() -> None:
    ReportGenerator(Stub("normal"), Decoding())
    with pytest.raises(ConfigError, match="'stub:normal'.*--decoding"):
        ReportGenerator(Stub("normal"), Decoding(strategy="beam"))


def test_several_answers_stand_beside_the_best() -> None:
    two = [Generated("a", -0.5, 3, {"truncated": True}), Generated("b", -0.7, 2)]
    found = make_prediction("s1", two).to_json()
    assert found["report"] == "a" and found["confidence"] == {"mean_logprob": -0.5, "tokens": 3}
    assert found[ANSWERS_KEY] == [
        {"report": "a", "confidence": {"mean_logprob": -0.5, "tokens": 3}, "truncated": True},
        {"report": "b", "confidence": {"mean_logprob": -0.7, "tokens": 2}},
    ]
    assert ANSWERS_KEY not in make_prediction("s1", two[:1]).to_json()


class Small(Listener):
    """A machine whose memory holds so many letters of a batch and its padding."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letters = letters

    def answers(self, images: Sequence[Any], *asked: Any) -> list[list[Generated]]:
        answers = super().answers(images, *asked)
        if len(images) * max(len(text) for text in self.batches[-1]) > self.letters:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return answers


def answer(images: Images, folder: Path, model: Listener, size: int, stop_at: int | None = None) -> bytes:
    """Answers with a run that may be stopped at a batch; the file's bytes."""
    if stop_at is not None:
        asked = model.answers

        def answers(*given: Any) -> list[list[Generated]]:
            if len(model.batches) == stop_at:
                raise KeyboardInterrupt
            return asked(*given)

        model.answers = answers  # type: ignore[method-assign]
    with suppress(KeyboardInterrupt), Run.open(folder, {"made": "for a test"}) as run:
        writer, ids = ReportGenerator(model, Decoding()), list(images.corpus.ids())
        generate_predictions(run, "predictions.jsonl", writer, images, ids, BatchSize(size, folder), "llm")
    return (folder / "predictions.jsonl").read_bytes()


def test_what_does_not_fit_is_answered_as_with_the_smaller_batch_from_the_start(images: Images, tmp_path: Path) -> None:
    """Down to the grouping, which stands in the answers: 8 and 4 fail in the first window, 2 are left."""
    model = Small(2 * 49)
    assert answer(images, tmp_path / "halved", model, 8) == answer(images, tmp_path / "small", Small(2 * 49), 2)
    sizes = [len(batch) for batch in model.batches]
    assert sizes.count(8) < WINDOW and sizes[sizes.index(2) :].count(4) == 0
    record = json.loads((tmp_path / "halved" / BATCH_FILE).read_text())["batch_size"]
    assert (record["requested"], record["used"]) == (8, 2)


@pytest.mark.parametrize("stop_at", [3, 9, 15, 17, 35])
def test_a_run_that_was_stopped_after_a_batch_was_halved_goes_on_with_the_small_one(
    images: Images, tmp_path: Path, stop_at: int
) -> None:
    """Two at once fit in the first window and not in the second; the bytes are those of a run that was not stopped."""
    straight = answer(images, tmp_path / "straight", Small(97), 2)
    answer(images, tmp_path / "stopped", Small(97), 2, stop_at)
    halved = (tmp_path / "stopped" / BATCH_FILE).exists()
    again = Small(97)
    assert answer(images, tmp_path / "stopped", again, 2) == straight
    assert not halved or max(map(len, again.batches)) == 1


def test_a_image_that_does_not_fit_alone_is_an_error_and_what_was_written_stays(images: Images, tmp_path: Path) -> None:
    with pytest.raises(OutOfMemory, match="GPU memory ran out even with a batch of 1"):
        answer(images, tmp_path / "run", Small(48), 1)
    assert (tmp_path / "run" / "predictions.jsonl").read_text().count("\n") == 3 * WINDOW


def test_a_single_image_that_does_not_fit_is_told_before_the_run_begins(images: Images) -> None:
    with pytest.raises(OutOfMemory, match="batch of 1"):
        try_longest_indication(ReportGenerator(Small(48), Decoding()), images, list(images.corpus.ids()))

"""What comes together is answered together, and nobody gets another's answer or another's failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, wait

import pytest

from cxrlab.core.model_interfaces import Generated
from cxrlab.serving.batching import Answered, Batcher, Outcome
from cxrlab.serving.errors import ApiError


class Model:
    """Says each number again; can be held, and fails at numbers below zero, or dies at 666."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Event()

    def ask(self, questions: Sequence[int]) -> Sequence[Outcome]:
        self.batches.append(list(questions))
        self.begun.set()
        assert self.open.wait(10)
        if 666 in questions:
            raise SystemExit
        if any(number < 0 for number in questions):
            raise ValueError("one of them is below zero")
        return [[Generated(str(number))] for number in questions]


def started(model: Model, **settings: float) -> Batcher[int]:
    batcher: Batcher[int] = Batcher(model.ask, **settings)  # type: ignore[arg-type]
    batcher.start()
    return batcher


def text(future: Future[Answered]) -> str:
    return future.result(10).answers[0].text


def held_back(model: Model, batcher: Batcher[int]) -> Future[Answered]:
    """A first question that the model is busy with until it is let go, so that others gather."""
    model.open.clear()
    model.begun.clear()
    first = batcher.submit("key", 0)
    assert model.begun.wait(10)
    return first


def test_what_waits_is_answered_together_in_its_order() -> None:
    model = Model()
    batcher = started(model, max_batch=8)
    first = held_back(model, batcher)
    futures = [batcher.submit("key", number) for number in range(1, 11)]
    model.open.set()
    assert [text(future) for future in (first, *futures)] == [str(number) for number in range(11)]
    assert model.batches == [[0], list(range(1, 9)), [9, 10]]
    assert futures[0].result().batch == 8 and futures[9].result().batch == 2
    assert batcher.stop()


def test_only_equal_keys_are_queried_together_and_the_oldest_goes_first() -> None:
    model = Model()
    batcher = started(model)
    first = held_back(model, batcher)
    futures = [batcher.submit(f"key {number % 2}", number) for number in range(1, 7)]
    model.open.set()
    wait([first, *futures], 10)
    assert model.batches == [[0], [1, 3, 5], [2, 4, 6]]
    batcher.stop()


def test_answers_count_towards_a_batch_and_one_that_is_larger_goes_alone() -> None:
    model = Model()
    batcher = started(model, max_batch=4)
    first = held_back(model, batcher)
    futures = [batcher.submit("key", number, rows) for number, rows in ((1, 9), (2, 2), (3, 3), (4, 2))]
    model.open.set()
    wait([first, *futures], 10)
    assert model.batches == [[0], [1], [2, 4], [3]]
    batcher.stop()


def test_sixty_four_threads_get_their_own_answers() -> None:
    model, wrong = Model(), list[int]()
    batcher = started(model, max_wait_s=0.002)

    def client(number: int) -> None:
        for turn in range(10):
            asked = 1000 * number + turn
            if text(batcher.submit("key", asked)) != str(asked):
                wrong.append(asked)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert wrong == [] and sorted(sum(model.batches, [])) == sorted(1000 * n + t for n in range(64) for t in range(10))
    assert max(map(len, model.batches)) > 1
    batcher.stop()


def test_a_question_that_fails_fails_alone() -> None:
    model = Model()
    batcher = started(model)
    first = held_back(model, batcher)
    futures = [batcher.submit("key", number) for number in (1, -2, 3)]
    model.open.set()
    assert text(first) == "0" and text(futures[0]) == "1" and text(futures[2]) == "3"
    with pytest.raises(ValueError, match="below zero"):
        futures[1].result(10)
    assert model.batches == [[0], [1, -2, 3], [1], [-2], [3]]
    batcher.stop()


def test_an_outcome_that_is_an_error_is_nobody_elses() -> None:
    def ask(questions: Sequence[int]) -> Sequence[Outcome]:
        return [KeyError("told") if number == 2 else [Generated(str(number))] for number in questions]

    batcher: Batcher[int] = Batcher(ask)
    batcher.start()
    futures = [batcher.submit("key", number) for number in (1, 2)]
    assert text(futures[0]) == "1"
    with pytest.raises(KeyError):
        futures[1].result(10)
    batcher.stop()


def test_too_few_answers_are_a_failure_and_not_a_shift() -> None:
    """A model that forgets one of two images must not give the second image's report to the first."""

    def ask(questions: Sequence[int]) -> Sequence[Outcome]:
        return [[Generated(str(number))] for number in questions if number != 1]

    batcher: Batcher[int] = Batcher(ask, max_wait_s=0.2, pending=lambda: 2)
    batcher.start()
    one, two = batcher.submit("key", 1), batcher.submit("key", 2)
    assert text(two) == "2"
    with pytest.raises(RuntimeError, match="1 questions got 0"):
        one.result(10)
    batcher.stop()


def test_who_leaves_is_not_queried_about() -> None:
    model = Model()
    batcher = started(model)
    first = held_back(model, batcher)
    staying, leaving = batcher.submit("key", 1), batcher.submit("key", 2)
    assert leaving.cancel() and batcher.waiting == 1
    assert not first.cancel(), "the model is at it already"
    model.open.set()
    assert text(staying) == "1"
    with pytest.raises(CancelledError):
        leaving.result(10)
    assert model.batches == [[0], [1]]
    batcher.stop()


def test_a_full_queue_sends_away() -> None:
    model = Model()
    batcher = started(model, most=2)
    held_back(model, batcher)
    batcher.submit("key", 1)
    batcher.submit("key", 2)
    with pytest.raises(ApiError) as caught:
        batcher.submit("key", 3)
    assert caught.value.status == 503 and int(caught.value.headers["Retry-After"]) >= 1
    model.open.set()
    batcher.stop()


def test_a_lone_question_does_not_wait_and_company_is_waited_for() -> None:
    model = Model()
    batcher = started(model, max_wait_s=5.0)
    begun = time.monotonic()
    text(batcher.submit("key", 1))
    assert time.monotonic() - begun < 2.5
    batcher.stop()
    coming = started(model, max_wait_s=5.0, pending=lambda: 3)  # type: ignore[arg-type]
    futures = [coming.submit("key", number) for number in (1, 2, 3)]
    assert [text(future) for future in futures] == ["1", "2", "3"] and model.batches[-1] == [1, 2, 3]
    coming.stop()


def test_a_thread_that_dies_leaves_nobody_waiting() -> None:
    model = Model()
    batcher = started(model)
    first = held_back(model, batcher)
    dying, after = batcher.submit("one", 666), batcher.submit("two", 1)
    model.open.set()
    assert text(first) == "0"
    for future in (dying, after):
        with pytest.raises(ApiError):
            future.result(10)
    batcher._thread.join(10)
    assert not batcher.alive and isinstance(batcher.fatal_error, SystemExit)
    with pytest.raises(ApiError):
        batcher.submit("key", 1)


def test_stopping_fails_what_waits_and_ends_the_thread() -> None:
    model = Model()
    batcher = started(model)
    first = held_back(model, batcher)
    waiting = batcher.submit("key", 1)
    assert batcher.busy_s() > 0
    threading.Timer(0.05, model.open.set).start()
    assert batcher.stop()
    assert text(first) == "0"
    with pytest.raises(ApiError, match="overloaded"):
        waiting.result(10)
    assert not batcher.alive and batcher.busy_s() == 0

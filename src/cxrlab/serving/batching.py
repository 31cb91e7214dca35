"""Dynamic batching: one thread runs the model on batches of requests, fairly between clients.

A request waits a few milliseconds for others with the same settings. If a batch fails, its requests are run one by one,
so that each has its own answer or its own error. The next batch begins with the client that has had the fewest answers;
an idle client does not save up turns.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from cxrlab.core.image_codec import to_unit
from cxrlab.core.model_interfaces import Generated, ImageToText, TextModel
from cxrlab.models.decoding import Decoding, SupportsDecoding, SupportsSplitSampling
from cxrlab.serving.errors import overloaded, stopping
from cxrlab.serving.images import Pixels

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image

Item = TypeVar("Item")
Outcome = list[Generated] | Exception  # the answers to a question, or its error
Ask = Callable[[Sequence[Item]], Sequence[Outcome]]  # questions of one key → their outcomes, in order


@dataclass(frozen=True)
class Answered:
    """The answers to a question, the number of questions in its batch, and its seconds in the queue."""

    answers: list[Generated]
    batch: int
    waited_s: float


@dataclass(eq=False)
class Job(Generic[Item]):
    """A question in the queue."""

    key: Hashable  # questions of equal keys may share a batch
    question: Item
    rows: int = 1  # number of requested answers
    client: Hashable = None
    arrived_at: float = field(default_factory=time.monotonic)  # time on the monotonic clock
    future: Future[Answered] = field(default_factory=Future)


class Batcher(Generic[Item]):
    """The queue and the model's thread.

    Args:
        ask: Runs the model; called in the thread only.
        max_batch: Most answers in a batch; a question that needs more is run alone.
        max_wait_s: Longest time that the oldest question waits for others while the model is idle; without concurrent
            requests it does not wait.
        most: Most questions in the queue.
        pending: Gives the number of questions in the queue or still being received.
        on_batch: Called with the size of each batch and its seconds.
    """

    def __init__(
        self,
        ask: Ask[Item],
        *,
        max_batch: int = 32,
        max_wait_s: float = 0.01,
        most: int = 256,
        pending: Callable[[], int] = lambda: 0,
        on_batch: Callable[[int, float], None] | None = None,
    ) -> None:
        self._ask, self._pending, self._on_batch = ask, pending, on_batch
        self._last = 1  # rows of the previous batch
        self._max_batch, self._max_wait_s, self._most = max_batch, max_wait_s, most
        self._queue: list[Job[Item]] = []  # in order of arrival
        # Number of answers given to each client that waits or is ahead of the client served last.
        self._answers_by_client: dict[Hashable, int] = {}
        self._served_level = 0  # number of answers that the client served last had before
        self._changed = threading.Condition()
        self._stopping = False
        self.fatal_error: BaseException | None = None
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, key: Hashable, question: Item, rows: int = 1, client: Hashable = None) -> Future[Answered]:
        """Queue a question; cancelling the future removes it unless its batch is already running."""
        job = Job(key, question, rows, client)
        with self._changed:
            if self._stopping or not self._thread.is_alive():
                raise stopping()
            if len(self._queue) >= self._most:
                raise overloaded("too many requests wait already; try again later.")
            if all(other.client != client for other in self._queue):
                self._answers_by_client[client] = max(self._answers_by_client.get(client, 0), self._served_level)
            self._queue.append(job)
            self._changed.notify()

        def drop(future: Future[Answered]) -> None:
            if future.cancelled():
                with self._changed:
                    if job in self._queue:
                        self._queue.remove(job)

        job.future.add_done_callback(drop)
        return job.future

    @property
    def waiting(self) -> int:
        """Questions in the queue."""
        return len(self._queue)

    def waiting_by_client(self) -> Counter[Hashable]:
        """Number of queued answers per client."""
        counts: Counter[Hashable] = Counter()
        with self._changed:
            for job in self._queue:
                counts[job.client] += job.rows
        return counts

    @property
    def begun(self) -> bool:
        """Whether the thread was started."""
        return self._thread.ident is not None

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def busy_s(self) -> float:
        """Seconds since the current batch began; 0 if idle."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def stop(self, patience_s: float = 5.0) -> bool:
        """Fail all queued questions and wait for the thread; returns whether it ended in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self.begun:
            self._thread.join(patience_s)
        self._fail_waiting()
        return not self._thread.is_alive()

    def _work(self) -> None:
        batch: list[Job[Item]] = []
        try:
            while batch := self._next():
                self._busy_since = time.monotonic()
                self._answer(batch)
                self._busy_since = None
        except BaseException as error:  # ends the thread, so the server reports itself dead
            self.fatal_error = error
            for job in batch:
                if not job.future.done():
                    job.future.set_exception(stopping())
        finally:
            self._fail_waiting()

    def _fail_waiting(self) -> None:
        with self._changed:
            left = list(self._queue)
            self._queue.clear()
        for job in left:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(stopping())

    def _next(self) -> list[Job[Item]]:
        """The next batch; empty after a stop."""
        with self._changed:
            while not self._stopping:
                if not self._queue:
                    self._changed.wait()
                    continue
                first = min(self._queue, key=lambda job: self._answers_by_client[job.client])  # of several the oldest
                left = first.arrived_at + self._max_wait_s - time.monotonic()
                ready = sum(job.rows for job in self._queue if job.key == first.key)
                if left <= 0 or ready >= min(self._max_batch, max(self._pending(), self._last)):
                    return self._take(first)
                self._changed.wait(left)
            return []

    def _take(self, first: Job[Item]) -> list[Job[Item]]:
        """Remove a batch from the queue: the first question and others of its key, clients in turns.

        While a client waits with another key, no client gets more than an equal share of the batch.
        """
        waiting: dict[Hashable, list[Job[Item]]] = {job.client: [] for job in self._queue}
        for job in self._queue:
            if job.key == first.key and job is not first:
                waiting[job.client].append(job)
        alike = {job.client for job in self._queue if job.key == first.key}
        share = self._max_batch if len(alike) == len(waiting) else max(1, self._max_batch // len(waiting))
        self._served_level = self._answers_by_client[first.client]
        taken, rows, own = [first], first.rows, Counter({first.client: first.rows})
        self._answers_by_client[first.client] += first.rows
        while left := [client for client, jobs in waiting.items() if jobs]:
            client = min(left, key=lambda one: (self._answers_by_client[one], waiting[one][0].arrived_at))
            job = waiting[client].pop(0)
            if rows + job.rows <= self._max_batch and own[client] + job.rows <= share:
                taken.append(job)
                rows += job.rows
                own[client] += job.rows
                self._answers_by_client[client] += job.rows
        chosen = set(map(id, taken))
        batch = [job for job in self._queue if id(job) in chosen]
        self._queue = [job for job in self._queue if id(job) not in chosen]
        still = {job.client for job in self._queue}
        self._answers_by_client = {
            client: had
            for client, had in self._answers_by_client.items()
            if client in still or had > self._served_level
        }
        self._last = rows
        return batch

    def _answer(self, batch: list[Job[Item]]) -> None:
        begun = time.monotonic()
        jobs = [job for job in batch if job.future.set_running_or_notify_cancel()]
        if not jobs:
            return
        try:
            outcomes = self._run(jobs)
            if len(jobs) > 1 and isinstance(outcomes[0], Exception) and outcomes[0] is outcomes[-1]:  # all failed
                outcomes = [self._run([job])[0] for job in jobs]
        finally:
            if self._on_batch is not None:
                self._on_batch(len(jobs), time.monotonic() - begun)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(Answered(outcome, len(jobs), begun - job.arrived_at))

    def _run(self, jobs: list[Job[Item]]) -> list[Outcome]:
        """The outcome of each question; if the call fails, the same error for all."""
        try:
            found = self._ask([job.question for job in jobs])
            if len(found) != len(jobs) or not all(found):
                raise RuntimeError(f"{len(jobs)} questions got {len(found)} lists of answers, or an empty one")
            return list(found)
        except Exception as error:
            return [error] * len(jobs)


@dataclass(frozen=True, eq=False)
class ImageQuestion:
    """A request for a report."""

    image: Pixels  # uint8 [H, W]
    indication: str | None
    decoding: Decoding | None  # None for the model's own settings
    number: int | None = None  # index of the sampled answer; None for all answers

    @property
    def key(self) -> Hashable:
        """Images of equal keys may share a batch."""
        return ("image", self.decoding)

    @property
    def rows(self) -> int:
        """Number of answers to generate."""
        return self.decoding.answers if self.decoding and self.number is None else 1


@dataclass(frozen=True)
class TextQuestion:
    """A prompt for the text model."""

    prompt: str
    max_tokens: int
    seed: int

    @property
    def key(self) -> Hashable:
        """Prompts of equal keys may share a batch."""
        return ("text", self.max_tokens, self.seed)

    @property
    def rows(self) -> int:
        """One answer."""
        return 1


Question = ImageQuestion | TextQuestion


class ModelRunner:
    """The models of one server; called by one thread only.

    Args:
        text: The text model, if any.
        concurrency: Requests at once to a model behind an address.
        transform: Images → images as the report model gets them; unchanged when None.
    """

    def __init__(
        self,
        model: ImageToText,
        text: TextModel | None = None,
        concurrency: int = 8,
        transform: Callable[[list[Image]], list[Image]] | None = None,
    ) -> None:
        self.model, self.text, self._concurrency = model, text, concurrency
        self._transform = transform or (lambda images: images)
        self.supports_decoding = isinstance(model, SupportsDecoding)

    def parts(self, question: Question, choices: int) -> list[Question]:
        """A question as parts that together have `choices` answers, so that other clients can be served in between.

        A text model gets a seed for each answer. A model without split sampling is called once.
        """
        if isinstance(question, TextQuestion):
            return [replace(question, seed=question.seed + more) for more in range(choices)]
        if question.rows > 1 and isinstance(self.model, SupportsSplitSampling):
            return [replace(question, number=number) for number in range(choices)]
        return [question]

    def ask(self, questions: Sequence[Question]) -> Sequence[Outcome]:
        """The outcome of each question of one key."""
        images = [question for question in questions if isinstance(question, ImageQuestion)]
        if not images:
            assert self.text is not None  # checked in chat.py
            texts = [question for question in questions if isinstance(question, TextQuestion)]
            prompts, first = [question.prompt for question in texts], texts[0]
            return [[one] for one in self.text.complete(prompts, max_tokens=first.max_tokens, seed=first.seed)]
        if not self.model.capabilities.black_box:
            return self._reports(images)

        def report(question: ImageQuestion) -> Outcome:
            try:
                return self._reports([question])[0]
            except Exception as error:  # becomes the outcome of this question
                return error

        # One by one, so that an image is not paid for again because another has failed.
        with ThreadPoolExecutor(min(self._concurrency, len(images))) as pool:
            return list(pool.map(report, images))

    def _reports(self, questions: Sequence[ImageQuestion]) -> list[list[Generated]]:
        if questions[0].number is not None:
            return self._sampled_reports(questions)
        images = self._transform([to_unit(question.image) for question in questions])
        indications = [question.indication for question in questions]
        if isinstance(self.model, SupportsDecoding):
            return self.model.answers(images, indications, questions[0].decoding)
        return [[one] for one in self.model.generate(images, indications)]

    def _sampled_reports(self, questions: Sequence[ImageQuestion]) -> list[list[Generated]]:
        """One sampled answer per question; adjacent numbers of one image, and equal ranges of images, share a call."""
        assert isinstance(self.model, SupportsSplitSampling)  # checked in `parts`
        requests: dict[int, list[ImageQuestion]] = {}
        for question in questions:
            requests.setdefault(id(question.image), []).append(question)
        calls: dict[tuple[int, int], list[ImageQuestion]] = {}  # (first, count) → the first question of each request
        for group in requests.values():
            numbers = sorted(question.number or 0 for question in group)
            starts = [number for number in numbers if number - 1 not in numbers]
            ends = [number for number in numbers if number + 1 not in numbers]
            for first, last in zip(starts, ends, strict=True):
                calls.setdefault((first, last - first + 1), []).append(group[0])
        found: dict[tuple[int, int], Generated] = {}
        for (first, count), group in calls.items():
            images = self._transform([to_unit(one.image) for one in group])
            indications = [one.indication for one in group]
            decoding = replace(group[0].decoding or Decoding(), answers=count)
            for one, answers in zip(group, self.model.answers_from(images, indications, decoding, first), strict=True):
                found |= {(id(one.image), first + place): answer for place, answer in enumerate(answers)}
        return [[found[id(question.image), question.number or 0]] for question in questions]

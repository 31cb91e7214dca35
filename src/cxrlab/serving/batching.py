"""One thread owns the model and answers together what came together, in fair turns between clients.

A request waits a few milliseconds for others that ask in the same way. Each gets its own answer, or its own failure:
where a batch fails, its requests are asked one by one. The next batch begins with a question of the client that has
had the fewest answers; a client that was idle does not save up turns.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cxrlab.core.protocols import Generated
from cxrlab.serving.refusals import overloaded, stopping

Question = TypeVar("Question")
# The answers to a question, or why it has none.
Outcome = list[Generated] | Exception
# Questions of one key in, what each comes to in the same order out.
Ask = Callable[[Sequence[Question]], Sequence[Outcome]]


@dataclass(frozen=True)
class Answered:
    """What a request gets.

    Args:
        answers: One or several.
        batch: Questions that were answered together.
        waited_s: Seconds in the queue.
    """

    answers: list[Generated]
    batch: int
    waited_s: float


@dataclass(eq=False)
class Job(Generic[Question]):
    """A question in the queue.

    Args:
        key: Questions of equal keys may be asked together.
        question: What is asked.
        rows: Answers that it asks for.
        client: Who asks.
        came: When it came, on the monotonic clock.
        future: Where the answer is put.
    """

    key: Hashable
    question: Question
    rows: int = 1
    client: Hashable = None
    came: float = field(default_factory=time.monotonic)
    future: Future[Answered] = field(default_factory=Future)


class Batcher(Generic[Question]):
    """The queue and the thread behind it.

    Args:
        ask: Asks the model; called in the thread alone.
        max_batch: Most answers written together; a question that asks for more goes alone.
        max_wait_s: Longest time that the oldest question waits for company while the model is idle; one that came alone
            after one that came alone does not wait.
        most: Most questions in the queue.
        coming: Tells how many questions are on their way or here.
        seen: Told the size of each batch and the seconds it took.
    """

    def __init__(
        self,
        ask: Ask[Question],
        *,
        max_batch: int = 32,
        max_wait_s: float = 0.01,
        most: int = 256,
        coming: Callable[[], int] = lambda: 0,
        seen: Callable[[int, float], None] | None = None,
    ) -> None:
        self._ask, self._coming, self._seen = ask, coming, seen
        self._last = 1  # rows of the batch before
        self._max_batch, self._max_wait_s, self._most = max_batch, max_wait_s, most
        self._queue: list[Job[Question]] = []  # in the order in which they came
        # Answers that each client has had, for those that wait or are ahead of the one that was served last.
        self._had: dict[Hashable, int] = {}
        self._turn = 0  # what the client had had whose turn was the last
        self._changed = threading.Condition()
        self._stopping = False
        self.died_of: BaseException | None = None
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def submit(self, key: Hashable, question: Question, rows: int = 1, client: Hashable = None) -> Future[Answered]:
        """Put a question into the queue; cancelling the future takes it out again while nobody has begun with it."""
        job = Job(key, question, rows, client)
        with self._changed:
            if self._stopping or not self._thread.is_alive():
                raise stopping()
            if len(self._queue) >= self._most:
                raise overloaded("too many requests wait already; come again.")
            if all(other.client != client for other in self._queue):
                self._had[client] = max(self._had.get(client, 0), self._turn)
            self._queue.append(job)
            self._changed.notify()
        job.future.add_done_callback(lambda future: self._drop(job) if future.cancelled() else None)
        return job.future

    @property
    def waiting(self) -> int:
        """Questions in the queue."""
        return len(self._queue)

    def waiting_by_client(self) -> Counter[Hashable]:
        """Answers that wait to be written, for each client that waits for any."""
        counts: Counter[Hashable] = Counter()
        with self._changed:
            for job in self._queue:
                counts[job.client] += job.rows
        return counts

    @property
    def begun(self) -> bool:
        """Whether it was started."""
        return self._thread.ident is not None

    @property
    def alive(self) -> bool:
        """Whether somebody answers."""
        return self._thread.is_alive()

    def busy_s(self) -> float:
        """Seconds since the model began with what it is writing; 0 when it is idle."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def stop(self, patience_s: float = 5.0) -> bool:
        """Answer nothing more; what waits fails. Whether the thread has ended within the time."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self.begun:
            self._thread.join(patience_s)
        self._fail_waiting()
        return not self._thread.is_alive()

    def _drop(self, job: Job[Question]) -> None:
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)

    def _work(self) -> None:
        batch: list[Job[Question]] = []
        try:
            while batch := self._next():
                self._busy_since = time.monotonic()
                self._answer(batch)
                self._busy_since = None
        except BaseException as error:  # what is no Exception ends the thread, and the server calls itself dead
            self.died_of = error
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

    def _next(self) -> list[Job[Question]]:
        """The next questions that are asked together; none when the end has come."""
        with self._changed:
            while not self._stopping:
                if not self._queue:
                    self._changed.wait()
                    continue
                first = min(self._queue, key=lambda job: self._had[job.client])  # of several the oldest
                left = first.came + self._max_wait_s - time.monotonic()
                if left <= 0 or self._rows_like(first) >= min(self._max_batch, max(self._coming(), self._last)):
                    return self._take(first)
                self._changed.wait(left)
            return []

    def _rows_like(self, first: Job[Question]) -> int:
        return sum(job.rows for job in self._queue if job.key == first.key)

    def _take(self, first: Job[Question]) -> list[Job[Question]]:
        """The first question and those of its kind that still fit, clients in turns; in the order of their coming.

        Where a client waits that asks in another way, nobody gets more than an equal share of the batch.
        """
        waiting: dict[Hashable, list[Job[Question]]] = {job.client: [] for job in self._queue}
        for job in self._queue:
            if job.key == first.key and job is not first:
                waiting[job.client].append(job)
        alike = {job.client for job in self._queue if job.key == first.key}
        share = self._max_batch if len(alike) == len(waiting) else max(1, self._max_batch // len(waiting))
        self._turn = self._had[first.client]
        taken, rows, own = [first], first.rows, Counter({first.client: first.rows})
        self._had[first.client] += first.rows
        while left := [client for client, jobs in waiting.items() if jobs]:
            client = min(left, key=lambda one: (self._had[one], waiting[one][0].came))
            job = waiting[client].pop(0)
            if rows + job.rows <= self._max_batch and own[client] + job.rows <= share:
                taken.append(job)
                rows += job.rows
                own[client] += job.rows
                self._had[client] += job.rows
        chosen = set(map(id, taken))
        batch = [job for job in self._queue if id(job) in chosen]
        self._queue = [job for job in self._queue if id(job) not in chosen]
        still = {job.client for job in self._queue}
        self._had = {client: had for client, had in self._had.items() if client in still or had > self._turn}
        self._last = rows
        return batch

    def _answer(self, batch: list[Job[Question]]) -> None:
        begun = time.monotonic()
        asked = [job for job in batch if job.future.set_running_or_notify_cancel()]
        if not asked:
            return
        try:
            found = self._asked(asked)
        finally:
            if self._seen is not None:
                self._seen(len(asked), time.monotonic() - begun)
        for job, outcome in zip(asked, found, strict=True):
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(Answered(outcome, len(asked), begun - job.came))

    def _asked(self, jobs: list[Job[Question]]) -> list[Outcome]:
        """What each question comes to; those of a batch that fails as a whole are asked one by one."""
        try:
            found = self._ask([job.question for job in jobs])
            if len(found) != len(jobs) or not all(found):
                raise RuntimeError(f"{len(jobs)} questions got {len(found)} lists of answers, or an empty one")
            return list(found)
        except Exception as error:
            return [error] if len(jobs) == 1 else [self._asked([job])[0] for job in jobs]

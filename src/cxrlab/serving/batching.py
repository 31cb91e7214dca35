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
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from cxrlab.core.image_codec import to_unit
from cxrlab.core.protocols import Generated, ImageToText, TextModel
from cxrlab.models.decoding import Decoding, SupportsDecoding, SupportsSplitSampling
from cxrlab.serving.errors import overloaded, stopping
from cxrlab.serving.images import Pixels

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


One = TypeVar("One")


@dataclass(frozen=True, eq=False)
class ImageQuestion:
    """An image that wants a report.

    Args:
        image: uint8 [H, W].
        indication: Reason of the examination.
        decoding: How words are chosen; None leaves it to the model.
        number: Which one of the drawn answers is wanted; None for all of them.
    """

    image: Pixels
    indication: str | None
    decoding: Decoding | None
    number: int | None = None

    @property
    def key(self) -> Hashable:
        """Images of equal keys are answered together."""
        return ("image", self.decoding)

    @property
    def rows(self) -> int:
        """Answers that the model writes."""
        return self.decoding.answers if self.decoding and self.number is None else 1


@dataclass(frozen=True)
class TextQuestion:
    """A prompt for the text model.

    Args:
        prompt: The prompt.
        max_tokens: Longest answer.
        seed: For models that draw.
    """

    prompt: str
    max_tokens: int
    seed: int

    @property
    def key(self) -> Hashable:
        """Prompts of equal keys are answered together."""
        return ("text", self.max_tokens, self.seed)

    @property
    def rows(self) -> int:
        """Answers that the model writes."""
        return 1


QuestionAskers = ImageQuestion | TextQuestion


class ModelRunner:
    """The models of one server; only one thread calls them.

    Args:
        model: Writes reports.
        text: Answers text; None where nobody does.
        abreast: Requests under way at once to a model behind an address.
    """

    def __init__(self, model: ImageToText, text: TextModel | None = None, abreast: int = 8) -> None:
        self.model, self.text, self._abreast = model, text, abreast
        self.heeds_decoding = isinstance(model, SupportsDecoding)

    def parts(self, question: QuestionAskers, choices: int) -> list[QuestionAskers]:
        """A question as the parts that together get so many answers; another client's may be asked between them.

        A model that draws in one piece alone is asked once, and one that does not draw gives the same each time; a text
        model is asked with a seed for each.
        """
        if isinstance(question, TextQuestion):
            return [replace(question, seed=question.seed + more) for more in range(choices)]
        if question.rows > 1 and isinstance(self.model, SupportsSplitSampling):
            return [replace(question, number=number) for number in range(choices)]
        return [question]

    def ask(self, questions: Sequence[QuestionAskers]) -> Sequence[Outcome]:
        """What each question of one key comes to."""
        images = [question for question in questions if isinstance(question, ImageQuestion)]
        if images:
            # What one image costs elsewhere is not paid again because another has failed.
            return self._each(self._reports, images) if self.model.capabilities.black_box else self._reports(images)
        prompts = [question for question in questions if isinstance(question, TextQuestion)]
        # Text models behind an address fetch side by side as well, and those here batch by themselves.
        return self._completions(prompts)

    def _reports(self, questions: Sequence[ImageQuestion]) -> list[list[Generated]]:
        if questions[0].number is not None:
            return self._drawn(questions)
        images = [to_unit(question.image) for question in questions]
        indications = [question.indication for question in questions]
        if isinstance(self.model, SupportsDecoding):
            return self.model.answers(images, indications, questions[0].decoding)
        return [[one] for one in self.model.generate(images, indications)]

    def _drawn(self, questions: Sequence[ImageQuestion]) -> list[list[Generated]]:
        """One drawn answer for each question; neighbours of one request, and requests alike, go in one call."""
        assert isinstance(self.model, SupportsSplitSampling)  # `parts` has looked
        requests: dict[int, list[ImageQuestion]] = {}
        for question in questions:
            requests.setdefault(id(question.image), []).append(question)
        calls: dict[tuple[int, int], list[ImageQuestion]] = {}  # (first, count) → the first question of each request
        for asked in requests.values():
            numbers = sorted(question.number or 0 for question in asked)
            starts = [number for number in numbers if number - 1 not in numbers]
            ends = [number for number in numbers if number + 1 not in numbers]
            for first, last in zip(starts, ends, strict=True):
                calls.setdefault((first, last - first + 1), []).append(asked[0])
        found: dict[tuple[int, int], Generated] = {}
        for (first, count), asked in calls.items():
            images, indications = [to_unit(one.image) for one in asked], [one.indication for one in asked]
            decoding = replace(asked[0].decoding or Decoding(), answers=count)
            for one, answers in zip(asked, self.model.answers_from(images, indications, decoding, first), strict=True):
                found |= {(id(one.image), first + place): answer for place, answer in enumerate(answers)}
        return [[found[id(question.image), question.number or 0]] for question in questions]

    def _completions(self, questions: Sequence[TextQuestion]) -> list[list[Generated]]:
        assert self.text is not None  # whoever asks has looked
        prompts, first = [question.prompt for question in questions], questions[0]
        return [[one] for one in self.text.complete(prompts, max_tokens=first.max_tokens, seed=first.seed)]

    def _each(
        self, ask: Callable[[Sequence[One]], list[list[Generated]]], questions: Sequence[One]
    ) -> Sequence[Outcome]:
        def alone(question: One) -> Outcome:
            try:
                return ask([question])[0]
            except Exception as error:  # it is handed to whoever asked this one
                return error

        with ThreadPoolExecutor(min(self._abreast, len(questions))) as pool:
            return list(pool.map(alone, questions))

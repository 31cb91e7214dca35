"""Client through which an attack queries the victim: images go in, text comes out, and the ledger records every query.

Attacking code gets this client and nothing else. No attribute of it leads to the victim, its tokenizer or its
probabilities: the victim is in the closure of one function. Python lets code inspect closures; the audit claims only
that the attacks here do not.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import numpy as np

from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError
from cxrlab.core.files import write_bytes
from cxrlab.core.image_codec import encode_png, to_unit
from cxrlab.core.model_interfaces import REFUSED
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.terminal import track
from cxrlab.extraction.query_ledger import Ledger, Reservation
from cxrlab.extraction.records import PICTURES, PendingQuery, Query, QueryImage, Response, fingerprint

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Generated, Image, ImageToText
    from cxrlab.models.decoding import Decoding

_PendingImage = tuple[PendingQuery, QueryImage]


class AccountsBlocked(CxrlabError):
    """The victim refused so many images in a row that further queries would only spend the budget.

    Args:
        refusals: Refusals in a row.
        first: Number of the first of them in the audit, from 0.
        answer: The victim's answer to the last one.
    """

    def __init__(self, refusals: int, first: int, answer: str) -> None:
        super().__init__(f"The victim refused {refusals} images in a row, from query {first + 1} on: {answer}")
        self.refusals, self.first, self.answer = refusals, first, answer


class VictimClient:
    """Queries a victim within a budget and keeps images and answers.

    Args:
        victim: Gets float32 [H, W], or [H, W, 3] in colour, each pixel's byte divided by 255.
        ledger: Open; every query is reserved in it before it is sent.
        folder: The run folder; images are saved in its `pictures`, as PNG, before they are sent.
        decoding: Decoding of the victim; None leaves it to the victim.
        batch_size: Images per call. It may change the last bit of a local victim, so it belongs to the config.
        workers: Parallel batches for a victim behind a connection; a model in this process has one.
        accounts: Names that take turns, by query number.
        patience: Refusals in a row after which no query is sent; None for no limit.
    """

    __slots__ = ("_accounts", "_batch_size", "_folder", "_generate", "_ledger", "_patience", "_refusals", "_workers")

    def __init__(
        self,
        victim: ImageToText,
        ledger: Ledger,
        folder: str | os.PathLike[str],
        *,
        decoding: Decoding | None = None,
        batch_size: int = 8,
        workers: int = 1,
        accounts: Sequence[str] = ("attacker",),
        patience: int | None = None,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("workers", workers), ("accounts", len(accounts))):
            if value < 1:
                raise ConfigError(f"{name}={value} is not usable; give at least 1.")
        # A batch that failed is not split and sent again to a model behind an address: it may have cost money.
        batch = None if victim.capabilities.black_box else BatchSize(batch_size, Path(folder))
        self._generate = query_function(victim, decoding, batch)
        self._ledger = ledger
        self._folder = Path(folder) / PICTURES
        self._batch_size = batch_size
        self._workers = workers if victim.capabilities.black_box else 1
        self._accounts = tuple(accounts)
        self._patience = patience
        self._refusals: list[Query] = []  # since the last answer

    @property
    def left(self) -> int:
        """Queries left in the budget."""
        return self._ledger.left

    def query(self, pictures: Sequence[QueryImage], round: int, first: int) -> list[str]:
        """The victim's report on each image (uint8 [H, W] or [H, W, 3]), in order.

        An image that was sent before, in this call or an earlier one, is answered from the ledger. Called again with
        the same images after an interruption, it sends those without an answer, in the same batches.

        Args:
            pictures: Sizes may differ.
            round: Round of the audit, from 0.
            first: Query number of the first image, from 0; the others follow.

        Raises:
            BudgetExceeded: When the budget ends before the images do; the answers until then are in the ledger.
            AccountsBlocked: After `patience` refusals in a row, counted in the order of the batches, so that the same
                queries sent again after a stop end at the same one.
        """
        queries: list[_PendingImage] = []
        for number, picture in enumerate(pictures, first):
            account = self._accounts[number % len(self._accounts)]
            pixels = picture.pixels
            if pixels.dtype != np.uint8 or pixels.shape[2:] not in ((), (3,)) or 0 in pixels.shape:
                raise DataError(
                    f"Image '{picture.key}' is {pixels.dtype} {list(pixels.shape)}; expected uint8 [H, W] or [H, W, 3]."
                )
            queries.append((PendingQuery(number, round, picture.key, fingerprint(pixels), account), picture))
        # Repetitions of an image wait until its first appearance has an answer, however many workers there are.
        at_first = {query.sha256: query.number for query, _ in reversed(queries)}
        fresh = [one for one in queries if at_first[one[0].sha256] == one[0].number]
        again = [one for one in queries if at_first[one[0].sha256] != one[0].number]
        answers: dict[int, str] = {}
        for part in (fresh, again):
            batches = [part[start : start + self._batch_size] for start in range(0, len(part), self._batch_size)]
            for settled in track(self._answers(batches), f"querying the victim, round {round}", len(part), size=len):
                answers.update((query.number, query.report) for query in settled)
                # Answers from the cache do not show whether the account is blocked.
                for query in sorted((one for one in settled if not one.cached), key=lambda one: one.number):
                    self._refusals = [*self._refusals, query] if query.refused else []
                    if self._patience is not None and len(self._refusals) >= self._patience:
                        raise AccountsBlocked(len(self._refusals), self._refusals[0].number, query.report)
        return [answers[query.number] for query, _ in queries]

    def _answers(self, batches: Sequence[Sequence[_PendingImage]]) -> Iterator[list[Query]]:
        """The answers of each batch, in order; after the first failure no further batch is begun.

        At most two batches per worker are under way or not yet read, so that little is spent when the account is blocked.
        """
        if self._workers == 1:
            yield from map(self._answer, batches)
            return
        rest, begun = iter(batches), deque[Future[list[Query]]]()
        with ThreadPoolExecutor(self._workers) as pool:
            try:
                while True:
                    begun += (pool.submit(self._answer, one) for one in islice(rest, 2 * self._workers - len(begun)))
                    if not begun:
                        return
                    for future in wait([one for one in begun if not one.done()], return_when=FIRST_COMPLETED).done:
                        future.result()  # raises at once, whichever batch is next in order
                    while begun and begun[0].done():
                        yield begun.popleft().result()
            finally:
                for future in begun:
                    future.cancel()

    def _answer(self, batch: Sequence[_PendingImage]) -> list[Query]:
        """Reserve, save, query, settle; a batch that exceeds the budget is answered up to there, then raises."""
        found = self._ledger.reserve([query for query, _ in batch])
        reserved = [(one, picture) for one, (_, picture) in zip(found, batch, strict=False)
                    if isinstance(one, Reservation)]  # fmt: skip
        tickets = [ticket for ticket, _ in reserved]
        try:
            for query, picture in batch[: len(found)]:
                target = self._folder / f"{query.sha256}.png"
                if not target.exists():
                    write_bytes(target, encode_png(picture.pixels))
        except BaseException as error:
            self._ledger.release(tickets, _reason(error))
            raise
        settled: list[Query] = []
        if tickets:
            try:
                images = [to_unit(picture.pixels) for _, picture in reserved]
                answers = self._generate(images, [ticket.query.account for ticket in tickets])
            except ConnectionRefusedError as error:  # the one failure that certainly cost nothing
                self._ledger.release(tickets, _reason(error))
                raise
            except BaseException as error:
                self._ledger.abandon(tickets, _reason(error))
                raise
            settled = self._ledger.settle(list(zip(tickets, answers, strict=True)))
        if len(found) < len(batch):
            raise self._ledger.exceeded()
        return settled + [one for one in found if isinstance(one, Query)]


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@runtime_checkable
class SupportsAccounts(Protocol):
    """A victim whose answers depend on the account."""

    def for_accounts(self, accounts: Sequence[str]) -> ImageToText:
        """The victim for its next images, one account per image."""
        ...


def query_function(
    victim: ImageToText, decoding: Decoding | None = None, batch_size: BatchSize | None = None
) -> Callable[[Sequence[Image], Sequence[str]], list[Response]]:
    """A function from images [H, W] or [H, W, 3] in [0, 1] and their accounts to answers; it hides the victim in its closure.

    Args:
        victim: Of its `Generated` the text, the number of tokens and the mark of a refusal are read.
        decoding: Takes the best answer; None leaves it to the victim. A `ConfigError` where the victim has no choice.
        batch_size: Images at once; None for all images of a call. A victim that supports accounts splits its batch
            itself, since its defence must count each image once.
    """
    if decoding is None:

        def generate(model: ImageToText, images: Sequence[Image]) -> list[Generated]:
            return model.generate(images)

    else:
        from cxrlab.evaluation.generate import ReportGenerator

        ReportGenerator(victim, decoding)  # raises before the first query where the victim has no choice

        def generate(model: ImageToText, images: Sequence[Image]) -> list[Generated]:
            return [answers[0] for answers in ReportGenerator(model, decoding).generate(images, [None] * len(images))]

    by_account = issubclass(type(victim), SupportsAccounts)  # the class: of the victim itself only its text is read

    def query(images: Sequence[Image], accounts: Sequence[str]) -> list[Response]:
        start = time.monotonic()
        if by_account:
            answers = generate(cast(SupportsAccounts, victim).for_accounts(accounts), images)
        elif batch_size is not None:
            answers = batch_size.map(images, partial(generate, victim))
        else:
            answers = generate(victim, images)
        if len(answers) != len(images):
            raise RunError(f"The victim gave {len(answers)} answers to {len(images)} images; expected one per image.")
        share = (time.monotonic() - start) / max(len(images), 1)
        return [response_of(one, share) for one in answers]

    return query


def response_of(answer: Generated, seconds: float = 0.0) -> Response:
    """The text of an answer as a plain `str`, without probabilities or anything else that came with it.

    Half a character (a lone surrogate), which no file can hold, becomes U+FFFD. A token count that is not a whole
    number of at least 0 is unknown.
    """
    text, tokens = answer.text, answer.tokens
    if not isinstance(text, str):
        raise RunError(f"The victim answered with {type(text).__name__}; expected a text.")
    # A subclass of str could carry anything: bytes keep only its characters.
    report = str.encode(text, "utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    count = int(tokens) if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0 else None
    return Response(report, answer.extra.get(REFUSED) is True, count, seconds)

"""The desk between an attack and a victim: pictures go in, words come out.

Attacking code gets a desk and nothing else. No attribute of it leads to the victim, its tokenizer or its
probabilities: the victim stands in the closure of one function. Whoever takes a closure apart finds it, for Python
hides nothing from those who dig; what the audit claims is that the attacks here do not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import numpy as np

from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError
from cxrlab.core.files import write_bytes
from cxrlab.core.image_codec import encode_png, to_unit
from cxrlab.core.memory import BatchSize
from cxrlab.core.protocols import REFUSED
from cxrlab.core.terminal import track
from cxrlab.extraction.ledger import Ledger, Reservation
from cxrlab.extraction.records import PICTURES, PendingQuery, Picture, Query, Response, fingerprint

if TYPE_CHECKING:
    from cxrlab.core.protocols import Generated, Image, ImageToText
    from cxrlab.models.decoding import Decoding

_Asked = tuple[PendingQuery, Picture]


class AccountsBlocked(CxrlabError):
    """A victim that has refused so many pictures in a row that asking on would only spend the budget.

    Args:
        refusals: How many it refused in a row.
        first: Number of the first of them in the audit, from 0.
        said: What it said to the last one.
    """

    def __init__(self, refusals: int, first: int, said: str) -> None:
        super().__init__(f"the victim refused {refusals} pictures in a row, from query {first + 1} on: {said}")
        self.refusals, self.first, self.said = refusals, first, said


class VictimClient:
    """Puts pictures to a victim within a budget and keeps what was asked and answered.

    Args:
        victim: What answers; it is shown float32 [H, W], each pixel's byte divided by 255.
        ledger: Open; every picture is booked in it before it is asked.
        folder: The run folder; pictures are kept in its `pictures`, as PNG, before they are asked.
        decoding: How the victim chooses its words; None leaves that to the victim.
        batch_size: Pictures put at once. It may change a local victim's last bit, so it belongs to the config.
        workers: Batches under way at once, for a victim that is asked over a connection; a model in this process
            is asked by one.
        accounts: Names that take turns, by the number of the question.
        patience: Refusals in a row after which nothing more is asked; None has no end.
    """

    __slots__ = ("_accounts", "_batch_size", "_folder", "_ledger", "_patience", "_refusals", "_speak", "_workers")

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
        # A model behind an address is not asked a second time what may have cost money.
        batch = None if victim.capabilities.black_box else BatchSize(batch_size, Path(folder))
        self._speak = query_function(victim, decoding, batch)
        self._ledger = ledger
        self._folder = Path(folder) / PICTURES
        self._batch_size = batch_size
        self._workers = workers if victim.capabilities.black_box else 1
        self._accounts = tuple(accounts)
        self._patience = patience
        self._refusals: list[Query] = []  # the last ones, as long as nothing was answered since

    @property
    def left(self) -> int:
        """Pictures that may still be asked."""
        return self._ledger.left

    def ask(self, pictures: Sequence[Picture], round: int, first: int) -> list[str]:
        """The victim's words on each picture, in order.

        A picture that was asked before, in this call or an earlier one, is answered from the ledger. Called again
        with the same pictures after an interruption, it asks what has no answer yet, in the same batches.

        Args:
            pictures: uint8 [H, W] each; sizes may differ.
            round: Round of the audit, from 0.
            first: Number of the first picture in the audit, from 0; the others follow.

        Raises:
            BudgetExceeded: When the budget ends before the pictures do; the answers until then are in the ledger.
            AccountsBlocked: When the victim refuses longer than its patience allows. What is counted are answers in the order
                of their batches, so that the same questions asked again after a stop end at the same one.
        """
        asked = [
            (
                PendingQuery(number, round, one.key, _checked_print(one), self._accounts[number % len(self._accounts)]),
                one,
            )
            for number, one in enumerate(pictures, first)
        ]
        # A picture's repetitions wait until its first appearance has an answer, however many workers there are.
        at_first = {ask.sha256: ask.number for ask, _ in reversed(asked)}
        fresh = [one for one in asked if at_first[one[0].sha256] == one[0].number]
        again = [one for one in asked if at_first[one[0].sha256] != one[0].number]
        answers: dict[int, str] = {}
        for part in (fresh, again):
            batches = [part[start : start + self._batch_size] for start in range(0, len(part), self._batch_size)]
            label = f"asking the victim, round {round}"
            for queries in track(self._answers(batches), label, len(part), size=len):
                answers.update((query.number, query.report) for query in queries)
                self._heed(queries)
        return [answers[ask.number] for ask, _ in asked]

    def _answers(self, batches: Sequence[Sequence[_Asked]]) -> Iterator[list[Query]]:
        """The answers of each batch, in order; after the first failure no further batch is begun."""
        if self._workers == 1:
            yield from map(self._answer, batches)
            return
        with ThreadPoolExecutor(self._workers) as pool:
            futures = [pool.submit(self._answer, batch) for batch in batches]
            try:
                waiting = iter(futures)
                turn = next(waiting, None)
                for future in as_completed(futures):
                    future.result()  # a failure is told at once, whoever's turn it is
                    while turn is not None and turn.done():
                        yield turn.result()
                        turn = next(waiting, None)
            finally:
                for future in futures:
                    future.cancel()

    def _heed(self, queries: Sequence[Query]) -> None:
        """Count refusals in a row; what was answered from an earlier question with the same pixels tells nothing."""
        for query in sorted(queries, key=lambda one: one.number):
            if query.cached:
                continue
            self._refusals = [*self._refusals, query] if query.refused else []
            if self._patience is not None and len(self._refusals) >= self._patience:
                raise AccountsBlocked(len(self._refusals), self._refusals[0].number, query.report)

    def _answer(self, batch: Sequence[_Asked]) -> list[Query]:
        """Book, keep, ask, write down; a batch that the budget cuts is answered up to there, then the error comes."""
        booked = self._ledger.reserve_many([ask for ask, _ in batch])
        tickets = [one for one in booked if isinstance(one, Reservation)]
        images = [picture for one, (_, picture) in zip(booked, batch, strict=False) if isinstance(one, Reservation)]
        try:
            for ask, picture in batch[: len(booked)]:
                self._keep(ask.sha256, picture)
        except BaseException as error:
            self._ledger.release_many(tickets, _reason(error))
            raise
        settled = self._put(tickets, images) if tickets else []
        if len(booked) < len(batch):
            raise self._ledger.exceeded()
        return settled + [one for one in booked if isinstance(one, Query)]

    def _put(self, tickets: Sequence[Reservation], pictures: Sequence[Picture]) -> list[Query]:
        try:
            images = [to_unit(picture.pixels) for picture in pictures]
            answers = self._speak(images, [ticket.ask.account for ticket in tickets])
        except ConnectionRefusedError as error:  # nobody was there: the one failure that surely cost nothing
            self._ledger.release_many(tickets, _reason(error))
            raise
        except BaseException as error:
            self._ledger.abandon_many(tickets, _reason(error))
            raise
        return self._ledger.settle_many(list(zip(tickets, answers, strict=True)))

    def _keep(self, sha256: str, picture: Picture) -> None:
        target = self._folder / f"{sha256}.png"
        if not target.exists():
            write_bytes(target, encode_png(picture.pixels))


def _checked_print(picture: Picture) -> str:
    pixels = picture.pixels
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or 0 in pixels.shape:
        raise DataError(
            f"picture '{picture.key}' is {pixels.dtype} {list(pixels.shape)}; a victim is asked with uint8 [H, W]."
        )
    return fingerprint(pixels)


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@runtime_checkable
class SupportsAccounts(Protocol):
    """A victim to which it matters who asks."""

    def for_accounts(self, accounts: Sequence[str]) -> ImageToText:
        """The victim as it answers its next images, each asked by the account in the same place."""
        ...


def query_function(
    victim: ImageToText, decoding: Decoding | None = None, batch_size: BatchSize | None = None
) -> Callable[[Sequence[Image], Sequence[str]], list[Response]]:
    """A function from images [H, W] in [0, 1] and who asks each to answers, in order.

    It has the victim; whoever has it has words alone.

    Args:
        victim: What answers; of its `Generated` the text, the number of tokens and the mark of a refusal are read.
        decoding: How it chooses its words, the best answer is taken; None leaves that to the victim. A `ConfigError`
            where the victim has no choice.
        batch_size: Images at once; None takes those of a call together. A victim that knows accounts splits its batch
            itself, since its defence must count each image once.
    """
    if decoding is None:

        def written(model: ImageToText, images: Sequence[Image]) -> list[Generated]:
            return model.generate(images)

    else:
        from cxrlab.evaluation.generate import ReportGenerator

        ReportGenerator(victim, decoding)  # one that has no choice is refused before anybody asks

        def written(model: ImageToText, images: Sequence[Image]) -> list[Generated]:
            return [answers[0] for answers in ReportGenerator(model, decoding).generate(images, [None] * len(images))]

    knows = issubclass(type(victim), SupportsAccounts)  # its class is looked at: of a victim nothing is read but words

    def speak(images: Sequence[Image], accounts: Sequence[str]) -> list[Response]:
        start = time.monotonic()
        if knows:
            told = written(cast(SupportsAccounts, victim).for_accounts(accounts), images)
        elif batch_size is not None:
            told = batch_size.map(images, partial(written, victim))
        else:
            told = written(victim, images)
        if len(told) != len(images):
            raise RunError(f"the victim gave {len(told)} answers to {len(images)} pictures; it must give one to each.")
        share = (time.monotonic() - start) / max(len(images), 1)
        return [response_of(one, share) for one in told]

    return speak


def response_of(told: Generated, seconds: float = 0.0) -> Response:
    """The words of an answer, as a plain `str`; probabilities and whatever else came with it are not looked at.

    Half a character (a lone surrogate), which no file can hold, becomes U+FFFD. A count of tokens that is no whole
    number from 0 is unknown.
    """
    text = told.text
    if not isinstance(text, str):
        raise RunError(f"the victim answered with {type(text).__name__} where a text was expected.")
    # A subclass of str could carry anything: through bytes only its characters come.
    report = str.encode(text, "utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return Response(report, told.extra.get(REFUSED) is True, _count(told.tokens), seconds)


def _count(tokens: object) -> int | None:
    if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0:
        return int(tokens)
    return None

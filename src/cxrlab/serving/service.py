"""Everything that the requests of one server share."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from cxrlab.evaluation.cautions import domain_caution, input_side, size_caution
from cxrlab.serving.accounts import Account, Accounts, Rates
from cxrlab.serving.askers import Askers, Question
from cxrlab.serving.batching import Batcher
from cxrlab.serving.books import Books
from cxrlab.serving.config import ServeConfig
from cxrlab.serving.holding import Room, Tally
from cxrlab.serving.logs import Journal
from cxrlab.serving.pictures import Pixels
from cxrlab.serving.prometheus import Metrics
from cxrlab.serving.refusals import overloaded, too_many

_DECODING_THREADS = 2  # each may hold a picture of the largest size in several forms


class Declined(Protocol):
    """Why a guard refuses."""

    @property
    def code(self) -> str:
        """`refused_by_guard` or `account_stopped`."""
        ...

    @property
    def message(self) -> str:
        """One sentence for who asked."""
        ...


class Guards(Protocol):
    """What stands before the model; one thread calls it."""

    def look(self, pixels: Pixels, account: str) -> Declined | None:
        """Why this image is not answered; None where it is."""
        ...

    def worded(self, report: str) -> str:
        """The report in the words in which it leaves."""
        ...


class Client(NamedTuple):
    """Between whom the server is fair.

    Args:
        account: Name of the account.
        address: Address that the request came from where nobody needs a key; empty elsewhere.
    """

    account: str
    address: str = ""


@dataclass
class Note:
    """What the log keeps of one request; nothing of what was asked or answered.

    Args:
        id: A random number, told to the client as X-Request-Id.
        fields: Sizes, counts and names of accounts.
    """

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    fields: dict[str, Any] = field(default_factory=dict)


class Service:
    """The parts of a running server.

    Args:
        config: Settings.
        askers: The models.
        accounts: Who may ask.
        books: What they have had.
        journal: The log.
        guard: What stands before the model; None for nothing.
        synthetic: Whether all images that clients send are known to be synthetic.
    """

    def __init__(
        self,
        config: ServeConfig,
        askers: Askers,
        accounts: Accounts,
        books: Books,
        journal: Journal,
        guard: Guards | None = None,
        *,
        synthetic: bool = False,
    ) -> None:
        self.config, self.limits, self.askers = config, config.limits, askers
        self.accounts, self.rates, self.books, self.journal, self.guard = accounts, Rates(), books, journal, guard
        self.image_model = config.name or config.model
        self.text_model = config.text
        caution = domain_caution(askers.model, synthetic=synthetic, name=self.image_model)
        self.cautions = () if caution is None else (caution,)
        self.input_side = input_side(askers.model)
        self.images = self.small_images = 0
        self.created = int(time.time())
        self.under_way = self.receiving = 0
        self.in_flight: Counter[Client] = Counter()
        self.stopping = False
        most = config.limits.held_bytes
        self.bodies = Tally(most, max(most // 2, config.limits.body_bytes))  # one client leaves half of it to others
        self.pixels = Room(config.limits.held_pixels)
        # What runs in threads is waited for here, since the queue of an executor knows nothing of clients; there, one
        # task more for each thread keeps it from waiting for the event loop.
        self.decoding, self.guarding = Room(2 * _DECODING_THREADS), Room(2)
        self.threads = ThreadPoolExecutor(_DECODING_THREADS, "pictures")
        # One thread: a guard remembers what it has seen, in the order in which it came.
        self.guard_thread = ThreadPoolExecutor(1, "guard")
        self.metrics = Metrics()
        self.batcher: Batcher[Question] = Batcher(
            askers.ask,
            max_batch=config.max_batch,
            max_wait_s=config.max_wait_ms / 1000.0,
            most=config.limits.queue * config.limits.choices,
            coming=lambda: self.under_way,
            seen=self.metrics.batch,
        )
        self._gauges()

    @property
    def names(self) -> list[str]:
        """The models that can be asked, each once."""
        return list(dict.fromkeys(name for name in (self.image_model, self.text_model) if name))

    def client_of(self, account: Account, address: str) -> Client:
        """Who asks: an account with a key, or where nobody needs one an address."""
        return Client(account.name, address if self.accounts.open else "")

    def cautions_for(self, image: Pixels) -> tuple[str, ...]:
        """What the answer about this image has to caution about; it is counted."""
        self.images += 1
        if self.input_side is None or min(image.shape[:2]) >= self.input_side:
            return self.cautions
        self.small_images += 1
        return (*self.cautions, *filter(None, [size_caution(1, 1, self.input_side)]))

    @contextmanager
    def counted(self, client: Client, most: int | None) -> Iterator[None]:
        """Count a request as being under way, or send it away; `most` of one client are."""
        if most is not None and self.in_flight[client] >= most:
            raise too_many(f"{most:,} of your requests are under way already; wait for an answer to one of them.")
        self._check_queue(self.under_way + 1)
        self.under_way += 1
        self.in_flight[client] += 1
        try:
            yield
        finally:
            self.under_way -= 1
            self.in_flight[client] -= 1
            if not self.in_flight[client]:
                del self.in_flight[client]

    @contextmanager
    def received(self) -> Iterator[None]:
        """Receive a body in this block: meanwhile, the request takes no place of another one."""
        self.receiving += 1
        try:
            yield
        finally:
            self.receiving -= 1
        self._check_queue(self.under_way)

    def _check_queue(self, under_way: int) -> None:
        if under_way - self.receiving > self.limits.queue:
            raise overloaded(f"{self.limits.queue:,} requests are under way already; come again.")

    def health(self) -> str:
        """`ok`, or what is wrong."""
        if self.stopping:
            return "stopping"
        if not self.batcher.alive:
            return "dead"
        return "hung" if self.batcher.busy_s() > self.limits.hang_s else "ok"

    def close(self) -> None:
        """Stop the thread of the model and close the books; closing twice is allowed."""
        self.batcher.stop()
        self.threads.shutdown(wait=True, cancel_futures=True)
        self.guard_thread.shutdown(wait=True, cancel_futures=True)
        close = getattr(self.guard, "close", None)
        if close is not None:
            close()
        self.books.close()
        if self.batcher.begun:
            if small := size_caution(self.small_images, self.images, self.input_side):
                self.journal.write("caution", message=small)
            self.journal.write("stopped")
        self.journal.close()

    def _gauges(self) -> None:
        add = self.metrics.gauge
        add("queue_length", "Questions that wait for the model.", lambda: self.batcher.waiting)
        add("in_flight", "Chat requests under way.", lambda: self.under_way)
        add("held_pixels", "Pixels of images that are decoded and not yet answered.", lambda: self.pixels.taken)
        add("model_alive", "1 while the thread of the model lives.", lambda: self.batcher.alive)
        add("threads", "Threads of the process.", threading.active_count)
        self.metrics.by_account(
            "account_queue_length",
            "Answers of an account that wait for the model.",
            lambda: self._by_account(self.batcher.waiting_by_client()),
        )
        self.metrics.by_account(
            "account_in_flight",
            "Chat requests of an account under way.",
            lambda: self._by_account(self.in_flight),
        )

    def _by_account(self, counts: Mapping[Any, int]) -> dict[str, int]:
        found = dict.fromkeys(self.accounts.names, 0)
        for client, count in list(counts.items()):
            found[client.account] += count
        return found

"""A server as a process: from settings to the signal that ends it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cxrlab.core.config import to_yaml
from cxrlab.core.endpoints import (
    EgressData,
    check_egress,
    check_encrypted,
    check_key_recipients,
    is_address,
    parse_address,
)
from cxrlab.core.environment import require
from cxrlab.core.files import make_folder, write_text
from cxrlab.core.folders import lock_folder
from cxrlab.core.terminal import NoticeStream, print_result, silenced
from cxrlab.evaluation.generate import caution_domain, caution_image_size, read_input_side
from cxrlab.serving.accounts import Account, Accounts, QuotaStore, Rates, anybody, read_accounts
from cxrlab.serving.batching import Batcher, ModelRunner
from cxrlab.serving.batching import QuestionAskers as Question
from cxrlab.serving.config import ServeConfig
from cxrlab.serving.errors import overloaded, too_many
from cxrlab.serving.images import Pixels
from cxrlab.serving.monitoring import Journal, Metrics
from cxrlab.serving.resource_limits import Room, Tally

if TYPE_CHECKING:
    from cxrlab.core.protocols import ImageToText, TextModel

INTERRUPTED = 130  # what the program gives back for Ctrl-C


def run(config: ServeConfig, out: Path) -> None:
    """Serve until a signal; says where on the output.

    Args:
        config: Settings.
        out: Folder of the server's books and settings.

    Raises:
        KeyboardInterrupt: After the orderly end, where Ctrl-C asked for it.
    """
    require("serve")
    from cxrlab.serving.monitoring import Journal, silence_libraries
    from cxrlab.serving.server import Server

    with lock_folder(make_folder(out)):
        journal = Journal(sys.stderr, config.log_file)
        silence_libraries(journal)
        # A program that reads the log expects JSON on every line; a person may see how far the guard has come.
        with contextlib.nullcontext() if NoticeStream(sys.stderr).isatty() else silenced():
            service = open_service(config, out, journal=journal)
        try:
            server = Server(service)
        except BaseException:
            service.close()
            raise
        told = server.run(lambda: print_result(f"serving {' and '.join(service.names)} at {server.url}"))
        if service.batcher.alive:
            # The interpreter would wait for the threads of a model that does not answer.
            os._exit(INTERRUPTED if told == signal.SIGINT else 0)
        if told == signal.SIGINT:
            raise KeyboardInterrupt


CONFIG, BOOKS, GUARD_FOLDER = "config.yaml", "books.sqlite", "guard"
IMAGES = EgressData("images of whoever asks", synthetic=False)
TEXTS = EgressData("text of whoever asks", synthetic=False)


def open_service(
    config: ServeConfig,
    out: Path,
    *,
    model: ImageToText | None = None,
    text: TextModel | None = None,
    guard: Guards | None = None,
    journal: Journal | None = None,
    images: EgressData = IMAGES,
) -> Service:
    """The service that these settings describe.

    Args:
        config: Settings.
        out: Folder of the books, the settings and the guard's memory, kept over restarts.
        model: The report model, where somebody has loaded it already.
        text: The text model likewise.
        guard: The guard likewise.
        journal: The log; the error stream and `config.log_file` when left out.
        images: What the model will be shown, where whoever asks is known.
    """
    require("serve")
    _check_addresses(config, images)
    everybody = anybody(config.allowance)
    keyed = read_accounts(config.keys, config.allowance) if config.keys is not None else []

    from cxrlab.serving.accounts import QuotaStore
    from cxrlab.serving.batching import ModelRunner
    from cxrlab.serving.monitoring import Journal

    write_text(make_folder(out) / CONFIG, to_yaml(config))  # who allowed what to leave stands in it
    journal = journal or Journal(sys.stderr, config.log_file)
    askers = ModelRunner(
        model if model is not None else _load_model(config, images),
        text if text is not None else _load_text(config),
        config.loading.connection.concurrency,
    )
    if guard is None and config.guard:
        from cxrlab.serving.guard import open_guard

        guard = open_guard(config.guarding, out / GUARD_FOLDER, config.loading)
    books = QuotaStore(out / BOOKS)
    return Service(config, askers, Accounts(keyed, everybody), books, journal, guard, synthetic=images.synthetic)


def _check_addresses(config: ServeConfig, images: EgressData) -> None:
    """Refuse models elsewhere that may not be asked, before anything of their names is written down."""
    connection = config.loading.connection
    for name, shown in ((config.model, images), (config.text, TEXTS)):
        if name is not None and is_address(name):
            parse_address(name)
            check_egress(name, [shown], connection.egress_permission)
            check_encrypted(name, connection)
    check_key_recipients([name for name in (config.model, config.text) if name], connection.key_variable)


def _load_model(config: ServeConfig, images: EgressData) -> ImageToText:
    from cxrlab.evaluation.open_models import open_model

    return open_model(config.model, config.loading, [images])


def _load_text(config: ServeConfig) -> TextModel | None:
    from cxrlab.models.names import load_text_model

    return None if config.text is None else load_text_model(config.text, config.loading.connection, config.loading)


_DECODING_THREADS = 2  # each may hold a picture of the largest size in several forms


class Declined(Protocol):
    """Why a guard refuses."""

    @property
    def code(self) -> str:
        """`refused_by_guard` or `account_blocked`."""
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
        askers: ModelRunner,
        accounts: Accounts,
        books: QuotaStore,
        journal: Journal,
        guard: Guards | None = None,
        *,
        synthetic: bool = False,
    ) -> None:
        self.config, self.limits, self.askers = config, config.limits, askers
        self.accounts, self.rates, self.books, self.journal, self.guard = accounts, Rates(), books, journal, guard
        self.image_model = config.name or config.model
        self.text_model = config.text
        caution = caution_domain(askers.model, synthetic=synthetic, name=self.image_model)
        self.cautions = () if caution is None else (caution,)
        self.input_side = read_input_side(askers.model)
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
        return (*self.cautions, *filter(None, [caution_image_size(1, 1, self.input_side)]))

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
            if small := caution_image_size(self.small_images, self.images, self.input_side):
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

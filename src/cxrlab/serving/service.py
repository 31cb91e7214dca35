"""The server process: open the models, the accounts and the guard, serve, and shut down in order."""

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

from cxrlab.attacks.input_transformations import parse_transformation
from cxrlab.core.atomic_folders import lock_folder
from cxrlab.core.config import to_yaml
from cxrlab.core.egress import (
    EgressData,
    check_egress,
    check_encrypted,
    check_key_recipients,
    is_address,
    parse_address,
)
from cxrlab.core.environment import require
from cxrlab.core.files import make_folder, write_text
from cxrlab.core.terminal import NoticeStream, print_result, silenced
from cxrlab.evaluation.generate import caution_domain, caution_image_size, read_input_side
from cxrlab.serving.accounts import Account, Accounts, QuotaStore, Rates, anonymous_account, read_accounts
from cxrlab.serving.batching import Batcher, ModelRunner, Question
from cxrlab.serving.config import ServeConfig
from cxrlab.serving.errors import overloaded, too_many
from cxrlab.serving.images import Pixels
from cxrlab.serving.monitoring import Journal, Metrics
from cxrlab.serving.resource_limits import FairSemaphore, Tally

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import ImageToText, TextModel

INTERRUPTED = 130  # exit code for Ctrl-C


def run(config: ServeConfig, out: Path) -> None:
    """Serve until a signal; settings and accounts' usage are kept in the folder `out`.

    Raises:
        KeyboardInterrupt: After an orderly shutdown by Ctrl-C.
    """
    require("serve")
    from cxrlab.serving.http_server import Server
    from cxrlab.serving.monitoring import silence_libraries

    with lock_folder(make_folder(out)):
        journal = Journal(sys.stderr, config.log_file)
        silence_libraries(journal)
        # Programs that read the log expect JSON on every line; on a terminal, progress of the guard is shown.
        with contextlib.nullcontext() if NoticeStream(sys.stderr).isatty() else silenced():
            service = open_service(config, out, journal=journal)
        try:
            server = Server(service)
        except BaseException:
            service.close()
            raise
        number = server.run(lambda: print_result(f"serving {' and '.join(service.names)} at {server.url}"))
        if service.batcher.alive:
            # The interpreter would wait for the threads of a model that hangs.
            os._exit(INTERRUPTED if number == signal.SIGINT else 0)
        if number == signal.SIGINT:
            raise KeyboardInterrupt


CONFIG, QUOTA_FILE, GUARD_FOLDER = "config.yaml", "quotas.sqlite", "guard"
IMAGES = EgressData("images of clients", synthetic=False)
TEXTS = EgressData("text of clients", synthetic=False)


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
    """The service of these settings.

    Args:
        out: Folder of settings, quotas and the guard's state, kept over restarts.
        model: The report model, if already loaded; text model and guard likewise.
        journal: The log; default: the error stream and `config.log_file`.
        images: The images that the model will receive, if known.
    """
    from cxrlab.evaluation.load_model import open_model
    from cxrlab.models.model_registry import load_text_model

    require("serve")
    # Refuse models elsewhere without permission before their names are written anywhere.
    connection = config.loading.connection
    for name, data in ((config.model, images), (config.text, TEXTS)):
        if name is not None and is_address(name):
            parse_address(name)
            check_egress(name, [data], connection.egress_permission)
            check_encrypted(name, connection)
    check_key_recipients([name for name in (config.model, config.text) if name], connection.key_variable)
    everybody = anonymous_account(config.allowance)
    keyed = read_accounts(config.keys, config.allowance) if config.keys is not None else []
    write_text(make_folder(out) / CONFIG, to_yaml(config))  # includes the permission for data egress
    journal = journal or Journal(sys.stderr, config.log_file)
    if model is None:
        model = open_model(config.model, config.loading, [images])
    if text is None and config.text is not None:
        text = load_text_model(config.text, connection, config.loading)
    transform = None
    if config.input_defence is not None:
        from cxrlab.extraction.defence.defences import Preprocessing

        transform = Preprocessing(parse_transformation(config.input_defence), seed=None).transform
    runner = ModelRunner(model, text, connection.concurrency, transform)
    if guard is None and config.guard:
        from cxrlab.serving.guard import open_guard

        guard = open_guard(config.guarding, out / GUARD_FOLDER, config.loading)
    quotas = QuotaStore(out / QUOTA_FILE)
    return Service(config, runner, Accounts(keyed, everybody), quotas, journal, guard, synthetic=images.synthetic)


_DECODING_THREADS = 2  # each may hold several copies of the largest image


class Declined(Protocol):
    """Why a guard refuses: `refused_by_guard` or `account_blocked`, and one sentence for the client."""

    @property
    def code(self) -> str: ...  # noqa: D102

    @property
    def message(self) -> str: ...  # noqa: D102


class Guards(Protocol):
    """A guard before the model; called by one thread."""

    def check(self, pixels: Pixels, account: str) -> Declined | None:
        """Why this image is refused; None if it is not."""
        ...

    def worded(self, report: str) -> str:
        """The report in the wording for clients."""
        ...


class Client(NamedTuple):
    """The unit of fairness: an account or, without API keys, a client address."""

    account: str
    address: str = ""


@dataclass
class Note:
    """Log entry of one request, without its content; the client receives `id` as X-Request-Id."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    fields: dict[str, Any] = field(default_factory=dict)


class Service:
    """The state of a running server; `synthetic` says whether all images of clients are known to be synthetic."""

    def __init__(
        self,
        config: ServeConfig,
        runner: ModelRunner,
        accounts: Accounts,
        quotas: QuotaStore,
        journal: Journal,
        guard: Guards | None = None,
        *,
        synthetic: bool = False,
    ) -> None:
        self.config, self.limits, self.runner = config, config.limits, runner
        self.accounts, self.rates, self.quotas, self.journal, self.guard = accounts, Rates(), quotas, journal, guard
        self.image_model = config.name or config.model
        self.text_model = config.text
        caution = caution_domain(runner.model, synthetic=synthetic, name=self.image_model)
        self.cautions = () if caution is None else (caution,)
        self.input_side = read_input_side(runner.model)
        self.images = self.small_images = 0
        self.created = int(time.time())
        self.under_way = self.receiving = 0
        self.in_flight: Counter[Client] = Counter()
        self.stopping = False
        most = config.limits.held_bytes
        self.bodies = Tally(most, max(most // 2, config.limits.body_bytes))  # a client may take half of it
        self.pixels = FairSemaphore(config.limits.held_pixels)
        # Work for threads waits here, fairly between clients, unlike in the queue of an executor. One task more than
        # threads is let through, so that no thread waits for the event loop.
        self.decoding, self.guarding = FairSemaphore(2 * _DECODING_THREADS), FairSemaphore(2)
        self.threads = ThreadPoolExecutor(_DECODING_THREADS, "pictures")
        self.guard_thread = ThreadPoolExecutor(1, "guard")  # a guard's state depends on the order of images
        self.metrics = Metrics()
        self.batcher: Batcher[Question] = Batcher(
            runner.ask,
            max_batch=config.max_batch,
            max_wait_s=config.max_wait_ms / 1000.0,
            most=config.limits.queue * config.limits.choices,
            pending=lambda: self.under_way,
            on_batch=self.metrics.batch,
        )
        self._gauges()

    @property
    def names(self) -> list[str]:
        """Names of the available models."""
        return list(dict.fromkeys(name for name in (self.image_model, self.text_model) if name))

    def client_of(self, account: Account, address: str) -> Client:
        """The client of a request: its account or, without API keys, its address."""
        return Client(account.name, address if self.accounts.open else "")

    def cautions_for(self, image: Pixels) -> tuple[str, ...]:
        """Cautions for the answer about this image, which is counted."""
        self.images += 1
        if self.input_side is None or min(image.shape[:2]) >= self.input_side:
            return self.cautions
        self.small_images += 1
        return (*self.cautions, *filter(None, [caution_image_size(1, 1, self.input_side)]))

    @contextmanager
    def counted(self, client: Client, most: int | None) -> Iterator[None]:
        """Count a request as in flight, or refuse it if the client already has `most` or the queue is full."""
        if most is not None and self.in_flight[client] >= most:
            raise too_many(f"{most:,} of your requests are in flight already; wait for an answer to one of them.")
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
        """Receive a body in this block; meanwhile the request does not count in the queue."""
        self.receiving += 1
        try:
            yield
        finally:
            self.receiving -= 1
        self._check_queue(self.under_way)

    def _check_queue(self, under_way: int) -> None:
        if under_way - self.receiving > self.limits.queue:
            raise overloaded(f"{self.limits.queue:,} requests are in flight already; try again later.")

    def health(self) -> str:
        """`ok`, `stopping`, `dead` or `hung`."""
        if self.stopping:
            return "stopping"
        if not self.batcher.alive:
            return "dead"
        return "hung" if self.batcher.busy_s() > self.limits.hang_s else "ok"

    def close(self) -> None:
        """Stop the model's thread and close all files; closing twice is allowed."""
        self.batcher.stop()
        self.threads.shutdown(wait=True, cancel_futures=True)
        self.guard_thread.shutdown(wait=True, cancel_futures=True)
        close = getattr(self.guard, "close", None)
        if close is not None:
            close()
        self.quotas.close()
        if self.batcher.begun:
            if small := caution_image_size(self.small_images, self.images, self.input_side):
                self.journal.write("caution", message=small)
            self.journal.write("stopped")
        self.journal.close()

    def _gauges(self) -> None:
        add = self.metrics.gauge
        add("queue_length", "Questions that wait for the model.", lambda: self.batcher.waiting)
        add("in_flight", "Chat requests in flight.", lambda: self.under_way)
        add("held_pixels", "Pixels of images that are decoded and not yet answered.", lambda: self.pixels.taken)
        add("model_alive", "1 while the model's thread runs.", lambda: self.batcher.alive)
        add("threads", "Threads of the process.", threading.active_count)

        def by_account(counts: Mapping[Any, int]) -> dict[str, int]:
            found = dict.fromkeys(self.accounts.names, 0)
            for client, count in list(counts.items()):
                found[client.account] += count
            return found

        per_account, waiting = self.metrics.by_account, self.batcher.waiting_by_client
        per_account("account_queue_length", "Answers that wait for the model.", lambda: by_account(waiting()))
        per_account("account_in_flight", "Chat requests in flight.", lambda: by_account(self.in_flight))

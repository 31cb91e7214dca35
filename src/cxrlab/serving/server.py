"""The running server: a socket, an event loop, and an orderly end.

Told to stop, it sends new requests away, lets those under way end within their time, and closes its books.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from cxrlab.core.errors import RunError
from cxrlab.serving.app import make_app
from cxrlab.serving.connections import Connections
from cxrlab.serving.door import HEAD_BYTES
from cxrlab.serving.service import Service

_LAST_S = 1  # for what is still open after everybody has been answered
_START_S = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Uvicorn(uvicorn.Server):
    """Leaves signals to us: its own way ends the process by the signal and not with an exit code."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """A service at an address.

    Args:
        service: What it serves; it is closed with the server.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        config = service.config
        self._socket = _bound(config.host, config.port)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._signal: int | None = None
        connections = Connections(service.limits)
        service.metrics.gauge("connections", "Open connections.", lambda: len(connections.open))
        self._uvicorn = _Uvicorn(_settings(service, connections))

    @property
    def address(self) -> str:
        """Where it listens, as `http://HOST:PORT`."""
        host, port = self._socket_name
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def url(self) -> str:
        """The base address for clients of the protocol."""
        return f"{self.address}/v1"

    def run(self, begun: Callable[[], None] | None = None) -> int | None:
        """Serve until told to stop; returns the number of the signal that did, None where a caller did.

        Args:
            begun: Called when requests are taken.
        """
        try:
            self.service.batcher.start()
            asyncio.run(self._main(begun or _nothing))
        finally:
            self._socket.close()
            self.service.close()
        return self._signal

    def start(self) -> Server:
        """Serve in a thread; returns when requests are taken."""
        self._thread = threading.Thread(target=self.run, name="server", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_S):
            raise RunError(f"the server at {self.address} did not start within {_START_S:g} s.")
        return self

    def stop(self) -> None:
        """Stop in an orderly way and wait for the end; stopping twice is allowed."""
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(self.service.limits.drain_s + 2 * _START_S)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *trouble: object) -> None:
        self.stop()

    async def _main(self, begun: Callable[[], None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(self._failed)
        self._take_signals(self._loop)
        serving = asyncio.ensure_future(self._uvicorn.serve(sockets=[self._socket]))
        while not self._uvicorn.started and not serving.done():
            await asyncio.sleep(0.005)
        self._started.set()
        self.service.journal.write("started", address=self.address)
        for caution in self.service.cautions:
            self.service.journal.write("caution", message=caution)
        begun()
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        await self._drain()
        self._uvicorn.should_exit = True
        await serving

    async def _drain(self) -> None:
        """Wait for requests under way; new ones are told to come again later."""
        self.service.stopping = True
        self.service.journal.write("stopping", under_way=self.service.under_way)
        end = asyncio.get_running_loop().time() + self.service.limits.drain_s
        while self.service.under_way and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)

    def _take_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                loop.add_signal_handler(number, self._told, number)

    def _told(self, number: int) -> None:
        """A first signal asks for an orderly end; a second is left to the system, which ends the process at once."""
        self._signal = number
        for each in _SIGNALS:
            if self._loop is not None:
                self._loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        if self._stop is not None:
            self._stop.set()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.service.journal.failure(error, where="loop")

    @property
    def _socket_name(self) -> tuple[str, int]:
        if not hasattr(self, "_name"):
            self._name: tuple[str, int] = self._socket.getsockname()[:2]
        return self._name


def _nothing() -> None:
    """For who does not want to know when requests are taken."""


def _settings(service: Service, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(service),
        http=connections.protocol,  # type: ignore[arg-type]
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(service.limits.keep_alive_s)),
        timeout_graceful_shutdown=_LAST_S,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )


def _bound(host: str, port: int) -> socket.socket:
    numeric = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in numeric else socket.AF_INET
    # With the protocol named, the event loop sends each piece at once; else head and body are 40 ms apart.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((numeric, port))
    except OSError as error:
        found.close()
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"cannot listen at {host} port {port} ({reason}); give another --port, or 0.") from error
    return found

"""The running server: a socket, an event loop, and an orderly end.

Told to stop, it sends new requests away, lets those under way end within their time, and closes its books.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cxrlab.core.errors import RunError
from cxrlab.serving.app import HEAD_BYTES, make_app
from cxrlab.serving.config import Limits
from cxrlab.serving.errors import error_body
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


class Connections:
    """The open connections of a server, oldest first.

    Args:
        limits: How many there may be, and how long the head of a request and the sending of an answer may take.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: dict[Watched, None] = {}

    def make_room(self, newest: Watched) -> None:
        """Close one if there are too many.

        Who still sends a body that was refused goes first, then who never asked anything, who is idle, and who does not
        read, at last the newcomer.
        """
        if len(self.open) <= self.limits.connections:
            return
        others = [one for one in self.open if one is not newest]
        idle = [one for one in others if one.is_idle]
        refused = [one for one in idle if one.is_refused]
        silent = [one for one in idle if not one.has_asked]
        leaving = next(iter(refused or silent or idle or [one for one in others if one.is_stalled]), newest)
        del self.open[leaving]
        leaving.say_and_close(503, "overloaded", "too many connections are open; come again.")

    def protocol(self, **given: Any) -> Watched:
        """A new connection, for the web server."""
        return Watched(self, **given)


class Watched(H11Protocol):
    """One connection.

    Args:
        connections: Those that it is one of.
        given: What the web server gives.
    """

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all = connections
        self._deadline: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self.has_asked = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_refused(self) -> bool:
        """Whether the client still sends a body although it was answered."""
        return self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    @property
    def is_stalled(self) -> bool:
        """Whether the client has not taken what was sent."""
        return self._patience is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take its place, for which another may have to go."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # whatever the system does not take at once is a client that does not read
        self._all.open[self] = None
        self._watch()
        self._all.make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave."""
        self._all.open.pop(self, None)
        self._unwatch()
        self._forget_patience()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read; it has some time to begin."""
        super().pause_writing()
        if self._patience is None:
            self._patience = self.loop.call_later(self._all.limits.sent_s, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read everything."""
        self._forget_patience()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Bytes came; the time for a head goes on until it is whole, however many bytes come."""
        super().data_received(data)
        if self.is_idle:
            self._watch()
        else:
            self.has_asked = True
            self._unwatch()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told so in the form of every other error."""
        self.say_and_close(400, "invalid_request", "this is no valid HTTP request; see /docs for what is understood.")

    def say_and_close(self, status: int, code: str, message: str) -> None:
        """Send an error, where nothing else is being sent, and close."""
        if not self.transport.is_closing() and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(error_body(status, code, message)).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        if self.is_stalled:
            self.transport.abort()
        else:
            self.transport.close()

    def _watch(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self._all.limits.headers_s, self._too_slow)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _forget_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.is_idle:
            self.say_and_close(408, "timeout", f"no request came within {self._all.limits.headers_s:g} s.")

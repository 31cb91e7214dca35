"""The HTTP server: socket, event loop, connections with timeouts, and an orderly shutdown.

To stop, it refuses new requests, waits for those in flight within a time limit, and closes its files.
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

_LAST_S = 1  # for open connections after all requests are answered
_START_S = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class QuietUvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, which would end the process by the signal and not with an exit code."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class Server:
    """A service at an address; the service is closed with the server."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._socket = _bind(service.config.host, service.config.port)
        self._socket_name: tuple[str, int] = self._socket.getsockname()[:2]
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._signal: int | None = None
        connections = Connections(service.limits)
        service.metrics.gauge("connections", "Open connections.", lambda: len(connections.open))
        self._uvicorn = QuietUvicorn(
            uvicorn.Config(
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
        )

    @property
    def address(self) -> str:
        """`http://HOST:PORT`."""
        host, port = self._socket_name
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def url(self) -> str:
        """Base address for clients, `http://HOST:PORT/v1`."""
        return f"{self.address}/v1"

    def run(self, begun: Callable[[], None] | None = None) -> int | None:
        """Serve until stopped; returns the number of the signal that stopped it, if any.

        Args:
            begun: Called once requests are accepted.
        """
        try:
            self.service.batcher.start()
            asyncio.run(self._main(begun or (lambda: None)))
        finally:
            self._socket.close()
            self.service.close()
        return self._signal

    def start(self) -> Server:
        """Serve in a thread; returns once requests are accepted."""
        self._thread = threading.Thread(target=self.run, name="server", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_S):
            raise RunError(f"the server at {self.address} did not start within {_START_S:g} s.")
        return self

    def stop(self) -> None:
        """Shut down in order and wait for the end; stopping twice is allowed."""
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(self.service.limits.drain_s + 2 * _START_S)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *trouble: object) -> None:
        self.stop()

    async def _main(self, begun: Callable[[], None]) -> None:
        service, loop = self.service, asyncio.get_running_loop()
        self._loop, self._stop = loop, asyncio.Event()

        def log_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if isinstance(error := context.get("exception"), BaseException):
                service.journal.failure(error, where="loop")

        loop.set_exception_handler(log_failure)
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                loop.add_signal_handler(number, self._on_signal, number)
        serving = asyncio.ensure_future(self._uvicorn.serve(sockets=[self._socket]))
        while not self._uvicorn.started and not serving.done():
            await asyncio.sleep(0.005)
        self._started.set()
        service.journal.write("started", address=self.address)
        for caution in service.cautions:
            service.journal.write("caution", message=caution)
        begun()
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        # Wait for requests in flight; new ones are refused.
        service.stopping = True
        service.journal.write("stopping", under_way=service.under_way)
        end = loop.time() + service.limits.drain_s
        while service.under_way and loop.time() < end:
            await asyncio.sleep(0.02)
        self._uvicorn.should_exit = True
        await serving

    def _on_signal(self, number: int) -> None:
        """Shut down in order; a second signal ends the process at once, by the system's default."""
        self._signal = number
        for each in _SIGNALS:
            if self._loop is not None:
                self._loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        if self._stop is not None:
            self._stop.set()


def _bind(host: str, port: int) -> socket.socket:
    numeric = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in numeric else socket.AF_INET
    # With an explicit protocol the event loop disables Nagle's algorithm; else head and body are 40 ms apart.
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
    """The open connections of a server, oldest first, and the limits on their number and times."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: dict[Watched, None] = {}

    def make_room(self, newest: Watched) -> None:
        """Close one connection if there are too many.

        In this order: one that still sends a refused body, one that never sent a request, an idle one, one that does not
        read, the newest.
        """
        if len(self.open) <= self.limits.connections:
            return
        others = [one for one in self.open if one is not newest]
        idle = [one for one in others if one.is_idle]
        refused = [one for one in idle if one.is_refused]
        unused = [one for one in idle if not one.has_sent_request]
        closing = next(iter(refused or unused or idle or [one for one in others if one.is_stalled]), newest)
        del self.open[closing]
        closing.close_with_error(503, "overloaded", "too many connections are open; try again later.")

    def protocol(self, **given: Any) -> Watched:
        """A new connection, for uvicorn."""
        return Watched(self, **given)


class Watched(H11Protocol):
    """One connection with timeouts for request heads and for clients that do not read."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all = connections
        self._deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None
        self.has_sent_request = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_refused(self) -> bool:
        """Whether the client still sends the body of a request that was already answered."""
        return self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    @property
    def is_stalled(self) -> bool:
        """Whether the client does not read the answer."""
        return self._write_deadline is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, for which another may be closed."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that `pause_writing` reports every client that does not read
        self._all.open[self] = None
        self._watch()
        self._all.make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection."""
        self._all.open.pop(self, None)
        self._unwatch()
        self._cancel_write_deadline()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the time limit for a client that does not read."""
        super().pause_writing()
        if self._write_deadline is None:
            self._write_deadline = self.loop.call_later(self._all.limits.sent_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the time limit: the client has read everything."""
        self._cancel_write_deadline()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; the time limit for a request's head runs until the head is complete."""
        super().data_received(data)
        if self.is_idle:
            self._watch()
        else:
            self.has_sent_request = True
            self._unwatch()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP in the form of every other error."""
        self.close_with_error(
            400, "invalid_request", "this is not a valid HTTP request; see /docs for the accepted ones."
        )

    def close_with_error(self, status: int, code: str, message: str) -> None:
        """Send an error, unless something else is being sent, and close."""
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

            def too_slow() -> None:
                self._deadline = None
                if self.is_idle:
                    self.close_with_error(408, "timeout", f"no request came within {self._all.limits.headers_s:g} s.")

            self._deadline = self.loop.call_later(self._all.limits.headers_s, too_slow)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

"""Connections that cannot be used to hold the server up.

The web server below closes a connection that is idle between requests, but waits for ever for the first byte, for the
end of a header that comes letter by letter, and for a client that does not read its answer. Here every head of a
request and every answer has its time, and where there are too many connections, the one that has been idle longest
makes room.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cxrlab.serving.config import Limits
from cxrlab.serving.refusals import error_body


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

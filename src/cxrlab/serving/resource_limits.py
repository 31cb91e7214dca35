"""Limits over all requests: bytes received, pixels decoded, and work in threads."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from cxrlab.serving.config import Limits
from cxrlab.serving.errors import ApiError, invalid, overloaded, too_large, too_many

Given = ParamSpec("Given")
Result = TypeVar("Result")

_DISCARDED_S = 2.0  # how long the rest of a too large body is received, so that the client reads the answer


class ClientGone(Exception):
    """The client has disconnected."""


class Tally:
    """An amount that is taken up to a limit, without waiting; one client may take `share` of it (default: all)."""

    def __init__(self, most: int, share: int | None = None) -> None:
        self.most, self.share, self.taken = most, share, 0
        self._by_client: Counter[Hashable] = Counter()

    def take(self, amount: int, client: Hashable = None) -> bool:
        """Take an amount if it is available; whether it was."""
        if self.taken + amount > self.most:
            return False
        self.taken += amount
        self._by_client[client] += amount
        return True

    def is_beyond_share(self, amount: int, client: Hashable) -> bool:
        """Whether a client would exceed its share with this amount."""
        return self.share is not None and self._by_client[client] + amount > self.share

    def give_back(self, amount: int, client: Hashable = None) -> None:
        """Return what was taken."""
        self.taken -= amount
        self._by_client[client] -= amount
        if not self._by_client[client]:
            del self._by_client[client]


class FairSemaphore:
    """A semaphore for amounts, for one event loop: clients in turns, each first come, first served."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0
        self._waiting: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = {}  # whose turn it is comes first

    @asynccontextmanager
    async def held(self, amount: int, client: Hashable = None) -> AsyncIterator[None]:
        """Hold an amount, after waiting for it."""
        if self._waiting or self.taken + amount > self.most:
            await self._wait(amount, client)
        else:
            self.taken += amount
        try:
            yield
        finally:
            self.taken -= amount
            self._wake_next()

    async def _wait(self, amount: int, client: Hashable) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn came at the same moment
                self.taken -= amount
            self._wake_next()
            raise

    def _wake_next(self) -> None:
        while self._waiting:
            client, line = next(iter(self._waiting.items()))
            amount, turn = line[0]
            if not turn.done():
                if self.taken + amount > self.most:
                    return
                self.taken += amount
                turn.set_result(None)
                del self._waiting[client]  # reinserted behind the others if it has more
            line.popleft()
            if line:
                self._waiting[client] = line
            else:
                self._waiting.pop(client, None)


async def in_thread(
    pool: Executor, function: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
) -> Result:
    """The result of a function in a thread of the pool; cancellation waits for its end, so that its resources stay held."""
    future = asyncio.get_running_loop().run_in_executor(pool, lambda: function(*given, **named))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        raise


@asynccontextmanager
async def body_of(
    receive: Callable[[], Any], headers: Mapping[str, str], limits: Limits, held: Tally, client: Hashable = None
) -> AsyncIterator[bytes]:
    """The body of a request within the limits of size and time; its bytes count in `held` until the block ends."""
    parts: list[bytes] = []
    taken, coming = 0, _parts(receive)
    try:
        length = headers.get("content-length")
        if length is not None:
            if not (length.isascii() and length.isdigit()):
                raise invalid("Content-Length is not a number.")
            if len(length) > 18 or int(length) > limits.body_bytes:
                await _discard(coming)
                raise _too_long(limits)
        try:
            async with asyncio.timeout(limits.body_s):
                async for part in coming:
                    if taken + len(part) > limits.body_bytes:
                        await _discard(coming)
                        raise _too_long(limits)
                    if held.is_beyond_share(len(part), client):
                        raise too_many("your requests hold too many bytes at this moment; send fewer at once.")
                    if not held.take(len(part), client):
                        raise overloaded("the server holds too many large requests at this moment; try again later.")
                    taken += len(part)
                    parts.append(part)
        except TimeoutError:
            raise ApiError(
                408, "timeout", f"the request was not complete within {limits.body_s:g} s.", headers=_CLOSE
            ) from None
        body = b"".join(parts)
        parts.clear()
        yield body
    finally:
        held.give_back(taken, client)


_CLOSE = {"Connection": "close"}


def _too_long(limits: Limits) -> ApiError:
    refusal = too_large(f"the request is longer than {limits.body_bytes:,} bytes; send a smaller picture.")
    refusal.headers.update(_CLOSE)
    return refusal


async def _discard(coming: AsyncIterator[bytes]) -> None:
    """Receive more for a moment: most clients read an answer only after they have sent everything."""
    end = time.monotonic() + _DISCARDED_S
    try:
        async with asyncio.timeout(_DISCARDED_S):
            async for _ in coming:
                if time.monotonic() > end:
                    return
    except (TimeoutError, ClientGone):
        return


async def _parts(receive: Callable[[], Any]) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = bool(message.get("more_body"))
        yield message.get("body", b"")

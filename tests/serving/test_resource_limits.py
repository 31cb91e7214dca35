"""Bytes, pixels and threads that requests hold: never more than allowed, and always given back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cxrlab.serving.config import Limits
from cxrlab.serving.errors import ApiError
from cxrlab.serving.resource_limits import ClientGone, FairSemaphore, Tally, body_of, in_thread

LIMITS = Limits(body_bytes=10, held_bytes=15, body_s=0.05)


def messages(*parts: bytes, gone: bool = False, hang: bool = False) -> Callable[[], Awaitable[dict[str, Any]]]:
    """What a connection gives: the parts, and then the end, nothing, or the news that nobody is there."""
    left = list(parts)

    async def receive() -> dict[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or gone or hang}
        if hang:
            await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    return receive


async def body(receive: Any, headers: dict[str, str] | None = None, held: Tally | None = None) -> bytes:
    async with body_of(receive, headers or {}, LIMITS, held or Tally(15)) as found:
        return found


def test_a_body_is_put_together_and_held_while_it_is_used() -> None:
    async def run() -> None:
        held = Tally(15)
        async with body_of(messages(b"abc", b"", b"def"), {}, LIMITS, held) as found:
            assert found == b"abcdef" and held.taken == 6
        assert held.taken == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("receive", "headers", "status"),
    [
        (messages(b"x" * 6, b"x" * 6), {}, 413),
        (messages(b"x"), {"content-length": "11"}, 413),
        (messages(b"x"), {"content-length": "9" * 400}, 413),
        (messages(b"x"), {"content-length": "٣"}, 400),
        (messages(b"x"), {"content-length": "-1"}, 400),
        (messages(b"x", hang=True), {}, 408),
    ],
)
def test_what_is_too_long_or_too_slow_is_refused_and_given_back(
    receive: Any, headers: dict[str, str], status: int
) -> None:
    held = Tally(15)
    with pytest.raises(ApiError) as caught:
        asyncio.run(body(receive, headers, held))
    assert caught.value.status == status and held.taken == 0


def test_requests_that_are_too_many_together_are_sent_away() -> None:
    async def run() -> None:
        held = Tally(15)
        async with body_of(messages(b"x" * 10), {}, LIMITS, held):
            with pytest.raises(ApiError) as caught:
                await body(messages(b"y" * 6), held=held)
            assert caught.value.status == 503 and held.taken == 10

    asyncio.run(run())


def test_a_client_that_leaves_half_way_is_noticed() -> None:
    held = Tally(15)
    with pytest.raises(ClientGone):
        asyncio.run(body(messages(b"abc", gone=True), held=held))
    assert held.taken == 0


def test_room_is_waited_for_in_turn() -> None:
    """5 of 10 are taken; 8 must wait, and 1 behind it waits too, though it would fit."""

    async def run() -> list[str]:
        room, order = FairSemaphore(10), list[str]()

        async def hold(name: str, amount: int) -> None:
            async with room.held(amount):
                order.append(name)
                assert room.taken <= 10
                await asyncio.sleep(0)

        async with room.held(5):
            tasks = [asyncio.ensure_future(hold(name, amount)) for name, amount in (("large", 8), ("small", 1))]
            await asyncio.sleep(0.01)
            assert order == []
        await asyncio.gather(*tasks)
        assert room.taken == 0
        return order

    assert asyncio.run(run()) == ["large", "small"]


def test_who_stops_waiting_makes_way() -> None:
    async def run() -> None:
        room = FairSemaphore(10)

        async def hold(amount: int) -> None:
            async with room.held(amount):
                pass

        async with room.held(5):
            large, small = asyncio.ensure_future(hold(8)), asyncio.ensure_future(hold(1))
            await asyncio.sleep(0.01)
            large.cancel()
            await asyncio.wait_for(small, 5)
            assert room.taken == 5
        assert room.taken == 0

    asyncio.run(run())


def test_a_turn_that_comes_in_the_moment_of_leaving_is_given_back() -> None:
    async def run() -> None:
        room = FairSemaphore(10)

        async def hold() -> None:
            async with room.held(10):
                pass

        context = room.held(10)
        await context.__aenter__()
        waiting = asyncio.ensure_future(hold())
        await asyncio.sleep(0.01)
        await context.__aexit__(None, None, None)  # the turn is given here …
        waiting.cancel()  # … and the waiter is cancelled before it could take it
        await asyncio.gather(waiting, return_exceptions=True)
        assert room.taken == 0

    asyncio.run(run())


def test_who_is_cancelled_waits_for_the_thread() -> None:
    """Else pixels would be given back while the thread still decodes into them."""

    async def run() -> None:
        begun, go, ended = threading.Event(), threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            go.wait(5)
            ended.set()

        with ThreadPoolExecutor(1) as pool:
            task = asyncio.ensure_future(in_thread(pool, work))
            while not begun.is_set():
                await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.sleep(0.02)
            assert not task.done()
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended.is_set()

    asyncio.run(run())

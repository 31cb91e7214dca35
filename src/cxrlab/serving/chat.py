"""One request for a report, from its key to its answer.

Order matters: who asks is known before a byte of the picture is read, sizes before it is decoded, the quota before the
guard looks, and the guard has looked before the model sees the image. A report leaves in the guard's words or not at
all.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.core.llm import PROMPT_TOKENS
from cxrlab.core.protocols import CAUTIONS, REFUSED, Generated
from cxrlab.models.decoding import TRUNCATED
from cxrlab.serving.accounts import Reservation
from cxrlab.serving.batching import Answered, ImageQuestion, TextQuestion
from cxrlab.serving.batching import QuestionAskers as Question
from cxrlab.serving.config import Limits
from cxrlab.serving.errors import ApiError, invalid
from cxrlab.serving.images import Checked, Pixels, check_picture, decode_picture, picture_bytes
from cxrlab.serving.resource_limits import ClientGone, body_of, in_thread
from cxrlab.serving.schemas import Asked, ChatAnswer, Choice, Usage, Written, understand
from cxrlab.serving.service import Client, Note, Service

Found = TypeVar("Found")
GUARD = "refused_by_guard"


async def chat(service: Service, request: Request, note: Note) -> Response:
    """The answer to a request; everything that keeps it from one is a `Refused`."""
    account = service.accounts.identify(request.headers)
    note.fields["account"] = account.name
    service.rates.take(account)
    _check_type(request)
    client = service.client_of(account, request.client.host if request.client else "")
    with service.counted(client, account.requests_in_flight):
        async with AsyncExitStack() as held:
            asked, question = await _question(service, request, client, note, held)
            booking = Reservation(account, asked.choices)
            work = _asked_model(service, asked, question, booking, client, note)
            reply = await _unless_gone(request.receive, work, service.limits.answer_s)
    note.fields.update(answers=len(reply.texts), tokens=reply.answer_tokens, streamed=asked.streamed)
    service.metrics.answered(len(reply.texts), reply.answer_tokens, reply.prompt_tokens)
    if asked.streamed:
        events = reply.events(asked.usage_streamed)
        headers = {"Cache-Control": "no-store", **reply.headers}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)
    return JSONResponse(reply.whole().model_dump(), headers=reply.headers)


def _check_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "unsupported_media_type", "send the request as JSON, with Content-Type: application/json.")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ApiError(415, "unsupported_media_type", "send the request uncompressed, without Content-Encoding.")


async def _question(
    service: Service, request: Request, client: Client, note: Note, held: AsyncExitStack
) -> tuple[Asked, Question]:
    """What is asked, with its image decoded; the body is let go of before anything waits for the model."""
    async with AsyncExitStack() as kept:
        coming = body_of(request.receive, request.headers, service.limits, service.bodies, client)
        with service.received():
            body = await kept.enter_async_context(coming)
        note.fields["bytes_in"] = len(body)
        work = _prepared(service, body, client, note, held)
        return await _unless_gone(request.receive, work, service.limits.answer_s)


async def _prepared(
    service: Service, body: bytes, client: Client, note: Note, held: AsyncExitStack
) -> tuple[Asked, Question]:
    async with service.decoding.held(1, client):
        asked = await in_thread(service.threads, understand, body, service.limits)
        _check_model(service, asked)
        if asked.picture is None:
            return asked, TextQuestion(asked.text or "", asked.max_tokens, asked.seed)
        checked = await in_thread(service.threads, _opened, asked.picture, service.limits)
    note.fields["pixels"] = checked.pixels
    await held.enter_async_context(service.pixels.held(checked.pixels, client))
    async with service.decoding.held(1, client):
        image = await in_thread(service.threads, decode_picture, checked)
    decoding = asked.decoding if service.askers.heeds_decoding else None
    return asked, ImageQuestion(image, asked.text, decoding)


def _opened(picture: str, limits: Limits) -> Checked:
    return check_picture(picture_bytes(picture), limits)


def _check_model(service: Service, asked: Asked) -> None:
    if asked.model not in service.names:
        raise unknown_model(service)
    if asked.picture is None and service.text_model is None:
        raise invalid(
            f"{service.image_model} needs a picture: put it into the last user message as an 'image_url' part with a "
            "data URL.",
            "messages",
        )
    if asked.picture is not None and asked.model != service.image_model:
        raise invalid(f"{asked.model} reads text alone; ask {service.image_model} for reports.", "model")


def unknown_model(service: Service) -> ApiError:
    """404, with the names that there are."""
    return ApiError(404, "model_not_found", f"there is no such model here; there is {' and '.join(service.names)}.")


async def _asked_model(
    service: Service, asked: Asked, question: Question, booking: Reservation, client: Client, note: Note
) -> Reply:
    """The reply of the model; the answers are booked before it is asked, and given back where there are none."""
    spent = False
    try:
        await in_thread(service.threads, service.books.reserve, booking)
        if isinstance(question, ImageQuestion):
            await _pass_guard(service, question.image, client)
        futures: list[Future[Answered]] = []
        try:
            for one in service.askers.parts(question, asked.choices):
                futures.append(service.batcher.submit(one.key, one, one.rows, client))
            answered = await asyncio.gather(*map(asyncio.wrap_future, futures))
        except BaseException:
            # Who leaves while the model writes has used it all the same; who leaves before has not.
            spent = not all([future.cancel() or _failed(future) for future in futures])
            raise
        reply = await _reply(service, asked, answered, note)
        if isinstance(question, ImageQuestion):
            reply = replace(reply, cautions=(*service.cautions_for(question.image), *reply.cautions))
        spent = True
        return reply
    except CxrlabError as error:
        raise _failure(service, error, note) from error
    finally:
        if not spent:
            await in_thread(service.threads, service.books.give_back, booking)


def _failed(future: Any) -> bool:
    """Whether a question has ended without an answer."""
    return bool(future.done() and (future.cancelled() or future.exception() is not None))


async def _pass_guard(service: Service, image: Pixels, client: Client) -> None:
    if service.guard is None:
        return
    async with service.guarding.held(1, client):
        declined = await in_thread(service.guard_thread, service.guard.look, image, client.account)
    if declined is not None:
        raise ApiError(403, declined.code, declined.message)


async def _reply(service: Service, asked: Asked, answered: list[Answered], note: Note) -> Reply:
    answers = [answer for one in answered for answer in one.answers]
    if len(answers) < asked.choices:  # a model that does not draw would write the same again
        answers = (answers * asked.choices)[: asked.choices]
    for answer in answers:
        if answer.extra.get(REFUSED):  # a model behind an address whose server has declined
            raise ApiError(403, GUARD, answer.text or "the model declined to answer.")
    of_images = asked.picture is not None
    texts = [answer.text for answer in answers]
    if of_images and service.guard is not None:
        worded = service.guard.worded
        texts = await in_thread(service.guard_thread, lambda: [worded(text) for text in texts])
    note.fields.update(batch=answered[0].batch, waited_ms=round(1000 * max(one.waited_s for one in answered), 1))
    return Reply(
        note.id,
        service.image_model if of_images else service.text_model or "",
        texts,
        [bool(answer.extra.get(TRUNCATED)) for answer in answers],
        _asked_tokens(answers, asked.words),
        sum(len(answer.text.split()) if answer.tokens is None else answer.tokens for answer in answers),
        tuple(dict.fromkeys(one for answer in answers for one in answer.extra.get(CAUTIONS, ()))),
    )


def _asked_tokens(answers: list[Generated], words: int) -> int:
    told = answers[0].extra.get(PROMPT_TOKENS)
    return told if isinstance(told, int) else words


def _failure(service: Service, error: CxrlabError, note: Note) -> ApiError:
    """What a client is told of an error of the model: never its text, which may tell paths or another's words."""
    service.journal.failure(error, id=note.id)
    if isinstance(error, (ConfigError, DataError)) and not service.askers.model.capabilities.black_box:
        return invalid(
            "the model cannot take this request: its text, or the answer asked for with max_tokens, is longer than it "
            "has room for; ask for less."
        )
    service.metrics.failed()
    return ApiError(500, "model_failed", "the model failed at this request, and nothing was handed out.")


async def _unless_gone(receive: Callable[[], Any], work: Coroutine[Any, Any, Found], longest_s: float) -> Found:
    """What the work gives; it is cancelled when the client leaves or the time is up."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({task, gone}, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ClientGone
        raise ApiError(504, "timeout", f"no answer within {longest_s:g} s; come again.", retry_after=5)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # looked at, so that nobody else speaks of it


async def _left(receive: Callable[[], Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


DONE = b"data: [DONE]\n\n"
CAUTION_HEADER = "X-Cxrlab-Caution"
_PIECES = re.compile(r"\s*\S+|\s+")


@dataclass(frozen=True)
class Reply:
    """What a request is answered with.

    Args:
        id: Of the request.
        model: The model that has answered.
        texts: The answers.
        cut: For each, whether it was cut at its longest length.
        prompt_tokens: Tokens that were asked, words where the model does not tell.
        answer_tokens: Tokens that were written, words where the model does not tell.
        cautions: Sentences that whoever reads the answers must know.
    """

    id: str
    model: str
    texts: Sequence[str]
    cut: Sequence[bool]
    prompt_tokens: int
    answer_tokens: int
    cautions: Sequence[str] = ()

    @property
    def headers(self) -> dict[str, str]:
        """The cautions for clients that read no field beyond OpenAI's; a header holds ASCII on one line."""
        told = " ".join(" ".join(self.cautions).split()).encode("ascii", "backslashreplace").decode()
        return {CAUTION_HEADER: told} if told else {}

    @property
    def usage(self) -> Usage:
        """What was used."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.answer_tokens,
            total_tokens=self.prompt_tokens + self.answer_tokens,
        )

    def whole(self) -> ChatAnswer:
        """All of it at once."""
        choices = [
            Choice(index=place, message=Written(content=text), finish_reason=_reason(cut))
            for place, (text, cut) in enumerate(zip(self.texts, self.cut, strict=True))
        ]
        return ChatAnswer(
            id=f"chatcmpl-{self.id}",
            created=int(time.time()),
            model=self.model,
            choices=choices,
            usage=self.usage,
            cautions=list(self.cautions),
        )

    async def events(self, with_usage: bool) -> AsyncIterator[bytes]:
        """Piece by piece; the pieces put together are the texts, character for character."""
        created = int(time.time())
        for choices, usage in self._pieces():
            if usage is not None and not with_usage:
                continue
            chunk: dict[str, Any] = {
                "id": f"chatcmpl-{self.id}",
                "object": "chat.completion.chunk",
                "created": created,
                "model": self.model,
                "choices": choices,
            }
            if self.cautions:
                chunk["cautions"] = list(self.cautions)
            if with_usage:
                chunk["usage"] = usage
            yield f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()
        yield DONE

    def _pieces(self) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any] | None]]:
        for place, (text, cut) in enumerate(zip(self.texts, self.cut, strict=True)):
            yield [_piece(place, {"role": "assistant", "content": ""})], None
            for part in _PIECES.findall(text):
                yield [_piece(place, {"content": part})], None
            yield [_piece(place, {}, _reason(cut))], None
        yield [], self.usage.model_dump()


def _piece(place: int, delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
    return {"index": place, "delta": delta, "finish_reason": reason, "logprobs": None}


def _reason(cut: bool) -> Any:
    return "length" if cut else "stop"

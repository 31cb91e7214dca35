"""One chat-completions request, from its API key to its answer.

The order matters: account, size limits, image, quota, guard, model, and at last the guard's wording of the report.

To return more of an answer, such as per-token log-probabilities, edit:
    schemas.py               the request's field in `ChatRequest`, `ParsedRequest` and `parse_chat_request`; the answer's in
                             `Choice`
    chat.py                  `_reply` takes the value from `Generated`, `Reply.whole` and `Reply.events` send it; none where
                             the guard changes the wording
    model_interfaces.py      in core: a field of `Generated`, if the model does not report the value yet (not `extra`, which
                             is copied into every file of predictions)
    models/hf/generation.py  then `to_text` and both decoding strategies (the other is in beam_search.py), which fill it;
                             `Answer` is in decoding_steps.py
    defence/base.py          in extraction: it drops values that belong to words that a defence replaced
    batching.py              `ImageQuestion` and its `key`, only if the field changes what the model computes
Everything that a client receives passes through `Reply`.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.core.llm_requests import PROMPT_TOKENS
from cxrlab.core.model_interfaces import CAUTIONS, REFUSED
from cxrlab.models.decoding import TRUNCATED
from cxrlab.serving.accounts import Account, Reservation
from cxrlab.serving.batching import Answered, ImageQuestion, Question, TextQuestion
from cxrlab.serving.errors import ApiError, invalid
from cxrlab.serving.images import check_picture, decode_picture, picture_bytes
from cxrlab.serving.resource_limits import ClientGone, body_of, in_thread
from cxrlab.serving.schemas import AnswerMessage, ChatAnswer, Choice, ParsedRequest, Usage, parse_chat_request
from cxrlab.serving.service import Client, Note, Service

Found = TypeVar("Found")
GUARD = "refused_by_guard"


async def chat(service: Service, request: Request, note: Note) -> Response:
    """The answer to a request; every reason why there is none is an `ApiError`."""
    account = service.accounts.identify(request.headers)
    note.fields["account"] = account.name
    service.rates.take(account)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "unsupported_media_type", "send the request as JSON, with Content-Type: application/json.")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ApiError(415, "unsupported_media_type", "send the request uncompressed, without Content-Encoding.")
    client, longest_s = (
        service.client_of(account, request.client.host if request.client else ""),
        service.limits.answer_s,
    )
    with service.counted(client, account.requests_in_flight):
        async with AsyncExitStack() as held:
            async with AsyncExitStack() as body_held:  # the body is released before the model is waited for
                coming = body_of(request.receive, request.headers, service.limits, service.bodies, client)
                with service.received():
                    body = await body_held.enter_async_context(coming)
                note.fields["bytes_in"] = len(body)
                parsing = _parse(service, body, client, note, held)
                parsed, question = await _unless_gone(request.receive, parsing, longest_s)
            work = _answer(service, parsed, question, client, account, note)
            reply = await _unless_gone(request.receive, work, longest_s)
    note.fields.update(answers=len(reply.texts), tokens=reply.answer_tokens, streamed=parsed.streamed)
    service.metrics.answered(len(reply.texts), reply.answer_tokens, reply.prompt_tokens)
    if parsed.streamed:
        events = reply.events(parsed.usage_streamed)
        headers = {"Cache-Control": "no-store", **reply.headers}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)
    return JSONResponse(reply.whole().model_dump(), headers=reply.headers)


async def _parse(
    service: Service, body: bytes, client: Client, note: Note, held: AsyncExitStack
) -> tuple[ParsedRequest, Question]:
    """The request and its question with the decoded image, whose pixels count in `held`."""
    async with service.decoding.held(1, client):
        parsed = await in_thread(service.threads, parse_chat_request, body, service.limits)
        if parsed.model not in service.names:
            raise unknown_model(service)
        if parsed.picture is None:
            if service.text_model is None:
                raise invalid(
                    f"{service.image_model} needs a picture: put it into the last user message as an 'image_url' part "
                    "with a data URL.",
                    "messages",
                )
            return parsed, TextQuestion(parsed.text or "", parsed.max_tokens, parsed.seed)
        if parsed.model != service.image_model:
            raise invalid(f"{parsed.model} reads text only; use {service.image_model} for reports.", "model")
        picture = parsed.picture
        checked = await in_thread(service.threads, lambda: check_picture(picture_bytes(picture), service.limits))
    note.fields["pixels"] = checked.pixels
    await held.enter_async_context(service.pixels.held(checked.pixels, client))
    async with service.decoding.held(1, client):
        image = await in_thread(service.threads, decode_picture, checked)
    decoding = parsed.decoding if service.runner.supports_decoding else None
    return parsed, ImageQuestion(image, parsed.text, decoding)


def unknown_model(service: Service) -> ApiError:
    """404, with the available names."""
    return ApiError(404, "model_not_found", f"there is no such model here; there is {' and '.join(service.names)}.")


async def _answer(
    service: Service, parsed: ParsedRequest, question: Question, client: Client, account: Account, note: Note
) -> Reply:
    """Reserve the quota, pass the guard, run the model; the quota is given back if there is no answer."""
    reservation, spent = Reservation(account, parsed.choices), False
    try:
        await in_thread(service.threads, service.quotas.reserve, reservation)
        if isinstance(question, ImageQuestion) and service.guard is not None:
            async with service.guarding.held(1, client):
                declined = await in_thread(service.guard_thread, service.guard.check, question.image, client.account)
            if declined is not None:
                raise ApiError(403, declined.code, declined.message)
        futures: list[Future[Answered]] = []
        try:
            for part in service.runner.parts(question, parsed.choices):
                futures.append(service.batcher.submit(part.key, part, part.rows, client))
            answered = await asyncio.gather(*map(asyncio.wrap_future, futures))
        except BaseException:
            # A client that leaves while the model generates has spent its quota; one that leaves earlier has not.
            for future in futures:
                ended = future.cancel() or (future.done() and future.exception() is not None)
                spent = spent or not ended
            raise
        reply = await _reply(service, parsed, answered, note)
        if isinstance(question, ImageQuestion):
            reply = replace(reply, cautions=(*service.cautions_for(question.image), *reply.cautions))
        spent = True
        return reply
    except CxrlabError as error:
        # The client does not receive the message, which may contain paths or another client's text.
        service.journal.failure(error, id=note.id)
        if isinstance(error, (ConfigError, DataError)) and not service.runner.model.capabilities.black_box:
            raise invalid(
                "the model cannot process this request: its text, or the answer length in max_tokens, exceeds the "
                "model's context; shorten one of them."
            ) from error
        service.metrics.failed()
        raise ApiError(500, "model_failed", "the model failed at this request; no answer was generated.") from error
    finally:
        if not spent:
            await in_thread(service.threads, service.quotas.give_back, reservation)


async def _reply(service: Service, parsed: ParsedRequest, answered: list[Answered], note: Note) -> Reply:
    """The model's answers, with reports in the guard's wording."""
    answers = [answer for one in answered for answer in one.answers]
    if len(answers) < parsed.choices:  # a model that does not sample would repeat itself
        answers = (answers * parsed.choices)[: parsed.choices]
    for answer in answers:
        if answer.extra.get(REFUSED):  # the server of a model behind an address has declined
            raise ApiError(403, GUARD, answer.text or "the model declined to answer.")
    of_image = parsed.picture is not None
    texts = [answer.text for answer in answers]
    if of_image and service.guard is not None:
        worded = service.guard.worded
        texts = await in_thread(service.guard_thread, lambda: [worded(text) for text in texts])
    note.fields.update(batch=answered[0].batch, waited_ms=round(1000 * max(one.waited_s for one in answered), 1))
    prompt_tokens = answers[0].extra.get(PROMPT_TOKENS)
    return Reply(
        id=note.id,
        model=service.image_model if of_image else service.text_model or "",
        texts=texts,
        finish_reasons=["length" if answer.extra.get(TRUNCATED) else "stop" for answer in answers],
        prompt_tokens=prompt_tokens if isinstance(prompt_tokens, int) else parsed.words,
        answer_tokens=sum(len(answer.text.split()) if answer.tokens is None else answer.tokens for answer in answers),
        cautions=tuple(dict.fromkeys(one for answer in answers for one in answer.extra.get(CAUTIONS, ()))),
    )


async def _unless_gone(receive: Callable[[], Any], work: Coroutine[Any, Any, Found], longest_s: float) -> Found:
    """The result of the work, which is cancelled if the client disconnects or the time is up."""

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({task, gone}, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ClientGone
        raise ApiError(504, "timeout", f"no answer within {longest_s:g} s; try again later.", retry_after=5)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it


DONE = b"data: [DONE]\n\n"
CAUTION_HEADER = "X-Cxrlab-Caution"
_PIECES = re.compile(r"\s*\S+|\s+")


@dataclass(frozen=True)
class Reply:
    """Everything that a client receives for a request."""

    id: str
    model: str
    texts: Sequence[str]  # the answers
    finish_reasons: Sequence[Literal["stop", "length"]]  # `stop` or `length` for each
    prompt_tokens: int  # words if the model counts no tokens, like `answer_tokens`
    answer_tokens: int
    cautions: Sequence[str] = ()  # warnings for the reader of the answers

    @property
    def headers(self) -> dict[str, str]:
        """The cautions for clients that read OpenAI's fields only; a header holds ASCII on one line."""
        text = " ".join(" ".join(self.cautions).split()).encode("ascii", "backslashreplace").decode()
        return {CAUTION_HEADER: text} if text else {}

    @property
    def usage(self) -> Usage:
        """The token counts."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.answer_tokens,
            total_tokens=self.prompt_tokens + self.answer_tokens,
        )

    def whole(self) -> ChatAnswer:
        """The reply as one JSON object."""
        choices = [
            Choice(index=place, message=AnswerMessage(content=text), finish_reason=reason)
            for place, (text, reason) in enumerate(zip(self.texts, self.finish_reasons, strict=True))
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
        """The reply as server-sent events; the pieces joined are the texts, character for character."""
        created = int(time.time())

        def event(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
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
            return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()

        for place, (text, reason) in enumerate(zip(self.texts, self.finish_reasons, strict=True)):
            deltas = [{"role": "assistant", "content": ""}, *({"content": part} for part in _PIECES.findall(text)), {}]
            for number, delta in enumerate(deltas, 1):
                ended = reason if number == len(deltas) else None
                yield event([{"index": place, "delta": delta, "finish_reason": ended, "logprobs": None}])
        if with_usage:
            yield event([], self.usage.model_dump())
        yield DONE

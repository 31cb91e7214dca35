"""Errors of the HTTP API: a status, a code for programs, and one sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cxrlab.core.terminal import terminal_safe

_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """Ends a request with an error.

    Args:
        code: For programs, such as `rate_limited`.
        message: One sentence for the client; not logged, since it may quote the request.
        param: The field that is wrong.
        retry_after: Seconds until another try is worthwhile.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, round(retry_after + 0.5)))

    def body(self) -> dict[str, Any]:
        """The error as JSON of the protocol."""
        return error_body(self.status, self.code, self.message, self.param)


def error_body(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    """An error as JSON of the protocol."""
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": terminal_safe(message), "type": kind, "code": code, "param": param}}


def invalid(message: str, param: str | None = None) -> ApiError:
    """400: the client has to change its request."""
    return ApiError(400, "invalid_request", message, param=param)


def too_large(message: str, param: str | None = None) -> ApiError:
    """413: more bytes, pixels or text than the limits allow."""
    return ApiError(413, "too_large", message, param=param)


def too_many(message: str) -> ApiError:
    """429: this client has too much in flight."""
    return ApiError(429, "too_many_in_flight", message, retry_after=1.0)


def overloaded(message: str, retry_after: float = 1.0) -> ApiError:
    """503: try again later."""
    return ApiError(503, "overloaded", message, retry_after=retry_after)


def stopping() -> ApiError:
    """503: the server is shutting down."""
    return overloaded("the server is stopping; try again later.", retry_after=5)

"""Error responses: a status, a stable code, one sentence, and the values to blame."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate
from typing import Any

import msgspec

from ...core.errors import OptionError, SteelyardError
from ...documents import encode_value
from ..errors import InvalidError, NotFoundError
from .schemas import ErrorBody, ErrorDetail, ErrorResponse

# Status: its code, and when it is given, for the OpenAPI document.
ERROR_CODES = {
    400: ("bad_request", "not HTTP, or the body is not JSON or names a key twice"),
    401: ("unauthorized", "no token, or an unknown one"),
    403: ("forbidden", "the host name or the web origin of the request is not this machine's"),
    404: ("not_found", "no such path, model, replica or device"),
    405: ("method_not_allowed", "the path does not take this method"),
    408: ("timeout", "the request took too long to arrive"),
    409: ("conflict", "not possible for this one, or not now"),
    413: ("too_large", "the body is larger than 1 MiB"),
    415: ("unsupported_media_type", "the body is not declared as application/json"),
    422: ("invalid", "an invalid value; `details` names the key of each"),
    431: ("head_too_large", "the head of the request is too large"),
    500: ("internal", "a bug of Steelyard; its log says more"),
    503: ("busy", "too many connections"),
}
JSON_CONTENT_TYPE = (b"content-type", b"application/json")


class ApiError(Exception):
    def __init__(
        self, status: int, message: str, details: tuple[ErrorDetail, ...] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        error = ErrorBody(code=ERROR_CODES[status][0], message=message, details=details)
        self.body = encode(ErrorResponse(error=error))


def validation_error(details: list[ErrorDetail]) -> ApiError:
    first = f"{details[0].key}: {details[0].message}" if details[0].key else details[0].message
    more = f" (and {len(details) - 1} more)" if details[1:] else ""
    return ApiError(422, first + more, tuple(details))


def api_error_for(problem: SteelyardError) -> ApiError:
    match problem:
        case NotFoundError():
            return ApiError(404, str(problem))
        case InvalidError():
            return ApiError(422, str(problem), (ErrorDetail(key=problem.key, message=problem.what),))
        case OptionError():
            key, _, what = str(problem).rpartition(": ")
            return ApiError(422, str(problem), (ErrorDetail(key=key, message=what),))
    return ApiError(409, str(problem))  # ConflictError, a full shared memory ledger, too many leases


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=encode_value)


def default_headers() -> list[tuple[bytes, bytes]]:
    date = formatdate(usegmt=True).encode()
    return [(b"date", date), (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]

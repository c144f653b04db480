"""Probes of model servers, and what their answers mean."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from .bodies.text import DECODE_ERRORS


class ServerReadiness(Enum):
    READY = "ready"
    LOADING = "loading"  # it lives, but the model is not ready
    NOT_FOUND = "not_found"  # it lives, but is no such server
    BROKEN = "broken"  # it answers, and says that it is dead


class ServerRequest(NamedTuple):
    path: str
    method: str = "GET"
    body: bytes = b""
    port: int = 0  # unless configured; 0: the replica's own
    fallback: ServerRequest | None = None  # where this one is ABSENT: older versions of a server


class ProbePlan(NamedTuple):
    """A server is ready when all of `ready` are READY.

    `live` is sent only otherwise, and must be READY while a model loads, or the server counts as dead. None: any
    answer proves life.
    """

    ready: tuple[ServerRequest, ...]
    live: ServerRequest | None = None


def readiness_by_status(status: int) -> ServerReadiness:
    """Where a dialect knows no better."""
    if 200 <= status < 300:
        return ServerReadiness.READY
    if status in (404, 405, 501):
        return ServerReadiness.NOT_FOUND
    return ServerReadiness.LOADING


def escape_name(name: str) -> str:
    return quote(name, safe="", errors="replace")


def json_object(body: bytes) -> dict[str, Any]:
    """Empty, if the body is no JSON object."""
    try:
        value = msgspec.json.decode(body)
    except DECODE_ERRORS:
        return {}
    return value if isinstance(value, dict) else {}


def is_unknown_model(question: ServerRequest, status: int, sentence: object) -> bool:
    """Is this 404 from the right server without that model? Others mention the path, if anything."""
    return status == 404 and isinstance(sentence, str) and "model" in sentence.replace(question.path, "").lower()

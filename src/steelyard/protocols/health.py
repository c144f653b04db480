"""How a model server is asked whether it lives and whether a model is ready there, and what its answers mean."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from .bodies.text import DECODE_ERRORS


class ServerReadiness(Enum):
    READY = "ready"
    LOADING = "loading"  # it lives, but the model is not ready
    ABSENT = "not_found"  # it lives, and does not know what was asked: this is no such server
    BROKEN = "broken"  # it answers, but says itself that it is beyond help


class ServerRequest(NamedTuple):
    """One request of a probe."""

    path: str
    method: str = "GET"
    body: bytes = b""
    port: int = 0  # where it is asked, unless the configuration says; 0: the replica's own
    fallback: ServerRequest | None = None  # asked where this one is ABSENT: older versions of a server


class ProbePlan(NamedTuple):
    """What to ask a server. It is ready when every question of `ready` is answered with READY.

    `live` is asked only when one was not: a ready server lives. It must be READY then, however long a model loads, or
    the server counts as dead. None: any answer at all proves life.
    """

    ready: tuple[ServerRequest, ...]
    live: ServerRequest | None = None


def readiness_by_status(status: int) -> ServerReadiness:
    """What a status alone tells, where a dialect knows no better."""
    if 200 <= status < 300:
        return ServerReadiness.READY
    if status in (404, 405, 501):
        return ServerReadiness.ABSENT
    return ServerReadiness.LOADING


def escape_name(name: str) -> str:
    """A model's name as one part of a path."""
    return quote(name, safe="", errors="replace")


def json_object(body: bytes) -> dict[str, Any]:
    """What a JSON object says; nothing, if it is none."""
    try:
        value = msgspec.json.decode(body)
    except DECODE_ERRORS:
        return {}
    return value if isinstance(value, dict) else {}


def is_unknown_model(question: ServerRequest, status: int, sentence: object) -> bool:
    """Is this 404 the right server's, which has no such model (yet)? Others speak of the path, if of anything."""
    return status == 404 and isinstance(sentence, str) and "model" in sentence.replace(question.path, "").lower()

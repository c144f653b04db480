"""Any HTTP service: nothing is known of its bodies, so they are never read. RFC 9110 says what methods mean."""

from __future__ import annotations

from collections.abc import Mapping

from .base import REPEATABLE, Answer, Call, Dialect, Peek, bounded, to_json

# Paths would tell more apart, but there is no end to them: a path may hold an id.
KINDS = {method: method.lower() for method in (*REPEATABLE, "POST", "PATCH", "CONNECT")}


class PlainHttp(Dialect):
    name = "http"

    def call(self, method: str, path: str) -> Call | None:
        return Call(KINDS.get(method, "other"), idempotent=method in REPEATABLE)

    def peek(self, call: Call, body: bytes, headers: Mapping[bytes, bytes]) -> Peek:
        return Peek("", (bounded(float(len(body))), 0.0, 0.0))

    def error(self, status: int, code: str, sentence: str) -> Answer:
        return Answer(status, to_json({"error": {"code": code, "message": sentence}}))

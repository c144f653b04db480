"""Any HTTP service: bodies are never read; methods mean what RFC 9110 says."""

from __future__ import annotations

from ..base import IDEMPOTENT_METHODS, ApiCall, BodyInfo, Dialect, Headers, LocalReply, bound_feature, encode_json

# Not by path: a path may hold an id, so there is no end to them.
CALL_KINDS = {method: method.lower() for method in (*IDEMPOTENT_METHODS, "POST", "PATCH", "CONNECT")}


class PlainHttp(Dialect):
    name = "http"

    def call(self, method: str, path: str) -> ApiCall | None:
        return ApiCall(CALL_KINDS.get(method, "other"), idempotent=method in IDEMPOTENT_METHODS)

    def read_body(self, call: ApiCall, body: bytes, headers: Headers) -> BodyInfo:
        return BodyInfo("", (bound_feature(float(len(body))), 0.0, 0.0))

    def error(self, status: int, code: str, sentence: str) -> LocalReply:
        return LocalReply(status, encode_json({"error": {"code": code, "message": sentence}}))

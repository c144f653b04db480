"""Any HTTP service: nothing is known of its bodies, so they are never read. RFC 9110 says what methods mean."""

from __future__ import annotations

from collections.abc import Mapping

from ..base import IDEMPOTENT_METHODS, ApiCall, BodyInfo, Dialect, LocalReply, bound_feature, encode_json

# Paths would tell more apart, but there is no end to them: a path may hold an id.
CALL_KINDS = {method: method.lower() for method in (*IDEMPOTENT_METHODS, "POST", "PATCH", "CONNECT")}


class PlainHttp(Dialect):
    name = "http"

    def call(self, method: str, path: str) -> ApiCall | None:
        return ApiCall(CALL_KINDS.get(method, "other"), idempotent=method in IDEMPOTENT_METHODS)

    def read_body(self, call: ApiCall, body: bytes, headers: Mapping[bytes, bytes]) -> BodyInfo:
        return BodyInfo("", (bound_feature(float(len(body))), 0.0, 0.0))

    def error(self, status: int, code: str, sentence: str) -> LocalReply:
        return LocalReply(status, encode_json({"error": {"code": code, "message": sentence}}))

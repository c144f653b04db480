"""TorchServe: the path names the model; the management port reports its workers."""

from __future__ import annotations

import re

from msgspec import Struct, json

from ..base import ANY_MODEL, IDEMPOTENT_METHODS, ApiCall, unescape_name
from ..bodies.text import DECODE_ERRORS
from ..health import (
    ProbePlan,
    ServerReadiness,
    ServerRequest,
    escape_name,
    is_unknown_model,
    json_object,
    readiness_by_status,
)
from ..load import MetricsLocation
from .http import PlainHttp

CALL_KINDS = {"predictions": "predict", "explanations": "explain"}
PING_REQUEST = ServerRequest("/ping")
MANAGEMENT_PORT = 8081

_MODEL = re.compile(r"/(?P<verb>predictions|explanations)/(?P<model>[^/]+)(?:/[^/]+)?/?")


class _Worker(Struct, gc=False):
    status: str = ""


class _Version(Struct, gc=False):
    workers: list[_Worker] = []


_versions = json.Decoder(list[_Version]).decode


class TorchServe(PlainHttp):
    name = "torchserve"
    metrics = MetricsLocation(port=8082)

    def call(self, method: str, path: str) -> ApiCall | None:
        match = _MODEL.fullmatch(path)
        if match is None:
            return None
        again = method in IDEMPOTENT_METHODS or method == "POST"
        return ApiCall(CALL_KINDS[match["verb"]], unescape_name(match["model"]), idempotent=again)

    def probe_plan(self, model: str) -> ProbePlan:
        if model == ANY_MODEL:
            return ProbePlan((PING_REQUEST,))
        # Without `live`: `/ping` is 500 while a model has no worker; any answer proves life.
        return ProbePlan((ServerRequest(f"/models/{escape_name(model)}", port=MANAGEMENT_PORT),))

    def readiness(self, question: ServerRequest, status: int, body: bytes, model: str) -> ServerReadiness:
        readiness = readiness_by_status(status)
        if question.path == PING_REQUEST.path:
            return readiness
        if readiness is ServerReadiness.READY:
            return ServerReadiness.READY if _has_ready_worker(body) else ServerReadiness.LOADING
        unknown = is_unknown_model(question, status, json_object(body).get("message"))
        return ServerReadiness.LOADING if unknown else readiness

    def explain(self, question: ServerRequest, status: int, body: bytes, model: str) -> str:
        if question.path == PING_REQUEST.path or 200 <= status < 300:
            return ""
        if is_unknown_model(question, status, json_object(body).get("message")):
            return ""
        where = f"the management API is asked, by default on port {MANAGEMENT_PORT}"
        remedy = "give health.headers a token" if status in (401, 403) else "set health.port where it listens elsewhere"
        return f"{where}: {remedy}, or health.path: /ping"


def _has_ready_worker(body: bytes) -> bool:
    try:
        return any(worker.status == "READY" for version in _versions(body) for worker in version.workers)
    except DECODE_ERRORS:
        return False

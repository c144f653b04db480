"""The Open Inference Protocol (KServe v2) with Triton's extensions: Triton, MLServer, KServe, OpenVINO Model Server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from ..base import (
    ANY_MODEL,
    IDEMPOTENT_METHODS,
    NO_HEADERS,
    READ_METHODS,
    ApiCall,
    BodyInfo,
    Dialect,
    Headers,
    LocalReply,
    ServedModel,
    bound_feature,
    encode_json,
    unescape_name,
)
from ..bodies.oip import generate_info, infer_info
from ..health import (
    ProbePlan,
    ServerReadiness,
    ServerRequest,
    escape_name,
    is_unknown_model,
    json_object,
    readiness_by_status,
)

HEADER_LENGTH = b"inference-header-content-length"  # of the JSON before Triton's binary tensors
# Of POST /v2/models/{m}/…
CALL_KINDS = {"infer": "infer", "infer_stream": "infer", "generate": "generate", "generate_stream": "generate"}
ELEMENT_BYTES = 4.0  # assumed, in a body that was not read

# tritonclient does not encode slashes in names, so all but a known ending is part of the name.
_MODEL = re.compile(
    r"/v2/models/(?P<model>.+?)(?:/versions/(?P<version>[^/]+))?"
    r"(?:/(?P<verb>ready|infer|infer_stream|generate|generate_stream|config|stats|trace/setting))?"
)
_REPOSITORY = re.compile(r"/v2/repository/models/(?P<model>.+)/(?:load|unload)")
_SERVER = {"/v2": "server", "/v2/health/live": "live", "/v2/health/ready": "ready"}


class OpenInference(Dialect):
    name = "oip"
    wanted_headers = (HEADER_LENGTH,)

    def call(self, method: str, path: str) -> ApiCall | None:
        place = path.rstrip("/")
        if place != "/v2" and not place.startswith("/v2/"):
            return None
        again = method in IDEMPOTENT_METHODS
        if place in _SERVER:
            return ApiCall(_SERVER[place], idempotent=again, local=method in READ_METHODS)
        if match := _REPOSITORY.fullmatch(place):
            return ApiCall("repository", unescape_name(match["model"]), idempotent=again)
        if place == "/v2/repository/index":
            return ApiCall("index", idempotent=again or method == "POST")  # it only asks
        match = _MODEL.fullmatch(place)
        if match is None or place == "/v2/models/stats":  # of all models of a server
            return ApiCall("server_other", idempotent=again)
        return _model_call(method, unescape_name(match["model"]), match["version"], match["verb"] or "")

    def local_reply(self, call: ApiCall, path: str, models: Sequence[ServedModel]) -> LocalReply | None:
        if not call.local:
            return None
        if call.kind == "live":
            return LocalReply(200, encode_json({"live": True}))
        if call.kind == "ready":
            ready = any(model.is_served for model in models)
            return LocalReply(200 if ready else 503, encode_json({"ready": ready}))
        if call.kind == "model_ready":
            return self._model_ready(call.model, models)
        if any(model.name == ANY_MODEL for model in models):
            return None  # a replica knows its name and extensions
        return LocalReply(200, encode_json({"name": "steelyard", "version": _version(), "extensions": []}))

    def _model_ready(self, name: str, models: Sequence[ServedModel]) -> LocalReply | None:
        for model in models:
            if model.name == name:
                ready = model.is_served
                return LocalReply(200 if ready else 503, encode_json({"name": name, "ready": ready}))
        if any(model.name == ANY_MODEL for model in models):
            return None
        return self.error(404, "unknown_model", f"The model '{name}' is not served here.")

    def read_body(self, call: ApiCall, body: bytes, headers: Headers) -> BodyInfo:
        if call.kind == "infer":
            length = headers.get(HEADER_LENGTH, b"")
            info = infer_info(body[: int(length)] if length.isdigit() and len(length) < 12 else body)
        else:
            info = generate_info(body) if call.kind == "generate" else None
        return info or self.estimate_body(call, len(body))

    def estimate_body(self, call: ApiCall, length: int, head: bytes = b"", headers: Headers = NO_HEADERS) -> BodyInfo:
        if call.kind == "infer":
            return BodyInfo("", (bound_feature(length / ELEMENT_BYTES), 1.0, 0.0))
        return BodyInfo("", (bound_feature(float(length)), 0.0, 1.0))

    def error(self, status: int, code: str, sentence: str) -> LocalReply:
        return LocalReply(status, encode_json({"error": sentence}))

    def probe_plan(self, model: str) -> ProbePlan:
        # Not the server's readiness, which may wait for other models.
        place = "/v2/health/ready" if model == ANY_MODEL else f"/v2/models/{escape_name(model)}/ready"
        return ProbePlan((ServerRequest(place),), live=ServerRequest("/v2/health/live"))

    def readiness(self, question: ServerRequest, status: int, body: bytes, model: str) -> ServerReadiness:
        readiness, said = readiness_by_status(status), json_object(body)
        if is_unknown_model(question, status, said.get("error")):
            return ServerReadiness.LOADING
        if readiness is ServerReadiness.READY and (said.get("ready") is False or said.get("live") is False):
            return ServerReadiness.LOADING  # some say it in the body of a 200
        return readiness


def _model_call(method: str, model: str, version: str | None, verb: str) -> ApiCall:
    if method == "POST" and verb in CALL_KINDS:
        return ApiCall(CALL_KINDS[verb], model, reads_body=True, idempotent=True)
    again = method in IDEMPOTENT_METHODS
    if verb == "ready":  # only a replica knows its versions
        return ApiCall("model_ready", model, idempotent=again, local=method in READ_METHODS and version is None)
    return ApiCall("metadata" if not verb else "model_other", model, idempotent=again)


@cache
def _version() -> str:
    try:
        return version("steelyard")
    except PackageNotFoundError:  # a checkout
        return "0"

"""The Open Inference Protocol (KServe v2) with Triton's extensions: Triton, MLServer, KServe, OpenVINO Model Server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from .base import ANY, LOOKS, REPEATABLE, Answer, Call, Dialect, ModelView, Peek, bounded, to_json, unescaped
from .health import Question, Questions, Verdict, by_status, escaped, fields, lacks_model
from .oip_body import generate, infer

HEADER_LENGTH = b"inference-header-content-length"  # of the JSON before the tensors, in Triton's binary extension
KINDS = {  # of POST /v2/models/{m}/…
    "infer": "infer",
    "infer_stream": "infer",
    "generate": "generate",
    "generate_stream": "generate",
}
NUMBER = 4.0  # bytes: what an element is taken for in a body that was not read

# Names with slashes are not encoded by tritonclient, so what is not a known ending is part of the name.
_MODEL = re.compile(
    r"/v2/models/(?P<model>.+?)(?:/versions/(?P<version>[^/]+))?"
    r"(?:/(?P<verb>ready|infer|infer_stream|generate|generate_stream|config|stats|trace/setting))?"
)
_REPOSITORY = re.compile(r"/v2/repository/models/(?P<model>.+)/(?:load|unload)")
_SERVER = {"/v2": "server", "/v2/health/live": "live", "/v2/health/ready": "ready"}


class OpenInference(Dialect):
    name = "oip"
    wanted_headers = (HEADER_LENGTH,)

    def call(self, method: str, path: str) -> Call | None:
        place = path.rstrip("/")
        if place != "/v2" and not place.startswith("/v2/"):
            return None
        again = method in REPEATABLE
        if place in _SERVER:
            return Call(_SERVER[place], idempotent=again, local=method in LOOKS)
        if match := _REPOSITORY.fullmatch(place):
            return Call("repository", unescaped(match["model"]), idempotent=again)
        if place == "/v2/repository/index":
            return Call("index", idempotent=again or method == "POST")  # it only asks
        match = _MODEL.fullmatch(place)
        if match is None or place == "/v2/models/stats":  # of all models of a server
            return Call("server_other", idempotent=again)
        return _model_call(method, unescaped(match["model"]), match["version"], match["verb"] or "")

    def answer(self, call: Call, path: str, models: Sequence[ModelView]) -> Answer | None:
        if not call.local:
            return None
        if call.kind == "live":
            return Answer(200, to_json({"live": True}))
        if call.kind == "ready":
            ready = any(model.served for model in models)
            return Answer(200 if ready else 503, to_json({"ready": ready}))
        if call.kind == "model_ready":
            return self._model_ready(call.model, models)
        if any(model.name == ANY for model in models):
            return None  # a replica knows what it is, and which extensions it has
        return Answer(200, to_json({"name": "steelyard", "version": _version(), "extensions": []}))

    def _model_ready(self, name: str, models: Sequence[ModelView]) -> Answer | None:
        for model in models:
            if model.name == name:
                return Answer(200 if model.served else 503, to_json({"name": name, "ready": model.served}))
        if any(model.name == ANY for model in models):
            return None
        return self.error(404, "unknown_model", f"The model '{name}' is not served here.")

    def peek(self, call: Call, body: bytes, headers: Mapping[bytes, bytes]) -> Peek:
        if call.kind == "infer":
            length = headers.get(HEADER_LENGTH, b"")
            told = infer(body[: int(length)] if length.isdigit() and len(length) < 12 else body)
        else:
            told = generate(body) if call.kind == "generate" else None
        return told or self.guess(call, len(body))

    def guess(self, call: Call, length: int, head: bytes = b"", headers: Mapping[bytes, bytes] = {}) -> Peek:
        if call.kind == "infer":
            return Peek("", (bounded(length / NUMBER), 1.0, 0.0))
        return Peek("", (bounded(float(length)), 0.0, 1.0))

    def error(self, status: int, code: str, sentence: str) -> Answer:
        return Answer(status, to_json({"error": sentence}))

    def questions(self, model: str) -> Questions:
        # Of the model alone: the server's own readiness may wait for others that are still loading.
        place = "/v2/health/ready" if model == ANY else f"/v2/models/{escaped(model)}/ready"
        return Questions((Question(place),), live=Question("/v2/health/live"))

    def judge(self, question: Question, status: int, body: bytes, model: str) -> Verdict:
        verdict, said = by_status(status), fields(body)
        if lacks_model(question, status, said.get("error")):
            return Verdict.LOADING
        if verdict is Verdict.READY and (said.get("ready") is False or said.get("live") is False):
            return Verdict.LOADING  # some say it in the body of a 200
        return verdict


def _model_call(method: str, model: str, version: str | None, verb: str) -> Call:
    if method == "POST" and verb in KINDS:
        return Call(KINDS[verb], model, reads_body=True, idempotent=True)
    if verb == "ready":
        # Which versions there are, only a replica knows.
        return Call("model_ready", model, idempotent=method in REPEATABLE, local=method in LOOKS and version is None)
    return Call("metadata" if not verb else "model_other", model, idempotent=method in REPEATABLE)


@cache
def _version() -> str:
    try:
        return version("steelyard")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "0"

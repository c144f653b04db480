"""TorchServe: the model is named in the path, and whether it has workers is told on another port."""

from __future__ import annotations

import re

from msgspec import Struct, json

from .base import ANY, REPEATABLE, Call, unescaped
from .health import Question, Questions, Verdict, by_status, escaped, fields, lacks_model
from .load import MetricsAt
from .plain import PlainHttp
from .text import BROKEN

KINDS = {"predictions": "predict", "explanations": "explain"}
PING = Question("/ping")
MANAGEMENT = 8081  # port

_MODEL = re.compile(r"/(?P<verb>predictions|explanations)/(?P<model>[^/]+)(?:/[^/]+)?/?")


class _Worker(Struct, gc=False):
    status: str = ""


class _Version(Struct, gc=False):
    workers: list[_Worker] = []


_versions = json.Decoder(list[_Version]).decode


class TorchServe(PlainHttp):
    name = "torchserve"
    metrics = MetricsAt(port=8082)

    def call(self, method: str, path: str) -> Call | None:
        match = _MODEL.fullmatch(path)
        if match is None:
            return None
        return Call(
            KINDS[match["verb"]], unescaped(match["model"]), idempotent=method in REPEATABLE or method == "POST"
        )

    def questions(self, model: str) -> Questions:
        if model == ANY:
            return Questions((PING,))
        # Without `live`: `/ping` says 500 as long as a model has no worker, and who answers lives.
        return Questions((Question(f"/models/{escaped(model)}", port=MANAGEMENT),))

    def judge(self, question: Question, status: int, body: bytes, model: str) -> Verdict:
        verdict = by_status(status)
        if question.path == PING.path:
            return verdict
        if verdict is Verdict.READY:
            return Verdict.READY if _works(body) else Verdict.LOADING
        return Verdict.LOADING if lacks_model(question, status, fields(body).get("message")) else verdict

    def explain(self, question: Question, status: int, body: bytes, model: str) -> str:
        if question.path == PING.path or 200 <= status < 300:
            return ""
        if lacks_model(question, status, fields(body).get("message")):
            return ""
        where = f"the management API is asked, by default on port {MANAGEMENT}"
        told = "give health.headers a token" if status in (401, 403) else "set health.port where it listens elsewhere"
        return f"{where}: {told}, or health.path: /ping"


def _works(body: bytes) -> bool:
    try:
        return any(worker.status == "READY" for version in _versions(body) for worker in version.workers)
    except BROKEN:
        return False

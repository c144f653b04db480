"""vLLM: OpenAI's endpoints. `/health` does not know models, `/v1/models` does not know health."""

from __future__ import annotations

from msgspec import Struct, json

from ..base import ANY_MODEL
from ..bodies.text import DECODE_ERRORS
from ..health import ProbePlan, ServerReadiness, ServerRequest, readiness_by_status
from ..load import MetricsLocation
from .openai import OpenAI

HEALTH_REQUEST = ServerRequest("/health")
LIST_REQUEST = ServerRequest("/v1/models")
MAX_SHOWN_MODELS = 3  # in a message


class _Listed(Struct, gc=False):
    id: str


class _List(Struct, gc=False):
    data: list[_Listed]


_listed = json.Decoder(_List).decode


class Vllm(OpenAI):
    name = "vllm"
    metrics = MetricsLocation()
    sends_orca = True

    def probe_plan(self, model: str) -> ProbePlan:
        return ProbePlan((HEALTH_REQUEST, LIST_REQUEST))

    def readiness(self, question: ServerRequest, status: int, body: bytes, model: str) -> ServerReadiness:
        readiness = readiness_by_status(status)
        if question.path == LIST_REQUEST.path and readiness is ServerReadiness.READY:
            names = _names(body)
            listed = bool(names) if model == ANY_MODEL else model in names
            return ServerReadiness.READY if listed else ServerReadiness.LOADING
        if question.path == HEALTH_REQUEST.path and status == 503 and not body:
            return ServerReadiness.BROKEN  # its engine is dead; while scaling, the body has words
        return readiness

    def explain(self, question: ServerRequest, status: int, body: bytes, model: str) -> str:
        names = _names(body)
        if question.path != LIST_REQUEST.path or status != 200 or not names:
            return super().explain(question, status, body, model)
        more = len(names) - MAX_SHOWN_MODELS
        known = ", ".join(names[:MAX_SHOWN_MODELS]) + (f" and {more} more" if more > 0 else "")
        return f"lists {known}, not {model}: name the model as it does, or start it with --served-model-name {model}"


def _names(body: bytes) -> list[str]:
    try:
        return [listed.id for listed in _listed(body).data]
    except DECODE_ERRORS:
        return []

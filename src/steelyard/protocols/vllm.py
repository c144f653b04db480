"""vLLM: OpenAI's endpoints. Its `/health` knows nothing of models, its list of models nothing of health."""

from __future__ import annotations

from msgspec import Struct, json

from .base import ANY
from .health import Question, Questions, Verdict, by_status
from .load import MetricsAt
from .openai import OpenAI
from .text import BROKEN

HEALTH = Question("/health")
LIST = Question("/v1/models")
SHOWN = 3  # names of models in a message


class _Listed(Struct, gc=False):
    id: str


class _List(Struct, gc=False):
    data: list[_Listed]


_listed = json.Decoder(_List).decode


class Vllm(OpenAI):
    name = "vllm"
    metrics = MetricsAt()
    orca = True

    def questions(self, model: str) -> Questions:
        return Questions((HEALTH, LIST))

    def judge(self, question: Question, status: int, body: bytes, model: str) -> Verdict:
        verdict = by_status(status)
        if question.path == LIST.path and verdict is Verdict.READY:
            return Verdict.READY if _lists(body, model) else Verdict.LOADING
        if question.path == HEALTH.path and status == 503 and not body:
            return Verdict.BROKEN  # its engine is dead; while it scales there are words in the body
        return verdict

    def explain(self, question: Question, status: int, body: bytes, model: str) -> str:
        names = _names(body)
        if question.path != LIST.path or status != 200 or not names:
            return super().explain(question, status, body, model)
        known = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        return f"lists {known}, not {model}: name the model as it does, or start it with --served-model-name {model}"


def _lists(body: bytes, model: str) -> bool:
    names = _names(body)
    return bool(names) if model == ANY else model in names


def _names(body: bytes) -> list[str]:
    try:
        return [listed.id for listed in _listed(body).data]
    except BROKEN:
        return []

"""What the agent answers itself: its own paths, and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..concurrency import ConcurrencyLimiter
from ..readiness import READY
from .asgi import AgentResponse, to_json
from .load_report import load, metrics

if TYPE_CHECKING:
    from ..agent import ReplicaAgent

AGENT_PATHS = ("/steelyard/live", "/steelyard/ready", "/steelyard/load", "/steelyard/metrics")
RETRY_AFTER_HEADER = ((b"retry-after", b"1"),)
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def agent_endpoint(agent: ReplicaAgent, method: str, path: str) -> AgentResponse:
    if method not in ("GET", "HEAD"):
        return error(405, "method", f"{path} accepts only GET and HEAD.", ((b"allow", b"GET, HEAD"),))
    if path == "/steelyard/live":
        return AgentResponse(200, to_json({"live": True, "instance": agent.instance, "model": agent.options.model}))
    if path == "/steelyard/ready":
        return _ready(agent)
    if path == "/steelyard/load":
        return AgentResponse(200, to_json(load(agent)))
    return AgentResponse(200, metrics(agent).encode(), METRICS_TYPE)


def _ready(agent: ReplicaAgent) -> AgentResponse:
    state, reason = agent.readiness.status
    status = {"state": state, "instance": agent.instance, "model": agent.options.model}
    if state == READY:
        return AgentResponse(200, to_json(status))
    return AgentResponse(503, to_json({**status, "reason": reason}), headers=RETRY_AFTER_HEADER)


def not_ready(model: str, state: str, reason: str) -> AgentResponse:
    return error(503, state, f"The model {model!r} is not ready here: {reason}.", RETRY_AFTER_HEADER)


def out_of_memory() -> AgentResponse:
    return error(507, "out_of_memory", "The request needs more memory than is free here.")


def queue_full(turns: ConcurrencyLimiter) -> AgentResponse:
    return error(503, "queue_full", f"{turns.waiting} requests wait here already.", RETRY_AFTER_HEADER)


def error(status: int, code: str, sentence: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> AgentResponse:
    return AgentResponse(status, to_json({"error": {"code": code, "message": sentence}}), headers=headers)

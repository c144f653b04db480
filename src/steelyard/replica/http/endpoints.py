"""What the agent answers itself: its own paths, and refusals."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..concurrency import ConcurrencyLimiter
from ..readiness import READY
from .asgi import AgentResponse, to_json

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


def load(agent: ReplicaAgent) -> dict[str, Any]:
    turns, memory, holds = agent.limiter, agent.meter.read(), agent.footprint.read()
    state, reason = agent.readiness.status
    used, total = memory.scarcest
    return {
        "model": agent.options.model,
        "instance": agent.instance,
        "state": state,
        "reason": reason,
        "running": turns.running,
        "waiting": turns.waiting,
        "websockets": turns.websockets,
        "concurrency": turns.limit,
        "utilization": turns.utilization,
        "served": turns.served,
        "refused": dict(agent.refused),
        "abandoned": turns.abandoned,
        "out_of_memory": agent.footprint.out_of_memory_count,
        "memory": {
            "used": used,
            "total": total,
            "held": holds.held,
            "base": holds.base,
            "process": {"pid": os.getpid(), "used": memory.resident, "total": memory.total},
            "devices": [device._asdict() for device in memory.devices],
        },
    }


def metrics(agent: ReplicaAgent) -> str:
    """In Prometheus' text format, without what is not known."""
    turns, memory, holds = agent.limiter, agent.meter.read(), agent.footprint.read()
    (used, total), out_of_memory = memory.scarcest, agent.footprint.out_of_memory_count
    peak = max((device.peak for device in memory.devices if device.peak is not None), default=None)
    rows: list[tuple[str, str, str, float | None]] = [
        ("steelyard_ready", "gauge", "1: this replica wants requests", float(agent.readiness.status.state == READY)),
        ("steelyard_requests_running", "gauge", "requests the app works on", turns.running),
        ("steelyard_requests_waiting", "gauge", "requests that wait for their turn", turns.waiting),
        ("steelyard_websockets_open", "gauge", "open web sockets", turns.websockets),
        ("steelyard_requests_total", "counter", "requests the app has ended", turns.served),
        (
            "steelyard_requests_abandoned_total",
            "counter",
            "clients that disconnected while they waited",
            turns.abandoned,
        ),
        ("steelyard_utilization", "gauge", "requests here for one that may run", turns.utilization),
        ("steelyard_memory_used_bytes", "gauge", "of the fullest accelerator, else of this process", used),
        ("steelyard_memory_total_bytes", "gauge", "what there is of it", total),
        ("steelyard_memory_peak_bytes", "gauge", "the most torch has had allocated", peak),
        ("steelyard_memory_held_bytes", "gauge", "what this process holds of its device", holds.held),
        ("steelyard_memory_base_bytes", "gauge", "and with nothing running", holds.base),
        ("steelyard_out_of_memory_errors_total", "counter", "requests that ran out of memory", out_of_memory),
        ("process_resident_memory_bytes", "gauge", "of this process", memory.resident),
        ("process_start_time_seconds", "gauge", "when this process began, since 1970", agent.begin().started),
    ]
    lines: list[str] = []
    for name, kind, meaning, value in rows:
        if value is not None:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", f"{name} {value}"]
    name = "steelyard_requests_refused_total"
    lines += [f"# HELP {name} answered 503 by the agent", f"# TYPE {name} counter"]
    lines += [f'{name}{{reason="{reason}"}} {n}' for reason, n in agent.refused.items()]
    return "\n".join(lines) + "\n"

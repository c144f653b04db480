"""What the agent reports of its load: as JSON, in Prometheus' format, and in an answer that asks for it (ORCA)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..readiness import READY
from .asgi import to_json

if TYPE_CHECKING:
    from ..agent import ReplicaAgent

REQUEST_HEADER = b"endpoint-load-metrics-format"
RESPONSE_HEADER = b"endpoint-load-metrics"


def load_report(wanted: bytes, agent: ReplicaAgent, needed: int | None) -> bytes:
    """The value of the header; empty: an unknown format. `needed`: bytes, by this request."""
    form = wanted.strip().upper()
    if form not in (b"JSON", b"TEXT"):
        return b""
    turns, holds = agent.limiter, agent.footprint.read()
    used, total = agent.meter.read().scarcest
    filled = used / total if used is not None and total else None
    shares = {"application_utilization": turns.utilization, "mem_utilization": filled}
    named = {
        "num_requests_running": turns.running,
        "num_requests_waiting": turns.waiting,
        "memory_used_bytes": used,
        "memory_total_bytes": total,
        "memory_held_bytes": holds.held,
        "memory_base_bytes": holds.base,
        "memory_request_bytes": needed,
    }
    report = {key: round(value, 4) for key, value in shares.items() if value is not None}
    known = {key: value for key, value in named.items() if value is not None}
    if form == b"JSON":
        return b"JSON " + to_json({**report, "named_metrics": known})
    flat = {**report, **{f"named_metrics.{key}": value for key, value in known.items()}}
    return b"TEXT " + ", ".join(f"{key}={value}" for key, value in flat.items()).encode()


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

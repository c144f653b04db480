"""The load report in an answer (ORCA), if the request asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

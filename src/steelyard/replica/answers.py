"""What the kit answers itself: its own paths, and the refusal of a request that came too early."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .asgi import Answer, to_json
from .state import READY
from .turns import Turns

if TYPE_CHECKING:
    from .kit import Kit

PATHS = ("/steelyard/live", "/steelyard/ready", "/steelyard/load", "/steelyard/metrics")
RETRY_AFTER = ((b"retry-after", b"1"),)
TEXT = "text/plain; version=0.0.4; charset=utf-8"


def own(kit: Kit, method: str, path: str) -> Answer:
    """To a request for one of PATHS."""
    if method not in ("GET", "HEAD"):
        return error(405, "method", f"{path} is only there to look at.", ((b"allow", b"GET, HEAD"),))
    if path == "/steelyard/live":
        return Answer(200, to_json({"live": True, "instance": kit.instance, "model": kit.options.model}))
    if path == "/steelyard/ready":
        return _ready(kit)
    if path == "/steelyard/load":
        return Answer(200, to_json(load(kit)))
    return Answer(200, metrics(kit).encode(), TEXT)


def _ready(kit: Kit) -> Answer:
    state, reason = kit.readiness.told
    told = {"state": state, "instance": kit.instance, "model": kit.options.model}
    if state == READY:
        return Answer(200, to_json(told))
    return Answer(503, to_json({**told, "reason": reason}), headers=RETRY_AFTER)


def too_early(kit: Kit) -> Answer:
    state, reason = kit.readiness.told
    return error(503, state, f"The model {kit.options.model!r} is not ready here: {reason}.", RETRY_AFTER)


def out_of_memory() -> Answer:
    return error(507, "out_of_memory", "The request needs more memory than is free here.")


def full(turns: Turns) -> Answer:
    return error(503, "queue_full", f"{turns.waiting} requests wait here already.", RETRY_AFTER)


def error(status: int, code: str, sentence: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return Answer(status, to_json({"error": {"code": code, "message": sentence}}), headers=headers)


def load(kit: Kit) -> dict[str, Any]:
    turns, memory, holds = kit.turns, kit.meter.read(), kit.footprint.holds()
    state, reason = kit.readiness.told
    used, total = memory.scarce
    return {
        "model": kit.options.model,
        "instance": kit.instance,
        "state": state,
        "reason": reason,
        "running": turns.running,
        "waiting": turns.waiting,
        "websockets": turns.sockets,
        "concurrency": turns.limit,
        "utilization": turns.utilization,
        "served": turns.served,
        "refused": dict(kit.refused),
        "left": turns.gone,
        "out_of_memory": kit.footprint.ran_out,
        "memory": {
            "used": used,
            "total": total,
            "held": holds.held,
            "base": holds.base,
            "process": {"pid": os.getpid(), "used": memory.resident, "total": memory.total},
            "devices": [device._asdict() for device in memory.devices],
        },
    }


def metrics(kit: Kit) -> str:
    """In Prometheus' text form. What is not known is left out."""
    turns, memory, holds = kit.turns, kit.meter.read(), kit.footprint.holds()
    used, total = memory.scarce
    peak = max((device.peak for device in memory.devices if device.peak is not None), default=None)
    rows: list[tuple[str, str, str, float | None]] = [
        ("steelyard_ready", "gauge", "1: this replica wants requests", float(kit.readiness.told.state == READY)),
        ("steelyard_requests_running", "gauge", "requests the app works on", turns.running),
        ("steelyard_requests_waiting", "gauge", "requests that wait for their turn", turns.waiting),
        ("steelyard_websockets_open", "gauge", "open web sockets", turns.sockets),
        ("steelyard_requests_total", "counter", "requests the app has ended", turns.served),
        ("steelyard_requests_left_total", "counter", "clients that left while they waited", turns.gone),
        ("steelyard_utilization", "gauge", "requests here for one that may run", turns.utilization),
        ("steelyard_memory_used_bytes", "gauge", "of the fullest accelerator, else of this process", used),
        ("steelyard_memory_total_bytes", "gauge", "what there is of it", total),
        ("steelyard_memory_peak_bytes", "gauge", "the most torch has had allocated", peak),
        ("steelyard_memory_held_bytes", "gauge", "what this process holds of its device", holds.held),
        ("steelyard_memory_base_bytes", "gauge", "and with nothing running", holds.base),
        ("steelyard_out_of_memory_total", "counter", "requests that ran out of memory", kit.footprint.ran_out),
        ("process_resident_memory_bytes", "gauge", "of this process", memory.resident),
        ("process_start_time_seconds", "gauge", "when this process began, since 1970", kit.begin().started),
    ]
    lines: list[str] = []
    for name, kind, meaning, value in rows:
        if value is not None:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", f"{name} {value}"]
    name = "steelyard_requests_refused_total"
    lines += [f"# HELP {name} answered 503 by the kit", f"# TYPE {name} counter"]
    lines += [f'{name}{{reason="{reason}"}} {n}' for reason, n in kit.refused.items()]
    return "\n".join(lines) + "\n"

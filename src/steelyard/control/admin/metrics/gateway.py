"""Steelyard itself: its processes, requests for no model, and alarms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from platform import python_version

from ....system import package_form
from ...observability.alarm_codes import SEVERITIES
from ...observability.fleet_view import MetricsSnapshot
from ...observability.views import BalancerProcessView, FleetView, WorkerView
from ...process_resources import ProcessUsage
from .exposition import Family, Sample, labels


def gateway_families(fleet: FleetView, numbers: MetricsSnapshot) -> Iterator[Family]:
    build = [Sample(labels(version=fleet.version, python=python_version(), form=package_form()), 1)]
    yield Family("steelyard_build_info", "gauge", "always 1, with versions as labels", build)
    yield Family("steelyard_uptime_seconds", "gauge", "time since the supervisor started", [Sample("", fleet.uptime)])
    yield from _usage(
        "steelyard_supervisor_cpu_seconds_total",
        "steelyard_supervisor_memory_bytes",
        "the supervisor",
        {"": [numbers.supervisor]},
    )
    yield from _workers(fleet.workers, numbers)
    if fleet.balancer is not None:
        yield from _balancer(fleet.balancer, numbers)
    unrouted = [Sample(labels(outcome=outcome), count) for outcome, count in sorted(numbers.unrouted.items())]
    about = "requests for no configured model, by outcome"
    yield Family("steelyard_unrouted_requests_total", "counter", about, unrouted)
    lost = [Sample(labels(kind=kind), count) for kind, count in sorted(numbers.lost_telemetry.items())]
    about = "log lines and spans that could not be written or sent"
    yield Family("steelyard_telemetry_dropped_total", "counter", about, lost)
    alarms = Counter(alarm.code for alarm in fleet.alarms)
    now = [Sample(labels(code=code), alarms[code]) for code in sorted(SEVERITIES.keys() | alarms.keys())]
    yield Family("steelyard_alarms", "gauge", "active alarms; /v1/fleet has their messages", now)


def _workers(workers: tuple[WorkerView, ...], numbers: MetricsSnapshot) -> Iterator[Family]:
    """During a replacement, an old and a new worker share an index: both count."""
    by_label: dict[str, list[WorkerView]] = {}
    for view in workers:
        by_label.setdefault(labels(worker=str(view.index)), []).append(view)

    serving = [Sample(label, int(any(view.serving for view in there))) for label, there in by_label.items()]
    yield Family("steelyard_worker_serving", "gauge", "1: the worker takes requests", serving)
    open_ = [Sample(label, sum(view.connections for view in there)) for label, there in by_label.items()]
    yield Family("steelyard_worker_connections", "gauge", "open connections of clients", open_)
    used = {label: [numbers.processes.get(view.pid) for view in there] for label, there in by_label.items()}
    yield from _usage("steelyard_worker_cpu_seconds_total", "steelyard_worker_memory_bytes", "the worker", used)
    replaced = [Sample("", numbers.unexpected_exits)]
    yield Family("steelyard_worker_unexpected_exits_total", "counter", "workers that ended unexpectedly", replaced)


def _balancer(view: BalancerProcessView, numbers: MetricsSnapshot) -> Iterator[Family]:
    serving = [Sample("", int(view.serving))]
    yield Family("steelyard_balancer_serving", "gauge", "1: the balancer process decides for the workers", serving)
    used = {"": [numbers.processes.get(view.pid) if view.pid is not None else None]}
    yield from _usage(
        "steelyard_balancer_cpu_seconds_total", "steelyard_balancer_memory_bytes", "the balancer process", used
    )
    about = "balancer processes that ended unexpectedly"
    replaced = [Sample("", numbers.unexpected_balancer_exits)]
    yield Family("steelyard_balancer_unexpected_exits_total", "counter", about, replaced)


def _usage(cpu_name: str, memory_name: str, owner: str, used: dict[str, list[ProcessUsage | None]]) -> Iterator[Family]:
    """CPU seconds are the new worker's: a counter that restarts from zero, as Prometheus expects."""
    cpu = [Sample(label, there[0].cpu if there[0] is not None else None) for label, there in used.items()]
    yield Family(cpu_name, "counter", f"CPU time of {owner}", cpu)
    known = {label: [one.memory for one in there if one is not None] for label, there in used.items()}
    memory = [Sample(label, sum(there) if there else None) for label, there in known.items()]
    yield Family(memory_name, "gauge", f"resident memory of {owner}", memory)

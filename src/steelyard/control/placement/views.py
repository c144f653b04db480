"""Views and alarms of placement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...core.placement.planner import LoadDecision, ModelCopy, ModelDemand, ServerState
from ...units import format_size
from ..observability.views import Alarm, HostView, LoadFailureView, LoadJobView, LoadTimeView, PlacementView
from .hosts import Hosts
from .job import PlacementJob
from .job_runner import JobRunner
from .load_history import LoadBackoff, LoadTimes
from .orphan_unloader import OrphanUnloader

ALARM_DELAY_SECONDS = 5.0
MAX_NAMED = 3  # devices, and models on each
ALARM_FAILURES = 3  # in a row, of a load or of polls


class UnplaceableModels:
    """Models that are requested and fit nowhere: only an operator can help."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._shortage_messages: dict[str, str] = {}

    def update(
        self,
        servers: Sequence[ServerState],
        rooms: Mapping[str, int],
        budgets: Mapping[str, int],
        demands: Mapping[str, ModelDemand],
        loads: Iterable[LoadDecision],
        now: float,
    ) -> None:
        there = {copy.model for server in servers for copy in server.copies} | {load.model for load in loads}
        short = {m: d for m, d in demands.items() if (d.waiting or d.pinned) and m not in there}
        self._since = {model: self._since.get(model, now) for model in short}
        self._shortage_messages = {
            model: message for model, message in self._shortage_messages.items() if model in short
        }
        busy = {server.device for server in servers if server.busy}
        for model, demand in short.items():
            able = {s.device: None for s in servers if model in s.loadable_models and s.device in rooms}
            if able and not busy & able.keys():  # otherwise a job runs, or loads fail there for another reason
                places = (_describe_device(d, servers, rooms[d], budgets.get(d, 0)) for d in list(able)[:MAX_NAMED])
                needs = f"{model} has no place: it needs {format_size(demand.size)}"
                self._shortage_messages[model] = "; ".join([needs, *places])

    def alarms(self, now: float) -> Iterator[Alarm]:
        for model, message in self._shortage_messages.items():
            if now - self._since[model] >= ALARM_DELAY_SECONDS:
                yield Alarm(code="insufficient_memory", message=message, age=now - self._since[model], model=model)


def _describe_device(device: str, servers: Iterable[ServerState], room: int, budget: int) -> str:
    held = [copy for server in servers if server.device == device for copy in server.copies]
    pinned = [copy for copy in held if copy.pinned]
    busy = [copy for copy in held if copy.in_flight and not copy.pinned]
    parts = [f"{device} may give out {format_size(budget)}, {format_size(room)} of it free"]
    parts += [f"{word}: {_describe_copies(them)}" for word, them in (("pinned", pinned), ("busy", busy)) if them]
    return ", ".join(parts)


def _describe_copies(copies: Sequence[ModelCopy]) -> str:
    names = [f"{copy.model} {format_size(copy.size)}" for copy in copies[:MAX_NAMED]]
    return " and ".join(names) + (f" and {len(copies) - MAX_NAMED} more" if len(copies) > MAX_NAMED else "")


def placement_view(hosts: Hosts, job_runner: JobRunner, now: float) -> PlacementView:
    times = job_runner.load_times
    usual = {copy.model: float(copy.settings.load_time) for copy in hosts.copies.values()}
    return PlacementView(
        jobs=tuple(_loading(job, times, now) for job in job_runner.jobs),
        failures=tuple(
            LoadFailureView(
                model=model,
                replica=replica,
                reason=failure.reason,
                message=failure.message,
                consecutive_failures=failure.times,
                age=now - failure.at,
                retry_in=max(0.0, failure.retry_at - now),
            )
            for (model, replica), failure in job_runner.backoff.all().items()
        ),
        hosts=tuple(HostView(server=h.name, known=h.known, problem=h.problem) for h in hosts.hosts.values()),
        load_times=tuple(
            LoadTimeView(model=model, seconds=times.seconds(model, configured), measured=times.is_measured(model))
            for model, configured in usual.items()
        ),
    )


def placement_alarms(
    hosts: Hosts, backoff: LoadBackoff, orphan_unloader: OrphanUnloader, now: float
) -> Iterator[Alarm]:
    """One failed load is no alarm: it may succeed elsewhere, or the next time."""
    for (model, replica), failed in backoff.all().items():
        if failed.times >= ALARM_FAILURES:
            what = f"{failed.message} ({failed.times} times in a row)"
            yield Alarm(code=failed.reason, message=what, age=now - failed.since, model=model, replica=replica)
    for host in hosts.hosts.values():
        if host.failures >= ALARM_FAILURES:
            what = f"{host.name} does not say which models it has: {host.problem}"
            age = now - host.failing_since
            yield Alarm(code="model_index_unavailable", message=what, age=age, subject=host.name)
    for (server, model), left in orphan_unloader.failures.items():
        what = f"{left.message} ({left.times} times)"
        yield Alarm(code="unload_failed", message=what, age=now - left.since, model=model, subject=server)


def _loading(job: PlacementJob, times: LoadTimes, now: float) -> LoadJobView:
    main = job.primary
    model, replica = main.key
    return LoadJobView(
        model=model,
        replica=replica,
        server=main.host.name,
        stage=job.stage,
        seconds=now - job.began,
        expected=times.seconds(model, float(main.settings.load_time)),
        evicts=tuple(copy.model for copy in job.evict),
        reason=job.reason,
    )

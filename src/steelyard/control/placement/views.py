"""Views and alarms of placement."""

from __future__ import annotations

from ..observability.views import Alarm, HostView, LoadFailureView, LoadJobView, LoadTimeView, PlacementView
from .hosts import Hosts
from .job import PlacementJob
from .job_runner import JobRunner
from .load_history import LoadBackoff, LoadTimes
from .orphan_unloader import OrphanUnloader

ALARM_FAILURES = 3  # in a row, of a load or of polls


def placement_view(hosts: Hosts, job_runner: JobRunner, now: float) -> PlacementView:
    times = job_runner.load_times
    usual = {copy.model: float(copy.settings.load_time) for copy in hosts.copies.values()}
    return PlacementView(
        jobs=tuple(_loading(job, times, now) for job in job_runner.jobs),
        failures=tuple(
            LoadFailureView(
                model=model,
                replica=replica,
                reason=setback.reason,
                why=setback.why,
                consecutive_failures=setback.times,
                age=now - setback.at,
                retry_in=max(0.0, setback.retry_at - now),
            )
            for (model, replica), setback in job_runner.backoff.all().items()
        ),
        hosts=tuple(HostView(server=h.name, known=h.known, problem=h.problem) for h in hosts.hosts.values()),
        load_times=tuple(
            LoadTimeView(model=model, seconds=times.seconds(model, configured), measured=times.is_measured(model))
            for model, configured in usual.items()
        ),
    )


def placement_alarms(hosts: Hosts, setbacks: LoadBackoff, orphan_unloader: OrphanUnloader, now: float) -> list[Alarm]:
    """One failed load is no alarm: it may succeed elsewhere, or the next time."""
    failed = [
        Alarm(
            code=setback.reason,
            message=f"{setback.why} ({setback.times} times in a row)",
            age=now - setback.since,
            model=model,
            replica=replica,
        )
        for (model, replica), setback in setbacks.all().items()
        if setback.times >= ALARM_FAILURES
    ]
    unheard = [
        Alarm(
            code="model_index_unavailable",
            message=f"{host.name} does not say which models it has: {host.problem}",
            age=now - host.failing_since,
            subject=host.name,
        )
        for host in hosts.hosts.values()
        if host.failures >= ALARM_FAILURES
    ]
    left = [
        Alarm(
            code="unload_failed",
            message=f"{trouble.why} ({trouble.times} times)",
            age=now - trouble.since,
            model=model,
            subject=host,
        )
        for (host, model), trouble in orphan_unloader.failures.items()
    ]
    return [*failed, *unheard, *left]


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
        why=job.why,
    )

"""What the placer does and what went wrong, for whoever looks."""

from __future__ import annotations

from ..views import Alarm, HostView, LoadingView, LoadTimeView, PlacingView, SetbackView
from .farewells import Farewells
from .houses import Houses
from .job import Job
from .load_times import LoadTimes
from .setbacks import Setbacks
from .works import Works

OFTEN = 3  # times in a row that a load fails, or a server does not answer, before it is worth an alarm


def placing_view(houses: Houses, works: Works, now: float) -> PlacingView:
    times = works.times
    usual = {copy.model: float(copy.settings.load_time) for copy in houses.copies.values()}
    return PlacingView(
        loading=tuple(_loading(job, times, now) for job in works.jobs),
        setbacks=tuple(
            SetbackView(
                model=model,
                replica=replica,
                reason=setback.reason,
                why=setback.why,
                times=setback.times,
                age=now - setback.at,
                again_in=max(0.0, setback.until - now),
            )
            for (model, replica), setback in works.setbacks.all().items()
        ),
        hosts=tuple(HostView(server=h.name, known=h.known, problem=h.problem) for h in houses.hosts.values()),
        load_times=tuple(
            LoadTimeView(model=model, seconds=times.of(model, configured), measured=times.is_measured(model))
            for model, configured in usual.items()
        ),
    )


def alarms(houses: Houses, setbacks: Setbacks, farewells: Farewells, now: float) -> list[Alarm]:
    """A load that failed once may go well elsewhere, or the next time."""
    failed = [
        Alarm(
            code=setback.reason,
            what=f"{setback.why} ({setback.times} times in a row)",
            age=now - setback.since,
            model=model,
            replica=replica,
        )
        for (model, replica), setback in setbacks.all().items()
        if setback.times >= OFTEN
    ]
    unheard = [
        Alarm(
            code="models_unknown",
            what=f"{host.name} does not say which models it has: {host.problem}",
            age=now - host.unheard_since,
            about=host.name,
        )
        for host in houses.hosts.values()
        if host.silent >= OFTEN
    ]
    left = [
        Alarm(
            code="unload_failed",
            what=f"{trouble.why} ({trouble.times} times)",
            age=now - trouble.since,
            model=model,
            about=host,
        )
        for (host, model), trouble in farewells.troubles.items()
    ]
    return [*failed, *unheard, *left]


def _loading(job: Job, times: LoadTimes, now: float) -> LoadingView:
    main = job.main
    model, replica = main.key
    return LoadingView(
        model=model,
        replica=replica,
        server=main.host.name,
        stage=job.stage,
        seconds=now - job.began,
        expected=times.of(model, float(main.settings.load_time)),
        evicts=tuple(copy.model for copy in job.going),
        why=job.why,
    )

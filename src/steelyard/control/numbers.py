"""What the metrics show and the views do not. Workers are not asked: it is what they last reported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from .status import Key, ModelStatus, ReplicaStatus, lost, unrouted
from .usage import Usage, usage

if TYPE_CHECKING:
    from .crew import Crew
    from .fleet import Fleet


class Numbers(NamedTuple):
    """Without anything: nothing is known."""

    models: Mapping[str, ModelStatus] = {}
    replicas: Mapping[Key, ReplicaStatus] = {}
    workers: Mapping[int, Usage] = {}  # by pid
    supervisor: Usage | None = None
    replaced: int | None = None  # workers that ended unexpectedly
    unrouted: Mapping[str, int] = {}  # requests, by verdict
    probes: Mapping[tuple[str, str], int] = {}  # looks at replicas, by model and what they saw
    lost: Mapping[str, int] = {}  # lines of logs and spans, by what they are


def numbers(
    fleet: Fleet, crew: Crew, models: Mapping[str, ModelStatus], replicas: Mapping[Key, ReplicaStatus]
) -> Numbers:
    return Numbers(
        models,
        replicas,
        {pid: used for pid in (worker.pid for worker in crew.status()) if (used := usage(pid)) is not None},
        usage(os.getpid()),
        crew.replaced,
        unrouted(crew.reports(), crew.past),
        fleet.prober.counts,
        lost(crew.reports(), crew.past),
    )

"""The fleet as the admin API shows it."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from .alarm_codes import SEVERITIES, TICKET


class View(msgspec.Struct, frozen=True, kw_only=True):
    @classmethod
    def of(cls, source: object, /, **more: Any) -> Self:
        """Takes the fields of the same name from `source`, all but `more`."""
        return cls(**{name: getattr(source, name) for name in cls.__struct_fields__ if name not in more}, **more)


class ProbeView(View, frozen=True):
    """What the probes of a replica see."""

    result: str  # of the last one: ready, loading, absent, broken, refused, silent; unknown before the first
    detail: str  # in words
    age: float | None  # seconds since the last one ended; none yet: None
    seconds: float  # it took
    consecutive_successes: int  # in a row
    consecutive_failures: int  # in a row
    required_successes: int  # good ones in a row before it is ready: more, if it keeps changing
    instance: str  # who the server says it is; empty: it does not say
    restarts: int  # seen
    loading_for: float | None  # seconds since it was first seen loading; None: it is not


class LoadSignalView(View, frozen=True):
    """What a replica itself says of its load, and what becomes of it."""

    running: float | None
    waiting: float | None
    cache: float | None
    memory_used: float | None
    memory_total: float | None
    utilization: float | None
    age: float | None  # seconds; None: never heard
    stale: bool  # too old to be used
    problem: str  # why the last read failed; empty: it did not
    external_load: int  # requests there that are not ours, as concluded from it


class WorkerReplicaView(View, frozen=True):
    """A replica as one worker's balancer sees it."""

    worker: int
    state: str
    in_flight: int
    external_load: int  # requests of other workers and of others, in force
    limit: int | None  # requests at once; None: no limit
    work: float  # seconds of estimated work there
    slowness: float  # seconds here for one on a typical replica, as its decisions take it
    slowness_samples: int  # answers it was learned from
    weight: float
    effective_weight: float  # the weight in force: less during slow start and after failures
    dispatched: int
    failures: int
    consecutive_failures: int
    ejections: int
    ejected_for: float  # seconds left
    p50: float  # latency over the last half minute, seconds; 0: none
    p99: float
    overdue: bool  # requests there wait longer than they should for the next byte
    cache: float | None  # of its last load report in an answer (ORCA): share of its cache in use
    utilization: float | None


class RecentAttemptsView(View, frozen=True):
    """How attempts at a replica ended in the last minute, retried ones included."""

    seconds: float = 0.0  # that it covers
    attempts: int = 0  # that ended, but for those that their clients cancelled
    failed: int = 0
    failing: bool = False  # too many: there is an alarm
    last_error: str = ""  # of the last attempt that failed, however long ago: `HTTP 500`, or a reason; empty: none
    last_error_age: float | None = None  # seconds since; None: none failed


class ReplicaSummary(View, frozen=True):
    model: str
    id: str
    state: str  # starting, loading, unloaded, ready, ejected, unreachable, draining
    why: str  # in words
    state_age: float  # seconds in that state
    draining: bool  # an operator's wish, or a lease that ran out
    in_flight: int
    work: float  # estimated seconds
    slowness: float | None  # seconds here for one on a typical replica; None: too few answers to tell
    slowness_samples: int  # answers it was learned from
    slowness_age: float | None  # seconds since the last of them; None: there is none
    weight: float
    failures: int
    recent: RecentAttemptsView
    zone: str
    device: str


class ReplicaView(ReplicaSummary, frozen=True):
    url: str
    source: str  # file, discovery, registered, admin, runtime
    dispatched: int
    lease: float | None  # seconds left; None: it needs none
    probe: ProbeView | None  # None: it is not probed
    load_signals: LoadSignalView | None  # None: it is not asked
    workers: tuple[WorkerReplicaView, ...]


class DiscoveryView(View, frozen=True):
    model: str
    source: str  # in words: `file replicas.yaml`
    replicas: int  # in force
    age: float | None  # seconds since the last good look
    problem: str  # why the last look failed or is not believed; empty: all is well
    held_back: tuple[str, ...]  # replicas it no longer names, kept for now


class ModelSummary(View, frozen=True):
    model: str
    policy: str
    concurrency: int | str
    replicas: int
    ready: int


class ModelView(ModelSummary, frozen=True):
    policy_options: dict[str, Any]
    waiting: int
    in_flight: int
    outcomes: dict[str, int]
    p50: float | None  # of all answers since the start, seconds
    p99: float | None
    typical_seconds: float  # estimated seconds of a typical request on a typical replica
    drain_rate: float  # seconds of typical work that its replicas do per second
    panic_mode: bool  # too few healthy replicas: ejected ones are used too
    overridden: tuple[str, ...]  # what was set through the admin API and differs from the configuration
    failing: int = 0  # ready replicas that fail some of their attempts


class WorkerView(View, frozen=True):
    index: int
    pid: int
    serving: bool
    connections: int


class Alarm(View, frozen=True):
    """Something a person should know now."""

    code: str  # stable: control/observability/alarm_codes.py
    message: str  # in words
    age: float
    model: str = ""
    replica: str = ""
    subject: str = ""  # what else it is about: a device, a server, a tenant…
    severity: str = ""  # page: look now; ticket: look soon

    def __post_init__(self) -> None:
        if not self.severity:
            msgspec.structs.force_setattr(self, "severity", SEVERITIES.get(self.code, TICKET))


class FleetEvent(View, frozen=True):
    """Something that happened."""

    age: float  # seconds ago
    kind: str  # stable: replica, discovery, lease, config, worker…
    message: str  # in words
    model: str = ""
    replica: str = ""
    code: str = ""  # stable: of an alarm, which


class ResidentModelView(View, frozen=True):
    """A model on a server of a device."""

    model: str
    replica: str
    state: str  # of the replica: ready, loading, unloaded…
    base: int  # bytes reserved for the model itself
    running: int  # bytes reserved for its requests
    in_flight: int
    pinned: bool  # nobody unloads it to make room


class ServerView(View, frozen=True):
    """A server process on a device. It counts with the larger of what is reserved and what it holds."""

    server: str  # its address
    reserved: int
    measured: int | None  # bytes it was measured to hold; None: it was not
    models: tuple[ResidentModelView, ...]


class QuarantineView(View, frozen=True):
    model: str
    bytes: int  # requests that need at least so much are kept from the device
    seconds: float  # left


class DeviceView(View, frozen=True):
    """The ledger of one device: reserved against measured. Bytes."""

    device: str
    capacity: int | None  # None: not known yet, so nothing is counted
    source: str  # of the capacity: configured, nvml, cgroup, replicas
    headroom: float
    budget: int  # what may be given out: capacity × (1 - headroom)
    reserved: int  # given out, to models and to requests
    committed: int  # reserved, or held where that is more, and what others use
    external_usage: int  # used by those who are no servers of ours
    measured: int | None  # in use, by all; None: not measured
    age: float | None  # seconds since it was measured
    requests: int  # running there
    concurrency: int | None
    out_of_memory_errors: int  # requests that ran out of memory there
    servers: tuple[ServerView, ...]
    quarantines: tuple[QuarantineView, ...]


class ModelMemoryView(View, frozen=True):
    """What a model needs of memory, declared and learned. Bytes."""

    model: str
    footprint: int  # with nothing running
    footprint_source: str  # declared, measured, unknown
    requests_source: str  # declared, learned, unmeasured, unknown
    samples: int  # measured requests it was learned from
    smallest: int  # of the requests of late, what the estimate says for the smallest and the largest
    largest: int


class LoadJobView(View, frozen=True):
    """A load that is under way; or, without a model that comes, an unload."""

    model: str
    replica: str
    server: str
    stage: str  # draining, unloading, waiting for room, loading
    seconds: float  # it has taken so far
    expected: float  # seconds that a load of the model takes
    evicts: tuple[str, ...]  # models that go for it
    why: str


class LoadFailureView(View, frozen=True):
    """A load, or an unload, that failed when it was last tried."""

    model: str
    replica: str
    reason: str  # no_room, still_runs, unload_failed, load_failed, load_timeout
    why: str  # in words
    consecutive_failures: int  # in a row
    age: float  # seconds since then
    retry_in: float  # seconds until it may be tried again there


class HostView(View, frozen=True):
    """A server that can load models, as far as it answers."""

    server: str
    known: bool  # it answers
    problem: str  # why not


class LoadTimeView(View, frozen=True):
    model: str
    seconds: float
    measured: bool  # or what the configuration says


class PlacementView(View, frozen=True):
    jobs: tuple[LoadJobView, ...] = ()
    failures: tuple[LoadFailureView, ...] = ()
    hosts: tuple[HostView, ...] = ()
    load_times: tuple[LoadTimeView, ...] = ()


class InstanceView(View, frozen=True):
    """A replica that a runtime runs for us."""

    model: str
    replica: str
    url: str
    device: str
    phase: str  # starting (not ready yet), ready, terminating (drains, or is being stopped)
    age: float  # seconds since it was started
    location: str  # pid 4711
    log: str  # file
    adopted: bool  # from a supervisor before this one
    outdated: bool  # started by settings that are no longer in force: to be replaced


class StartFailureView(View, frozen=True):
    """A start that failed, or a replica that ended by itself, when that last happened."""

    replica: str
    reason: str  # no_such_command, not_allowed, port_taken, no_port, no_folder, failed, ended, never_ready, no_room
    why: str  # in words
    log_tail: tuple[str, ...]  # the end of its log
    consecutive_failures: int  # in a row
    age: float  # seconds since then
    retry_in: float  # seconds until the next try
    crash_looping: bool  # it fails again and again


class ScalingStepView(View, frozen=True):
    """A change of how many replicas a model should have."""

    age: float  # seconds ago
    before: int
    after: int
    why: str  # in words
    offered_load: float
    recent_load: float
    forecast_load: float
    p99: float
    carried_out: bool  # False: only recommended


class ScalingView(View, frozen=True):
    """How many replicas a model has, and should have, and why."""

    model: str
    mode: str  # act, recommend, fixed
    scaler: str  # empty: none
    desired: int
    min_replicas: int
    max_replicas: int | None
    ready: int  # all that serve, whoever started them
    starting: int
    terminating: int
    why: str  # of the last decision, in words
    offered_load: float  # seconds of work per second, over the long window
    recent_load: float
    forecast_load: float
    burn_rate: float  # times as fast as allowed that the promise is broken
    panic_mode: bool
    cold_start: float  # seconds
    cold_start_measured: bool
    replica_seconds: float  # that replicas of ours have run, since the supervisor began
    cost: float
    starts: int
    stops: int
    crashes: int
    instances: tuple[InstanceView, ...]
    start_failure: StartFailureView | None
    steps: tuple[ScalingStepView, ...]  # the latest last


class WindowView(View, frozen=True):
    """How a promise was kept over the last so many seconds."""

    seconds: float
    good: int  # requests
    bad: int
    attainment: float | None  # percent of them; None: there were none
    burn_rate: float  # times as fast as allowed that requests break it; 1: exactly what is allowed
    covered_seconds: float | None = None  # seconds of it that anything is known of; None: all of it


class ObjectiveView(View, frozen=True):
    """One promise to the users of a model, and how it is kept."""

    kind: str  # latency: answered in time; availability: answered at all
    target: float  # percent of requests
    latency: float | None  # seconds promised; None: none
    first_byte: float | None
    windows: tuple[WindowView, ...]  # the last 5 m, 30 m, 1 h, 6 h
    budget: WindowView  # over the period of the promise, as far back as is known
    error_budget_remaining: float  # share of what may go wrong in the period that has not; negative: more did than may
    alert: str  # page: the budget burns so fast that somebody should look now; ticket: soon; empty: neither


class SloView(View, frozen=True):
    """What is promised to one tenant of a model, and kept. Requests whose client is at fault do not count."""

    model: str
    tenant: str  # empty: those that name none; `*`: beyond those that are counted one by one
    counts: dict[str, int]  # since the supervisor began: `met`, `late/replica`, `refused/overload`… → requests
    objectives: tuple[ObjectiveView, ...]  # none: nothing is promised


class FleetView(View, frozen=True):
    version: str
    uptime: float
    workers: tuple[WorkerView, ...]
    models: tuple[ModelView, ...]
    replicas: tuple[ReplicaView, ...]
    discovery: tuple[DiscoveryView, ...]
    alarms: tuple[Alarm, ...]
    devices: tuple[DeviceView, ...] = ()
    model_memory: tuple[ModelMemoryView, ...] = ()
    placement: PlacementView = PlacementView()
    scaling: tuple[ScalingView, ...] = ()
    slo: tuple[SloView, ...] = ()


# ---------------------------------------------------------------------- live: what the dashboard and `top` follow


class StoredSampleView(View, frozen=True):
    """One model in a moment before the supervisor began, as the history has it: means of a minute."""

    uptime: float  # seconds since the supervisor began: here negative
    rate: float  # requests that ended, a second
    bad_rate: float  # of these, failed, refused or late by no fault of their clients, a second
    p50: float | None  # seconds; None: no answers
    p99: float | None


class SampleView(StoredSampleView, frozen=True):
    """One model in one second. Quantiles are over up to 5 s where answers are few."""

    waiting: int
    in_flight: int
    work: float  # seconds of estimated work at its replicas and waiting


class LiveReplicaView(ReplicaSummary, frozen=True):
    """A replica, as short as it can be said."""

    rate: float  # requests sent to it, a second
    p50: float  # seconds; 0: none
    p99: float


class LiveModelView(ModelSummary, frozen=True):
    oldest_wait: float  # seconds that the one has waited who has waited longest
    desired: int | None  # replicas that there should be; None: nobody scales it
    sample: SampleView
    failing: int = 0  # ready replicas that fail some of their attempts


class LiveView(View, frozen=True):
    """The fleet now. `/v1/live` says it once a second."""

    version: str
    uptime: float
    workers: int  # that serve
    models: tuple[LiveModelView, ...]
    replicas: tuple[LiveReplicaView, ...]
    devices: tuple[DeviceView, ...]
    slo: tuple[SloView, ...]
    alarms: tuple[Alarm, ...]
    events: tuple[FleetEvent, ...]  # since the last time; the first time, the latest of all, the latest last


class LiveHistoryView(View, frozen=True):
    """What `/v1/live` says first: the last minutes."""

    samples: dict[str, tuple[SampleView, ...]]  # by model, the latest last
    stored: dict[str, tuple[StoredSampleView, ...]] = {}  # before these: what is stored of the time before a restart

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

    result: str  # a ProbeStatus; unknown before the first
    message: str
    age: float | None  # seconds since the last one ended
    seconds: float  # it took
    consecutive_successes: int
    consecutive_failures: int
    required_successes: int  # before it is ready: more, if it keeps changing
    instance: str  # as the server says
    restarts: int
    loading_for: float | None  # seconds; None: it does not load


class LoadSignalView(View, frozen=True):
    """Load that a replica reports itself."""

    running: float | None
    waiting: float | None
    cache: float | None
    memory_used: float | None
    memory_total: float | None
    utilization: float | None
    kv_tokens: float | None  # that its key-value caches hold
    max_running: float | None  # requests at once
    preempted: float | None  # requests, since it began
    age: float | None  # seconds; None: never reported
    stale: bool  # too old to be used
    problem: str  # of the last read


class BalancerReplicaView(View, frozen=True):
    """The numbers that the balancer decides by."""

    state: str
    external_load: int  # requests there that are not ours
    limit: int | None  # requests at once; None: no limit
    weight: float
    effective_weight: float  # less during slow start and after failures
    consecutive_failures: int
    consecutive_ejections: int
    ejected_for: float  # seconds left
    p50: float  # latency over the last half minute, seconds; 0: none
    p99: float


class RecentAttemptsView(View, frozen=True):
    """How attempts at a replica ended in the last minute, retried ones included."""

    seconds: float = 0.0  # that it covers
    attempts: int = 0  # ended, and not cancelled by the client
    failed: int = 0
    failing: bool = False  # there is an alarm
    last_error: str = ""  # `HTTP 500`, or a reason; empty: none failed
    last_error_age: float | None = None  # seconds; None: none failed


class ReplicaSummary(View, frozen=True):
    model: str
    id: str
    state: str  # starting, loading, unloaded, ready, ejected, unreachable, draining
    reason: str
    state_age: float  # seconds in that state
    draining: bool  # by an operator, or after its lease
    in_flight: int
    work: float  # estimated seconds
    slowness: float | None  # seconds here for one on a typical replica; None: too few answers
    slowness_samples: int  # answers it was learned from
    slowness_age: float | None  # seconds since the last of them; None: none
    weight: float
    failures: int
    recent: RecentAttemptsView
    zone: str
    device: str


class ReplicaView(ReplicaSummary, frozen=True):
    url: str
    source: str  # config, discovery, registration, admin, runtime
    dispatched: int
    lease: float | None  # seconds left; None: no lease
    probe: ProbeView | None  # None: not probed
    load_signals: LoadSignalView | None  # None: not scraped
    balancer: BalancerReplicaView | None  # None: it has not reported yet


class DiscoveryView(View, frozen=True):
    model: str
    source: str  # in words: `file replicas.yaml`
    replicas: int  # in force
    age: float | None  # seconds since the last success
    problem: str  # why the last poll failed or is not applied
    held_back: tuple[str, ...]  # removed replicas, kept for now


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
    service_rate: float  # seconds of typical work done per second
    panic_mode: bool  # too few healthy replicas: ejected ones are used, too
    prefix_index_blocks: int  # blocks of prompts in the policy's index, of all replicas
    overridden: tuple[str, ...]  # keys set through the admin API
    failing: int = 0  # ready replicas that fail some of their attempts


class WorkerView(View, frozen=True):
    index: int
    pid: int
    serving: bool
    connections: int


class BalancerProcessView(View, frozen=True):
    """The process that decides for all workers, where there is more than one."""

    pid: int | None  # None: it is not running
    serving: bool  # False: requests wait
    problem: str = ""  # why it does not serve
    unavailable_for: float = 0.0  # seconds


class Alarm(View, frozen=True):
    """Something a person should know now."""

    code: str  # stable: control/observability/alarm_codes.py
    message: str
    age: float
    model: str = ""
    replica: str = ""
    subject: str = ""  # a device, a server, a tenant…
    severity: str = ""  # page: look now; ticket: look soon

    def __post_init__(self) -> None:
        if not self.severity:
            msgspec.structs.force_setattr(self, "severity", SEVERITIES.get(self.code, TICKET))


class FleetEvent(View, frozen=True):
    age: float  # seconds ago
    kind: str  # stable: replica, discovery, lease, config, worker…
    message: str
    model: str = ""
    replica: str = ""
    code: str = ""  # of an alarm


class ResidentModelView(View, frozen=True):
    """A model on a server of a device."""

    model: str
    replica: str
    state: str  # of the replica: ready, loading, unloaded…
    base: int  # bytes reserved for the model itself
    running: int  # bytes reserved for its requests
    in_flight: int
    pinned: bool  # never unloaded to make room


class ServerView(View, frozen=True):
    """A server process on a device. The larger of `reserved` and `measured` counts."""

    server: str  # its address
    reserved: int
    measured: int | None  # bytes; None: not measured
    models: tuple[ResidentModelView, ...]


class QuarantineView(View, frozen=True):
    model: str
    bytes: int  # requests that need so much are kept from the device
    seconds: float  # left


class DeviceView(View, frozen=True):
    """The ledger of one device: reserved against measured. Bytes."""

    device: str
    capacity: int | None  # None: not known yet
    source: str  # of the capacity: configured, nvml, cgroup, replicas
    headroom: float
    budget: int  # capacity × (1 - headroom)
    reserved: int  # by models and requests
    committed: int  # reserved, or held where that is more, and external usage
    external_usage: int  # by processes we do not manage
    measured: int | None  # in use by all; None: not measured
    age: float | None  # seconds since it was measured
    requests: int  # running there
    concurrency: int | None
    out_of_memory_errors: int  # requests
    servers: tuple[ServerView, ...]
    quarantines: tuple[QuarantineView, ...]


class ModelMemoryView(View, frozen=True):
    """Memory of a model, declared and learned. Bytes."""

    model: str
    footprint: int  # with nothing running
    footprint_source: str  # declared, measured, unknown
    requests_source: str  # declared, learned, unmeasured, unknown
    samples: int  # measured requests it was learned from
    smallest: int  # estimated, of recent requests
    largest: int


class LoadJobView(View, frozen=True):
    """A load in progress, or an unload."""

    model: str
    replica: str
    server: str
    stage: str  # draining, unloading, waiting for room, loading
    seconds: float  # so far
    expected: float  # seconds of a load of the model
    evicts: tuple[str, ...]  # models unloaded for it
    reason: str


class LoadFailureView(View, frozen=True):
    """A load or unload whose last try failed."""

    model: str
    replica: str
    reason: str  # insufficient_memory, drain_timeout, unload_failed, load_failed, load_timeout
    message: str
    consecutive_failures: int
    age: float  # seconds
    retry_in: float  # seconds


class HostView(View, frozen=True):
    """A server that can load models."""

    server: str
    known: bool  # its index was read
    problem: str


class LoadTimeView(View, frozen=True):
    model: str
    seconds: float
    measured: bool  # False: as configured


class PlacementView(View, frozen=True):
    jobs: tuple[LoadJobView, ...] = ()
    failures: tuple[LoadFailureView, ...] = ()
    hosts: tuple[HostView, ...] = ()
    load_times: tuple[LoadTimeView, ...] = ()


class InstanceView(View, frozen=True):
    """A replica that a runtime runs."""

    model: str
    replica: str
    url: str
    device: str
    phase: str  # starting, ready, terminating
    age: float  # seconds since it was started
    location: str  # pid 4711
    log: str  # file
    adopted: bool  # from an earlier supervisor
    outdated: bool  # started with old settings: to be replaced


class StartFailureView(View, frozen=True):
    """The last start that failed, or replica that ended by itself."""

    replica: str
    # command_not_found, permission_denied, working_directory_missing, port_in_use, no_free_port, failed, ended,
    # start_timeout, insufficient_memory
    reason: str
    message: str
    log_tail: tuple[str, ...]
    consecutive_failures: int
    age: float  # seconds
    retry_in: float  # seconds
    crash_looping: bool


class ScalingStepView(View, frozen=True):
    """A change of the desired number of replicas."""

    age: float  # seconds ago
    before: int
    after: int
    reason: str
    offered_load: float
    recent_load: float
    forecast_load: float
    p99: float
    carried_out: bool  # False: only recommended


class ScalingView(View, frozen=True):
    model: str
    mode: str  # act, recommend, fixed
    scaler: str  # empty: none
    desired: int
    min_replicas: int
    max_replicas: int | None
    ready: int  # those started by others included
    starting: int
    terminating: int
    reason: str  # of the last decision
    offered_load: float  # seconds of work per second, over the long window
    recent_load: float
    forecast_load: float
    burn_rate: float  # 1: exactly what is allowed
    panic_mode: bool
    cold_start: float  # seconds
    cold_start_measured: bool
    replica_seconds: float  # that our replicas have run, since the supervisor began
    cost: float
    starts: int
    stops: int
    crashes: int
    instances: tuple[InstanceView, ...]
    start_failure: StartFailureView | None
    steps: tuple[ScalingStepView, ...]  # the latest last


class WindowView(View, frozen=True):
    """Attainment of an objective over the last `seconds`."""

    seconds: float
    good: int  # requests
    bad: int
    attainment: float | None  # percent; None: no requests
    burn_rate: float  # 1: exactly what is allowed
    covered_seconds: float | None = None  # known seconds of it; None: all


class ObjectiveView(View, frozen=True):
    kind: str  # latency: answered in time; availability: answered at all
    target: float  # percent of requests
    latency: float | None  # seconds; None: none
    first_byte: float | None
    per_token: float | None
    windows: tuple[WindowView, ...]  # the last 5 m, 30 m, 1 h, 6 h
    budget: WindowView  # over the SLO period, as far back as is known
    error_budget_remaining: float  # share; negative: overspent
    alert: str  # page: look now; ticket: look soon; empty: neither


class SloView(View, frozen=True):
    """SLOs of one tenant of a model. Requests whose client is at fault do not count."""

    model: str
    tenant: str  # empty: unnamed; `*`: all beyond those counted one by one
    counts: dict[str, int]  # since the supervisor began: `met`, `late/replica`, `refused/overload`… → requests
    objectives: tuple[ObjectiveView, ...]


class FleetView(View, frozen=True):
    version: str
    uptime: float
    workers: tuple[WorkerView, ...]
    balancer: BalancerProcessView | None
    models: tuple[ModelView, ...]
    replicas: tuple[ReplicaView, ...]
    discovery: tuple[DiscoveryView, ...]
    alarms: tuple[Alarm, ...]
    devices: tuple[DeviceView, ...] = ()
    model_memory: tuple[ModelMemoryView, ...] = ()
    placement: PlacementView = PlacementView()
    scaling: tuple[ScalingView, ...] = ()
    slo: tuple[SloView, ...] = ()


# ---------------------------------------------------------------------- what the dashboard and `top` follow


class StoredSampleView(View, frozen=True):
    """One model before the supervisor began, from the history: means of a minute."""

    uptime: float  # seconds since the supervisor began: here negative
    rate: float  # requests that ended, a second
    bad_rate: float  # failed, refused or late, not by the client's fault, a second
    p50: float | None  # seconds; None: no answers
    p99: float | None


class SampleView(StoredSampleView, frozen=True):
    """One model in one second. Quantiles are over up to 5 s where answers are few."""

    waiting: int
    in_flight: int
    work: float  # seconds of estimated work at its replicas and waiting


class LiveReplicaView(ReplicaSummary, frozen=True):
    rate: float  # requests sent to it, a second
    p50: float  # seconds; 0: none
    p99: float


class LiveModelView(ModelSummary, frozen=True):
    oldest_wait: float  # seconds of the oldest queued request
    desired: int | None  # replicas; None: not scaled
    sample: SampleView
    failing: int = 0  # ready replicas that fail some of their attempts


class LiveView(View, frozen=True):
    """The fleet now, sent by `/v1/live` once a second."""

    version: str
    uptime: float
    workers: int  # that serve
    models: tuple[LiveModelView, ...]
    replicas: tuple[LiveReplicaView, ...]
    devices: tuple[DeviceView, ...]
    slo: tuple[SloView, ...]
    alarms: tuple[Alarm, ...]
    events: tuple[FleetEvent, ...]  # since the last message, the latest last


class LiveHistoryView(View, frozen=True):
    """The first event of `/v1/live`: the last minutes."""

    samples: dict[str, tuple[SampleView, ...]]  # by model, the latest last
    stored: dict[str, tuple[StoredSampleView, ...]] = {}  # of the time before a restart

"""The messages between supervisor and workers: a length of four bytes, then msgpack."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import msgspec

from ..config import Config, ReplicaConfig
from ..core.memory.request_size import RequestSizeState
from ..core.outliers.ejection_reason import EjectionReason
from ..documents import decode_value, encode_value

MAX_SAMPLES_PER_REPORT = 256
MAX_MESSAGE_BYTES = 256 << 20  # a million replicas take less


class Apply(msgspec.Struct, frozen=True, tag=True):
    """To a worker, first of all: use this configuration, and read its files again. Answered with `Applied`."""

    number: int
    config: Config
    columns: dict[str, dict[str, int]]  # model → replica id → column of the shared memory ledger
    devices: dict[str, int] = {}  # device → number in the shared ledger


class MemberUpdate(msgspec.Struct, frozen=True, tag=True):
    """To a worker: changed replicas of one model."""

    model: str
    removed: tuple[str, ...]
    added: tuple[ReplicaConfig, ...]  # or changed
    columns: dict[str, int]  # of all its replicas


class ReplicaEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event of a replica's lifecycle (core.replica.Event)."""

    model: str
    id: str
    event: str
    seconds: float = 0.0  # of an ejection
    reason: EjectionReason | None = None  # of an ejection


class ReplicaEvents(msgspec.Struct, frozen=True, tag=True):
    """To a worker: from probes and operators."""

    events: tuple[ReplicaEvent, ...]


class LoadReading(msgspec.Struct, frozen=True, array_like=True):
    model: str
    id: str
    requests: float
    ttl: float  # seconds for which it holds
    kv_tokens: float = 0.0  # that its cache holds; 0.0: not known


class LoadReadings(msgspec.Struct, frozen=True, tag=True):
    loads: tuple[LoadReading, ...]


class DeviceCapacities(msgspec.Struct, frozen=True, tag=True):
    """To a worker: of devices that are measured, not configured."""

    bytes: dict[str, int]  # by device


class MemorySizes(msgspec.Struct, frozen=True, tag=True):
    """To a worker: the memory that a model needs, as learned."""

    model: str
    footprint: int  # bytes with nothing running
    requests: RequestSizeState  # core/memory/request_size.py
    unmeasured: bool = False  # neither measured nor declared: requests count as nothing


class Quarantine(msgspec.Struct, frozen=True, tag=True):
    """To a worker: keep requests of the model that need this much off the device for a while."""

    model: str
    device: str
    bytes: int
    seconds: float


class StartProgress(msgspec.Struct, frozen=True, tag=True):
    """To a worker: a replica of the model should be ready in `seconds`."""

    model: str
    seconds: float
    is_default: bool = False  # configured, not measured: no reason to refuse
    failure: str = ""  # of the last start, until the next begins; for the waiting requests


class ReportRequest(msgspec.Struct, frozen=True, tag=True):
    """To a worker: report now, after all that was sent before."""

    number: int


class StartServing(msgspec.Struct, frozen=True, tag=True):
    """To a new worker: the initial state is complete, accept connections. Answered with `Started`."""


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """To a worker, about twice a second; any other message does as well."""


class Drain(msgspec.Struct, frozen=True, tag=True):
    """To a worker: accept no more, finish requests within `seconds`, then end. May come twice."""

    seconds: float
    sockets_shared: bool = False  # others accept on the same sockets: idle connections may stay


class Started(msgspec.Struct, frozen=True, tag=True):
    """From a worker: it listens."""

    pid: int


class Applied(msgspec.Struct, frozen=True, tag=True):
    """From a worker: the configuration is in force, or with a `problem` the last one stays."""

    number: int
    problem: str = ""


class ReplicaFailure(msgspec.Struct, frozen=True, tag=True):
    """From a worker: a replica failed in a way that a probe should check."""

    model: str
    id: str
    refused: bool  # connections: this worker does not use it until told that it is ready


class ReplicaDemand(msgspec.Struct, frozen=True, tag=True):
    """From a worker: requests wait for, or are refused for lack of, a model that is loaded or started on demand.
    At most every 50 ms for a model."""

    model: str
    waiting: int
    queued_work: float  # seconds on a typical replica


class OutOfMemory(msgspec.Struct, frozen=True, tag=True):
    """From a worker: a request apparently ran out of memory on a replica's device."""

    model: str
    id: str
    kind: str
    features: tuple[float, ...]
    bytes: int  # what it had reserved
    available: int  # for it: it needs more
    how: str  # `reported`: by the answer; `crash`: it was the largest request of a server that died


class RequestsLost(msgspec.Struct, frozen=True, tag=True):
    """From the balancer process: a worker is gone, and these requests with it."""

    worker: int
    requests: dict[str, int]  # by model


class ReservationsAdopted(msgspec.Struct, frozen=True, tag=True):
    """From a balancer process that has started: these requests run, and count for it from now on."""

    reservations: tuple[tuple[int, int, int], ...]  # column in the ledger, device, bytes


class MemorySample(msgspec.Struct, frozen=True, array_like=True):
    model: str
    id: str
    kind: str
    features: tuple[float, ...]
    bytes: int


class ReplicaReport(msgspec.Struct, frozen=True):
    """A replica as one process sees it. A worker reports its traffic; the balancer, in a process of its own or in the
    only worker, its state, work and speed and all from `external_load` on."""

    model: str
    id: str
    state: str = ""  # empty: not known to a process that does not decide
    in_flight: int = 0
    dispatched: int = 0  # requests sent there since the worker began
    failures: int = 0  # of those, failed
    work: float = 0.0  # estimated work there now
    slowness: float = 1.0
    outcomes: dict[str, int] = {}  # ended attempts since the worker began, by core.outcome
    last_error: str = ""  # `HTTP 500`, or a reason; empty: none
    last_error_age: float = inf  # seconds since
    silent_for: float = inf  # seconds since its last byte
    cache: float | None = None  # share of its cache in use, by its last ORCA report
    utilization: float | None = None
    held: int | None = None  # bytes of its device that its server reports
    base: int | None = None  # and with nothing running
    external_load: int = 0  # requests there that are not ours
    limit: int | None = None  # requests at once; None: no limit
    weight: float = 1.0
    effective_weight: float = 1.0  # the weight in force
    consecutive_failures: int = 0
    consecutive_ejections: int = 0  # each makes the next one longer; forgotten after a long time without
    ejection_left: float = 0.0  # seconds
    p50: float = 0.0  # recent latency, seconds; 0: none
    p99: float = 0.0
    runs_for: float = 0.0  # seconds for which the oldest attempt there has run
    stalls_after: float = 0.0  # seconds without a byte, after which hardly any like those goes on
    ejections_total: int = 0
    samples: int = 0  # answers behind `slowness`
    sampled_age: float = inf  # seconds since the last of them
    ejected_since: float = 0.0  # seconds ago
    ejection_reason: EjectionReason | None = None
    tokens: dict[str, int] = {}  # prompt, cached, output; streamed `answers`, and `further` tokens in those
    token_seconds: dict[str, float] = {}  # of those answers: first_token, further


class Durations(msgspec.Struct, frozen=True, array_like=True):
    """Counted under the `DURATION_BOUNDS_SECONDS` of core.statistics.histogram."""

    counts: list[int]
    total: float  # seconds


class ModelReport(msgspec.Struct, frozen=True):
    """A model as one process sees it; counts are since that began. A worker reports requests and answers, the balancer
    (in a process of its own, or in the only worker) the queue and what is estimated."""

    model: str
    waiting: int = 0
    in_flight: int = 0
    outcomes: dict[str, int] = {}  # ok, client_error, failed, refused, cancelled
    latency: dict[int, int] = {}  # bucket of core.statistics.histogram → answers
    typical_seconds: float = 0.0  # estimated seconds of a typical request on a typical replica
    service_rate: float = 0.0  # seconds of typical work done per second
    panicking: bool = False
    prefix_index_blocks: int = 0  # of prompts, that the policy keeps in mind
    offered_work: float = 0.0  # seconds of work that came, on a typical replica
    arrived: int = 0  # requests that came
    queued_work: float = 0.0  # seconds of work that wait
    learned: bool = False  # is anything known of how long requests take?
    replica_rate: float = 0.0  # seconds of typical work per second of one replica, on average; 0.0: none is ready
    completed_work: float = 0.0  # seconds of work that were answered
    busy_seconds: float = 0.0  # that this took
    limit: float | None = None  # requests that a replica takes at once; None: no limit
    slo_verdicts: dict[
        str, list[int]
    ] = {}  # tenant → requests by verdict of core.slo.verdicts; `*`: tenants beyond the limit
    # total, replica, first_byte (of answered requests) and queue; first_token and per_token, where tokens were streamed
    times: dict[str, Durations] = {}
    tokens: dict[str, int] = {}  # prompt, cached, output…
    oldest_wait: float = 0.0  # seconds
    predicted_seconds: float = 0.0  # of answered attempts, when they were sent …
    prediction_error_seconds: float = 0.0  # … and the absolute error
    retried: int = 0
    hedged: int = 0
    hedges_won: int = 0
    ejected: int = 0
    statuses: dict[int, int] = {}  # requests by HTTP status; below 10: by its class; 0: there was no answer


class WorkerAlarm(msgspec.Struct, frozen=True, array_like=True):
    code: str  # stable: control/observability/alarm_codes.py
    message: str
    age: float  # seconds


class WorkerReport(msgspec.Struct, frozen=True, tag=True):
    """From a worker, about once a second, and when told to."""

    connections: int
    models: tuple[ModelReport, ...]
    replicas: tuple[ReplicaReport, ...]
    request_number: int = 0  # of the last `ReportRequest`
    samples: tuple[MemorySample, ...] = ()  # since the last report, at most MAX_SAMPLES_PER_REPORT
    unrouted: dict[str, int] = {}  # requests for no known model, or unreadable, by outcome
    dropped: dict[str, int] = {}  # log lines and spans that were lost, by kind
    unmeasured: tuple[str, ...] = ()  # models whose answers do not report memory
    alarms: tuple[WorkerAlarm, ...] = ()


_FleetUpdate = Apply | MemberUpdate | ReplicaEvents | LoadReadings | StartProgress
_MemoryUpdate = DeviceCapacities | MemorySizes | Quarantine
ToWorker = _FleetUpdate | _MemoryUpdate | ReportRequest | StartServing | Heartbeat | Drain
_FromBalancer = RequestsLost | ReservationsAdopted
FromWorker = Started | Applied | ReplicaFailure | ReplicaDemand | OutOfMemory | _FromBalancer | WorkerReport


def encode_frame(message: ToWorker | FromWorker) -> bytes:
    body = msgspec.msgpack.encode(message, enc_hook=encode_value)
    return len(body).to_bytes(4, "big") + body


class FrameDecoder:
    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind, dec_hook=decode_value)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            length = int.from_bytes(buffer[:4], "big")
            if length > MAX_MESSAGE_BYTES:
                raise ValueError(f"a message of {length} bytes is not one of ours")
            if len(buffer) < 4 + length:
                return
            message = self._decoder.decode(buffer[4 : 4 + length])
            del buffer[: 4 + length]
            yield message

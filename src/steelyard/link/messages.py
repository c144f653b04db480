"""The messages, as typed values, and how they travel: a length of four bytes, then msgpack."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import msgspec

from ..config import Config, ReplicaConfig
from ..core.memory.request_size import RequestSizeState
from ..core.outliers.ejection_reason import EjectionReason
from ..documents import decode_value, encode_value

MAX_SAMPLES_PER_REPORT = 256  # of what requests were measured to need, in one report
MAX_MESSAGE_BYTES = 256 << 20  # of one message: a fleet of a million replicas is less


class Apply(msgspec.Struct, frozen=True, tag="apply"):
    """To a worker: serve by this configuration from now on, and read the files it names again. Answered with `Applied`.

    The first thing a worker is told.
    """

    number: int
    config: Config
    slots: dict[str, dict[str, int]]  # model → replica id → its column on the load board
    devices: dict[str, int] = {}  # device → its number in the book of memory


class MemberUpdate(msgspec.Struct, frozen=True, tag="members"):
    """To a worker: replicas of one model that come and go. The rest of the configuration stays."""

    model: str
    removed: tuple[str, ...]
    added: tuple[ReplicaConfig, ...]  # one that is there under that name is changed
    slots: dict[str, int]  # of all its replicas


class ReplicaEvent(msgspec.Struct, frozen=True, array_like=True):
    """What happened to a replica: an event of its lifecycle (core.replica.Event)."""

    model: str
    id: str
    event: str
    seconds: float = 0.0  # of an ejection
    reason: EjectionReason | None = None  # of an ejection


class ReplicaEvents(msgspec.Struct, frozen=True, tag="changes"):
    """To a worker: what probes saw, what operators want, whom other workers ejected."""

    events: tuple[ReplicaEvent, ...]


class LoadReading(msgspec.Struct, frozen=True, array_like=True):
    """What a replica says it has, running and waiting."""

    model: str
    id: str
    requests: float
    ttl: float  # seconds for which it holds


class LoadReadings(msgspec.Struct, frozen=True, tag="readings"):
    """To a worker: what replicas say of their load."""

    loads: tuple[LoadReading, ...]


class DeviceCapacities(msgspec.Struct, frozen=True, tag="capacity"):
    """To a worker: how large devices are, where that is measured and not configured."""

    bytes: dict[str, int]  # by device


class MemorySizes(msgspec.Struct, frozen=True, tag="sizes"):
    """To a worker: what a model needs of a device, as learned so far."""

    model: str
    footprint: int  # what it holds with nothing running, where it is resident
    requests: RequestSizeState  # core/memory/request_size.py
    unmeasured: bool = False  # its servers do not say what requests need, and nobody declared it: they count as nothing


class Quarantine(msgspec.Struct, frozen=True, tag="quarantine"):
    """To a worker: requests of the model that need at least so much are kept from the device for a while."""

    model: str
    device: str
    bytes: int
    seconds: float


class StartProgress(msgspec.Struct, frozen=True, tag="coming"):
    """To a worker: a replica of the model is being loaded or started and should be ready in so many seconds."""

    model: str
    seconds: float
    is_default: bool = False  # as configured, not measured: nobody is refused for it
    failure: str = ""  # why the last start failed, while the next has not begun: whoever waits is told


class ReportRequest(msgspec.Struct, frozen=True, tag="tell"):
    """To a worker: report now. What was sent before this has been done by then."""

    number: int


class StartServing(msgspec.Struct, frozen=True, tag="serve"):
    """To a new worker: the initial state is complete, accept connections from now on. Answered with `Started`."""


class Heartbeat(msgspec.Struct, frozen=True, tag="alive"):
    """To a worker, about twice a second: the supervisor is at work. Any other message says so too."""


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """To a worker: take no new connections, finish what is in flight within `seconds`, then end. May come twice."""

    seconds: float
    sockets_shared: bool = (
        False  # other workers accept on the same sockets: connections that are idle may stay until then
    )


class Started(msgspec.Struct, frozen=True, tag="started"):
    """From a worker: it listens and has applied its first configuration."""

    pid: int


class Applied(msgspec.Struct, frozen=True, tag="applied"):
    """From a worker: the configuration is in force, or (with a problem) was refused and the last one stays."""

    number: int
    problem: str = ""


class ReplicaFailure(msgspec.Struct, frozen=True, tag="trouble"):
    """From a worker: a replica failed it in a way that a probe should look at."""

    model: str
    id: str
    refused: bool  # nobody listens there: this worker has taken it out, until it is told that it is ready


class ReplicaDemand(msgspec.Struct, frozen=True, tag="wanted"):
    """From a worker: requests wait for a model that is loaded or started on demand, or are refused because it is not
    there. At most every 50 ms for a model."""

    model: str
    waiting: int
    queued_work: float  # seconds on a typical replica


class OutOfMemory(msgspec.Struct, frozen=True, tag="ran_out"):
    """From a worker: a request ran out of memory on a replica's device, as far as one can tell."""

    model: str
    id: str
    kind: str
    features: tuple[float, ...]
    bytes: int  # what it had reserved
    available: int  # at least so much was there for it, so it needs more
    how: str  # `body`: the answer said so; `507`; `crash`: its server died with it, the largest of those there


class MemorySample(msgspec.Struct, frozen=True, array_like=True):
    """What a request was measured to need."""

    model: str
    id: str
    kind: str
    features: tuple[float, ...]
    bytes: int


class ReplicaReport(msgspec.Struct, frozen=True):
    """A replica as one worker sees it."""

    model: str
    id: str
    state: str
    in_flight: int
    dispatched: int  # requests sent there since the worker began
    failures: int  # of those, failed
    work: float  # estimated work there now
    slowness: float
    other_load: int = 0  # requests of other workers and of others
    external_load: int = 0  # of these, such that no worker sent
    limit: int | None = None  # requests at once; None: no limit
    weight: float = 1.0
    effective_weight: float = 1.0  # the weight in force
    consecutive_failures: int = 0  # failures in a row
    ejections: int = 0
    ejection_left: float = 0.0  # seconds left
    p50: float = 0.0  # latency of late, seconds; 0: none
    p99: float = 0.0
    overdue: bool = False  # what runs there should have sent a byte by now
    silent_for: float = inf  # seconds since its last byte
    cache: float | None = None  # of its last load report in an answer (ORCA): share of its cache in use
    utilization: float | None = None
    held: int | None = None  # bytes of its device that its server said it holds
    base: int | None = None  # and with nothing running
    ejections_total: int = 0
    outcomes: dict[str, int] = {}  # attempts that ended since the worker began, by core.outcome; one may be missing
    last_error: str = ""  # of the last attempt that failed: `HTTP 500`, or a reason; empty: none failed
    last_error_age: float = inf  # seconds since
    samples: int = 0  # answers behind `slowness`
    sampled_age: float = inf  # seconds since the last of them
    ejected_since: float = 0.0  # seconds ago
    ejection_reason: EjectionReason | None = None  # why it is ejected


class Durations(msgspec.Struct, frozen=True, array_like=True):
    """Durations counted under the bounds of core.times."""

    counts: list[int]
    total: float  # seconds


class ModelReport(msgspec.Struct, frozen=True):
    """A model as one worker sees it; counts are since the worker began."""

    model: str
    waiting: int
    in_flight: int
    outcomes: dict[str, int]  # ok, client_error, failed, refused, cancelled
    latency: dict[int, int]  # bucket of core.histogram → answers
    typical: float = 0.0  # estimated seconds of a typical request on a typical replica
    drain_rate: float = 0.0  # seconds of typical work done per second
    panicking: bool = False
    offered: float = 0.0  # seconds of work that came since the worker began, on a typical replica
    arrived: int = 0  # requests that came since then
    backlog: float = 0.0  # seconds of work that wait
    learned: bool = False  # is anything known of how long requests take?
    replica_rate: float = (
        0.0  # seconds of typical work that one replica does per second, on average; 0.0: none is ready
    )
    done: float = 0.0  # seconds of work that were answered since the worker began
    busy: float = 0.0  # and seconds that this took
    limit: float | None = None  # requests that a replica takes at once; None: no limit
    slo_verdicts: dict[
        str, list[int]
    ] = {}  # tenant → requests by judgement of core.slo; `*`: tenants beyond those counted
    times: dict[str, Durations] = {}  # total, replica, first_byte (of answered requests) and queue
    oldest_wait: float = 0.0  # seconds that the one has waited who has waited longest
    predicted_seconds: float = 0.0  # seconds that answered attempts were believed to take when they were sent …
    prediction_error_seconds: float = 0.0  # … and by how much that was off, either way
    retried: int = 0
    hedged: int = 0
    hedges_won: int = 0
    ejected: int = 0
    statuses: dict[int, int] = {}  # requests by HTTP status; below 10: by its class; 0: there was no answer


class WorkerAlarm(msgspec.Struct, frozen=True, array_like=True):
    """What a worker lacks, which a person should know now."""

    code: str  # stable: control/observability/alarm_codes.py
    what: str  # in words
    age: float  # seconds


class WorkerReport(msgspec.Struct, frozen=True, tag="report"):
    """From a worker, about once a second, and when told to."""

    connections: int
    models: tuple[ModelReport, ...]
    replicas: tuple[ReplicaReport, ...]
    request_number: int = 0  # the number of the last `Tell`
    samples: tuple[MemorySample, ...] = ()  # since the last report; no more than SAMPLES of them
    unrouted: dict[str, int] = {}  # what named no model of ours or could not be read, by how it ended
    dropped: dict[str, int] = {}  # lines of logs and spans that could not be written or sent, by what they are
    unmeasured: tuple[str, ...] = ()  # models whose answers do not say what a request needed
    alarms: tuple[WorkerAlarm, ...] = ()


ToWorker = (
    Apply
    | MemberUpdate
    | ReplicaEvents
    | LoadReadings
    | DeviceCapacities
    | MemorySizes
    | Quarantine
    | StartProgress
    | ReportRequest
    | StartServing
    | Heartbeat
    | Drain
)
FromWorker = Started | Applied | ReplicaFailure | ReplicaDemand | OutOfMemory | WorkerReport


def encode_frame(message: ToWorker | FromWorker) -> bytes:
    body = msgspec.msgpack.encode(message, enc_hook=encode_value)
    return len(body).to_bytes(4, "big") + body


class FrameDecoder:
    """Bytes in, messages out."""

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

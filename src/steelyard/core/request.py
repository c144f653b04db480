"""What is known of one request, and of one attempt to run it on a replica."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from .memory.ledger import Device, Residency
    from .pool import Pool
    from .prompt import Prompt, TokenUsage
    from .replica import Replica

INFINITY: Final = float("inf")
UNKNOWN_BYTES = -1  # of a request of unknown size: it runs alone on its device


class RequestPhase(Enum):
    """Where a request is in its life; the balancer alone moves it."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


NEW: Final = RequestPhase.NEW  # bound once: a lookup through the enumeration is slow, compiled or not


@mypyc_attr(allow_interpreted_subclasses=True)
class Request:
    """One inference request as the balancer sees it.

    `features`: numbers known on arrival (bytes, prompt tokens, steps…), always in the same order; `kind`: a name that
    makes requests differ by a factor (a checkpoint, an adapter, an endpoint). `deadline`, `first_byte_by`: monotonic
    times by which the answer must be complete, and begun. `streams`: it may begin before it is complete. A higher
    `priority` goes first. `key`: what makes a replica *warm* for it (a session, a prefix, an adapter); `cold_seconds`:
    extra time where it is not. `context` is the caller's.
    """

    __slots__ = (
        "arrived",
        "attempt",
        "attempt_count",
        "avoid",
        "base",
        "binding_deadline",
        "choice_trace",
        "cold_seconds",
        "context",
        "deadline",
        "deadline_bound",
        "expires",
        "fair_share_key",
        "features",
        "first_byte",
        "first_byte_by",
        "hedge",
        "hedgeable",
        "id",
        "idempotent",
        "key",
        "kind",
        "memory",
        "model",
        "phase",
        "pool",
        "predicted_seconds",
        "priority",
        "prompt",
        "queued_at",
        "streams",
        "tenant",
        "usage",
        "version",
    )

    def __init__(
        self,
        model: str = "",
        features: tuple[float, ...] = (),
        *,
        id: str = "",
        deadline: float = INFINITY,
        first_byte_by: float = INFINITY,
        streams: bool = True,
        priority: int = 0,
        tenant: str = "",
        kind: str = "",
        key: str | None = None,
        cold_seconds: float = 0.0,
        idempotent: bool = True,
        context: Any = None,
        prompt: Prompt | None = None,
    ) -> None:
        self.model = model
        self.features = features
        self.id = id
        self.deadline = deadline
        self.first_byte_by = first_byte_by
        self.streams = streams
        self.first_byte = 0.0  # when its answer began; 0.0: not known
        self.priority = priority
        self.tenant = tenant
        self.fair_share_key = tenant  # for the queue; a driver that does not believe the tenant sets another
        self.kind = kind
        self.key = key
        self.cold_seconds = cold_seconds
        self.idempotent = idempotent
        self.hedgeable = True  # False: its driver cannot follow two attempts at once
        self.context = context
        self.prompt = prompt  # of a text-generating engine
        self.usage: TokenUsage | None = None  # set before `finish`, where the answer says it
        # Below: the balancer's own bookkeeping.
        self.phase = NEW
        self.pool: Pool | None = None  # since `submit`
        self.arrived = 0.0
        self.base = 1.0  # estimated seconds on a typical replica
        self.version = -1  # of the estimator, when `base` was set
        self.queued_at = 0.0  # while waiting: since then
        self.expires = INFINITY  # and when to give up
        self.deadline_bound = False  # because of its deadline
        self.binding_deadline = ""  # `total` or `first_byte`; empty: it has none
        self.predicted_seconds = 0.0  # to the end, or the first byte, of its answer
        self.attempt_count = 0
        self.attempt: Attempt | None = None
        self.hedge: Attempt | None = None
        self.avoid: tuple[Replica, ...] = ()  # replicas that failed it already
        self.memory: MemoryRequirement | None = None  # where memory is counted
        self.choice_trace: Any = None  # kept by an observer of choices; None: it is not observed

    def __repr__(self) -> str:
        return f"<Request {self.id or hex(id(self))} {self.model!r} {self.phase.value}>"


class Attempt:
    """One attempt of one request on one replica: made at dispatch, given back exactly once."""

    __slots__ = (
        "attained_at_dispatch",
        "cold_seconds",
        "concurrency",
        "hedge_entry",
        "notes",
        "predicted",
        "replica",
        "request",
        "reservation",
        "seconds_alone",
        "started",
    )

    def __init__(
        self,
        request: Request,
        replica: Replica,
        started: float,
        alone: float,
        predicted: float,
        concurrency: int,
        attained: float,
        cold: float,
    ) -> None:
        self.request = request
        self.replica = replica
        self.started = started
        self.seconds_alone = alone  # predicted for this replica with nothing beside it
        self.predicted = predicted  # with what ran there at dispatch
        self.concurrency = concurrency  # requests on the replica at dispatch, this one included
        self.attained_at_dispatch = attained  # the replica's clock of attained work at dispatch
        self.cold_seconds = cold  # the part of `alone` that is warming up, not to be learned
        self.reservation: tuple[Residency, int] | None = None  # bytes reserved for it
        self.hedge_entry: list[Any] | None = None  # its place in the balancer's plan of hedges
        self.notes: Any = None  # the policy's


class MemoryRequirement:
    """Device memory that a request needs, where memory is counted."""

    def __init__(self) -> None:
        self.bytes = 0  # or UNKNOWN_BYTES
        self.estimated_bytes = 0  # the estimate, also where `bytes` is unknown
        self.exclusive = False  # run it alone on its server, to measure it
        self.version = -1  # of the size model it comes from
        self.blocked = False  # it found no room when last looked at
        self.earmark: Device | None = None  # where room is saved up for it
        self.earmarked_at = -1.0  # -1.0: never was
        self.reserved_bytes = 0  # reserved for the attempt that is about to be sent

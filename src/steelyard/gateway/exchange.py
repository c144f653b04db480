"""One request on its way through: the balancer's `Request` and what the gateway needs, in one object.

Its state is that of the response; `body_complete` is the request's. A transition that is not in the table raises, as in
h11's `_state.py`. `Exchange.end` is the only way to the end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from ..core.errors import IllegalTransitionError
from ..core.request import INFINITY, Request, RequestPhase

if TYPE_CHECKING:
    from ..core.replica import Replica
    from ..protocols.bodies.usage import AnswerTokens
    from .proxy.client_connection import ClientConnection
    from .proxy.upstream_connection import UpstreamConnection
    from .routing.router import Route
    from .telemetry.model_stats import ModelStats
    from .telemetry.observers import RequestObserver

NEW: Final = RequestPhase.NEW
DONE: Final = RequestPhase.DONE  # looked up once: members of an enumeration are slow to find
CHUNKED: Final = -1  # a body whose length is not known before its end


def transitions(event: str, steps: dict[int, int]) -> dict[int, int]:
    """One event: state → next state. In all other states it is an error."""

    def illegal() -> int:
        raise IllegalTransitionError(event)

    return defaultdict(illegal, steps)


# States; from RESPONDING on the client has, or had, part of a response.
RECEIVING: Final = 0  # not decided on yet
QUEUED: Final = 1  # waits for a replica
DISPATCHED: Final = 2  # sent to a replica, or to two
RESPONDING: Final = 3  # the response's head has gone to the client
UPGRADED: Final = 4  # a tunnel
ENDED: Final = 5

# Events:
# Asked of a balancer process, it is queued before that says whether it waits. From DISPATCHED: a retry waits.
ON_QUEUE: Final = transitions("queue", dict.fromkeys((RECEIVING, QUEUED, DISPATCHED), QUEUED))
# From DISPATCHED: a retry, or a hedge.
ON_DISPATCH: Final = transitions("dispatch", dict.fromkeys((RECEIVING, QUEUED, DISPATCHED), DISPATCHED))
ON_RESPOND: Final = transitions("respond", {DISPATCHED: RESPONDING})
ON_UPGRADE: Final = transitions("upgrade", {DISPATCHED: UPGRADED})
ON_END: Final = transitions("end", dict.fromkeys(range(RECEIVING, ENDED), ENDED))


class Exchange(Request):
    __slots__ = (
        "body",
        "body_complete",
        "body_size",
        "bytes_out",
        "client",
        "close",
        "deadline_entry",
        "dispatched_at",
        "expect_continue",
        "fault",
        "forwarded_lines",
        "has_options",
        "has_traceparent",
        "header_lines",
        "hedge_upstream",
        "held_bytes",
        "host",
        "http10",
        "length",
        "length_unknown",
        "observers",
        "outcome",
        "replayable",
        "replica_id",
        "request_id",
        "route",
        "slo_verdict",
        "started_at",
        "state",
        "stats",
        "status",
        "tokens",
        "trace_lines",
        "trailers",
        "upgrade",
        "upload_wait_seconds",
        "upstream",
        "wanted_headers",
        "write_wait_seconds",
    )

    def __init__(self, client: ClientConnection, route: Route, began: float) -> None:
        # Not through Request.__init__, which would cost 1 % of all instructions of a request.
        self.client = client
        self.route = route
        self.started_at = began  # when its head was complete
        self.state = RECEIVING
        # As the head says:
        self.header_lines: list[bytes] = []  # header lines to pass on
        self.length = 0  # of the body, or CHUNKED
        self.close = False  # the client's connection ends with this answer
        self.http10 = False  # HTTP/1.0
        self.expect_continue = False  # 100-continue
        self.upgrade = b""  # the protocol to change to
        self.wanted_headers: dict[bytes, bytes] | None = None  # headers that the gateway reads
        self.has_options = False  # some of those are for the gateway itself
        self.host = b""
        self.request_id = b""
        self.forwarded_lines = b""  # header lines that name the client
        self.trace_lines = b""  # header lines for an id or a trace that the client did not give
        self.has_traceparent = False  # it came with a traceparent
        # The body, as far as it is kept: to be read, sent, or sent again.
        self.body: list[bytes] = []
        self.body_size = 0  # bytes that came
        self.held_bytes = 0  # bytes counted as held in memory
        self.body_complete = False
        self.trailers: list[bytes] = []
        self.upload_wait_seconds = 0.0  # seconds that its replica waited for the rest of it
        self.replayable = True
        # The answer:
        self.upstream: UpstreamConnection | None = None
        self.hedge_upstream: UpstreamConnection | None = None  # the second attempt, while a hedge runs
        self.stats: ModelStats | None = None
        self.replica_id = ""
        self.dispatched_at = 0.0  # when it was first sent to a replica
        self.status = 0
        self.bytes_out = 0
        self.write_wait_seconds = 0.0  # seconds that the answer waited for its client to take it
        self.length_unknown = False  # its length was not known when it began
        self.tokens: AnswerTokens | None = None  # of an answer in pieces, where it has tokens
        self.outcome = ""
        self.fault = ""  # of a failure, where known; LATE: of the stage that took longest
        self.slo_verdict = 0  # of core.slo, once it is over
        self.observers: tuple[RequestObserver, ...] = ()  # its trace and its decision record, where there are such
        self.deadline_entry: list[object] | None = None  # its place among the deadlines
        # The balancer's part:
        self.model = ""
        self.features: tuple[float, ...] = ()
        self.id = ""
        self.deadline = INFINITY
        self.first_byte_by = INFINITY
        self.streams = True
        self.first_byte = 0.0  # of a stream: of its body
        self.binding_deadline = ""
        self.predicted_seconds = 0.0
        self.priority = 0
        self.tenant = ""
        self.fair_share_key = ""
        self.kind = ""
        self.key: str | None = None
        self.cold_seconds = 0.0
        self.idempotent = True
        self.hedgeable = True
        self.context = None
        self.prompt = None
        self.usage = None
        self.phase = NEW
        self.arrived = 0.0
        self.base = 1.0
        self.version = -1
        self.queued_at = 0.0
        self.expires = INFINITY
        self.deadline_bound = False
        self.attempt_count = 0
        self.attempt = None
        self.hedge = None
        self.pool = None
        self.avoid: tuple[Replica, ...] = ()
        self.memory = None
        self.choice_trace = None

    @property
    def response_started(self) -> bool:
        return self.state >= RESPONDING

    def end(self, outcome: str, reason: str, now: float) -> None:
        """Nothing runs, waits or is held for it any more, and it is recorded. `outcome`: of model_stats; empty: as set
        already, or as the status says."""
        self.state = ON_END[self.state]
        if outcome:
            self.outcome = outcome
        client = self.client
        client.exchange = None
        proxy = client.proxy
        try:
            if self.phase is not DONE:
                proxy.dispatcher.cancel(self, now)
        finally:  # a user's own policy may have raised: the request is over all the same
            if self.upstream is not None:
                for connection in (self.upstream, self.hedge_upstream):
                    if connection is not None:
                        connection.end(False, now)
            if self.deadline_entry is not None:
                proxy.deadlines.remove(self)
            if self.held_bytes:
                proxy.buffers.release(self)
            if self.body:
                self.body = []
            proxy.recorder.finished(self, reason, now)

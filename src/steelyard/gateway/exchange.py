"""One request on its way through: what the client asked, what was decided, what came back so far.

It is the balancer's `Request` itself with what carrying needs beside it, so that a request is one object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..core.request import INFINITY, Phase, Request

if TYPE_CHECKING:
    from ..core.replica import Replica
    from .accounts import Account
    from .client import ClientConnection
    from .routing import Route
    from .spans import RequestSpan
    from .upstream import ReplicaConnection

CHUNKED: Final = -1  # a body whose length is not known before its end


class Exchange(Request):
    __slots__ = (
        "account",
        "added",
        "answered",
        "began",
        "body",
        "body_done",
        "body_size",
        "bytes_out",
        "client",
        "close",
        "delayed",
        "dispatched",
        "entry",
        "expects",
        "fault",
        "held",
        "host",
        "judgement",
        "length",
        "lines",
        "names",
        "old",
        "replayable",
        "replica_id",
        "request_id",
        "rival",
        "route",
        "span",
        "status",
        "streamed",
        "told",
        "traced",
        "trailers",
        "unread",
        "upgrade",
        "upstream",
        "verdict",
        "wishes",
    )

    def __init__(self, client: ClientConnection, route: Route, began: float) -> None:
        # Not through Request.__init__: this is made for every request, and its defaults are set once here.
        self.client = client
        self.route = route
        self.began = began  # when its head was complete
        # As the head says:
        self.lines: list[bytes] = []  # header lines to pass on
        self.length = 0  # of the body, or CHUNKED
        self.close = False  # the client's connection ends with this answer
        self.old = False  # HTTP/1.0
        self.expects = False  # 100-continue
        self.upgrade = b""  # the protocol to change to
        self.told: dict[bytes, bytes] | None = None  # headers somebody wants to look at
        self.wishes = False  # some of those are for the gateway itself
        self.host = b""
        self.request_id = b""
        self.added = b""  # header lines that tell who the client is
        self.names = b""  # header lines for an id or a trace that the client did not give
        self.traced = False  # it came with a traceparent
        # The body, as far as it is kept: to be read, sent, or sent again.
        self.body: list[bytes] = []
        self.body_size = 0  # bytes that came
        self.held = 0  # bytes counted as held in memory
        self.body_done = False
        self.trailers: list[bytes] = []
        self.delayed = 0.0  # seconds that its replica waited for the rest of it
        self.replayable = True
        # The answer:
        self.upstream: ReplicaConnection | None = None
        self.rival: ReplicaConnection | None = None  # the second attempt, while a hedge runs
        self.account: Account | None = None
        self.replica_id = ""
        self.dispatched = 0.0  # when it was first sent to a replica
        self.status = 0
        self.answered = False  # the client has part of the answer
        self.bytes_out = 0
        self.unread = 0.0  # seconds that the answer waited for its client to take it
        self.streamed = False  # its length was not known when it began
        self.verdict = ""
        self.fault = ""  # whose it is that it went wrong, where that is known; slo.LATE: who took the time
        self.judgement = 0  # of core.slo, once it is over
        self.span: RequestSpan | None = None  # where it is traced
        self.entry: list[object] | None = None  # its place among the deadlines
        # The balancer's part:
        self.model = ""
        self.features: tuple[float, ...] = ()
        self.id = ""
        self.deadline = INFINITY
        self.first_byte_by = INFINITY
        self.streams = True
        self.first_byte = 0.0  # of a stream: of its body
        self.judged_by = ""
        self.expected = 0.0
        self.priority = 0
        self.tenant = ""
        self.share = ""
        self.kind = ""
        self.key: str | None = None
        self.cold_seconds = 0.0
        self.idempotent = True
        self.context = None
        self.phase = Phase.NEW
        self.arrived = 0.0
        self.base = 1.0
        self.version = -1
        self.queued = 0.0
        self.expires = INFINITY
        self.hurried = False
        self.attempts = 0
        self.flight = None
        self.hedge = None
        self.pool = None
        self.avoid: tuple[Replica, ...] = ()
        self.claim = None
        self.noted = None

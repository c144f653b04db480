"""The metrics of one replica: where they are, what was last read, and what was wrong with it."""

from __future__ import annotations

import asyncio

from ....protocols import EngineLoad, MetricsLocation, make_dialect, read_metrics
from ...backoff import exponential_delay
from ..client.errors import ReplicaRequestError, ResponseTimeoutError
from ..client.origin import ProbeOrigin, TlsContexts
from ..probe import ProbeTarget, ReplicaKey
from ..probe_sequence import describe_request
from ..restarts import ProcessIdentity

MAX_METRICS_BYTES = 8 << 20  # bytes
AGENT_METRICS = MetricsLocation("/steelyard/metrics")
MIN_INTERVAL_SECONDS = (
    1.0  # seconds between two reads: some engines hang when they are read all the time (llm-d-router#1842)
)
MAX_READ_SECONDS = 2.0  # seconds, or the interval if that is less
NOT_FOUND_RETRY_SECONDS = 60.0  # seconds until it is tried again, where the dialect's metrics turn out not to be there
START_TIME_TOLERANCE_SECONDS = (
    2.0  # seconds by which one process's start may seem to differ: some compute it from a clock that is set
)
MAX_RETRY_SECONDS = 30.0  # seconds between two reads, after many in a row without an answer
NOT_FOUND_STATUSES = (404, 405, 501)


def metrics_location(target: ProbeTarget) -> MetricsLocation | None:
    """Where this replica's metrics are; None: they are not to be read."""
    load = target.load
    known = make_dialect(target.dialect).metrics if target.dialect else None
    if known is None and target.settings.device:
        known = AGENT_METRICS  # what it holds of its device is worth asking for, even where no request goes
    if not (known is not None if load.enabled is None else load.enabled):
        return None
    known = known or MetricsLocation()
    return MetricsLocation(load.path or known.path, load.port or known.port)


class MetricsReader:
    def __init__(self, key: ReplicaKey, target: ProbeTarget, contexts: TlsContexts) -> None:
        at = metrics_location(target)
        assert at is not None
        self.key = key
        self.target = target
        self.interval = max(MIN_INTERVAL_SECONDS, float(target.load.interval))
        self.pause = self.interval  # until the next read
        self.load: EngineLoad | None = None
        self.read_at: float | None = None
        self.problem = ""
        self.restarted = False  # between the last two reads
        self._unheard = 0  # reads in a row without an answer
        self._at = at
        self._what = describe_request("GET", at.path)
        self._way = ProbeOrigin(target, contexts, at.port)
        self._timeout = min(MAX_READ_SECONDS, self.interval)
        self._started: ProcessIdentity[float] = ProcessIdentity(
            lambda one, other: abs(one - other) <= START_TIME_TOLERANCE_SECONDS
        )

    async def read(self) -> bool:
        """Did it tell its load? Else `problem` says why not, and `load` is what it told last."""
        self.restarted = False
        self.pause = self.interval
        try:
            self.problem = await self._read()
            self._unheard = 0
        except ReplicaRequestError as problem:
            self._unheard += 1
            self.pause = exponential_delay(self.interval, max(self.interval, MAX_RETRY_SECONDS), self._unheard)
            limit = f" ({self._timeout:g} s)" if isinstance(problem, ResponseTimeoutError) else ""
            self.problem = f"{problem}{limit}: {self._what}"
        except Exception as problem:  # a page that its reader did not expect must not end the reading
            self.problem = f"its metrics cannot be read: {type(problem).__name__}: {problem}"
        return not self.problem

    async def _read(self) -> str:
        request = self._way.build_request("GET", self._at.path, {"accept": "text/plain", **self.target.health.headers})
        reply = await self._way.send(request, timeout=self._timeout, limit=MAX_METRICS_BYTES)
        if not 200 <= reply.status < 300:
            if reply.status in NOT_FOUND_STATUSES and self.target.load.enabled is None:
                self.pause = NOT_FOUND_RETRY_SECONDS
            return f"answers {reply.status} to {self._what}"
        load = read_metrics(reply.body)
        if load is None:
            return f"the answer to {self._what} says nothing of its load"
        self.restarted = load.started is not None and self._started.is_restart(load.started)
        self.load = load
        self.read_at = asyncio.get_running_loop().time()
        return ""

"""The metrics of one replica: where they are, what was last read, and what was wrong with it."""

from __future__ import annotations

import asyncio

from ...protocols import EngineLoad, MetricsAt, make_dialect, read_metrics
from .errors import AskError, SilentError
from .identity import Identity
from .round import named
from .target import Key, Target
from .tls import Contexts
from .way import Way

LIMIT = 8 << 20  # bytes
KIT = MetricsAt("/steelyard/metrics")
SHORTEST = 1.0  # seconds between two reads: some engines hang when they are read all the time (llm-d-router#1842)
TIMEOUT = 2.0  # seconds, or the interval if that is less
NOT_THERE = 60.0  # seconds until it is tried again, where the dialect's metrics turn out not to be there
SAME_START = 2.0  # seconds by which one process's start may seem to differ: some compute it from a clock that is set
SLOWEST = 30.0  # seconds between two reads, after many in a row without an answer
NOT_FOUND = (404, 405, 501)


def metrics_at(target: Target) -> MetricsAt | None:
    """Where this replica's metrics are; None: they are not to be read."""
    load = target.load
    known = make_dialect(target.dialect).metrics if target.dialect else None
    if known is None and target.settings.device:
        known = KIT  # what it holds of its device is worth asking for, even where no request goes
    if not (known is not None if load.enabled is None else load.enabled):
        return None
    known = known or MetricsAt()
    return MetricsAt(load.path or known.path, load.port or known.port)


class Metrics:
    def __init__(self, key: Key, target: Target, contexts: Contexts) -> None:
        at = metrics_at(target)
        assert at is not None
        self.key = key
        self.target = target
        self.interval = max(SHORTEST, float(target.load.interval))
        self.pause = self.interval  # until the next read
        self.load: EngineLoad | None = None
        self.read_at: float | None = None
        self.problem = ""
        self.restarted = False  # between the last two reads
        self._unheard = 0  # reads in a row without an answer
        self._at = at
        self._what = named("GET", at.path)
        self._way = Way(target, contexts, at.port)
        self._timeout = min(TIMEOUT, self.interval)
        self._started: Identity[float] = Identity(lambda one, other: abs(one - other) <= SAME_START)

    async def read(self) -> bool:
        """Did it tell its load? Else `problem` says why not, and `load` is what it told last."""
        self.restarted = False
        self.pause = self.interval
        try:
            self.problem = await self._read()
            self._unheard = 0
        except AskError as problem:
            self._unheard += 1
            self.pause = max(self.interval, min(SLOWEST, self.interval * 2.0 ** min(self._unheard - 1, 20)))
            limit = f" ({self._timeout:g} s)" if isinstance(problem, SilentError) else ""
            self.problem = f"{problem}{limit}: {self._what}"
        except Exception as problem:  # a page that its reader did not expect must not end the reading
            self.problem = f"its metrics cannot be read: {type(problem).__name__}: {problem}"
        return not self.problem

    async def _read(self) -> str:
        request = self._way.compose("GET", self._at.path, {"accept": "text/plain", **self.target.health.headers})
        reply = await self._way.ask(request, timeout=self._timeout, limit=LIMIT)
        if not 200 <= reply.status < 300:
            if reply.status in NOT_FOUND and self.target.load.enabled is None:
                self.pause = NOT_THERE
            return f"answers {reply.status} to {self._what}"
        load = read_metrics(reply.body)
        if load is None:
            return f"the answer to {self._what} says nothing of its load"
        self.restarted = load.started is not None and self._started.changes(load.started)
        self.load = load
        self.read_at = asyncio.get_running_loop().time()
        return ""

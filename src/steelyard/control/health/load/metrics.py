"""The metrics page of one replica: where it is, and the load it last reported."""

from __future__ import annotations

import asyncio

from ....protocols import EngineLoad, MetricsLocation, make_dialect, read_metrics
from ...backoff import exponential_delay
from ...fleet.registry import ReplicaKey
from ..client.errors import ReplicaRequestError, ResponseTimeoutError
from ..client.origin import ProbeOrigin, TlsContexts
from ..client.response import describe_request
from ..probe import ProbeTarget
from ..restarts import ProcessIdentity

MAX_METRICS_BYTES = 8 << 20
AGENT_METRICS = MetricsLocation("/steelyard/metrics")
MIN_INTERVAL_SECONDS = 1.0  # some engines hang when read all the time (llm-d-router#1842)
MAX_READ_SECONDS = 2.0  # or the interval if that is less
NOT_FOUND_RETRY_SECONDS = 60.0  # where the dialect's metrics page is missing
START_TIME_TOLERANCE_SECONDS = 2.0  # some processes compute their start from a clock that is adjusted
MAX_RETRY_SECONDS = 30.0  # after many reads in a row without an answer
NOT_FOUND_STATUSES = (404, 405, 501)


def metrics_location(target: ProbeTarget) -> MetricsLocation | None:
    """None: this replica's metrics are not read."""
    load = target.load
    known = make_dialect(target.dialect).metrics if target.dialect else None
    if known is None and target.settings.device:
        known = AGENT_METRICS  # for its device memory, even where no request goes
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
        self._failures = 0  # reads in a row without an answer
        self._at = at
        self._request = describe_request("GET", at.path)
        self._origin = ProbeOrigin(target, contexts, at.port)
        self._timeout = min(MAX_READ_SECONDS, self.interval)
        self._started: ProcessIdentity[float] = ProcessIdentity(
            lambda one, other: abs(one - other) <= START_TIME_TOLERANCE_SECONDS
        )

    async def read(self) -> bool:
        """False: it failed (`problem`), and `load` is still the last one."""
        self.restarted = False
        self.pause = self.interval
        try:
            self.problem = await self._read()
            self._failures = 0
        except ReplicaRequestError as error:
            self._failures += 1
            self.pause = exponential_delay(self.interval, max(self.interval, MAX_RETRY_SECONDS), self._failures)
            limit = f" ({self._timeout:g} s)" if isinstance(error, ResponseTimeoutError) else ""
            self.problem = f"{error}{limit}: {self._request}"
        except Exception as error:  # an unexpected page must not end the scraping
            self.problem = f"its metrics cannot be read: {type(error).__name__}: {error}"
        return not self.problem

    async def _read(self) -> str:
        headers = {"accept": "text/plain", **self.target.health.headers}
        request = self._origin.build_request("GET", self._at.path, headers)
        response = await self._origin.send(request, timeout=self._timeout, max_bytes=MAX_METRICS_BYTES)
        if not 200 <= response.status < 300:
            if response.status in NOT_FOUND_STATUSES and self.target.load.enabled is None:
                self.pause = NOT_FOUND_RETRY_SECONDS
            return f"answers {response.status} to {self._request}"
        load = read_metrics(response.body)
        if load is None:
            return f"the answer to {self._request} says nothing of its load"
        self.restarted = load.started is not None and self._started.is_restart(load.started)
        self.load = load
        self.read_at = asyncio.get_running_loop().time()
        return ""

"""One probe over HTTP: its requests under one time limit, and their result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic  # the loop's clock advances only once a turn
from typing import NamedTuple, Protocol

from ...addresses import replica_address
from ...protocols.health import ServerReadiness, ServerRequest
from .client.errors import (
    ConnectRefusedError,
    InvalidResponseError,
    LocalFailureError,
    ReplicaRequestError,
    ResponseTimeoutError,
)
from .client.origin import ProbeOrigin, TlsContexts
from .client.response import describe_request, describe_response, printable_line
from .probe import MISCONFIGURED, ProbeResult, ProbeStatus, ProbeTarget

MAX_PROBE_BODY_BYTES = 1 << 20
NOT_READY_STATUS = 503  # sent on purpose by a server that is not ready
STATUS_OF_ERROR: dict[type[ReplicaRequestError], ProbeStatus] = {
    ConnectRefusedError: ProbeStatus.REFUSED,
    InvalidResponseError: ProbeStatus.BROKEN,
    LocalFailureError: ProbeStatus.UNKNOWN,
}  # any other error counts as no response

ResponseClassifier = Callable[[ServerRequest, int, bytes], ServerReadiness]
ResponseHint = Callable[[ServerRequest, int, bytes], str]  # which setting to change; status 0: no response


def no_hint(request: ServerRequest, status: int, body: bytes) -> str:
    return ""


class ProbeStrategy(Protocol):
    """A known sequence of requests, or detection of the server."""

    async def run(self, run: ProbeRun) -> ProbeResult:
        """ReplicaRequestError: no response."""

    def reset(self) -> None:
        """Another server may be there now."""


class HttpProbe:
    def __init__(self, target: ProbeTarget, contexts: TlsContexts, strategy: ProbeStrategy) -> None:
        self.timeout = target.health.timeout
        self._target = target
        self._contexts = contexts
        self._strategy = strategy
        self._prepared: dict[ServerRequest, tuple[ProbeOrigin, bytes]] = {}

    def reset(self) -> None:
        self._strategy.reset()

    async def run(self) -> ProbeResult:
        run = ProbeRun(self)
        try:
            result = await self._strategy.run(run)
        except ReplicaRequestError as error:
            status = STATUS_OF_ERROR.get(type(error), ProbeStatus.NO_RESPONSE)
            result = ProbeResult(status, self._describe_error(error, run))
        if result.status is ProbeStatus.ABSENT:
            advice = f"so it is no {self._target.dialect} server: set its dialect, or health.path"
            result = result._replace(detail=f"{MISCONFIGURED}: {result.detail}, {advice}")
        return result._replace(instance=run.instance, seconds=run.seconds)

    def prepare(self, request: ServerRequest) -> tuple[ProbeOrigin, bytes]:
        """Where to send it, and its bytes: built once."""
        prepared = self._prepared.get(request)
        if prepared is None:
            health = self._target.health
            origin = ProbeOrigin(self._target, self._contexts, health.port or request.port)
            headers: Mapping[str, str] = health.headers
            if request.body:
                headers = {"content-type": "application/json", **headers}
            prepared = origin, origin.build_request(request.method, request.path, headers, request.body)
            self._prepared[request] = prepared
        return prepared

    def _describe_error(self, error: ReplicaRequestError, run: ProbeRun) -> str:
        request = run.request
        if request is None:
            return str(error)
        if isinstance(error, ConnectRefusedError):
            port = self.prepare(request)[0].address.port
            if not request.port or port == replica_address(self._target.settings.url).port:
                return str(error)
            return f"{error} on port {port}{run.hint(request, 0, b'')}"
        limit = f" ({self.timeout:g} s)" if isinstance(error, ResponseTimeoutError) else ""
        return f"{error}{limit}: {describe_request(request.method, request.path)}"


class ProbeRun:
    def __init__(self, probe: HttpProbe) -> None:
        self.instance = ""
        self.request: ServerRequest | None = None
        self.explain: ResponseHint = no_hint
        self._probe = probe
        self._began = monotonic()

    @property
    def seconds(self) -> float:
        return monotonic() - self._began

    async def send(self, request: ServerRequest, classify: ResponseClassifier) -> ProbeResult:
        """Falls back to the request of older servers. ReplicaRequestError: no response, or no time left for one."""
        self.request = request
        origin, message = self._probe.prepare(request)
        left = self._probe.timeout - self.seconds
        if left <= 0:
            raise ResponseTimeoutError("no answer in time")
        response = await origin.send(message, timeout=left, max_bytes=MAX_PROBE_BODY_BYTES)
        self.instance = response.instance or self.instance
        readiness = classify(request, response.status, response.body)
        if readiness is ServerReadiness.ABSENT and request.fallback is not None:
            return await self.send(request.fallback, classify)
        status = ProbeStatus(readiness.value)
        sure = status is ProbeStatus.BROKEN or (status is ProbeStatus.LOADING and response.status == NOT_READY_STATUS)
        hint = "" if status is ProbeStatus.READY else self.hint(request, response.status, response.body)
        return ProbeResult(status, describe_response(request, response) + hint, definitive=sure)

    def hint(self, request: ServerRequest, status: int, body: bytes) -> str:
        """To append to a message; status 0: no response."""
        words = printable_line(self.explain(request, status, body))
        return f": {words}" if words else ""


class ProbeSequence(NamedTuple):
    """Ready if all requests of `ready` are; otherwise `live` tells whether the server lives."""

    ready: tuple[ServerRequest, ...]
    classify: ResponseClassifier
    live: ServerRequest | None = None  # None: any response proves life
    classify_live: ResponseClassifier | None = None  # None: as `classify`
    explain: ResponseHint = no_hint

    async def run(self, run: ProbeRun) -> ProbeResult:
        run.explain = self.explain
        result = ProbeResult(ProbeStatus.READY, "nothing is asked")
        sent: list[ServerRequest] = []
        for request in self.ready:
            result = await run.send(request, self.classify)
            sent.append(request)
            if result.status is not ProbeStatus.READY:
                break
        if self.live is None or self.live in sent or result.status in (ProbeStatus.READY, ProbeStatus.BROKEN):
            return result
        return await self._check_liveness(self.live, run, result)

    def reset(self) -> None:
        """Nothing to forget."""

    async def _check_liveness(self, live: ServerRequest, run: ProbeRun, before: ProbeResult) -> ProbeResult:
        """A server that does not know the request is alive: it answered."""
        try:
            result = await run.send(live, self.classify_live or self.classify)
        except ConnectRefusedError:
            raise
        except ReplicaRequestError:  # it answered a moment ago
            return before
        if result.status in (ProbeStatus.READY, ProbeStatus.ABSENT):
            return before
        detail = f"{before.detail}, and {result.detail}: it does not live"
        return ProbeResult(ProbeStatus.BROKEN, detail, definitive=before.definitive)

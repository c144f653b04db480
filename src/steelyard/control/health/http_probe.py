"""One probe over HTTP: which requests tell whether a replica is ready (configured, of its dialect, or found by trying),
sent under one time limit, and their result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic  # the loop's clock advances only once a turn
from typing import NamedTuple, Protocol

from ...addresses import replica_address
from ...protocols import SERVER_DIALECTS, make_dialect
from ...protocols.base import ANY_MODEL
from ...protocols.health import ServerReadiness, ServerRequest, json_object, readiness_by_status
from .http_client import (
    ConnectRefusedError,
    InvalidResponseError,
    LocalFailureError,
    ProbeOrigin,
    ReplicaRequestError,
    ResponseTimeoutError,
    TlsContexts,
    describe_request,
    describe_response,
    printable_line,
)
from .probe import MISCONFIGURED, ProbeResult, ProbeStatus, ProbeTarget

MAX_PROBE_BODY_BYTES = 1 << 20
NOT_READY_STATUS = 503  # sent on purpose by a server that is not ready
STATUS_OF_ERROR: dict[type[ReplicaRequestError], ProbeStatus] = {
    ConnectRefusedError: ProbeStatus.CONNECTION_REFUSED,
    InvalidResponseError: ProbeStatus.BROKEN,
    LocalFailureError: ProbeStatus.UNKNOWN,
}  # any other error counts as no response
GENERIC_DIALECTS = ("openai", "http")  # spoken by many servers, with or without a readiness path
AGENT_READY = ServerRequest("/steelyard/ready")  # of steelyard.replica
READY_WITHOUT_PATH = ProbeResult(ProbeStatus.READY, "answers, but has no readiness path: set health.path")
UNAVAILABLE_STATUSES = frozenset((502, 503, 504))  # a deliberate reply, of the server or a proxy before it

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
    def __init__(self, target: ProbeTarget, contexts: TlsContexts) -> None:
        self.timeout = target.health.timeout
        self._target = target
        self._contexts = contexts
        self._strategy = probe_strategy(target)
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
        if result.status is ProbeStatus.NOT_FOUND:
            advice = f"so it is no {self._target.dialect} server: set its dialect, or health.path"
            result = result._replace(message=f"{MISCONFIGURED}: {result.message}, {advice}")
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
        if readiness is ServerReadiness.NOT_FOUND and request.fallback is not None:
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
        if result.status in (ProbeStatus.READY, ProbeStatus.NOT_FOUND):
            return before
        message = f"{before.message}, and {result.message}: it is not alive"
        return ProbeResult(ProbeStatus.BROKEN, message, definitive=before.definitive)


def probe_strategy(target: ProbeTarget) -> ProbeStrategy:
    path = target.settings.ready or target.health.path
    if path:
        sequence = ProbeSequence((ServerRequest(path),), _ready_or_loading, explain=_path_hint)
    elif target.dialect:
        sequence = _dialect_sequence(target.dialect, target.model)
    else:
        return detect_any_server(target.model)
    if target.health.live_path:
        sequence = sequence._replace(live=ServerRequest(target.health.live_path), classify_live=_ready_or_loading)
    if path or target.dialect in SERVER_DIALECTS:
        return sequence
    if target.dialect in GENERIC_DIALECTS:
        return detect_any_server(target.model, sequence if target.health.live_path else None)
    return detect_agent_or(sequence)


class DetectionCandidate(NamedTuple):
    """With a stricter classifier while the server is a guess."""

    sequence: ProbeSequence
    guess: ResponseClassifier | None = None  # None: the sequence's own is strict enough

    @property
    def guessed(self) -> ProbeSequence:
        return self.sequence if self.guess is None else self.sequence._replace(classify=self.guess)


class ServerDetector:
    """Keeps to the first candidate whose request the server knows.

    A server may still be assembling its routes, so the next probe tries again: all candidates, or one a probe if the
    replica counts as ready anyway (`otherwise`).
    """

    def __init__(self, candidates: tuple[DetectionCandidate, ...], otherwise: ProbeResult | None = None) -> None:
        """`otherwise`: the result if no candidate is known; None: that of the last, which is not ready."""
        self._candidates = candidates
        self._otherwise = otherwise
        self._found: DetectionCandidate | None = None
        self._next: int | None = None  # the candidate to try next, after none of them was known

    def reset(self) -> None:
        self._found = self._next = None

    async def run(self, run: ProbeRun) -> ProbeResult:
        if self._found is not None:
            result = await self._found.sequence.run(run)
            if result.status is not ProbeStatus.NOT_FOUND:
                return result
            self.reset()
        turn, self._next = self._next, None  # if a request fails now, another server may be there next time
        for candidate in self._candidates if turn is None else self._candidates[turn : turn + 1]:
            result = await candidate.guessed.run(run)
            if result.status is not ProbeStatus.NOT_FOUND:
                self._found = candidate
                return result
        if self._otherwise is not None:
            self._next = 0 if turn is None else (turn + 1) % len(self._candidates)
        return self._otherwise or result


def detect_any_server(model: str, live: ProbeSequence | None = None) -> ServerDetector:
    """Our agent, or a common server; otherwise any response counts as ready. Paths of only one server come before those
    that any application may have. `live`: its liveness request is used for all."""
    oip = _dialect_sequence("oip", model)
    health = ProbeSequence((ServerRequest("/health"),), lambda request, status, body: readiness_by_status(status))
    candidates: tuple[DetectionCandidate, ...] = (
        DetectionCandidate(ProbeSequence((AGENT_READY,), _classify_agent)),
        DetectionCandidate(_dialect_sequence("rayserve", ANY_MODEL)),
        DetectionCandidate(health, _classify_guessed_path),
        DetectionCandidate(
            oip, lambda request, status, body: _not_oip_status(status) or oip.classify(request, status, body)
        ),
        DetectionCandidate(_dialect_sequence("bentoml", ANY_MODEL), _classify_guessed_path),
        DetectionCandidate(_dialect_sequence("torchserve", ANY_MODEL), _classify_torchserve),
    )
    if live is not None:
        candidates = tuple(
            one._replace(sequence=one.sequence._replace(live=live.live, classify_live=live.classify_live))
            for one in candidates
        )
    return ServerDetector(candidates, READY_WITHOUT_PATH)


def detect_agent_or(sequence: ProbeSequence) -> ServerDetector:
    """A Python server may have our agent, which knows better when it loads and leaves."""
    agent = sequence._replace(ready=(AGENT_READY,), classify=_classify_agent)
    return ServerDetector((DetectionCandidate(agent), DetectionCandidate(sequence)))


def _dialect_sequence(name: str, model: str) -> ProbeSequence:
    dialect = make_dialect(name)
    plan = dialect.probe_plan(model)
    return ProbeSequence(
        plan.ready,
        lambda request, status, body: dialect.readiness(request, status, body, model),
        plan.live,
        explain=lambda request, status, body: dialect.explain(request, status, body, model),
    )


def _ready_or_loading(request: ServerRequest, status: int, body: bytes) -> ServerReadiness:
    """At a configured path, a 404 is "not ready", not "another server"."""
    return ServerReadiness.READY if readiness_by_status(status) is ServerReadiness.READY else ServerReadiness.LOADING


def _path_hint(request: ServerRequest, status: int, body: bytes) -> str:
    return "is health.path right?" if readiness_by_status(status) is ServerReadiness.NOT_FOUND else ""


def _not_oip_status(status: int) -> ServerReadiness | None:
    """An OIP server that is not ready replies 400, one without the model 404."""
    return None if 200 <= status < 300 or status in (400, 404, *UNAVAILABLE_STATUSES) else ServerReadiness.NOT_FOUND


def _classify_guessed_path(request: ServerRequest, status: int, body: bytes) -> ServerReadiness:
    """Other servers may not know the path, require a login, or take it for a request and fail."""
    if 200 <= status < 300:
        return ServerReadiness.READY
    return ServerReadiness.LOADING if status in UNAVAILABLE_STATUSES else ServerReadiness.NOT_FOUND


def _classify_agent(request: ServerRequest, status: int, body: bytes) -> ServerReadiness:
    """Some servers answer any path; our agent names its instance."""
    return readiness_by_status(status) if "instance" in json_object(body) else ServerReadiness.NOT_FOUND


def _classify_torchserve(request: ServerRequest, status: int, body: bytes) -> ServerReadiness:
    """TorchServe sends its status as a string; other servers that answer a ping are merely alive."""
    return (
        readiness_by_status(status) if isinstance(json_object(body).get("status"), str) else ServerReadiness.NOT_FOUND
    )

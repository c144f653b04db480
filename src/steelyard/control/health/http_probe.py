"""One look at one replica over HTTP."""

from __future__ import annotations

from ...addresses import replica_address
from ...protocols import SERVER_DIALECTS
from .client.errors import (
    ConnectRefusedError,
    InvalidResponseError,
    LocalFailureError,
    ReplicaRequestError,
    ResponseTimeoutError,
)
from .client.origin import TlsContexts
from .detection import ServerDetector, detect_agent_or, detect_any_server
from .probe import MISCONFIGURED, ProbeResult, ProbeStatus, ProbeTarget
from .probe_sequence import ProbeRun, ProbeSequence, RequestCache, configured_sequence, describe_request, run_sequence

GENERIC_DIALECTS = (
    "openai",
    "http",
)  # what servers of all kinds speak: whether they have a readiness path is not known

STATUS_OF_ERROR: dict[type[ReplicaRequestError], ProbeStatus] = {
    ConnectRefusedError: ProbeStatus.REFUSED,
    InvalidResponseError: ProbeStatus.BROKEN,
    LocalFailureError: ProbeStatus.UNKNOWN,
}  # whatever else keeps an answer from coming is silence


class HttpProbe:
    """Asks what the configuration says, else what the dialect says, else what the replica turns out to answer."""

    def __init__(self, target: ProbeTarget, contexts: TlsContexts) -> None:
        self._line = RequestCache(target, contexts)
        self._plan = _plan_for(target)
        self._dialect = target.dialect
        self._own_port = replica_address(target.settings.url).port

    def reset(self) -> None:
        """Another server may be there now."""
        if isinstance(self._plan, ServerDetector):
            self._plan.reset()

    async def run(self) -> ProbeResult:
        round = ProbeRun(self._line)
        try:
            if isinstance(self._plan, ServerDetector):
                seen = await self._plan.run(round)
            else:
                seen = await run_sequence(self._plan, round)
        except ReplicaRequestError as problem:
            seen = ProbeResult(STATUS_OF_ERROR.get(type(problem), ProbeStatus.NO_RESPONSE), self._words(problem, round))
        if seen.status is ProbeStatus.ABSENT:
            wrong = f"so it is no {self._dialect} server: set its dialect, or health.path"
            seen = seen._replace(detail=f"{MISCONFIGURED}: {seen.detail}, {wrong}")
        return seen._replace(instance=round.instance, seconds=round.seconds)

    def _words(self, problem: ReplicaRequestError, round: ProbeRun) -> str:
        if round.question is None:
            return str(problem)
        if isinstance(problem, ConnectRefusedError):
            port = self._line.composed(round.question)[0].address.port
            elsewhere = f" on port {port}" if round.question.port and port != self._own_port else ""
            return f"{problem}{elsewhere}{round.explained(round.question, 0, b'') if elsewhere else ''}"
        limit = f" ({self._line.timeout:g} s)" if isinstance(problem, ResponseTimeoutError) else ""
        return f"{problem}{limit}: {describe_request(round.question.method, round.question.path)}"


def _plan_for(target: ProbeTarget) -> ProbeSequence | ServerDetector:
    dialogue = configured_sequence(target)
    if dialogue is None:
        return detect_any_server(target.model)
    if target.settings.ready or target.health.path or target.dialect in SERVER_DIALECTS:
        return dialogue
    if target.dialect in GENERIC_DIALECTS:
        return detect_any_server(target.model, dialogue if target.health.live else None)
    return detect_agent_or(dialogue)

"""What a replica is asked in one look, and what its answers add up to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic  # the loop's own clock only ticks once in its turn
from typing import NamedTuple

from ...protocols import make_dialect
from ...protocols.health import ServerReadiness, ServerRequest, json_object, readiness_by_status
from .client.errors import ConnectRefusedError, ReplicaRequestError, ResponseTimeoutError
from .client.origin import ProbeOrigin, TlsContexts
from .client.response import ProbeResponse
from .probe import ProbeResult, ProbeStatus, ProbeTarget

# The questions of one look at a replica, under one time limit.

MAX_PROBE_BODY_BYTES = 1 << 20  # bytes of an answer
INSTANCE_HEADER = b"steelyard-instance"
MAX_MESSAGE_CHARACTERS = 200  # characters of what a server says of itself


class RequestCache:
    """To a replica, for questions: one way for each port, and each question composed once."""

    def __init__(self, target: ProbeTarget, contexts: TlsContexts) -> None:
        self.timeout = target.health.timeout
        self._target = target
        self._contexts = contexts
        self._composed: dict[ServerRequest, tuple[ProbeOrigin, bytes]] = {}

    def composed(self, question: ServerRequest) -> tuple[ProbeOrigin, bytes]:
        known = self._composed.get(question)
        if known is None:
            health = self._target.health
            way = ProbeOrigin(self._target, self._contexts, health.port or question.port)
            headers: Mapping[str, str] = health.headers
            if question.body:
                headers = {"content-type": "application/json", **headers}
            known = way, way.build_request(question.method, question.path, headers, question.body)
            self._composed[question] = known
        return known


class ProbeRun:
    """Asks; remembers who answered, what was asked last, and how long it all takes."""

    def __init__(self, line: RequestCache) -> None:
        self.instance = ""
        self.question: ServerRequest | None = None
        self.explain: Callable[[ServerRequest, int, bytes], str] = lambda question, status, body: ""
        self._line = line
        self._began = monotonic()

    @property
    def seconds(self) -> float:
        return monotonic() - self._began

    def explained(self, question: ServerRequest, status: int, body: bytes) -> str:
        """What to set, to put behind what was seen; status 0: there was no answer."""
        words = printable_line(self.explain(question, status, body))
        return f": {words}" if words else ""

    async def send(self, question: ServerRequest) -> ProbeResponse:
        """AskError: no answer, or no time left for one."""
        self.question = question
        way, request = self._line.composed(question)
        left = self._line.timeout - self.seconds
        if left <= 0:
            raise ResponseTimeoutError("no answer in time")
        reply = await way.send(request, timeout=left, limit=MAX_PROBE_BODY_BYTES)
        self.instance = instance_of(reply) or self.instance
        return reply


def instance_of(reply: ProbeResponse) -> str:
    """Who the server process says it is; empty: it does not say."""
    return reply.headers.get(INSTANCE_HEADER, b"")[:128].decode("latin-1")


def describe_response(question: ServerRequest, reply: ProbeResponse) -> str:
    """In words, with the reason that the server gives, if it gives one."""
    text = f"answers {reply.status} to {describe_request(question.method, question.path)}"
    if 200 <= reply.status < 300:
        return text
    said = json_object(reply.body)
    words = said.get("reason") or said.get("error") or said.get("message") or said.get("detail")
    if not isinstance(words, str):
        return text
    return f"{text}: {printable_line(words)}"


def describe_request(method: str, path: str) -> str:
    """A request as it is shown: a query may hold what is nobody's business."""
    return f"{method} {path.partition('?')[0]}"


def printable_line(words: str) -> str:
    """What came from outside, fit to be shown: one line, not too long."""
    line = " ".join(words.split())
    return "".join(c if c.isprintable() else "\ufffd" for c in line[:MAX_MESSAGE_CHARACTERS])


ResponseClassifier = Callable[[ServerRequest, int, bytes], ServerReadiness]
ResponseHint = Callable[[ServerRequest, int, bytes], str]
NOT_READY_STATUS = 503  # the status of a server that is not ready and knows it


class ProbeSequence(NamedTuple):
    """Ready, if every question of `ready` is answered with READY. `live` is asked when one was not."""

    ready: tuple[ServerRequest, ...]
    classify: ResponseClassifier
    live: ServerRequest | None = None  # None: any answer proves life
    judge_live: ResponseClassifier | None = None  # None: as the others
    explain: ResponseHint = lambda question, status, body: ""  # what to set, where it is not ready


def sequence_for_path(path: str) -> ProbeSequence:
    """A path from the configuration: whoever names it means it, so a 404 is no 'wrong server' but 'not ready'."""
    return ProbeSequence((ServerRequest(path),), _ready_or_loading, explain=_path_hint)


def sequence_for_dialect(name: str, model: str) -> ProbeSequence:
    dialect = make_dialect(name)
    questions = dialect.probe_plan(model)
    return ProbeSequence(
        questions.ready,
        lambda question, status, body: dialect.readiness(question, status, body, model),
        questions.live,
        explain=lambda question, status, body: dialect.explain(question, status, body, model),
    )


def configured_sequence(target: ProbeTarget) -> ProbeSequence | None:
    """What to ask this replica; None: that has to be found out."""
    path = target.settings.ready or target.health.path
    if path:
        dialogue = sequence_for_path(path)
    elif target.dialect:
        dialogue = sequence_for_dialect(target.dialect, target.model)
    else:
        return None
    if target.health.live:
        dialogue = dialogue._replace(live=ServerRequest(target.health.live), judge_live=_ready_or_loading)
    return dialogue


async def run_sequence(dialogue: ProbeSequence, round: ProbeRun) -> ProbeResult:
    """AskError: somewhere in it there was no answer."""
    seen = ProbeResult(ProbeStatus.READY, "nothing is asked")
    asked: list[ServerRequest] = []
    for question in dialogue.ready:
        round.explain = dialogue.explain
        seen = await _send_and_classify(question, dialogue.classify, round)
        asked.append(question)
        if seen.status is not ProbeStatus.READY:
            break
    if dialogue.live is None or dialogue.live in asked or seen.status in (ProbeStatus.READY, ProbeStatus.BROKEN):
        return seen
    return await _check_liveness(dialogue.live, dialogue.judge_live or dialogue.classify, round, seen)


async def _send_and_classify(question: ServerRequest, judge: ResponseClassifier, round: ProbeRun) -> ProbeResult:
    reply = await round.send(question)
    verdict = judge(question, reply.status, reply.body)
    if verdict is ServerReadiness.ABSENT and question.fallback is not None:
        return await _send_and_classify(question.fallback, judge, round)
    return _result(verdict, question, reply, round)


async def _check_liveness(
    live: ServerRequest, judge: ResponseClassifier, round: ProbeRun, before: ProbeResult
) -> ProbeResult:
    """It is not ready; does it live? A server that does not know this question has answered it all the same."""
    try:
        seen = await _send_and_classify(live, judge, round)
    except ConnectRefusedError:
        raise
    except ReplicaRequestError:  # it did answer, a moment ago
        return before
    if seen.status in (ProbeStatus.READY, ProbeStatus.ABSENT):
        return before
    return ProbeResult(
        ProbeStatus.BROKEN, f"{before.detail}, and {seen.detail}: it does not live", definitive=before.definitive
    )


def _result(verdict: ServerReadiness, question: ServerRequest, reply: ProbeResponse, round: ProbeRun) -> ProbeResult:
    kind = ProbeStatus(verdict.value)
    sure = kind is ProbeStatus.BROKEN or (kind is ProbeStatus.LOADING and reply.status == NOT_READY_STATUS)
    why = "" if kind is ProbeStatus.READY else round.explained(question, reply.status, reply.body)
    return ProbeResult(kind, describe_response(question, reply) + why, definitive=sure)


def _path_hint(question: ServerRequest, status: int, body: bytes) -> str:
    return "is health.path right?" if readiness_by_status(status) is ServerReadiness.ABSENT else ""


def _ready_or_loading(question: ServerRequest, status: int, body: bytes) -> ServerReadiness:
    return ServerReadiness.READY if readiness_by_status(status) is ServerReadiness.READY else ServerReadiness.LOADING

"""The questions of one look at a replica, under one time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic  # the loop's own clock only ticks once in its turn

from ...protocols.health import ServerRequest, json_object
from .answer import ProbeResponse
from .errors import ResponseTimeoutError
from .target import ProbeTarget
from .tls import TlsContexts
from .way import ProbeOrigin

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

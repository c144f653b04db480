"""The questions of one look at a replica, under one time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic  # the loop's own clock only ticks once in its turn

from ...protocols.health import Question, fields
from .answer import Reply
from .errors import SilentError
from .target import Target
from .tls import Contexts
from .way import Way

LIMIT = 1 << 20  # bytes of an answer
INSTANCE = b"steelyard-instance"
MOST_WORDS = 200  # characters of what a server says of itself


class Line:
    """To a replica, for questions: one way for each port, and each question composed once."""

    def __init__(self, target: Target, contexts: Contexts) -> None:
        self.timeout = target.health.timeout
        self._target = target
        self._contexts = contexts
        self._composed: dict[Question, tuple[Way, bytes]] = {}

    def composed(self, question: Question) -> tuple[Way, bytes]:
        known = self._composed.get(question)
        if known is None:
            health = self._target.health
            way = Way(self._target, self._contexts, health.port or question.port)
            headers: Mapping[str, str] = health.headers
            if question.body:
                headers = {"content-type": "application/json", **headers}
            known = way, way.compose(question.method, question.path, headers, question.body)
            self._composed[question] = known
        return known


class Round:
    """Asks; remembers who answered, what was asked last, and how long it all takes."""

    def __init__(self, line: Line) -> None:
        self.instance = ""
        self.question: Question | None = None
        self.explain: Callable[[Question, int, bytes], str] = lambda question, status, body: ""
        self._line = line
        self._began = monotonic()

    @property
    def seconds(self) -> float:
        return monotonic() - self._began

    def explained(self, question: Question, status: int, body: bytes) -> str:
        """What to set, to put behind what was seen; status 0: there was no answer."""
        words = shown(self.explain(question, status, body))
        return f": {words}" if words else ""

    async def put(self, question: Question) -> Reply:
        """AskError: no answer, or no time left for one."""
        self.question = question
        way, request = self._line.composed(question)
        left = self._line.timeout - self.seconds
        if left <= 0:
            raise SilentError("no answer in time")
        reply = await way.ask(request, timeout=left, limit=LIMIT)
        self.instance = instance_of(reply) or self.instance
        return reply


def instance_of(reply: Reply) -> str:
    """Who the server process says it is; empty: it does not say."""
    return reply.headers.get(INSTANCE, b"")[:128].decode("latin-1")


def answered(question: Question, reply: Reply) -> str:
    """In words, with the reason that the server gives, if it gives one."""
    text = f"answers {reply.status} to {named(question.method, question.path)}"
    if 200 <= reply.status < 300:
        return text
    said = fields(reply.body)
    words = said.get("reason") or said.get("error") or said.get("message") or said.get("detail")
    if not isinstance(words, str):
        return text
    return f"{text}: {shown(words)}"


def named(method: str, path: str) -> str:
    """A request as it is shown: a query may hold what is nobody's business."""
    return f"{method} {path.partition('?')[0]}"


def shown(words: str) -> str:
    """What came from outside, fit to be shown: one line, not too long."""
    line = " ".join(words.split())
    return "".join(c if c.isprintable() else "\ufffd" for c in line[:MOST_WORDS])

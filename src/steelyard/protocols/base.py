"""What a dialect knows: one file each, listed in `__init__.py`. No sockets, no decisions.

The gateway calls `call` (method and path alone, so it can be cached), `local_reply`, `read_body` (the whole body) or
`estimate_body`, and `error`. The supervisor sends `probe_plan` and passes the answers to `readiness`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from .bodies.prompts import PromptText
from .health import ProbePlan, ServerReadiness, ServerRequest, readiness_by_status
from .load import MetricsLocation

Headers = Mapping[bytes, bytes]
NO_HEADERS: Headers = {}
MAX_FEATURE = 1e12
ANY_MODEL = "*"  # takes every name
IDEMPOTENT_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))  # RFC 9110, section 9.2.2
READ_METHODS = frozenset(("GET", "HEAD"))


class ApiCall(NamedTuple):
    """What method and path tell of a request."""

    kind: str  # "chat", "embeddings", "infer"…; requests of one kind differ only in their features
    model: str = ""  # named in the path
    reads_body: bool = False  # does the body tell the model or features?
    idempotent: bool = False  # may it run twice without harm?
    local: bool = False  # may `local_reply` answer it?
    streams: bool = False  # does the path say that the answer is a stream?
    with_prompt: bool = False  # set by the gateway: it wants the prompt too


class BodyInfo(msgspec.Struct, frozen=True, gc=False):
    """What a request's body tells."""

    model: str = ""  # empty: it names none
    features: tuple[float, float, float] = (0.0, 0.0, 0.0)
    key: str | None = None  # what a replica may hold warm for it
    streams: bool = False  # it asks for a stream, as far as the dialect knows
    is_certain: bool = True  # false: the name was searched for, not parsed
    prompt: PromptText | None = None  # for calls `with_prompt`, where there is one


class LocalReply(NamedTuple):
    status: int
    body: bytes
    content_type: str = "application/json"


class ServedModel(NamedTuple):
    """A model of the fleet as dialects may show it."""

    name: str
    ready: int  # replicas in rotation
    replicas: int
    created: int  # seconds since 1970, when this worker first knew it
    scaled_to_zero: bool = False  # a request starts a replica

    @property
    def is_served(self) -> bool:
        """Is a request answered, now or after a start?"""
        return self.ready > 0 or self.scaled_to_zero


class Dialect:
    """A dialect keeps no state: one object serves every request."""

    name: ClassVar[str] = ""

    def call(self, method: str, path: str) -> ApiCall | None:
        """None: not this dialect's. `path` is as the client wrote it, without the query."""
        raise NotImplementedError

    def local_reply(self, call: ApiCall, path: str, models: Sequence[ServedModel]) -> LocalReply | None:
        """The gateway's own answer; None: ask a replica."""
        return None

    def read_body(self, call: ApiCall, body: bytes, headers: Headers) -> BodyInfo:
        """Of a whole body. Never raises. `headers` has at least `wanted_headers`, with lower-case names."""
        raise NotImplementedError

    wanted_headers: ClassVar[tuple[bytes, ...]] = ()

    def estimate_body(self, call: ApiCall, length: int, head: bytes = b"", headers: Headers = NO_HEADERS) -> BodyInfo:
        """For a body of `length` bytes (0: unknown) that is too large to read. Never raises.

        `head`: its beginning; the model's name in it is not certain if the rest may contradict it.
        """
        return BodyInfo("", (bound_feature(float(length)), 0.0, 0.0))

    def body_ambiguity(self, call: ApiCall, body: bytes, headers: Headers) -> str:
        """Why a server may find another model in this body, as a sentence; empty: it cannot. Never raises.

        Asked only where the servers of a model run others too.
        """
        return ""

    def error(self, status: int, code: str, sentence: str) -> LocalReply:
        """In the format of this dialect; `code` is stable and machine-readable."""
        raise NotImplementedError

    knows_streams: ClassVar[bool] = False  # does a body say whether it wants a stream?
    prompt_kinds: ClassVar[frozenset[str]] = frozenset()  # kinds of calls whose bodies have prompts
    generates_text: ClassVar[bool] = (
        False  # with engines that batch and cache prefixes: `prefix_work` is its default policy
    )
    metrics: ClassVar[MetricsLocation | None] = None
    sends_orca: ClassVar[bool] = False  # does it add load reports to answers, if asked?

    def probe_plan(self, model: str) -> ProbePlan:
        """How to ask whether `model` is ready; `*`: whether the server is."""
        return ProbePlan((ServerRequest("/health"),))

    def readiness(self, question: ServerRequest, status: int, body: bytes, model: str) -> ServerReadiness:
        """Of an answer to the plan. Never raises: the body may be cut, or nonsense."""
        return readiness_by_status(status)

    def explain(self, question: ServerRequest, status: int, body: bytes, model: str) -> str:
        """What an operator should know of an answer that was not READY (status 0: none). Never raises."""
        return "it wants credentials: set health.headers" if status in (401, 403) else ""


def bound_feature(amount: float) -> float:
    """Finite and not negative."""
    return amount if 0.0 <= amount <= MAX_FEATURE else MAX_FEATURE if amount > MAX_FEATURE else 0.0


def unescape_name(part: str) -> str:
    """A name from a path, which the gateway read as Latin-1: bytes that were not escaped are UTF-8."""
    try:
        octets = part.encode("latin-1")
    except UnicodeEncodeError:
        octets = part.encode("utf-8", "replace")
    return unquote_to_bytes(octets).decode("utf-8", "replace")


def encode_json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, from a path or a name that was not UTF-8
        return json.dumps(value).encode()

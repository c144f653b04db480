"""What a dialect knows. One file a dialect; the table is in `__init__.py`. No sockets, no decisions.

The gateway asks in this order: `call` (from method and path alone, so the answer can be kept), `answer` (what the
gateway says itself, for the whole fleet), `peek` (one look into the body, when it is all there) or `guess` (when it is
not), and `error` when a request fails. The supervisor asks for `questions`, sends them, and lets the dialect `judge`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from .health import ProbePlan, ServerReadiness, ServerRequest, readiness_by_status
from .load import MetricsLocation

FEATURE_COUNT = 3  # every dialect gives so many numbers, so that a model reached through several is learned as one
MAX_FEATURE = 1e12  # of a feature: whoever asks for more asks for nonsense
ANY_MODEL = "*"  # the model that takes every name
IDEMPOTENT_METHODS = frozenset(
    ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE")
)  # idempotent by RFC 9110, section 9.2.2
READ_METHODS = frozenset(("GET", "HEAD"))


class ApiCall(NamedTuple):
    """What method and path tell of a request."""

    kind: str  # "chat", "embeddings", "infer"…; requests of one kind are alike but for their features
    model: str = ""  # named in the path
    reads_body: bool = False  # is the body worth a look, for the model's name or for features?
    idempotent: bool = False  # may it run twice without harm?
    local: bool = False  # does `answer` know what to say?


class BodyInfo(msgspec.Struct, frozen=True, gc=False):
    """What a request's body tells."""

    model: str = ""  # empty: it names none
    features: tuple[float, float, float] = (0.0, 0.0, 0.0)
    key: str | None = None  # what a replica may hold warm for it
    streams: bool = False  # it asks for its answer in pieces; of dialects that tell it
    is_certain: bool = True  # it was read by the rules of its format, not searched for something like a name


class LocalReply(NamedTuple):
    status: int
    body: bytes
    content_type: str = "application/json"


class ModelView(NamedTuple):
    """A model of the fleet as dialects may show it."""

    name: str
    ready: int  # replicas in rotation
    replicas: int
    created: int  # seconds since 1970, when this worker first knew it
    scaled_to_zero: bool = False  # none is ready, and one is started for whoever asks

    @property
    def is_served(self) -> bool:
        """Is a request answered, now or when a replica has been started for it?"""
        return self.ready > 0 or self.scaled_to_zero


class Dialect:
    """Base of all dialects, and what is common to them. A dialect keeps no state: one object serves every request."""

    name: ClassVar[str] = ""

    def call(self, method: str, path: str) -> ApiCall | None:
        """What this request is; None: not this dialect's. `path` has no query and is as the client wrote it."""
        raise NotImplementedError

    def local_reply(self, call: ApiCall, path: str, models: Sequence[ModelView]) -> LocalReply | None:
        """The gateway's own answer to a local call; None: a replica should say."""
        return None

    def read_body(self, call: ApiCall, body: bytes, headers: Mapping[bytes, bytes]) -> BodyInfo:
        """What the whole body tells. Never raises: who sends nonsense gets the replica's own answer.

        `headers` has lower-case names, and at least those of `wanted_headers`.
        """
        raise NotImplementedError

    wanted_headers: ClassVar[tuple[bytes, ...]] = ()

    def estimate_body(
        self, call: ApiCall, length: int, head: bytes = b"", headers: Mapping[bytes, bytes] = {}
    ) -> BodyInfo:
        """For a body of `length` bytes that is too large to be looked into (or of unknown length: 0).

        `head` is what there is of it so far, if anything: enough, often, to find the model's name. That name is not
        `certain` if the rest of the body may contradict it. Never raises.
        """
        return BodyInfo("", (bound_feature(float(length)), 0.0, 0.0))

    def body_ambiguity(self, call: ApiCall, body: bytes, headers: Mapping[bytes, bytes]) -> str:
        """Why a server may find another model in this whole body than `peek` does, as a sentence; empty: it cannot.

        Asked only where it matters: where the servers of a model run others too. Never raises.
        """
        return ""

    def error(self, status: int, code: str, sentence: str) -> LocalReply:
        """An error in the words of this dialect; `code` is stable and machine-readable."""
        raise NotImplementedError

    knows_streams: ClassVar[bool] = False  # does a body say whether the answer is to come in pieces?
    metrics: ClassVar[MetricsLocation | None] = None  # where such a server tells its load; None: nowhere that is known
    sends_orca: ClassVar[bool] = False  # does it add a load report to its answers, if asked for one?

    def probe_plan(self, model: str) -> ProbePlan:
        """How such a server is asked whether `model` is ready there; `*`: whether it is, whatever it serves."""
        return ProbePlan((ServerRequest("/health"),))

    def readiness(self, question: ServerRequest, status: int, body: bytes, model: str) -> ServerReadiness:
        """What its answer to one of `questions` means. Never raises: the body may be cut, or nonsense."""
        return readiness_by_status(status)

    def explain(self, question: ServerRequest, status: int, body: bytes, model: str) -> str:
        """What an operator should know, or set, where an answer was not judged READY. Status 0: there was none.

        Never raises. Empty: the status says it all.
        """
        return "it wants credentials: set health.headers" if status in (401, 403) else ""


def bound_feature(amount: float) -> float:
    """A feature that the estimator can live with: finite and not negative."""
    return amount if 0.0 <= amount <= MAX_FEATURE else MAX_FEATURE if amount > MAX_FEATURE else 0.0


def unescape_name(part: str) -> str:
    """A name from a path. The gateway reads paths as Latin-1: bytes that a client did not escape are still UTF-8's."""
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

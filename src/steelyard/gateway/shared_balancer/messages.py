"""What workers and the balancer process say to each other: frames of a length of four bytes and a msgpack list.

A worker numbers its requests; a number is used once. Times are of the machine's monotonic clock, which all processes
share. Messages of one turn of the event loop share a frame.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ...core.outcome import Outcome
from ...core.prompt import Prompt
from ...core.reason import Reason
from ...link.decision_log.lines import LoggedChoice

MAX_FRAME_BYTES = 64 << 20  # a frame of ours is never near that
OUTCOMES = tuple(Outcome)  # an outcome travels as its place here …
OUTCOME_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
# What becomes of a request after an attempt.
OVER: Final = 0
RETRY: Final = 1
OTHER_RUNS: Final = 2
REASONS = {reason.code: reason for reason in Reason}


class _Message(msgspec.Struct, array_like=True, gc=False):
    """Made and dropped for every request: not tracked by the garbage collector."""


# ---------------------------------------------------------------------- from a worker


class Hello(_Message, tag=0):
    """First of all, after every (re)connect; the worker's `Running` requests and `Submit`s follow."""

    worker: int
    pid: int


class Submit(_Message, tag=1):
    """Decide on a request. Answered with `Dispatch`, `Queued` or `Refuse`."""

    number: int
    model: str
    arrived: float
    features: tuple[float, ...]
    kind: str
    tenant: str
    fair_share_key: str
    key: str | None
    cold_seconds: float
    deadline: float
    first_byte_by: float
    streams: bool
    priority: int
    idempotent: bool
    attempt_count: int  # more than 0: it was sent before, to a balancer process that is gone
    traced: bool  # its choices are wanted for the decision log
    prompt: tuple[int, float, bytes] | None = None  # bytes of text, other tokens, hashes of blocks (8 bytes each)


SubmitFields = tuple[
    int,
    str,
    float,
    tuple[float, ...],
    str,
    str,
    str,
    str | None,
    float,
    float,
    float,
    bool,
    int,
    bool,
    int,
    bool,
    tuple[int, float, bytes] | None,
]


class Running(_Message, tag=2):
    """An attempt that runs, decided on by a balancer process that is gone."""

    request: Submit
    replica: str
    started: float
    seconds_alone: float
    predicted: float
    reserved_bytes: int
    hedged: bool
    first_byte: float = 0.0  # when its answer began, if that was told


class Finish(_Message, tag=3):
    """An attempt ended. With `then` RETRY it is answered like `Submit`."""

    number: int
    replica: str
    outcome: int
    at: float
    then: int
    status: int
    first_byte: float
    usage: tuple[int, int, int] | None = None  # tokens: of the prompt, of the answer, of the prompt cached


FinishFields = tuple[int, str, int, float, int, int, float, tuple[int, int, int] | None]


class Decline(_Message, tag=12):
    """A `Dispatch` that is not carried out, for no fault of the replica: it is not known here, or it is for a hedge
    and the answer has begun. Another attempt of the request goes on; without one it is answered like `Submit`."""

    number: int
    replica: str
    at: float


class CancelRequest(_Message, tag=4):
    """The client left: nothing of it is wanted any more."""

    number: int
    at: float


class ResponseStarted(_Message, tag=5):
    """The first byte of a request that may be hedged, or whose policy wants to be told."""

    number: int
    replica: str
    at: float
    first_byte: bool  # false: the head of a stream, whose first byte is to come


class ReplicaRefused(_Message, tag=6):
    """It does not accept connections."""

    model: str
    replica: str


class TrialPassed(_Message, tag=7):
    """A replica on trial has begun to answer."""

    model: str
    replica: str


class EngineLoadReport(_Message, tag=8):
    """What a replica says of itself in an answer."""

    model: str
    replica: str
    requests: float
    ttl: float


class MemoryReport(_Message, tag=9):
    """What an answer says of device memory. Before its request's `Finish`."""

    number: int
    replica: str
    held: int | None  # bytes its server has
    request_bytes: int | None  # that this request took
    informative: bool  # the request really ran


class OutOfMemoryReport(_Message, tag=10):
    """An attempt ran out of device memory. Before its `Finish`."""

    number: int
    replica: str
    how: str


class ConnectionBroken(_Message, tag=11):
    """The replica closed the connection of an attempt. Before its `Finish`."""

    number: int
    replica: str


# ---------------------------------------------------------------------- to a worker


class Dispatch(_Message, tag=0):
    """Send the request to this replica; its load is counted."""

    number: int
    replica: str
    base: float
    seconds_alone: float
    predicted: float
    concurrency: int
    reserved_bytes: int  # of device memory
    hedged: bool
    unverified: bool  # the replica is on trial: its first byte is awaited
    choice_count: int = 0  # of a traced request, so far …
    choices: tuple[LoggedChoice, ...] = ()  # … and since the last message


class Queued(_Message, tag=1):
    """It waits."""

    number: int
    base: float
    choice_count: int = 0  # of a traced request, so far …
    choices: tuple[LoggedChoice, ...] = ()  # … and since the last message


class Refuse(_Message, tag=2):
    """Answer the client with this refusal."""

    number: int
    reason: str
    retry_after: float
    too_large: tuple[int, int, str] | None
    base: float
    binding_deadline: str
    deadline_bound: bool
    predicted: float
    starting: tuple[float, bool, str] | None  # no replica is ready: when one should be, whether guessed, the failure
    choice_count: int = 0  # of a traced request, so far …
    choices: tuple[LoggedChoice, ...] = ()  # … and since the last message


class Stop(_Message, tag=3):
    """Stop the attempt on this replica; its load is given back."""

    number: int
    replica: str


class FailOver(_Message, tag=4):
    """This replica does not answer: what waits for its first byte goes elsewhere, if it may."""

    model: str
    replica: str


WorkerMessage = (
    Hello
    | Submit
    | Running
    | Finish
    | Decline
    | CancelRequest
    | ResponseStarted
    | ReplicaRefused
    | TrialPassed
    | EngineLoadReport
    | MemoryReport
    | OutOfMemoryReport
    | ConnectionBroken
)
BalancerMessage = Dispatch | Queued | Refuse | Stop | FailOver


def encode_prompt(prompt: Prompt) -> tuple[int, float, bytes]:
    return prompt.text_bytes, prompt.extra_tokens, array("Q", prompt.blocks).tobytes()


def decode_prompt(said: tuple[int, float, bytes]) -> Prompt:
    text_bytes, extra_tokens, blocks = said
    hashes = array("Q")
    hashes.frombytes(blocks)
    return Prompt(text_bytes, tuple(hashes), extra_tokens)


_encoder = msgspec.msgpack.Encoder()


def decoder(kind: Any) -> msgspec.msgpack.Decoder[list[Any]]:
    """`kind`: WorkerMessage or BalancerMessage."""
    return msgspec.msgpack.Decoder(list[kind])


def encode_messages(messages: Sequence[WorkerMessage] | Sequence[BalancerMessage]) -> bytes:
    buffer = bytearray(4)
    _encoder.encode_into(messages, buffer, 4)
    buffer[:4] = (len(buffer) - 4).to_bytes(4, "big")
    return bytes(buffer)

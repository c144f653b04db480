"""The gateway's own replies: refusals, failures, and pages. Always whole, always with a length."""

from __future__ import annotations

from http import HTTPStatus
from math import ceil

from ...core.decision import Reject
from ...core.estimator.deadlines import FIRST_BYTE
from ...core.pool import Pool
from ...core.reason import Reason
from ...core.request import Request
from ...core.slo.verdicts import CLIENT, GATEWAY, OVERLOAD, REPLICA
from ...protocols.base import LocalReply
from ...units import format_seconds, format_size
from ..exchange import Exchange
from .headers import MalformedMessageError

REASON_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
MAX_QUOTED_NAME_CHARS = 80  # of a client's own words
CONTINUE_100 = b"HTTP/1.1 100 Continue\r\n\r\n"


class ErrorReply:
    __slots__ = ("code", "fault", "sentence", "status")

    def __init__(self, status: int, code: str, sentence: str, fault: str = "") -> None:
        self.status = status
        self.code = code
        self.sentence = sentence
        self.fault = fault or (CLIENT if status < 500 else REPLICA)


HEAD_TOO_LARGE = ErrorReply(431, "head_too_large", "The request's headers are larger than this gateway allows.")
BODY_TOO_LARGE = ErrorReply(413, "body_too_large", "The request's body is larger than this gateway allows.")
MODEL_BEYOND_BUFFER = ErrorReply(
    413,
    "model_beyond_buffer",
    "The body is too large to look for the model's name in it; name it in the header steelyard-model.",
)
BODY_BEYOND_BUFFER = ErrorReply(
    413,
    "model_beyond_buffer",
    "The body is larger than limits.replay_bytes; where servers run several models it must be read to its end.",
)
CHUNK_OVERHEAD = ErrorReply(400, "chunk_overhead", "The framing of the body's chunks is far larger than its data.")
HEAD_TIMEOUT = ErrorReply(408, "head_timeout", "The request's headers did not arrive in time.")
BODY_TIMEOUT = ErrorReply(408, "body_timeout", "The request's body did not arrive in time.")
BODY_TOO_SLOW = ErrorReply(408, "body_too_slow", "The request's body arrived more slowly than this gateway allows.")
BODY_EVICTED = ErrorReply(
    503, "body_evicted", "This gateway needed the room for others, and this body arrived slowly; try again.", OVERLOAD
)
TOO_MANY_CONNECTIONS = ErrorReply(
    503, "too_many_connections", "This gateway has too many connections; try again later.", OVERLOAD
)
BUFFERS_FULL = ErrorReply(503, "buffers_full", "This gateway holds too many request bodies; try again later.", OVERLOAD)
MEMORY_LOW = ErrorReply(503, "memory_low", "This gateway has too little memory left; try again later.", OVERLOAD)
DESCRIPTORS_EXHAUSTED = ErrorReply(
    503, "file_descriptors_exhausted", "This gateway has run out of connections; try again later.", GATEWAY
)
REPLICA_FAILED = ErrorReply(502, "replica_failed", "The replica closed the connection before it answered.")
REPLICA_UNREACHABLE = ErrorReply(502, "replica_unreachable", "No connection to the replica could be made.")
REPLICA_INVALID_RESPONSE = ErrorReply(502, "replica_invalid_response", "The replica's answer was not valid HTTP.")
REPLICA_TIMEOUT = ErrorReply(504, "replica_timeout", "The replica did not answer in time.")
DEADLINE_EXCEEDED = ErrorReply(504, "deadline", "The replica did not answer before the request's deadline.")
STOPPING = ErrorReply(503, "stopping", "This gateway is stopping; try again, another one may take it.", GATEWAY)
STARTING_SENTENCES = {
    Reason.NO_REPLICA: "try again then.",
    Reason.QUEUE_TIMEOUT: "the request waited as long as it may.",
    Reason.DEADLINE: "that is too late for the request's deadline.",
    Reason.QUEUE_FULL: "too many requests are waiting for it already.",
}
FIRST_BYTE_TOO_LATE = (
    "No replica could begin the answer before its first-byte deadline; try again later or allow more time."
)
MODEL_CONTROL = ErrorReply(
    403,
    "model_control",
    "Models on this server are loaded and unloaded by the gateway; such calls are not passed on to it.",
)
UNKNOWN_MODEL = ErrorReply(404, "unknown_model", "No such model is served here.")
NO_MODEL = ErrorReply(
    404, "unknown_model", "The request names no model, and there are several; name it in the header steelyard-model."
)


def bad_request(problem: MalformedMessageError) -> ErrorReply:
    return ErrorReply(400, "bad_request", str(problem))


def loop_detected(problem: MalformedMessageError) -> ErrorReply:
    return ErrorReply(508, "loop_detected", str(problem), GATEWAY)


def method_not_allowed(problem: MalformedMessageError) -> ErrorReply:
    return ErrorReply(405, "method_not_allowed", str(problem))


def model_contradiction(model: str, other: str) -> ErrorReply:
    model, other = model[:MAX_QUOTED_NAME_CHARS], other[:MAX_QUOTED_NAME_CHARS]
    sentence = f"The request is for the model '{model}', and names '{other}' as well."
    return ErrorReply(400, "model_contradiction", sentence)


def body_ambiguous(doubt: str) -> ErrorReply:
    return ErrorReply(400, "body_ambiguous", doubt)


def reject_reply(reject: Reject) -> ErrorReply:
    reason, sentence, fault = reject.reason, reject.reason.sentence, reject.reason.fault
    if reject.too_large is not None:
        needed, most, device = reject.too_large
        where = f" ({device})" if device else ""
        if most <= 0:
            fault = GATEWAY  # however small it were: the device is reserved for others
        sentence += f" It needs about {format_size(needed)}; the most there is for one is {format_size(most)}{where}."
    if reason is Reason.DEADLINE:
        sentence = _missed_deadline(reject.request)
    pool = reject.request.pool
    if pool is not None and not pool.members:
        sentence = _while_starting(pool, reject, sentence)
    return ErrorReply(reason.status, reason.code, sentence, fault)


def _while_starting(pool: Pool, reject: Reject, sentence: str) -> str:
    """No replica is ready, and one is being started, or could not be."""
    if reject.reason is Reason.START_FAILED:
        return f"A replica of the model could not be started: {pool.start_failure}."
    if pool.next_ready_at <= 0.0 or reject.reason not in STARTING_SENTENCES:
        return sentence
    usually = f"usually ready in {max(1, ceil(reject.retry_after))} s"
    if pool.next_ready_is_guess:
        usually = "how long that takes was never measured"
    return f"The model is being started, {usually}; {STARTING_SENTENCES[reject.reason]}"


def _missed_deadline(request: Request) -> str:
    """Which deadline it would miss, and by how much, where that was predicted."""
    begins = request.binding_deadline == FIRST_BYTE
    deadline = request.first_byte_by if begins else request.deadline
    sentence = FIRST_BYTE_TOO_LATE if begins else Reason.DEADLINE.sentence
    if request.deadline_bound or not request.predicted_seconds:
        return sentence
    what, allowed = "Its first byte" if begins else "Its end", max(0.0, deadline - request.arrived)
    predicted = format_seconds(request.predicted_seconds)
    return f"{sentence} {what} is predicted after {predicted}; it allows {format_seconds(allowed)}."


def encode_reply(
    answer: LocalReply, *, head: bool = False, close: bool = False, old: bool = False, lines: tuple[bytes, ...] = ()
) -> bytes:
    """A whole answer as bytes; to a HEAD request without its body."""
    parts = [
        b"HTTP/1.1 %d %b" % (answer.status, REASON_PHRASES.get(answer.status, b"")),
        b"content-type: " + answer.content_type.encode(),
        b"content-length: %d" % len(answer.body),
        *lines,
    ]
    if close:
        parts.append(b"connection: close")
    elif old:
        parts.append(b"connection: keep-alive")
    parts += (b"", b"" if head else answer.body)
    return b"\r\n".join(parts)


def encode_error(problem: ErrorReply, exchange: Exchange, retry_after: float = 0.0) -> bytes:
    lines = [b"steelyard-reason: " + problem.code.encode()]
    if exchange.request_id:
        lines.append(b"x-request-id: " + exchange.request_id)
    if retry_after > 0.0 or problem.status in (429, 503):
        lines.append(b"retry-after: %d" % max(1, ceil(retry_after)))
    answer = exchange.route.dialect.error(problem.status, problem.code, problem.sentence)
    return encode_reply(
        answer, head=exchange.route.is_head, close=exchange.close, old=exchange.http10, lines=tuple(lines)
    )


def encode_unparsed_error(problem: ErrorReply) -> bytes:
    """The dialect is unknown: plain JSON, and the connection ends."""
    body = b'{"error":{"code":"%b","message":"%b"}}' % (problem.code.encode(), problem.sentence.encode())
    lines = [b"steelyard-reason: " + problem.code.encode()]
    if problem.status == 503:
        lines.append(b"retry-after: 1")
    return encode_reply(LocalReply(problem.status, body), close=True, lines=tuple(lines))

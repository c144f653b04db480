"""A connection to a replica: one request at a time out, its answer back to the client as it comes.

Only the head of an answer is read and rewritten. The end of the body is counted (content-length) or found by llhttp
(chunks). A transition that is not in the table raises. `UpstreamConnection.end` is the only way a request leaves its
connection, and `close` the only way to close one.
"""

from __future__ import annotations

import select
from asyncio import Transport
from typing import TYPE_CHECKING, Any, Final

from ...core.outcome import Outcome
from ...core.request import INFINITY, RequestPhase
from ...protocols.bodies.usage import AnswerTokens, read_usage
from ...protocols.load import MAX_ERROR_BODY_BYTES, is_out_of_memory
from ..exchange import CHUNKED, ON_RESPOND, Exchange, transitions
from ..http import local_replies
from ..http.chunked_response import ChunkedResponse, PassedChunks, RewrittenChunks
from ..http.headers import MalformedMessageError
from ..http.local_replies import ErrorReply
from ..http.response_head import UNTIL_CLOSE, ResponseHead
from ..http.rewrite import write_request_head, write_response_head
from .client_connection import END_OF_HEAD
from .flow_control import PAUSED_NO_UPSTREAM, PAUSED_UPSTREAM_SLOW

if TYPE_CHECKING:
    from ...core.replica import Replica
    from .connection_pool import ConnectionPool

# States:
CONNECTING: Final = 0  # a request may wait for it already
IDLE: Final = 1  # in the pool
AWAITING_HEAD: Final = 2  # a request was sent
BODY_SIZED: Final = 3
BODY_CHUNKED: Final = 4
BODY_UNTIL_CLOSE: Final = 5
TUNNEL: Final = 6
CLOSED: Final = 7

# Events:
ON_CONNECTED: Final = transitions("connected", {CONNECTING: IDLE})
ON_SEND: Final = transitions("send", {IDLE: AWAITING_HEAD})
ON_SIZED: Final = transitions("sized body", {AWAITING_HEAD: BODY_SIZED})
ON_CHUNKED: Final = transitions("chunked body", {AWAITING_HEAD: BODY_CHUNKED})
ON_UNTIL_CLOSE: Final = transitions("body until close", {AWAITING_HEAD: BODY_UNTIL_CLOSE})
ON_TUNNEL: Final = transitions("tunnel", {AWAITING_HEAD: TUNNEL})
# After an error, the request goes to another replica.
ON_RELEASE: Final = transitions("release", {AWAITING_HEAD: IDLE, BODY_SIZED: IDLE, BODY_CHUNKED: IDLE})
ON_CLOSE: Final = transitions("close", dict.fromkeys(range(CONNECTING, CLOSED), CLOSED))
ON_LOST: Final = transitions("lost", dict.fromkeys(range(CONNECTING, CLOSED + 1), CLOSED))

RUNNING: Final = RequestPhase.RUNNING  # looked up once: members of an enumeration are slow to find
MAX_HEAD_BYTES: Final = 256 << 10
MAX_JOINED_WRITE_BYTES: Final = 64 << 10  # a head and a body up to this are joined: one system call
ERROR_BODY_WAIT_SECONDS: Final = 1.0  # where memory is counted
BODYLESS_STATUSES: Final = (204, 304)
DECLINED_STATUSES: Final = (429, 503)  # the replica did nothing
REQUEST_FAULT_STATUSES: Final = (501, 505, 508)  # no other replica would do better
CONTENT_TOO_LARGE: Final = 413  # mostly said by the head alone
MAX_INTERIM_RESPONSES: Final = 16  # answers of 1xx before the real one


class UpstreamConnection:
    __slots__ = (
        "_poll",
        "body_left",
        "chunked",
        "dispatcher",
        "eof",
        "exchange",
        "expires",
        "interim_responses",
        "keep_alive",
        "last_activity",
        "paused",
        "peer_closed",
        "pending",
        "pool",
        "proxy",
        "replica",
        "reused",
        "state",
        "streaming",
        "transport",
        "writer",
    )

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self.proxy = pool.proxy
        self.writer = pool.proxy.writer
        self.dispatcher = pool.proxy.dispatcher
        self.transport: Transport = None  # type: ignore[assignment]  # until connection_made
        self.exchange: Exchange | None = None
        self.replica: Replica = None  # type: ignore[assignment]  # until `assign`
        self.state = CONNECTING
        self.reused = False
        self.peer_closed = False  # the other side closed it, or the network did
        self.paused = False
        self.eof = False
        self.last_activity = 0.0  # idle since; while an answer comes: its last byte came
        self.expires = INFINITY
        self.streaming = False  # the request's body is passed on as it comes
        self.keep_alive = False  # may it be used again after this answer?
        self.pending = b""  # part of a head
        self.interim_responses = 0  # answers of 1xx to this request
        self.body_left = 0
        self.chunked: ChunkedResponse | None = None  # while a chunked body comes
        self._poll: Any = None

    # ------------------------------------------------------------------ the request

    def assign(self, exchange: Exchange, replica: Replica, now: float) -> None:
        self.exchange = exchange
        self.replica = replica
        if self.state == IDLE:
            self._send(exchange, now)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=self.proxy.limits.connection_buffer_bytes)
        self.state = ON_CONNECTED[self.state]
        now = self.proxy.clock()
        if self.exchange is not None:
            self._send(self.exchange, now)
        else:  # the request it was made for is over
            self.pool.release(self, now)

    def is_reusable(self) -> bool:
        """Still open, and silent? What a server says unasked must not be taken for the next answer."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not self._poll.poll(0)

    def connect_failed(self, ours: bool, refused: bool, now: float) -> None:
        """No connection: nothing was sent. `ours`: this machine lacks something. `refused`: nothing listens."""
        if self.state != CONNECTING:
            return  # it was made in the very moment its time was up
        exchange = self.exchange
        self.close()
        if exchange is None:
            return
        self.end(False, now)
        if ours:
            self.dispatcher.attempt_failed(exchange, self, Outcome.CANCELLED, local_replies.DESCRIPTORS_EXHAUSTED, now)
        else:
            self.dispatcher.attempt_failed(exchange, self, Outcome.UNREACHABLE, local_replies.REPLICA_UNREACHABLE, now)
            if refused:
                self.dispatcher.report_failure(self.replica, now, refused=True)

    def _send(self, exchange: Exchange, now: float) -> None:
        self.state = ON_SEND[self.state]
        self.interim_responses = 0
        self.keep_alive = False
        proxy = self.proxy
        proxy.active[self] = None
        timeouts = proxy.timeouts
        silent, late = now + timeouts.first_byte, exchange.started_at + timeouts.total
        self.expires = silent if silent < late else late
        if exchange.client.write_paused:
            self.pause()
        head = write_request_head(exchange, self.pool.authority, self.replica.context.load_report_header)
        body = exchange.body
        if exchange.body_complete:
            self.streaming = False
            if exchange.length == CHUNKED and exchange.trailers:
                self.writer.write(self.transport, head)
                if exchange.body_size:
                    self._write_chunk(b"".join(body))
                self._write_last_chunk(exchange)
            elif not body:
                self.writer.write(self.transport, head)
            elif exchange.body_size <= MAX_JOINED_WRITE_BYTES:
                self.writer.write(self.transport, b"".join((head, *body)))
            else:
                self.writer.write(self.transport, head)
                for piece in body:
                    self.writer.write(self.transport, piece)
            return
        # The rest of the body goes straight through from now on, and cannot be sent again.
        self.streaming = True
        self.writer.write(self.transport, head)
        pieces, exchange.body = exchange.body, []
        proxy.buffers.release(exchange)
        for piece in pieces:
            self.send_body(exchange, piece)
        exchange.client.resume_reading(PAUSED_NO_UPSTREAM, now)

    def send_body(self, exchange: Exchange, data: bytes) -> None:
        if exchange.length != CHUNKED:
            self.writer.write(self.transport, data)
            return
        if data:
            self._write_chunk(data)
        if exchange.body_complete:
            self._write_last_chunk(exchange)

    def _write_chunk(self, data: bytes) -> None:
        self.writer.write(self.transport, b"%x\r\n" % len(data))
        self.writer.write(self.transport, data)
        self.writer.write(self.transport, b"\r\n")

    def _write_last_chunk(self, exchange: Exchange) -> None:
        self.writer.write(self.transport, b"\r\n".join((b"0", *exchange.trailers, b"", b"")))

    def pause(self) -> None:
        """The client does not keep up: read no more for now."""
        self.paused = True
        if self.state != CONNECTING:
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            if self.state != CONNECTING and not self.transport.is_closing():
                self.transport.resume_reading()

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.client.pause_reading(PAUSED_UPSTREAM_SLOW, self.proxy.clock())

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.client.resume_reading(PAUSED_UPSTREAM_SLOW, self.proxy.clock())

    # ------------------------------------------------------------------ the answer

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        state = self.state
        now = self.proxy.clock()
        if exchange is None:
            if state == IDLE:  # nothing was asked
                self.pool.forget(self)
                self.close(abort=True)
        elif state == AWAITING_HEAD:
            self._read_heads(exchange, self.pending + data if self.pending else data, now)
        elif state == BODY_SIZED:
            self._sized_body(exchange, data, now)
        elif state == BODY_CHUNKED:
            self._chunked_body(exchange, data, now)
        elif state == TUNNEL:
            self._forward(exchange, data, now)
        else:
            self._body_until_close(exchange, data, now)

    def _read_heads(self, exchange: Exchange, data: bytes, now: float, patient: bool = True) -> None:
        """The head of the answer, after interim ones. `patient`: the body of an error may be waited for."""
        proxy = self.proxy
        while True:
            end = data.find(END_OF_HEAD)
            if end < 0:
                self.pending = data
                if len(data) > MAX_HEAD_BYTES:
                    self._invalid_response(exchange, now)
                return
            try:
                head = ResponseHead(data[:end].split(b"\r\n"), proxy.response_fields, proxy.statuses)
            except MalformedMessageError:
                self._invalid_response(exchange, now)
                return
            whole, data = data, data[end + 4 :] if len(data) > end + 4 else b""
            if (
                patient
                and head.status >= 500
                and self.replica.residency is not None
                and self._expects_error_body(exchange, head, data)
            ):
                self.expires = min(self.expires, now + ERROR_BODY_WAIT_SECONDS)
                self.pending = whole  # the body says what kind of error it is: parsed again with more of it
                return
            self.pending = b""
            if head.status >= 200:
                self._response_head(exchange, head, data, now)
                return
            if head.status == 101:
                if exchange.upgrade:
                    self.state = ON_TUNNEL[self.state]
                    self.touch(now)
                    self.dispatcher.tunnel(exchange, self, head, data, now)
                else:
                    self._invalid_response(exchange, now)
                return
            self.interim_responses += 1
            if self.interim_responses > MAX_INTERIM_RESPONSES:
                self._invalid_response(exchange, now)
                return
            if head.status != 100 and not exchange.http10:
                self.writer.write(exchange.client.transport, b"\r\n".join((*head.without_body, b"", b"")))
            if not data:
                return

    @staticmethod
    def _expects_error_body(exchange: Exchange, head: ResponseHead, rest: bytes) -> bool:
        """Is more to come of an error's body, and worth waiting for?"""
        if exchange.route.is_head or head.length == UNTIL_CLOSE or len(rest) >= MAX_ERROR_BODY_BYTES:
            return False
        if head.length == CHUNKED:
            return not rest.endswith(b"0\r\n\r\n")
        return len(rest) < min(head.length, MAX_ERROR_BODY_BYTES)

    def _response_head(self, exchange: Exchange, head: ResponseHead, rest: bytes, now: float) -> None:
        proxy = self.proxy
        status = head.status
        length = 0 if exchange.route.is_head or status in BODYLESS_STATUSES else head.length
        # A body that must not come (to HEAD, in a 204) may come all the same.
        self.keep_alive = (
            not head.close and length != UNTIL_CLOSE and (head.length == length or head.length == UNTIL_CLOSE)
        )
        if status == CONTENT_TOO_LARGE or (status >= 400 and exchange.body_size > MAX_JOINED_WRITE_BYTES):
            self.keep_alive = False  # the body may never be read
        upstream = self.replica.context
        upstream.last_response_at = now
        if head.load_report or self.replica.residency is not None:
            self.dispatcher.read_load_report(exchange, self.replica, head.load_report, status, now)
        if (status >= 500 or status == 429) and status not in REQUEST_FAULT_STATUSES:
            outcome = Outcome.OVERLOADED if status in DECLINED_STATUSES and exchange.replayable else Outcome.ERROR
            if self.replica.residency is not None and is_out_of_memory(status, rest):
                outcome = Outcome.OUT_OF_MEMORY
            reusable = self.keep_alive and length == len(rest)
            if not self.dispatcher.error_response(exchange, self, outcome, status, reusable, now):
                return
        elif self.replica.unverified:
            self.dispatcher.trial_passed(self.replica, now)
        attempt = exchange.attempt
        if attempt is not None and (attempt.hedge_entry is not None or exchange.hedge_upstream is not None):
            self.dispatcher.response_started(exchange, self, now, first_byte=length >= 0 or not exchange.streams)
        exchange.first_byte = now
        exchange.length_unknown = length < 0
        exchange.status = status
        exchange.state = ON_RESPOND[exchange.state]
        if not exchange.body_complete:
            exchange.close = True  # the rest of the body would be taken for the next request
        exchange.body = []  # never sent again from here on
        if exchange.held_bytes:
            proxy.buffers.release(exchange)
        if length == CHUNKED:
            if head.trailers or exchange.http10:
                self.chunked = RewrittenChunks(proxy.response_fields, exchange.http10)
            else:
                self.chunked = PassedChunks(proxy.response_fields)
        message = write_response_head(exchange, head, length, upstream.label, now)
        self._begin_body(exchange, message, length, rest, now)

    def _begin_body(self, exchange: Exchange, head: bytes, length: int, rest: bytes, now: float) -> None:
        timeouts = self.proxy.timeouts
        stalled, late = now + timeouts.stream_idle, exchange.started_at + timeouts.total
        self.expires = stalled if stalled < late else late
        if length >= 0:
            self.state = ON_SIZED[self.state]
            self.body_left = length
            if len(rest) <= MAX_JOINED_WRITE_BYTES:
                self._sized_body(exchange, head + rest, now, len(head))
            else:
                self.writer.write(exchange.client.transport, head)
                self._sized_body(exchange, rest, now)
            return
        self.writer.write(exchange.client.transport, head)
        if length == CHUNKED:
            self.state = ON_CHUNKED[self.state]
            if rest:
                self._chunked_body(exchange, rest, now)
        else:
            self.state = ON_UNTIL_CLOSE[self.state]
            if rest:
                self._body_until_close(exchange, rest, now)

    def _sized_body(self, exchange: Exchange, data: bytes, now: float, extra: int = 0) -> None:
        left = self.body_left - len(data) + extra
        if left > 0:
            self.body_left = left
            if exchange.route.counts_tokens and exchange.tokens is None and exchange.status == 200:
                exchange.tokens = AnswerTokens(False)
            self._forward(exchange, data, now)
            return
        if left < 0:  # more than it announced: the rest belongs to no request
            self.keep_alive = False
            data = data[:left]
        exchange.bytes_out += len(data)
        self.writer.write(exchange.client.transport, data)
        if exchange.tokens is not None:
            exchange.tokens.feed(data)
        elif exchange.route.counts_tokens and exchange.status == 200:
            if exchange.observers:  # these want to see more of it
                exchange.tokens = AnswerTokens(False)
                exchange.tokens.feed(data)
            else:
                exchange.usage = read_usage(data)
        self._finish(exchange, now)

    def _chunked_body(self, exchange: Exchange, data: bytes, now: float) -> None:
        chunked = self.chunked
        assert chunked is not None
        try:
            data = chunked.feed(data)
        except MalformedMessageError:
            self._truncated(exchange, now)
            return
        self._forward(exchange, data, now)
        if chunked.done:
            if chunked.excess:
                self.keep_alive = False
            self._finish(exchange, now)

    def _body_until_close(self, exchange: Exchange, data: bytes, now: float) -> None:
        """Clients that know chunks get it in chunks."""
        framed = data if exchange.http10 else b"%x\r\n%b\r\n" % (len(data), data)
        self._forward(exchange, framed, now, data)

    def _forward(self, exchange: Exchange, data: bytes, now: float, text: bytes = b"") -> None:
        """`text`: `data` without the frame of a chunk that was put around it here."""
        timeouts = self.proxy.timeouts
        self.last_activity = now
        if exchange.length_unknown and not exchange.bytes_out and data:
            exchange.first_byte = now  # not its head: many servers send that before they have anything to say
            if exchange.route.counts_tokens:
                self._first_bytes(exchange, now)
        if exchange.tokens is not None:
            exchange.tokens.feed(text or data)
        exchange.bytes_out += len(data)
        stalled, late = now + timeouts.stream_idle, exchange.started_at + timeouts.total
        self.expires = stalled if stalled < late else late
        self.writer.write(exchange.client.transport, data)

    def _first_bytes(self, exchange: Exchange, now: float) -> None:
        """Of the body of an answer that may be a stream of tokens."""
        if exchange.status != 200:
            return
        exchange.tokens = AnswerTokens(exchange.streams)
        pool = exchange.pool
        if pool is not None and pool.wants_first_byte and exchange.streams and exchange.phase is RUNNING:
            self.dispatcher.response_started(exchange, self, now)

    def touch(self, now: float) -> None:
        self.last_activity = now
        self.expires = now + self.proxy.timeouts.stream_idle

    def _finish(self, exchange: Exchange, now: float) -> None:
        replica = self.replica
        if exchange.tokens is not None:
            exchange.usage = exchange.tokens.usage()
        self.end(self.keep_alive and exchange.body_complete, now)
        try:
            self.dispatcher.response_complete(exchange, replica, now)
        finally:  # whatever went wrong in the accounting, this client has its answer
            exchange.client.response_done(exchange, now)

    # ------------------------------------------------------------------ the end

    def end(self, reusable: bool, now: float) -> None:
        exchange = self.exchange
        self.exchange = None
        self.chunked = None
        self.expires = INFINITY
        self.proxy.active.pop(self, None)
        if exchange is not None:
            if exchange.upstream is self:
                exchange.upstream = exchange.hedge_upstream
                exchange.hedge_upstream = None
            elif exchange.hedge_upstream is self:
                exchange.hedge_upstream = None
        if reusable and not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self.state = ON_RELEASE[self.state]
            if self.paused:
                self.resume()
            self.pool.release(self, now)
        elif self.state != CONNECTING and self.state != CLOSED:  # one that is being made goes to the pool when it is
            self.close(abort=True)

    def close(self, *, abort: bool = False) -> None:
        """`abort`: at once, which tells the replica that no response is wanted."""
        connecting = self.state == CONNECTING
        self.state = ON_CLOSE[self.state]
        if abort:
            self.transport.abort()
        elif not connecting:
            self.transport.close()

    def eof_received(self) -> bool:
        exchange = self.exchange
        if self.state == TUNNEL and exchange is not None and not exchange.client.eof:
            self.eof = True
            if exchange.client.transport.can_write_eof():
                self.writer.write_eof(exchange.client.transport)
                return True  # the other direction may go on
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        proxy = self.proxy
        now = proxy.clock()
        if self.state == AWAITING_HEAD and self.exchange is not None:
            self._stop_waiting_for_body(self.exchange, now)  # then it is an error whose body was cut off
        state = self.state
        self.state = ON_LOST[state]
        exchange = self.exchange
        self.peer_closed = True
        if exchange is None:
            if state == IDLE:
                self.pool.forget(self)
            return
        if state == TUNNEL or (state == BODY_UNTIL_CLOSE and problem is None):
            if state == BODY_UNTIL_CLOSE and not exchange.http10:
                self.writer.write(exchange.client.transport, b"0\r\n\r\n")
            self._finish(exchange, now)
        elif exchange.response_started:
            self._truncated(exchange, now)
        elif self.reused and not self.pending and proxy.balancer.allow_resend(exchange, now):
            # It closed an idle connection as we used it again (RFC 9112, 9.3.1): nothing was done, most likely.
            self.dispatcher.move_attempt(exchange, self, self.pool.connect(), now)
            self.end(False, now)
        elif isinstance(problem, MemoryError):  # what it said could not be read: not its fault
            self._attempt_failed(exchange, Outcome.CANCELLED, local_replies.MEMORY_LOW, now)
        else:
            self._attempt_failed(exchange, Outcome.CONNECTION_LOST, local_replies.REPLICA_FAILED, now)

    def _stop_waiting_for_body(self, exchange: Exchange, now: float) -> bool:
        """The error is passed on, or tried elsewhere, as far as it came."""
        if END_OF_HEAD not in self.pending:
            return False
        data, self.pending = self.pending, b""
        proxy = self.proxy
        self.expires = min(now + proxy.timeouts.first_byte, exchange.started_at + proxy.timeouts.total)
        self._read_heads(exchange, data, now, patient=False)
        return True

    def on_timeout(self, now: float) -> None:
        exchange = self.exchange
        if exchange is None or (self.state == AWAITING_HEAD and self._stop_waiting_for_body(exchange, now)):
            return
        if exchange.response_started:
            self._truncated(exchange, now)
        else:
            # Without all of the request the replica cannot be expected to answer.
            outcome = Outcome.TIMEOUT if exchange.body_complete else Outcome.CANCELLED
            self._attempt_failed(exchange, outcome, local_replies.REPLICA_TIMEOUT, now)

    def _invalid_response(self, exchange: Exchange, now: float) -> None:
        self._attempt_failed(exchange, Outcome.CONNECTION_LOST, local_replies.REPLICA_INVALID_RESPONSE, now)

    def _attempt_failed(self, exchange: Exchange, outcome: Outcome, problem: ErrorReply, now: float) -> None:
        self.end(False, now)
        self.dispatcher.attempt_failed(exchange, self, outcome, problem, now)

    def _truncated(self, exchange: Exchange, now: float) -> None:
        if exchange.tokens is not None:
            exchange.usage = exchange.tokens.usage()
        self.end(False, now)
        self.dispatcher.response_truncated(exchange, self, now)

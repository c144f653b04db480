"""A connection to a replica: one request at a time out, its answer back to the client as it comes.

Bytes of an answer are passed on as they are; only its head is read and rewritten. Where the body ends is counted
(content-length) or told by llhttp (chunks).
"""

from __future__ import annotations

import select
from asyncio import Transport
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import httptools

from ..core.outcome import Outcome
from ..core.request import INFINITY
from ..protocols.memory import LOOKED_AT, ran_out
from . import answers
from .answers import Failure
from .chunks import Chunks
from .client import END_OF_HEAD, REPLICA_IS_SLOW, WAITS_FOR_REPLICA
from .composing import request_head, response_head
from .exchange import CHUNKED, Exchange
from .fields import BadHead
from .response_head import UNTIL_CLOSE, ResponseHead
from .trailers import EMPTY_BODY, MAX_TRAILERS, PLAIN_END, clean_end, trailers_begin

if TYPE_CHECKING:
    from ..core.replica import Replica
    from .endpoint import Endpoint

CONNECTING, IDLE, HEAD, SIZED, IN_CHUNKS, ENDLESS, TUNNEL, OVER = range(8)

LONGEST_HEAD: Final = 256 << 10
ONE_WRITE: Final = 64 << 10  # a head and a body up to this are joined: one system call
AGAIN: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"  # what puts llhttp where chunks begin
HELD_BACK: Final = 1.0  # seconds for which the body of an error is waited for, where memory is counted
NO_BODY: Final = (204, 304)
DECLINED: Final = (429, 503)  # the replica did nothing
NOT_ITS_FAULT: Final = (501, 505, 508)  # the request asked for what no replica has, or goes round in a circle
TOO_LARGE: Final = 413  # mostly said by the head alone
MAX_INTERIM: Final = 16  # answers of 1xx before the real one


class ReplicaConnection:
    __slots__ = (
        "_began",
        "_chunks",
        "_parser",
        "_poll",
        "complete",
        "endpoint",
        "eof",
        "exchange",
        "expires",
        "interim",
        "keep",
        "left",
        "lost",
        "paused",
        "pending",
        "replica",
        "reused",
        "since",
        "state",
        "streaming",
        "tail",
        "trailing",
        "transport",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.transport: Transport = None  # type: ignore[assignment]  # until connection_made
        self.exchange: Exchange | None = None
        self.replica: Replica = None  # type: ignore[assignment]  # until `carry`
        self.state = CONNECTING
        self.reused = False
        self.lost = False  # the other side closed it, or the network did
        self.paused = False
        self.eof = False
        self.tail = b""  # of the last piece in chunks
        self.trailing = b""  # trailers that are not all there
        self.since = 0.0  # idle since; while an answer comes: its last byte came
        self.expires = INFINITY
        self.streaming = False  # the request's body is passed on as it comes
        self.keep = False  # may it be used again after this answer?
        self.pending = b""  # part of a head
        self.interim = 0  # answers of 1xx to this request
        self.left = 0
        self.complete = False
        self._began = 0
        self._poll: Any = None
        self._parser: httptools.HttpResponseParser | None = None
        # For clients of HTTP/1.0, who do not know chunks, and for answers with trailers, which are looked at.
        self._chunks: Chunks | None = None

    # ------------------------------------------------------------------ the request

    def carry(self, exchange: Exchange, replica: Replica) -> None:
        """Take this request to its replica; at once, or when the connection is there."""
        self.exchange = exchange
        self.replica = replica
        if self.state == IDLE:
            self._send(exchange)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=self.endpoint.carrier.limits.buffer)
        self.state = IDLE
        if self.exchange is not None:
            self._send(self.exchange)
        else:  # whoever it was made for has left meanwhile
            self.endpoint.release(self, monotonic())

    def quiet(self) -> bool:
        """Unused, is it still open, and silent? What a server says unasked must not be taken for the next answer."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not self._poll.poll(0)

    def not_made(self, ours: bool, refused: bool) -> None:
        """No connection: nothing was sent. `ours`: this machine lacks something. `refused`: nobody is there."""
        if self.state != CONNECTING:
            return  # it was made in the very moment its time was up
        self.state = OVER
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        carrier = self.endpoint.carrier
        if ours:
            carrier.attempt_ended(exchange, self, Outcome.CANCELLED, answers.NO_DESCRIPTORS)
        else:
            carrier.attempt_ended(exchange, self, Outcome.UNREACHABLE, answers.REPLICA_UNREACHABLE)
            if refused:
                carrier.suspect(self.replica, refused=True)

    def _send(self, exchange: Exchange) -> None:
        self.state = HEAD
        self.interim = 0
        self.keep = False
        carrier = self.endpoint.carrier
        carrier.active[self] = None
        now = monotonic()
        total = exchange.began + carrier.timeouts.total
        self.expires = min(now + carrier.timeouts.first_byte, total)
        if exchange.client.stuck:
            self.pause()
        head = request_head(exchange, self.endpoint.authority, self.replica.context.asks)
        body = exchange.body
        if exchange.body_done:
            self.streaming = False
            if exchange.length == CHUNKED and exchange.trailers:
                self.write(head)
                if exchange.body_size:
                    self._chunk(b"".join(body))
                self._last_chunk(exchange)
            elif not body:
                carrier.write_soon(self.transport, head)
            elif exchange.body_size <= ONE_WRITE:
                carrier.write_soon(self.transport, b"".join((head, *body)))
            else:
                self.write(head)
                for piece in body:
                    self.write(piece)
            return
        # The rest of the body goes straight through from now on, and cannot be sent again.
        self.streaming = True
        self.write(head)
        pieces, exchange.body = exchange.body, []
        carrier.buffers.release(exchange)
        for piece in pieces:
            self.send_body(exchange, piece)
        exchange.client.go_on(WAITS_FOR_REPLICA)

    def send_body(self, exchange: Exchange, data: bytes) -> None:
        if exchange.length != CHUNKED:
            self.write(data)
            return
        if data:
            self._chunk(data)
        if exchange.body_done:
            self._last_chunk(exchange)

    def _chunk(self, data: bytes) -> None:
        self.write(b"%x\r\n" % len(data))
        self.write(data)
        self.write(b"\r\n")

    def _last_chunk(self, exchange: Exchange) -> None:
        self.write(b"\r\n".join((b"0", *exchange.trailers, b"", b"")))

    def write(self, data: bytes) -> None:
        """Now, and after what was to be written soon."""
        carrier = self.endpoint.carrier
        if carrier.unsent:
            carrier.flush()
        self.transport.write(data)

    def pause(self) -> None:
        """The client does not keep up: read no more for now."""
        self.paused = True
        if self.state != CONNECTING:
            self.transport.pause_reading()

    def go_on(self) -> None:
        if self.paused:
            self.paused = False
            if self.state != CONNECTING and not self.transport.is_closing():
                self.transport.resume_reading()

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.client.halt(REPLICA_IS_SLOW)

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.client.go_on(REPLICA_IS_SLOW)

    # ------------------------------------------------------------------ the answer

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        state = self.state
        if exchange is None:
            self.transport.abort()  # nobody asked for anything
        elif state == HEAD:
            self._heads(exchange, self.pending + data if self.pending else data)
        elif state == SIZED:
            self._sized(exchange, data)
        elif state == IN_CHUNKS:
            self._in_chunks(exchange, data)
        elif state == TUNNEL:
            self._pass_on(exchange, data)
        else:  # it ends with the connection: put in chunks, for clients that know them
            self._pass_on(exchange, b"%x\r\n%b\r\n" % (len(data), data) if not exchange.old else data)

    def _heads(self, exchange: Exchange, data: bytes, patient: bool = True) -> None:
        """The head of the answer, after any interim ones. `patient`: of an error more may be waited for."""
        carrier = self.endpoint.carrier
        while True:
            end = data.find(END_OF_HEAD)
            if end < 0:
                self.pending = data
                if len(data) > LONGEST_HEAD:
                    self._nonsense(exchange)
                return
            try:
                head = ResponseHead(data[:end].split(b"\r\n"), carrier.response_fields, carrier.statuses)
            except BadHead:
                self._nonsense(exchange)
                return
            whole, data = data, data[end + 4 :] if len(data) > end + 4 else b""
            if (
                patient
                and head.status >= 500
                and self.replica.place is not None
                and self._says_more(exchange, head, data)
            ):
                self.expires = min(self.expires, monotonic() + HELD_BACK)
                self.pending = whole  # what kind of error it is, its body tells: it is read anew with more of it
                return
            self.pending = b""
            if head.status >= 200:
                self._head(exchange, head, data)
                return
            if head.status == 101:
                if exchange.upgrade:
                    carrier.tunnel(exchange, self, head, data)
                else:
                    self._nonsense(exchange)
                return
            self.interim += 1
            if self.interim > MAX_INTERIM:
                self._nonsense(exchange)
                return
            if head.status != 100 and not exchange.old:
                exchange.client.write(b"\r\n".join((*head.without_body, b"", b"")))
            if not data:
                return

    @staticmethod
    def _says_more(exchange: Exchange, head: ResponseHead, rest: bytes) -> bool:
        """Is more to come of an error's body, and worth waiting for?"""
        if exchange.route.head or head.length == UNTIL_CLOSE or len(rest) >= LOOKED_AT:
            return False
        if head.length == CHUNKED:
            return not rest.endswith(b"0\r\n\r\n")
        return len(rest) < min(head.length, LOOKED_AT)

    def _head(self, exchange: Exchange, head: ResponseHead, rest: bytes) -> None:
        carrier = self.endpoint.carrier
        status = head.status
        length = 0 if exchange.route.head or status in NO_BODY else head.length
        # A body that is announced and must not come (to HEAD, in a 204) may come all the same, and late.
        self.keep = not head.close and length != UNTIL_CLOSE and (head.length == length or head.length == UNTIL_CLOSE)
        if status == TOO_LARGE or (status >= 400 and exchange.body_size > ONE_WRITE):
            self.keep = False  # the error may have come before the body was read: whether it ever is, nobody can see
        now = monotonic()
        way = self.replica.context
        way.heard = now
        if head.load or self.replica.place is not None:
            carrier.take_in_load(exchange, self.replica, head.load, status, now)
        if (status >= 500 or status == 429) and status not in NOT_ITS_FAULT:
            outcome = Outcome.OVERLOADED if status in DECLINED and exchange.replayable else Outcome.ERROR
            if self.replica.place is not None and ran_out(status, rest):
                outcome = Outcome.OUT_OF_MEMORY
            if not carrier.give_up(exchange, self, outcome, status, now):
                self._leave(self.keep and length == len(rest), now)
                return
        elif self.replica.on_trial:
            carrier.passed_trial(self.replica, now)
        flight = exchange.flight
        if flight is not None and (flight.entry is not None or exchange.rival is not None):
            carrier.settle(exchange, self, now)
        exchange.first_byte = now
        exchange.streamed = length < 0
        exchange.status = status
        exchange.answered = True
        if not exchange.body_done:
            exchange.close = True  # the rest of the body would be taken for the next request
        exchange.body = []  # never sent again from here on
        if exchange.held:
            carrier.buffers.release(exchange)
        if length == CHUNKED and (head.trailers or exchange.old):
            self._chunks = Chunks()
            self._chunks.pieces = []
        message = response_head(exchange, head, length, way.label, now)
        self._begin_body(exchange, message, length, rest)

    def _begin_body(self, exchange: Exchange, head: bytes, length: int, rest: bytes) -> None:
        carrier = self.endpoint.carrier
        self.expires = min(exchange.first_byte + carrier.timeouts.stream, exchange.began + carrier.timeouts.total)
        if length >= 0:
            self.state = SIZED
            self.left = length
            if len(rest) <= ONE_WRITE:
                self._sized(exchange, head + rest, len(head))
            else:
                exchange.client.write(head)
                self._sized(exchange, rest)
            return
        exchange.client.write(head)
        if length == CHUNKED:
            self.state = IN_CHUNKS
            self.complete = False
            self.tail = self.trailing = b""
            self._began = 0
            if self._chunks is None:
                self._parser = httptools.HttpResponseParser(self)
                self._parser.feed_data(AGAIN)
        else:
            self.state = ENDLESS
        if rest:
            self.data_received(rest)

    def _sized(self, exchange: Exchange, data: bytes, extra: int = 0) -> None:
        left = self.left - len(data) + extra
        if left > 0:
            self.left = left
            self._pass_on(exchange, data)
            return
        if left < 0:  # more than it announced: what is left over is nobody's answer
            self.keep = False
            data = data[:left]
        exchange.bytes_out += len(data)
        self.endpoint.carrier.write_soon(exchange.client.transport, data)
        self._finish(exchange)

    def _in_chunks(self, exchange: Exchange, data: bytes) -> None:
        try:
            if self._chunks is not None:
                data = self._chunks_read(exchange, self._chunks, data)
            else:
                assert self._parser is not None
                self._parser.feed_data(data)
        except (httptools.HttpParserError, BadHead):
            self._cut_off(exchange)
            return
        if self._chunks is None:
            if self.trailing:
                data, self.trailing = self.trailing + data, b""
            joined = self.tail + data
            tail = joined[-6:]
            if self._began > 1 or (self.complete and not _ends_well(tail)):
                self._cut_off(exchange)  # the replica says more than was asked
                return
            if not self.complete:
                if b"\n0" in joined[-MAX_TRAILERS:] or not self.tail:
                    sent = trailers_begin(self.tail, data)
                    self.trailing, data = data[sent:], data[:sent]
                    tail = (self.tail + data)[-6:]
            elif tail != PLAIN_END and tail != EMPTY_BODY:
                clean = clean_end(self.tail, data, self.endpoint.carrier.response_fields)
                if clean is None:
                    self._cut_off(exchange)  # part of the trailers went out unseen: it must not look whole
                    return
                data = clean
            self.tail = tail
        self._pass_on(exchange, data)
        if self.complete:
            self._finish(exchange)

    def _chunks_read(self, exchange: Exchange, chunks: Chunks, data: bytes) -> bytes:
        """What to pass on of it: without chunks, or in chunks of our own with the trailers that may be passed on."""
        if chunks.feed(data) < len(data):
            self.keep = False
        self.complete = chunks.done
        pieces = chunks.pieces or []
        content = b"".join(pieces)
        pieces.clear()
        if exchange.old:
            return content
        if content:
            content = b"%x\r\n%b\r\n" % (len(content), content)
        if chunks.done:
            kept = self.endpoint.carrier.response_fields.trailers(chunks.trailers)
            content += b"\r\n".join((b"0", *kept, b"", b""))
        return content

    def on_message_begin(self) -> None:
        self._began += 1

    def on_message_complete(self) -> None:
        self.complete = True

    def _pass_on(self, exchange: Exchange, data: bytes) -> None:
        carrier = self.endpoint.carrier
        self.since = now = monotonic()
        if exchange.streamed and not exchange.bytes_out:
            exchange.first_byte = now  # not its head: many servers send that before they have anything to say
        exchange.bytes_out += len(data)
        self.expires = min(now + carrier.timeouts.stream, exchange.began + carrier.timeouts.total)
        carrier.write_soon(exchange.client.transport, data)

    def alive(self) -> None:
        """Bytes went through the tunnel."""
        self.since = now = monotonic()
        self.expires = now + self.endpoint.carrier.timeouts.stream

    def _finish(self, exchange: Exchange) -> None:
        now = monotonic()
        replica = self.replica
        self._leave(self.keep and exchange.body_done, now)
        try:
            self.endpoint.carrier.completed(exchange, replica, now)
        finally:  # whatever went wrong with the books, this client has its answer
            exchange.client.answered(exchange)

    def _leave(self, keep: bool, now: float) -> None:
        """Done with this request."""
        self.exchange = None
        self._parser = None
        self._chunks = None
        self.expires = INFINITY
        self.endpoint.carrier.active.pop(self, None)
        if keep and not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self.state = IDLE
            self.go_on()
            self.endpoint.release(self, now)
        else:
            self.state = OVER
            self.transport.abort()

    # ------------------------------------------------------------------ the end

    def cancel(self) -> None:
        """Nobody wants the answer any more: the replica learns of it by the closed connection."""
        self.exchange = None
        self.expires = INFINITY
        self.endpoint.carrier.active.pop(self, None)
        if self.state != CONNECTING:
            self.state = OVER
            self.transport.abort()

    def eof_received(self) -> bool:
        exchange = self.exchange
        if self.state == TUNNEL and exchange is not None and not exchange.client.eof:
            self.eof = True
            if exchange.client.transport.can_write_eof():
                self.endpoint.carrier.flush()
                exchange.client.transport.write_eof()
                return True  # the other direction may go on
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        if self.state == HEAD and self.exchange is not None:
            self._look_no_longer(self.exchange)  # then it is an error whose body was cut off
        state, self.state = self.state, OVER
        exchange = self.exchange
        self.lost = True
        if exchange is None:
            if state == IDLE and self in self.endpoint.idle:
                self.endpoint.idle.remove(self)
            return
        carrier = self.endpoint.carrier
        if state == TUNNEL or (state == ENDLESS and problem is None):
            if state == ENDLESS and not exchange.old:
                exchange.client.write(b"0\r\n\r\n")
            self._finish(exchange)
        elif exchange.answered:
            self._cut_off(exchange)
        elif self.reused and not self.pending and carrier.balancer.resend(exchange, monotonic()):
            # It closed an idle connection as we used it again (RFC 9112, 9.3.1): nothing was done, most likely.
            self.exchange = None
            carrier.active.pop(self, None)
            connection = self.endpoint.fresh()
            carrier.replace(exchange, self, connection)
        elif isinstance(problem, MemoryError):  # what it said could not be read: not its fault
            self._failed(exchange, Outcome.CANCELLED, answers.MEMORY_LOW)
        else:
            self._failed(exchange, Outcome.BROKEN, answers.REPLICA_FAILED)

    def _look_no_longer(self, exchange: Exchange) -> bool:
        """The body of an error was waited for in vain: it is passed on, or tried elsewhere, as far as it came."""
        if END_OF_HEAD not in self.pending:
            return False
        data, self.pending = self.pending, b""
        carrier = self.endpoint.carrier
        self.expires = min(monotonic() + carrier.timeouts.first_byte, exchange.began + carrier.timeouts.total)
        self._heads(exchange, data, patient=False)
        return True

    def time_is_up(self) -> None:
        exchange = self.exchange
        if exchange is None or (self.state == HEAD and self._look_no_longer(exchange)):
            return
        if exchange.answered:
            self._cut_off(exchange)
        else:
            # While its client has not sent all of the request, the replica cannot be expected to answer.
            outcome = Outcome.TIMEOUT if exchange.body_done else Outcome.CANCELLED
            self._failed(exchange, outcome, answers.REPLICA_TIMEOUT)

    def _nonsense(self, exchange: Exchange) -> None:
        self._failed(exchange, Outcome.BROKEN, answers.REPLICA_NONSENSE)

    def _failed(self, exchange: Exchange, outcome: Outcome, problem: Failure) -> None:
        """Before the client has anything: it may be tried elsewhere."""
        self._leave(False, 0.0)
        self.endpoint.carrier.attempt_ended(exchange, self, outcome, problem)

    def _cut_off(self, exchange: Exchange) -> None:
        """After the client has part of the answer: it must see that the rest is missing."""
        self._leave(False, 0.0)
        self.endpoint.carrier.truncated(exchange, self)


def _ends_well(tail: bytes) -> bool:
    """Is the end of the chunks the end of what came? llhttp takes empty lines after it for nothing."""
    return tail[-4:] == b"\r\n\r\n" and tail != b"\r\n\r\n\r\n"

"""A client's connection: requests in, answers out, one at a time and in order.

Callbacks on the transport, no task and no timer of its own: the carrier sweeps over all connections and closes those
whose `expires` has passed.
"""

from __future__ import annotations

import struct
from asyncio import Transport
from socket import AF_UNIX, SO_LINGER, SOL_SOCKET
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ..addresses import plain_host
from ..core.request import INFINITY
from . import accounts, answers
from .answers import Failure
from .chunks import Chunks, TooMuchFraming
from .exchange import Exchange
from .fields import BadHead, Looped
from .forwarding import Forwarding, network_of
from .request_head import read_head
from .rights import NOBODY
from .routing import Refused
from .turns import TURN_BYTES, TURN_CHUNKS, TURN_REQUESTS

if TYPE_CHECKING:
    from .carrier import Carrier
    from .upstream import ReplicaConnection

END_OF_HEAD: Final = b"\r\n\r\n"
MOST_EMPTY_LINES: Final = 8  # before a request line; careless clients send one after a body
READ_AHEAD: Final = 64 << 10  # bytes of requests after the current one
SMALL_PIECE: Final = 4096  # bytes; of a body that is kept, so many of these are put together:
SMALL_PIECES: Final = 64
LAST_CALL: Final = 1.0  # seconds: when draining, for a request on a connection that is idle
LINGER: Final = 2.0  # seconds in which the rest of an unread request may still arrive after the answer
LINGER_BYTES: Final = 1 << 20  # and how much of it

RESET: Final = struct.pack("ii", 1, 0)

# Why reading is paused; several may hold at once.
WAITS_FOR_REPLICA: Final = 1  # the body is too large to be kept while nobody takes it
REPLICA_IS_SLOW: Final = 2
TOO_FAR_AHEAD: Final = 4
TURN_IS_OVER: Final = 8  # it waits for its next: turns.py


class ClientConnection:
    __slots__ = (
        "address",
        "at",
        "busy",
        "carrier",
        "chunked",
        "ended",
        "eof",
        "exchange",
        "expires",
        "forwarding",
        "halts",
        "left",
        "pending",
        "rights",
        "small",
        "stuck",
        "stuck_at",
        "tls",
        "transport",
        "tunnel",
        "waits_at",
    )

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self.transport: Transport = None  # type: ignore[assignment]  # until connection_made
        self.address = ""  # whose share of the buffers it uses; empty: many clients behind one address
        self.exchange: Exchange | None = None  # the request being served
        self.rights = NOBODY
        self.pending = b""  # bytes of what comes after it, …
        self.at = 0  # … from here on; they are not copied for each request
        self.left = 0  # bytes of the current body still to come
        self.small = 0  # small pieces of it that are kept one by one
        self.chunked: Chunks | None = None  # reads the current body, if it comes in chunks
        self.tls = False
        self.tunnel: ReplicaConnection | None = None  # after an upgrade
        self.expires = INFINITY
        self.halts = 0
        self.stuck = False  # the client does not take what is written …
        self.stuck_at = 0.0  # … since then, as far as that is not counted yet
        self.waits_at = 0.0  # since when a replica waits for the rest of a body; 0.0: none does
        self.busy = False  # inside the loop over pending requests
        self.eof = False  # the client sends no more
        self.ended = False  # nothing more is read: the answer in progress is the last

    # ------------------------------------------------------------------ the transport's callbacks

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        carrier = self.carrier
        if not carrier.admit(self):
            problem = answers.MEMORY_LOW if carrier.low else answers.TOO_MANY_CONNECTIONS
            transport.write(answers.unparsed(answers.STOPPING if carrier.draining else problem))
            transport.close()
            self.ended = True
            return
        transport.set_write_buffer_limits(high=carrier.limits.buffer)
        peer = transport.get_extra_info("peername")
        host = plain_host(peer[0]) if isinstance(peer, tuple) and peer else "unix"
        self.tls = transport.get_extra_info("ssl_object") is not None
        if self.tls:
            transport.set_read_buffer_limits(high=TURN_BYTES)  # what comes while it waits is read in one turn
        self.rights = rights = carrier.trust_rule.rights(host)
        self.forwarding = Forwarding(host, self.tls, rights.believed)
        if not rights.believed and host != "unix":
            self.address = network_of(host)
        self.expires = monotonic() + carrier.timeouts.idle

    def data_received(self, data: bytes) -> None:
        try:
            self._received(data)
        except MemoryError:
            exchange = self.exchange
            if exchange is None:
                self.refuse(answers.MEMORY_LOW)
            else:
                self.fail(exchange, answers.MEMORY_LOW)
        # Of TLS nobody can tell how much was read: a record costs the same whether it holds one byte or thousands.
        if (self.tls or len(data) >= TURN_BYTES) and not self.halts:
            exchange = self.exchange
            if exchange is not None and (not exchange.body_done or self.tunnel is not None):
                self._turn_over()

    def _received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            if self.ended:
                self.left -= len(data)
                if self.left < 0:
                    self.transport.abort()  # it had its chance to stop
                return
            if self.pending:
                self._keep(data)
            else:
                self.pending = data
            if self.stuck:
                self._read_ahead()
            elif not self.halts & TURN_IS_OVER:
                self._serve_pending()
        elif exchange.body_done:
            if self.tunnel is not None:
                self.tunnel.alive()
                self.tunnel.write(data)
                return
            self._keep(data)
            self._read_ahead()
        elif self.pending:  # it waits for its turn
            self._keep(data)
        elif self.chunked is not None:
            self._chunked_body(exchange, data)
        else:
            self._sized_body(exchange, data)

    def _keep(self, data: bytes) -> None:
        self.pending = self.take_pending() + data

    def take_pending(self) -> bytes:
        """What was read ahead, which then is the caller's."""
        pending = self.pending[self.at :] if self.at else self.pending
        self.pending = b""
        self.at = 0
        return pending

    def _read_ahead(self) -> None:
        if len(self.pending) - self.at > READ_AHEAD:
            self.halt(TOO_FAR_AHEAD)

    def _turn_over(self) -> None:
        """Others first: it is read no further before its next turn."""
        self.halt(TURN_IS_OVER)
        self.carrier.turns.wait(self)

    def take_turn(self) -> None:
        """Go on where the last turn ended, unless something else has to come first, which then calls for a turn."""
        exchange = self.exchange
        if self.ended or self.halts != TURN_IS_OVER or (exchange is None and self.stuck):
            return
        if exchange is None:
            self._serve_pending()
        elif self.chunked is not None and self.pending:
            data, at = self.pending, self.at
            self.pending = b""
            self.at = 0
            self._chunked_body(exchange, data, at)
        if self not in self.carrier.turns.waiting:
            if self.exchange is not None or self.stuck:
                self._read_ahead()
            self.go_on(TURN_IS_OVER)

    def eof_received(self) -> bool:
        """A client that stops sending has left, as far as anyone can tell: what runs for it is stopped."""
        self.eof = True
        tunnel = self.tunnel
        if tunnel is not None and not tunnel.eof and tunnel.transport.can_write_eof():
            self.carrier.flush()
            tunnel.transport.write_eof()
            return True  # the other direction may go on
        return False  # the transport closes itself

    def connection_lost(self, problem: Exception | None) -> None:
        self.ended = True
        self.carrier.dismiss(self)
        exchange = self.exchange
        if exchange is not None:
            self.exchange = None
            self._count_waits(exchange, monotonic())
            self.carrier.abandon(exchange)
        self.pending = b""

    def pause_writing(self) -> None:
        self.stuck = True
        self.stuck_at = now = monotonic()
        self.expires = now + self.carrier.timeouts.write
        upstream = self.exchange.upstream if self.exchange is not None else None
        if upstream is not None:
            upstream.pause()

    def resume_writing(self) -> None:
        self.stuck = False
        since, self.stuck_at = self.stuck_at, 0.0
        now = monotonic()
        exchange = self.exchange
        if exchange is None:
            self.expires = now + self.carrier.timeouts.idle
            if not self.halts & TURN_IS_OVER:
                self._serve_pending()
            self.go_on(WAITS_FOR_REPLICA | REPLICA_IS_SLOW | TOO_FAR_AHEAD)
            return
        exchange.unread += now - since
        self.expires = INFINITY if exchange.body_done or self.halts else now + self.carrier.timeouts.body
        if exchange.upstream is not None:
            exchange.upstream.go_on()

    # ------------------------------------------------------------------ heads

    def _serve_pending(self) -> None:
        """Begin what has arrived, until a request needs time. A loop, not a recursion: many may be answered at once."""
        if self.busy:
            return
        self.busy = True
        begun = 0
        size = len(self.pending) - self.at
        try:
            while self.pending and self.exchange is None and not self.ended and not self.stuck:
                data, at = self.pending, self.at
                if begun and (begun >= TURN_REQUESTS or size - len(data) + at > TURN_BYTES):
                    self._turn_over()
                    break
                end = data.find(END_OF_HEAD, at)
                if end <= at or data[at] == 13:  # not all there, or an empty line before it
                    if not (self._empty_lines(data, at) if data.startswith(b"\r\n", at) else self._incomplete()):
                        break
                    continue
                if end - at > self.carrier.limits.header_bytes:
                    self.refuse(answers.HEAD_TOO_LARGE)
                    break
                self.pending = b""
                self.at = 0
                begun += 1
                try:
                    self._begin(data, at, end)
                except Refused as refused:  # two names: one of two types is more than mypyc allows
                    self.refuse(answers.method_refused(refused))
                except Looped as looped:
                    self.refuse(answers.loop_detected(looped))
                except BadHead as problem:
                    self.refuse(answers.bad_request(problem))
        finally:
            self.busy = False

    def _empty_lines(self, data: bytes, at: int) -> bool:
        """Skip those before a request (RFC 9112, 2.2). False: there are too many."""
        empty = next((n for n in range(1, MOST_EMPTY_LINES) if not data.startswith(b"\r\n", at + 2 * n)), 0)
        if not empty:
            self.refuse(answers.bad_request(BadHead("There are too many empty lines before the request.")))
            return False
        self.at = at + 2 * empty
        if self.at == len(data):
            self.take_pending()
        return True

    def _incomplete(self) -> bool:
        """A head that is not all there: never to be looked at again as it is."""
        self.pending = data = self.take_pending()
        if len(data) > self.carrier.limits.header_bytes:
            self.refuse(answers.HEAD_TOO_LARGE)
        elif data.count(b"\n") != data.count(b"\r\n"):
            self.refuse(answers.bad_request(BadHead("Lines end with CR and LF, not with LF alone.")))
        elif self not in self.carrier.heads_began:
            # From the first byte on, not from the last: a head that drips in must not live longer for it.
            self.carrier.heads_began[self] = None
            self.expires = monotonic() + self.carrier.timeouts.header
        return False

    def _begin(self, data: bytes, at: int, end: int) -> None:
        """The request whose head is from `at` to `end`."""
        carrier = self.carrier
        lines = data[at:end].split(b"\r\n")
        if len(lines) > carrier.limits.headers + 1:
            self.refuse(answers.HEAD_TOO_LARGE)
            return
        if carrier.heads_began:
            carrier.heads_began.pop(self, None)
        first = lines[0]
        route = carrier.router.routes.get(first)
        if route is None:
            route = carrier.router.find(first)
        exchange = Exchange(self, route, monotonic())
        exchange.old = exchange.close = route.old
        del lines[0]
        read_head(exchange, lines, carrier.request_fields, self.forwarding)
        carrier.prepare(exchange)
        self.exchange = exchange
        self.expires = INFINITY
        length = exchange.length
        start = end + 4
        if carrier.low and not route.call.local:
            exchange.body_done = length == 0
            if length == 0 and len(data) > start:
                self.pending = data
                self.at = start
            self.fail(exchange, answers.MEMORY_LOW)
        elif length == 0:
            exchange.body_done = True
            if len(data) > start:
                self.pending = data
                self.at = start
            carrier.arrive(exchange)
        elif length > 0:
            if length > carrier.limits.body:
                self.fail(exchange, answers.BODY_TOO_LARGE)
            elif len(data) >= start + length:  # the usual case: one read brought it all
                end = start + length
                exchange.body.append(data[start:end])
                if len(data) > end:
                    self.pending = data
                    self.at = end
                exchange.body_size = length
                exchange.body_done = True
                if carrier.tight and not carrier.buffers.hold(exchange, length):
                    self.fail(exchange, carrier.buffers.full)
                else:
                    carrier.arrive(exchange)
            else:
                self.left = length
                self._continue(exchange)
                if len(data) > start:
                    self._sized_body(exchange, data[start:])
        else:
            self.chunked = Chunks()
            self.chunked.pieces = []
            self._continue(exchange)
            if len(data) > start:
                self._chunked_body(exchange, data, start)

    def _continue(self, exchange: Exchange) -> None:
        self.small = 0
        self.expires = monotonic() + self.carrier.timeouts.body
        self.carrier.buffers.begin(self, exchange)
        if exchange.expects and not exchange.old:
            self.write(answers.CONTINUE)

    # ------------------------------------------------------------------ bodies

    def _sized_body(self, exchange: Exchange, data: bytes) -> None:
        left = self.left - len(data)
        if left < 0:
            data, self.pending = data[:left], data[left:]
            left = 0
        self.left = left
        self._take(exchange, data, left == 0)

    def _chunked_body(self, exchange: Exchange, data: bytes, at: int = 0) -> None:
        chunked = self.chunked
        assert chunked is not None
        assert chunked.pieces is not None
        try:
            used = chunked.feed(data, at, TURN_CHUNKS)
        except TooMuchFraming:
            self.fail(exchange, answers.CHUNK_OVERHEAD)
            return
        except BadHead as problem:
            exchange.close = True
            self.fail(exchange, answers.bad_request(problem))
            return
        content = b"".join(chunked.pieces)
        chunked.pieces.clear()
        if exchange.body_size + len(content) > self.carrier.limits.body:
            self.fail(exchange, answers.BODY_TOO_LARGE)
            return
        if used < len(data):
            self.pending = data
            self.at = used
        if chunked.done:
            self.chunked = None
            exchange.trailers = self.carrier.request_fields.trailers(chunked.trailers)
            self._take(exchange, content, True)
        elif content:
            self._take(exchange, content, False)
        if self.pending and self.exchange is exchange and not exchange.body_done:
            self._turn_over()

    def _take(self, exchange: Exchange, data: bytes, done: bool) -> None:
        """A piece of the body: to the replica if it is on its way there, else it is kept."""
        exchange.body_size += len(data)
        exchange.body_done = done
        if not self.stuck:
            self.expires = INFINITY if done else monotonic() + self.carrier.timeouts.body
        upstream = exchange.upstream
        if upstream is not None and upstream.streaming:
            if done:
                self._count_waits(exchange, monotonic())
            upstream.send_body(exchange, data)
            return
        if data:
            exchange.body.append(data)
            if len(data) < SMALL_PIECE:
                self._put_together(exchange.body)
            if not self.carrier.buffers.hold(exchange, len(data)):
                self.fail(exchange, self.carrier.buffers.full)
                return
        waiting = exchange.dispatched or exchange.attempts or exchange.arrived
        if done:
            if not waiting:
                self.carrier.arrive(exchange)
        elif exchange.body_size > self.carrier.limits.replay:
            self.halt(WAITS_FOR_REPLICA)
            if not waiting:
                self.carrier.arrive(exchange)

    def _put_together(self, body: list[bytes]) -> None:
        """Of a body in tiny pieces, each would be written by itself: all at once, when it is sent."""
        self.small += 1
        if self.small >= SMALL_PIECES:
            self.small = 0
            body[-SMALL_PIECES:] = [b"".join(body[-SMALL_PIECES:])]

    def write(self, data: bytes) -> None:
        """Now, and after what was to be written soon."""
        if self.carrier.unsent:
            self.carrier.flush()
        self.transport.write(data)

    def halt(self, why: int) -> None:
        if not self.halts:
            if self.waits_at and self.exchange is not None:
                self._count_waits(self.exchange, monotonic())
            self.transport.pause_reading()
            if not self.stuck:
                self.expires = INFINITY  # while we do not read, it is not the client who is slow
        self.halts |= why

    def go_on(self, why: int) -> None:
        if self.halts & why:
            self.halts &= ~why
            if self.halts == TURN_IS_OVER:
                self.carrier.turns.wait(self)
            elif not self.halts and not self.transport.is_closing():
                self.transport.resume_reading()
                if self.exchange is not None and not self.exchange.body_done:
                    now = monotonic()
                    if self.exchange.dispatched:
                        self.waits_at = now
                    if not self.stuck:
                        self.expires = now + self.carrier.timeouts.body

    def _count_waits(self, exchange: Exchange, now: float) -> None:
        """How long its client has kept us waiting, as far as that is not counted yet."""
        if self.waits_at:
            exchange.delayed += now - self.waits_at
            self.waits_at = 0.0
        if self.stuck_at:
            exchange.unread += now - self.stuck_at
            self.stuck_at = now

    def caught_up(self) -> None:
        self.go_on(TOO_FAR_AHEAD)

    # ------------------------------------------------------------------ answers

    def answered(self, exchange: Exchange) -> None:
        """The answer is written to its last byte: go on with the next request, or end."""
        self.exchange = None
        self.tunnel = None
        self.chunked = None
        if exchange.close or not exchange.body_done:
            self._end(exchange)
            return
        self.expires = monotonic() + (self.carrier.timeouts.write if self.stuck else self.carrier.timeouts.idle)
        if self.halts and not self.stuck:
            self.go_on(WAITS_FOR_REPLICA | REPLICA_IS_SLOW | TOO_FAR_AHEAD)
        if self.pending:
            self._serve_pending()

    def fail(self, exchange: Exchange, problem: Failure, retry_after: float = 0.0) -> None:
        """Answer with a failure of ours, or, if the client has part of another answer, cut that one off."""
        self._count_waits(exchange, monotonic())
        self.carrier.drop(exchange)
        exchange.fault = exchange.fault or problem.fault
        if exchange.answered:
            if not exchange.verdict:
                exchange.verdict = accounts.CLIENT_ERROR if problem.status < 500 else accounts.FAILED
            self.carrier.close_account(exchange, problem.code)
            self.exchange = None
            self.break_off(exchange)
            return
        exchange.status = problem.status
        if not exchange.body_done:
            exchange.close = True
        message = answers.failure(problem, exchange, retry_after)
        exchange.bytes_out = len(message)
        exchange.answered = True
        self.write(message)
        self.carrier.close_account(exchange, problem.code)
        self.answered(exchange)

    def break_off(self, exchange: Exchange) -> None:
        """End in the middle of an answer: never a clean end, the client must see that something is missing."""
        if self.carrier.unsent:
            self.carrier.flush()
        sock = self.transport.get_extra_info("socket")
        if exchange.old and sock is not None and sock.family != AF_UNIX:
            # To HTTP/1.0 the end of the connection is the end of the answer: only a reset tells the difference.
            sock.setsockopt(SOL_SOCKET, SO_LINGER, RESET)
        self.transport.abort()

    def refuse(self, problem: Failure) -> None:
        """Answer to what could not be read. Where the next request would begin is unknown: the connection ends."""
        self.pending = b""
        self.carrier.heads_began.pop(self, None)
        self.carrier.refused(problem)
        self.write(answers.unparsed(problem))
        self._end(None)

    def _end(self, exchange: Exchange | None) -> None:
        """Close, but not on bytes still under way: a reset would take the answer with it (RFC 9112, 9.6)."""
        self.ended = True
        self.pending = b""
        transport = self.transport
        if self.carrier.unsent:
            self.carrier.flush()
        if transport.is_closing():
            return
        if (exchange is None or not exchange.body_done) and transport.can_write_eof():
            self.expires = monotonic() + LINGER
            self.left = LINGER_BYTES
            self.halts = 0
            transport.resume_reading()
            transport.write_eof()
        else:
            transport.close()

    def time_is_up(self) -> None:
        """`expires` has passed."""
        exchange = self.exchange
        if exchange is not None and not exchange.body_done and not self.stuck and not exchange.answered:
            self.fail(exchange, answers.BODY_TIMEOUT)
        elif self in self.carrier.heads_began:
            self.carrier.heads_began.pop(self, None)
            self.refuse(answers.HEAD_TIMEOUT)
        else:
            self.transport.abort()

    def stop(self) -> None:
        """The gateway is draining: the answer in progress is the last, or one to a request that is under way to us."""
        relieved = self.carrier.relieved
        if self.exchange is not None:
            # A client that has its head already was not told, and may send another request: that answer will tell it.
            self.exchange.close = self.exchange.close or not (relieved and self.exchange.answered)
        elif not self.ended and not relieved:
            self.expires = min(self.expires, monotonic() + LAST_CALL)

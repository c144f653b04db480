"""A client's connection: requests in, answers out, one at a time and in order.

No task and no timer of its own: the proxy sweeps over all connections and closes those whose `expires` has passed.
"""

from __future__ import annotations

import struct
from socket import AF_UNIX, SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Any, Final

from ...addresses import unmapped_host
from ...core.request import INFINITY
from ..exchange import Exchange
from ..http import local_replies
from ..http.forwarding import ForwardedHeaders, client_network
from ..http.headers import MalformedMessageError, RequestLoopError
from ..http.local_replies import ErrorReply
from ..http.request_head import read_head
from ..routing.client_identity import ANONYMOUS
from ..routing.router import MethodNotAllowedError
from ..telemetry import model_stats
from .fair_turns import MAX_BYTES_PER_TURN, MAX_REQUESTS_PER_TURN
from .flow_control import (
    PAUSED_NO_UPSTREAM,
    PAUSED_PIPELINE_FULL,
    PAUSED_TURN_OVER,
    PAUSED_UPSTREAM_SLOW,
    FlowControl,
)
from .request_body import RequestBody

if TYPE_CHECKING:
    from .proxy import Proxy
    from .upstream_connection import UpstreamConnection

END_OF_HEAD: Final = b"\r\n\r\n"
MAX_EMPTY_LINES: Final = 8  # before a request line
MAX_PIPELINED_BYTES: Final = 64 << 10  # after the current request
IDLE_DRAIN_SECONDS: Final = 1.0  # when draining, for a request on an idle connection
LINGER_SECONDS: Final = 2.0  # for the rest of an unread request after the answer
MAX_LINGER_BYTES: Final = 1 << 20

LINGER_RESET: Final = struct.pack("ii", 1, 0)


class ClientConnection(FlowControl):
    __slots__ = (
        "address",
        "body",
        "closing",
        "eof",
        "forwarding",
        "identity",
        "intake",
        "linger_left",
        "pending",
        "pending_offset",
        "serving",
        "tls",
        "tunnel",
        "writer",
    )

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(proxy)
        self.writer = proxy.writer
        self.intake = proxy.intake
        self.address = ""  # whose share of the buffers it uses; empty: many clients behind one address
        self.identity = ANONYMOUS
        self.pending = b""  # what comes after it,
        self.pending_offset = 0  # from here on: not copied for each request
        self.body: RequestBody | None = None  # while more of the current body is to come
        self.linger_left = 0  # bytes that are still read, and ignored, after the last answer
        self.tls = False
        self.tunnel: UpstreamConnection | None = None  # after an upgrade
        self.serving = False  # inside the loop over pending requests
        self.eof = False  # the client sends no more
        self.closing = False  # nothing more is read: the answer in progress is the last

    # ------------------------------------------------------------------ the transport's callbacks

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        proxy = self.proxy
        if not proxy.add_client(self):
            problem = local_replies.MEMORY_LOW if proxy.memory_low else local_replies.TOO_MANY_CONNECTIONS
            problem = local_replies.STOPPING if proxy.draining else problem
            self.writer.write(transport, local_replies.encode_unparsed_error(problem))
            self.writer.close(transport)
            self.closing = True
            return
        transport.set_write_buffer_limits(high=proxy.limits.connection_buffer_bytes)
        peer = transport.get_extra_info("peername")
        host = unmapped_host(peer[0]) if isinstance(peer, tuple) and peer else "unix"
        self.tls = transport.get_extra_info("ssl_object") is not None
        if self.tls:
            transport.set_read_buffer_limits(high=MAX_BYTES_PER_TURN)  # what comes while it waits is read in one turn
        self.identity = rights = proxy.trust_rule.identify(host)
        self.forwarding = ForwardedHeaders(host, self.tls, rights.trusted)
        if not rights.trusted and host != "unix":
            self.address = client_network(host)
        self.expires = proxy.clock() + proxy.timeouts.idle

    def data_received(self, data: bytes) -> None:
        now = self.proxy.clock()
        try:
            self._received(data, now)
        except MemoryError:
            exchange = self.exchange
            if exchange is None:
                self.reject_unparsed(local_replies.MEMORY_LOW, now)
            else:
                self.fail(exchange, local_replies.MEMORY_LOW, now)
        # A TLS record costs the same whether it holds one byte or thousands.
        if (self.tls or len(data) >= MAX_BYTES_PER_TURN) and not self.read_pauses:
            exchange = self.exchange
            if exchange is not None and (not exchange.body_complete or self.tunnel is not None):
                self.yield_turn(now)

    def _received(self, data: bytes, now: float) -> None:
        exchange = self.exchange
        if exchange is None:
            if self.closing:
                self.linger_left -= len(data)
                if self.linger_left < 0:
                    self.writer.abort(self.transport)  # it had its chance to stop
                return
            if self.pending:
                self._append_pending(data)
            else:
                self.pending = data
            if self.write_paused:
                self._limit_pipeline(now)
            elif not self.read_pauses & PAUSED_TURN_OVER:
                self.serve_pending(now)
        elif exchange.body_complete:
            if self.tunnel is not None:
                self.tunnel.touch(now)
                self.writer.write(self.tunnel.transport, data)
                return
            self._append_pending(data)
            self._limit_pipeline(now)
        elif self.pending:  # it waits for its turn
            self._append_pending(data)
        elif self.body is not None:
            self.body.feed(data, now)

    def _append_pending(self, data: bytes) -> None:
        self.pending = self.take_pending() + data

    def take_pending(self) -> bytes:
        pending = self.pending[self.pending_offset :] if self.pending_offset else self.pending
        self.pending = b""
        self.pending_offset = 0
        return pending

    def _limit_pipeline(self, now: float) -> None:
        if len(self.pending) - self.pending_offset > MAX_PIPELINED_BYTES:
            self.pause_reading(PAUSED_PIPELINE_FULL, now)

    def take_turn(self, now: float) -> None:
        exchange = self.exchange
        if self.closing or self.read_pauses != PAUSED_TURN_OVER or (exchange is None and self.write_paused):
            return
        if exchange is None:
            self.serve_pending(now)
        elif self.body is not None and self.pending:
            data, at = self.pending, self.pending_offset
            self.pending = b""
            self.pending_offset = 0
            self.body.feed(data, now, at)
        if self not in self.proxy.turns.waiting:
            if self.exchange is not None or self.write_paused:
                self._limit_pipeline(now)
            self.resume_reading(PAUSED_TURN_OVER, now)

    def eof_received(self) -> bool:
        """A client that stops sending has left: what runs for it is stopped."""
        self.eof = True
        tunnel = self.tunnel
        if tunnel is not None and not tunnel.eof and tunnel.transport.can_write_eof():
            self.writer.write_eof(tunnel.transport)
            return True  # the other direction may go on
        return False  # the transport closes itself

    def connection_lost(self, problem: Exception | None) -> None:
        self.closing = True
        self.proxy.remove_client(self)
        exchange = self.exchange
        if exchange is not None:
            now = self.proxy.clock()
            self.count_waits(exchange, now)
            exchange.end(exchange.outcome or model_stats.CANCELLED, "client_disconnected", now)
        self.body = None
        self.pending = b""

    # ------------------------------------------------------------------ heads

    def serve_pending(self, now: float) -> None:
        if self.serving:
            return
        self.serving = True
        begun = 0
        size = len(self.pending) - self.pending_offset
        try:
            while self.pending and self.exchange is None and not self.closing and not self.write_paused:
                data, at = self.pending, self.pending_offset
                if begun and (begun >= MAX_REQUESTS_PER_TURN or size - len(data) + at > MAX_BYTES_PER_TURN):
                    self.yield_turn(now)
                    break
                end = data.find(END_OF_HEAD, at)
                if end <= at or data[at] == 13:  # not all there, or an empty line before it
                    if data.startswith(b"\r\n", at):
                        if self._skip_empty_lines(data, at, now):
                            continue
                    else:
                        self._await_rest_of_head(now)
                    break
                if end - at > self.proxy.limits.header_bytes:
                    self.reject_unparsed(local_replies.HEAD_TOO_LARGE, now)
                    break
                self.pending = b""
                self.pending_offset = 0
                begun += 1
                try:
                    self._begin_request(data, at, end, now)
                except MethodNotAllowedError as refused:  # two names: one of two types is more than mypyc allows
                    self.reject_unparsed(local_replies.method_not_allowed(refused), now)
                except RequestLoopError as looped:
                    self.reject_unparsed(local_replies.loop_detected(looped), now)
                except MalformedMessageError as problem:
                    self.reject_unparsed(local_replies.bad_request(problem), now)
        finally:
            self.serving = False

    def _skip_empty_lines(self, data: bytes, at: int, now: float) -> bool:
        """Skip those before a request (RFC 9112, 2.2). False: there are too many."""
        empty = next((n for n in range(1, MAX_EMPTY_LINES) if not data.startswith(b"\r\n", at + 2 * n)), 0)
        if not empty:
            problem = MalformedMessageError("There are too many empty lines before the request.")
            self.reject_unparsed(local_replies.bad_request(problem), now)
            return False
        self.pending_offset = at + 2 * empty
        if self.pending_offset == len(data):
            self.take_pending()
        return True

    def _await_rest_of_head(self, now: float) -> None:
        self.pending = data = self.take_pending()
        if len(data) > self.proxy.limits.header_bytes:
            self.reject_unparsed(local_replies.HEAD_TOO_LARGE, now)
        elif data.count(b"\n") != data.count(b"\r\n"):
            problem = MalformedMessageError("Lines end with CR and LF, not with LF alone.")
            self.reject_unparsed(local_replies.bad_request(problem), now)
        elif self not in self.proxy.partial_heads:
            # From the first byte on, not from the last: a head that drips in must not live longer for it.
            self.proxy.partial_heads[self] = None
            self.expires = now + self.proxy.timeouts.header

    def _begin_request(self, data: bytes, at: int, end: int, now: float) -> None:
        proxy = self.proxy
        lines = data[at:end].split(b"\r\n")
        if len(lines) > proxy.limits.header_count + 1:
            self.reject_unparsed(local_replies.HEAD_TOO_LARGE, now)
            return
        if proxy.partial_heads:
            proxy.partial_heads.pop(self, None)
        first = lines[0]
        route = proxy.router.routes.get(first)
        if route is None:
            route = proxy.router.find(first)
        exchange = Exchange(self, route, now)
        exchange.http10 = exchange.close = route.http10
        del lines[0]
        read_head(exchange, lines, proxy.request_fields, self.forwarding)
        self.intake.prepare(exchange)
        self.exchange = exchange
        self.expires = INFINITY
        length = exchange.length
        start = end + 4
        if proxy.memory_low and not route.call.local:
            exchange.body_complete = length == 0
            if length == 0 and len(data) > start:
                self.pending = data
                self.pending_offset = start
            self.fail(exchange, local_replies.MEMORY_LOW, now)
        elif length == 0:
            exchange.body_complete = True
            if len(data) > start:
                self.pending = data
                self.pending_offset = start
            self.intake.submit(exchange, now)
        elif length > 0:
            if length > proxy.limits.body_bytes:
                self.fail(exchange, local_replies.BODY_TOO_LARGE, now)
            elif len(data) >= start + length:  # the usual case: one read brought it all
                end = start + length
                exchange.body.append(data[start:end])
                if len(data) > end:
                    self.pending = data
                    self.pending_offset = end
                exchange.body_size = length
                exchange.body_complete = True
                if proxy.memory_tight and not proxy.buffers.hold(exchange, length, now):
                    self.fail(exchange, proxy.buffers.full_reply, now)
                else:
                    self.intake.submit(exchange, now)
            else:
                self._await_body(exchange, data, start, now)
        else:
            self._await_body(exchange, data, start, now)

    def _await_body(self, exchange: Exchange, data: bytes, at: int, now: float) -> None:
        """Part of the body may be there, from `at` on."""
        self.expires = now + self.proxy.timeouts.body
        self.proxy.buffers.begin(self, exchange)
        if exchange.expect_continue and not exchange.http10:
            self.writer.write(self.transport, local_replies.CONTINUE_100)
        self.body = body = RequestBody(self, exchange)
        if len(data) > at:
            body.feed(data, now, at)

    # ------------------------------------------------------------------ answers

    def response_done(self, exchange: Exchange, now: float) -> None:
        self.tunnel = None
        self.body = None
        if exchange.close or not exchange.body_complete:
            self._close(exchange, now)
            return
        self.expires = now + (self.proxy.timeouts.write if self.write_paused else self.proxy.timeouts.idle)
        if self.read_pauses and not self.write_paused:
            self.resume_reading(PAUSED_NO_UPSTREAM | PAUSED_UPSTREAM_SLOW | PAUSED_PIPELINE_FULL, now)
        if self.pending:
            self.serve_pending(now)

    def fail(
        self, exchange: Exchange, problem: ErrorReply, now: float, outcome: str = "", retry_after: float = 0.0
    ) -> None:
        """Answers with a failure of ours, or cuts off an answer that has begun. No `outcome`: as the status says."""
        self.count_waits(exchange, now)
        exchange.fault = exchange.fault or problem.fault
        if exchange.response_started:
            by_status = model_stats.CLIENT_ERROR if problem.status < 500 else model_stats.FAILED
            exchange.end(outcome or exchange.outcome or by_status, problem.code, now)
            self.abort_response(exchange)
            return
        exchange.status = problem.status
        if not exchange.body_complete:
            exchange.close = True
        message = local_replies.encode_error(problem, exchange, retry_after)
        exchange.bytes_out = len(message)
        self.writer.write(self.transport, message)
        exchange.end(outcome, problem.code, now)
        self.response_done(exchange, now)

    def abort_response(self, exchange: Exchange) -> None:
        """Never a clean end: the client must see that something is missing."""
        sock = self.transport.get_extra_info("socket")
        if exchange.http10 and sock is not None and sock.family != AF_UNIX:
            # To HTTP/1.0 the end of the connection is the end of the answer: only a reset tells the difference.
            self.writer.flush()
            sock.setsockopt(SOL_SOCKET, SO_LINGER, LINGER_RESET)
        self.writer.abort(self.transport)

    def reject_unparsed(self, problem: ErrorReply, now: float) -> None:
        """Where the next request would begin is unknown: the connection ends."""
        self.pending = b""
        self.proxy.partial_heads.pop(self, None)
        self.proxy.recorder.unrouted.client_error += 1
        self.writer.write(self.transport, local_replies.encode_unparsed_error(problem))
        self._close(None, now)

    def _close(self, exchange: Exchange | None, now: float) -> None:
        """Not on bytes still under way: a reset would take the answer with it (RFC 9112, 9.6)."""
        self.closing = True
        self.pending = b""
        transport = self.transport
        self.writer.flush()  # which may find it closed
        if transport.is_closing():
            return
        if (exchange is None or not exchange.body_complete) and transport.can_write_eof():
            self.expires = now + LINGER_SECONDS
            self.linger_left = MAX_LINGER_BYTES
            self.read_pauses = 0
            transport.resume_reading()
            self.writer.write_eof(transport)
        else:
            self.writer.close(transport)

    def on_timeout(self, now: float) -> None:
        exchange = self.exchange
        awaits_body = exchange is not None and not exchange.body_complete and not exchange.response_started
        if exchange is not None and awaits_body and not self.write_paused:
            self.fail(exchange, local_replies.BODY_TIMEOUT, now)
        elif self in self.proxy.partial_heads:
            self.reject_unparsed(local_replies.HEAD_TIMEOUT, now)
        else:
            self.writer.abort(self.transport)

    def drain(self, now: float) -> None:
        """The answer in progress is the last, or one to a request under way to us."""
        sockets_shared = self.proxy.sockets_shared
        if self.exchange is not None:
            # A client that has the response's head may send another request: the response to that one will close.
            self.exchange.close = self.exchange.close or not (sockets_shared and self.exchange.response_started)
        elif not self.closing and not sockets_shared:
            self.expires = min(self.expires, now + IDLE_DRAIN_SECONDS)

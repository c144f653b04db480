"""A request's body that did not come in one read with its head.

It is kept until the request is decided on: when all of it is there, or as much as may be kept to be sent again. Then an
upstream connection streams it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...core.request import INFINITY
from ..exchange import RECEIVING, Exchange
from ..http import local_replies
from ..http.chunked import ChunkedReader, ChunkOverheadError
from ..http.headers import MalformedMessageError
from .fair_turns import MAX_CHUNKS_PER_TURN
from .flow_control import PAUSED_NO_UPSTREAM

if TYPE_CHECKING:
    from .client_connection import ClientConnection

SMALL_PIECE_BYTES: Final = 4096  # MAX_SMALL_PIECES smaller ones are joined
MAX_SMALL_PIECES: Final = 64


class RequestBody:
    __slots__ = ("_chunks", "_client", "_exchange", "_left", "_small_pieces")

    def __init__(self, client: ClientConnection, exchange: Exchange) -> None:
        self._client = client
        self._exchange = exchange
        self._left = exchange.length  # bytes still to come, if that is known
        self._small_pieces = 0  # kept one by one
        self._chunks: ChunkedReader | None = None
        if exchange.length < 0:
            self._chunks = ChunkedReader()
            self._chunks.pieces = []

    def feed(self, data: bytes, now: float, at: int = 0) -> None:
        """What follows the body is left to the client connection as `pending`."""
        if self._chunks is not None:
            self._feed_chunks(self._chunks, data, now, at)
            return
        client = self._client
        if at:
            data = data[at:]
        left = self._left - len(data)
        if left < 0:
            data, client.pending = data[:left], data[left:]
            left = 0
        self._left = left
        if not left:
            client.body = None
        self._take(data, left == 0, now)

    def _feed_chunks(self, chunks: ChunkedReader, data: bytes, now: float, at: int) -> None:
        client, exchange = self._client, self._exchange
        assert chunks.pieces is not None
        try:
            used = chunks.feed(data, at, MAX_CHUNKS_PER_TURN)
        except ChunkOverheadError:
            client.fail(exchange, local_replies.CHUNK_OVERHEAD, now)
            return
        except MalformedMessageError as problem:
            exchange.close = True
            client.fail(exchange, local_replies.bad_request(problem), now)
            return
        content = b"".join(chunks.pieces)
        chunks.pieces.clear()
        if exchange.body_size + len(content) > client.proxy.limits.body_bytes:
            client.fail(exchange, local_replies.BODY_TOO_LARGE, now)
            return
        if used < len(data):
            client.pending = data
            client.pending_offset = used
        if chunks.done:
            client.body = None
            exchange.trailers = client.proxy.request_fields.trailers(chunks.trailers)
            self._take(content, True, now)
        elif content:
            self._take(content, False, now)
        if client.pending and client.exchange is exchange and not exchange.body_complete:
            client.yield_turn(now)

    def _take(self, data: bytes, done: bool, now: float) -> None:
        client, exchange = self._client, self._exchange
        proxy = client.proxy
        exchange.body_size += len(data)
        exchange.body_complete = done
        if not client.write_paused:
            client.expires = INFINITY if done else now + proxy.timeouts.body
        upstream = exchange.upstream
        if upstream is not None and upstream.streaming:
            if done:
                client.count_waits(exchange, now)
            upstream.send_body(exchange, data)
            return
        if data:
            exchange.body.append(data)
            if len(data) < SMALL_PIECE_BYTES:
                self._join_small_pieces(exchange.body)
            if not proxy.buffers.hold(exchange, len(data), now):
                client.fail(exchange, proxy.buffers.full_reply, now)
                return
        if done:
            if exchange.state == RECEIVING:
                client.intake.submit(exchange, now)
        elif exchange.body_size > proxy.limits.replay_bytes:
            client.pause_reading(PAUSED_NO_UPSTREAM, now)
            if exchange.state == RECEIVING:
                client.intake.submit(exchange, now)

    def _join_small_pieces(self, body: list[bytes]) -> None:
        """Each tiny piece would be written by itself when the body is sent."""
        self._small_pieces += 1
        if self._small_pieces >= MAX_SMALL_PIECES:
            self._small_pieces = 0
            body[-MAX_SMALL_PIECES:] = [b"".join(body[-MAX_SMALL_PIECES:])]

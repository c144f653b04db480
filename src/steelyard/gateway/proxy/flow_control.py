"""Flow control of a client's connection: when it is read, when it takes what is written, and how long each side waited.

It is not read while anything in `read_pauses` holds, so a fast client waits for a slow replica and for other clients.
"""

from __future__ import annotations

from asyncio import Transport
from typing import TYPE_CHECKING, Final

from ...core.request import INFINITY
from ..exchange import Exchange

if TYPE_CHECKING:
    from .proxy import Proxy

# Why a client is not read; several may hold at once.
PAUSED_NO_UPSTREAM: Final = 1  # the body is too large to be kept, and no replica takes it yet
PAUSED_UPSTREAM_SLOW: Final = 2
PAUSED_PIPELINE_FULL: Final = 4
PAUSED_TURN_OVER: Final = 8  # it waits for its next turn: fair_turns.py


class FlowControl:
    """The part of a ClientConnection that pauses and resumes."""

    __slots__ = (
        "exchange",
        "expires",
        "proxy",
        "read_pauses",
        "transport",
        "upload_wait_since",
        "write_paused",
        "write_paused_at",
    )

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.transport: Transport = None  # type: ignore[assignment]  # until connection_made
        self.exchange: Exchange | None = None  # the request being served
        self.expires = INFINITY
        self.read_pauses = 0
        self.write_paused = False  # the client does not take what is written
        self.write_paused_at = 0.0  # since when, as far as that is not counted yet
        self.upload_wait_since = 0.0  # a replica waits for the rest of a body; 0.0: none does

    def serve_pending(self, now: float) -> None:
        """Begins what has arrived, until a request needs time."""
        raise NotImplementedError

    def take_turn(self, now: float) -> None:
        """Goes on where the last turn ended, unless something else comes first, which then calls for a turn."""
        raise NotImplementedError

    def yield_turn(self, now: float) -> None:
        self.pause_reading(PAUSED_TURN_OVER, now)
        self.proxy.turns.wait(self)

    def pause_reading(self, reason: int, now: float) -> None:
        if not self.read_pauses:
            if self.upload_wait_since and self.exchange is not None:
                self.count_waits(self.exchange, now)
            self.transport.pause_reading()
            if not self.write_paused:
                self.expires = INFINITY  # while we do not read, the client is not to blame
        self.read_pauses |= reason

    def resume_reading(self, reason: int, now: float) -> None:
        if self.read_pauses & reason:
            self.read_pauses &= ~reason
            if self.read_pauses == PAUSED_TURN_OVER:
                self.proxy.turns.wait(self)
            elif not self.read_pauses and not self.transport.is_closing():
                self.transport.resume_reading()
                if self.exchange is not None and not self.exchange.body_complete:
                    if self.exchange.dispatched_at:
                        self.upload_wait_since = now
                    if not self.write_paused:
                        self.expires = now + self.proxy.timeouts.body

    def count_waits(self, exchange: Exchange, now: float) -> None:
        """Adds how long its client has kept us waiting."""
        if self.upload_wait_since:
            exchange.upload_wait_seconds += now - self.upload_wait_since
            self.upload_wait_since = 0.0
        if self.write_paused_at:
            exchange.write_wait_seconds += now - self.write_paused_at
            self.write_paused_at = now

    def pause_writing(self) -> None:
        self.write_paused = True
        self.write_paused_at = now = self.proxy.clock()
        self.expires = now + self.proxy.timeouts.write
        upstream = self.exchange.upstream if self.exchange is not None else None
        if upstream is not None:
            upstream.pause()

    def resume_writing(self) -> None:
        self.write_paused = False
        since, self.write_paused_at = self.write_paused_at, 0.0
        now = self.proxy.clock()
        exchange = self.exchange
        if exchange is None:
            self.expires = now + self.proxy.timeouts.idle
            if self.read_pauses == PAUSED_TURN_OVER:
                self.proxy.turns.wait(self)  # its last turn came while it was paused
            elif not self.read_pauses & PAUSED_TURN_OVER:
                self.serve_pending(now)
            self.resume_reading(PAUSED_NO_UPSTREAM | PAUSED_UPSTREAM_SLOW | PAUSED_PIPELINE_FULL, now)
            return
        exchange.write_wait_seconds += now - since
        self.expires = INFINITY if exchange.body_complete or self.read_pauses else now + self.proxy.timeouts.body
        if exchange.upstream is not None:
            exchange.upstream.resume()

"""Heads as they are sent on: what came, less what was for one hop, plus what this hop adds."""

from __future__ import annotations

from binascii import hexlify
from os import urandom
from typing import Final

from ..exchange import CHUNKED, Exchange
from .response_head import ResponseHead

RANDOM_ID_DIGITS: Final = 48  # 32 of a trace, 16 of a span
RANDOM_IDS_AT_ONCE: Final = 256
_TENTHS = [b"%d.%d" % divmod(tenths, 10) for tenths in range(10_000)]  # of a millisecond, up to a second


class RandomIds:
    def __init__(self) -> None:
        self._random = b""
        self._at = 0

    def next(self) -> bytes:
        at = self._at
        if at >= len(self._random):
            self._random = hexlify(urandom(RANDOM_ID_DIGITS // 2 * RANDOM_IDS_AT_ONCE))
            at = 0
        self._at = at + RANDOM_ID_DIGITS
        return self._random[at : at + RANDOM_ID_DIGITS]


_random_ids = RandomIds()


def milliseconds(seconds: float) -> bytes:
    tenths = int(seconds * 1e4)
    return _TENTHS[tenths] if 0 <= tenths < 10_000 else b"%.1f" % (seconds * 1e3)


def add_trace_ids(exchange: Exchange) -> None:
    if exchange.request_id and exchange.has_traceparent:
        return
    bits = _random_ids.next()
    trace = bits[:32]
    if exchange.has_traceparent:
        exchange.request_id = trace
        exchange.trace_lines = b"x-request-id: " + trace
        return
    span = bits[32:]
    if exchange.request_id:
        exchange.trace_lines = b"traceparent: 00-%b-%b-00" % (trace, span)
    else:
        exchange.request_id = trace
        exchange.trace_lines = b"x-request-id: %b\r\ntraceparent: 00-%b-%b-00" % (trace, trace, span)


def write_request_head(exchange: Exchange, authority: bytes, asks: bytes) -> bytes:
    """To the replica. `authority`: for HTTP/1.0 clients that name no host; `asks`: a line of ours."""
    parts = [exchange.route.request_line, *exchange.header_lines, exchange.forwarded_lines]
    if exchange.http10 and not exchange.host:
        parts.append(b"host: " + authority)
    if exchange.trace_lines:
        parts.append(exchange.trace_lines)
    if asks:
        parts.append(asks)
    if exchange.length == CHUNKED:
        if exchange.body_complete and not exchange.trailers:
            parts.append(b"content-length: %d" % exchange.body_size)
        else:
            parts.append(b"transfer-encoding: chunked")
    if exchange.upgrade:
        parts.append(b"connection: upgrade\r\nupgrade: " + exchange.upgrade)
    parts.append(b"\r\n")
    return b"\r\n".join(parts)


def write_response_head(exchange: Exchange, head: ResponseHead, length: int, label: bytes, now: float) -> bytes:
    """To the client. `label`: which replica answered."""
    parts = head.lines
    sent = exchange.dispatched_at
    parts.append(
        label
        + b"\r\nserver-timing: queue;dur="
        + milliseconds(sent - exchange.started_at)
        + b", replica;dur="
        + milliseconds(now - sent)
    )
    if not head.has_request_id:
        parts.append(b"x-request-id: " + exchange.request_id)
    if head.status == 204 and head.length >= 0:  # RFC 9110, 8.6
        parts[:] = [line for line in parts if line[:15].lower() != b"content-length:"]
    if length < 0:
        if exchange.http10:
            exchange.close = True
        else:
            parts.append(b"transfer-encoding: chunked")
    if exchange.close:
        parts.append(b"connection: close")
    elif exchange.http10:
        parts.append(b"connection: keep-alive")
    parts.append(b"\r\n")
    return b"\r\n".join(parts)

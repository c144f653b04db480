"""The head of a request: checked, and sorted into what is passed on and what is acted on."""

from __future__ import annotations

from ..exchange import CHUNKED, Exchange
from .forwarding import ForwardedHeaders
from .headers import (
    ROLE_CONNECTION,
    ROLE_CONTENT_LENGTH,
    ROLE_EXPECT,
    ROLE_FORWARDED,
    ROLE_HOP,
    ROLE_HOST,
    ROLE_OPTION,
    ROLE_TRACE,
    ROLE_TRAILER,
    ROLE_TRANSFER_ENCODING,
    ROLE_UPGRADE,
    ROLE_VIA,
    ROLE_WANTED,
    Header,
    HeaderTable,
    MalformedMessageError,
    RequestLoopError,
    is_trace,
    tokens,
)

MAX_CONNECTION_OPTIONS = 32
MAX_GATEWAY_HOPS = 4  # of ours; more are a circle
# Never taken out: without the first three the next server would read another request.
_KEPT = {b"host", b"content-length", b"transfer-encoding", b"close", b"keep-alive", b"upgrade"}


def read_head(exchange: Exchange, lines: list[bytes], fields: HeaderTable, forwarding: ForwardedHeaders) -> None:
    """Takes in the lines after the request line. Raises MalformedMessageError."""
    special = fields.classify(lines, exchange.header_lines)
    if special is not None:
        _act_on(exchange, special, forwarding)
    elif not exchange.http10:
        raise MalformedMessageError("The host header is missing.")


def _act_on(exchange: Exchange, special: list[Header], forwarding: ForwardedHeaders) -> None:
    length = coding = host = connection = None
    upgrade = b""
    hops = 0
    wanted: list[Header] | None = None
    out = exchange.header_lines
    for field in special:
        role = field.role
        if role == ROLE_HOST:
            if host is not None:
                raise MalformedMessageError("There are two host headers.")
            host = field
            exchange.host = field.value
            out.append(field.line)
        elif role == ROLE_CONTENT_LENGTH:
            if length is not None:
                raise MalformedMessageError("There are two content-length headers.")
            length = field
            exchange.length = field.number
        elif role == ROLE_CONNECTION:
            connection = field if connection is None else _joined(connection, field)
        elif role in (ROLE_WANTED, ROLE_OPTION):
            out.append(field.line)
            if wanted is None:
                wanted = [field]
            else:
                wanted.append(field)
            if role == ROLE_OPTION:
                exchange.has_options = True
        elif role == ROLE_TRACE:
            if is_trace(field.name, field.value):
                if field.name == b"x-request-id":
                    if exchange.request_id:
                        continue  # the first counts
                    exchange.request_id = field.value
                elif exchange.has_traceparent:
                    continue
                else:
                    exchange.has_traceparent = True
                out.append(field.line)
        elif role == ROLE_TRANSFER_ENCODING:
            if coding is not None or field.value.lower() != b"chunked":
                raise MalformedMessageError("The only transfer-encoding understood is chunked.")
            coding = field
        elif role == ROLE_EXPECT:
            for expectation in tokens(field.value):
                if expectation != b"100-continue":
                    raise MalformedMessageError("The only expectation understood is 100-continue.")
                exchange.expect_continue = True
        elif role == ROLE_UPGRADE:
            upgrade = field.value
        elif role == ROLE_FORWARDED:
            if forwarding.trusted:
                if wanted is None:
                    wanted = [field]
                else:
                    wanted.append(field)
                out.append(field.line)
        elif role == ROLE_TRAILER:
            out.append(field.line)
        elif role == ROLE_VIA:
            hops += field.number
            out.append(field.line)
        else:
            assert role == ROLE_HOP
    if hops >= MAX_GATEWAY_HOPS:
        raise RequestLoopError(
            f"The request has passed {hops} Steelyard gateways: one of them forwards to another before it."
        )
    if host is None and not exchange.http10:
        raise MalformedMessageError("The host header is missing.")
    if exchange.http10 and host is not None and not host.value:
        raise MalformedMessageError("The host header is empty.")
    if coding is not None:
        if length is not None:
            raise MalformedMessageError(
                "There are a content-length and a transfer-encoding; the body's end would be ambiguous."
            )
        if exchange.http10:
            raise MalformedMessageError("HTTP/1.0 has no transfer-encoding.")
        exchange.length = CHUNKED
    if length is not None:
        out.append(length.line)
    if wanted is not None:
        exchange.wanted_headers = {field.name: field.value for field in wanted}
        if len(exchange.wanted_headers) != len(wanted):
            _check_doubles(wanted)
    if connection is not None:
        _connection(exchange, connection.value, upgrade)


def _check_doubles(wanted: list[Header]) -> None:
    """The next server might act on the other of two. Only forwarded headers may be doubled."""
    names = [field.name for field in wanted if field.role != ROLE_FORWARDED]
    double = next((name for name in names if names.count(name) > 1), b"")
    if double:
        raise MalformedMessageError(f"There are two {double.decode()} headers.")


def _joined(first: Header, second: Header) -> Header:
    return Header(ROLE_CONNECTION, first.name, first.value + b"," + second.value, b"")


def _connection(exchange: Exchange, value: bytes, upgrade: bytes) -> None:
    """By RFC 9110, 7.6.1: what it names is for this hop only."""
    if value == b"keep-alive" or value == b"Keep-Alive":  # most clients
        if exchange.http10:
            exchange.close = False
        return
    options = set(tokens(value))
    if len(options) > MAX_CONNECTION_OPTIONS:
        raise MalformedMessageError("The connection header names too many others.")
    if b"close" in options:
        exchange.close = True
    elif b"keep-alive" in options:
        exchange.close = False
    if b"upgrade" in options and not exchange.http10 and b"h2c" not in tokens(upgrade):
        exchange.upgrade = upgrade  # not HTTP/2: requests inside it would bypass routing and limits
    nominated = options - _KEPT
    if nominated:
        exchange.header_lines = [
            line for line in exchange.header_lines if line.partition(b":")[0].lower() not in nominated
        ]
        if exchange.wanted_headers is not None:
            exchange.wanted_headers = {
                name: value for name, value in exchange.wanted_headers.items() if name not in nominated
            }
        if b"traceparent" in nominated:
            exchange.has_traceparent = False
        if b"x-request-id" in nominated:
            exchange.request_id = b""

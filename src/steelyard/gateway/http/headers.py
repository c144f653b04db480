"""Header lines: checked strictly by RFC 9110 and 9112, sorted by what a proxy has to do with them.

The same lines come over and over, so a line that was checked is cached with its meaning: most of a head costs one
look-up a line. Measured, this is faster than a callback a header from a parser in C.
"""

from __future__ import annotations

import re
from typing import Final

# The role of a header line. ROLE_PLAIN lines are passed on as they are, and are most.
ROLE_PLAIN: Final = 0
ROLE_CONTENT_LENGTH: Final = 1
ROLE_TRANSFER_ENCODING: Final = 2
ROLE_CONNECTION: Final = 3
ROLE_HOP: Final = 4  # hop-by-hop: never passed on
ROLE_HOST: Final = 5
ROLE_EXPECT: Final = 6
ROLE_UPGRADE: Final = 7
ROLE_FORWARDED: Final = 8  # the client, as named by a proxy before us
ROLE_TRACE: Final = 9  # x-request-id, traceparent
ROLE_OPTION: Final = 10  # steelyard-… and the other names for a deadline; passed on
ROLE_WANTED: Final = 11  # passed on, and read by a dialect or for the configuration
ROLE_TRAILER: Final = 12
ROLE_RESERVED: Final = 13  # in an answer: only Steelyard's own
ROLE_LOAD_REPORT: Final = 14  # in an answer: the replica's load (ORCA), not passed on
ROLE_VIA: Final = 15  # in a request: the gateways it has passed

MAX_CACHED_LINES = 4096  # of each direction; when full, all are forgotten
MAX_CACHED_LINE_BYTES = 256

SECRET_HEADERS = {b"authorization", b"proxy-authorization", b"cookie", b"set-cookie", b"x-api-key", b"api-key"}
_is_secret = re.compile(rb"[Aa]uthorization: [ -~]*").fullmatch  # never cached, so checked the quick way

_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")

_HOST = re.compile(rb"(?:[A-Za-z0-9\-._~!$&'()*+,;=%]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_ID = re.compile(rb"[\x21-\x7e]{1,200}")

HOP_BY_HOP_HEADERS = {b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te"}
_COMMON = {
    b"content-length": ROLE_CONTENT_LENGTH,
    b"transfer-encoding": ROLE_TRANSFER_ENCODING,
    b"connection": ROLE_CONNECTION,
    b"upgrade": ROLE_UPGRADE,
    b"trailer": ROLE_TRAILER,
} | dict.fromkeys(HOP_BY_HOP_HEADERS, ROLE_HOP)
REQUEST_ROLES = _COMMON | {
    b"host": ROLE_HOST,
    b"expect": ROLE_EXPECT,
    b"forwarded": ROLE_FORWARDED,
    b"x-forwarded-for": ROLE_FORWARDED,
    b"x-forwarded-proto": ROLE_FORWARDED,
    b"x-forwarded-host": ROLE_FORWARDED,
    b"x-real-ip": ROLE_FORWARDED,
    b"via": ROLE_VIA,
    b"x-request-id": ROLE_TRACE,
    b"traceparent": ROLE_TRACE,
    b"endpoint-load-metrics-format": ROLE_HOP,  # asked for by the load balancer itself
    b"steelyard-timeout-ms": ROLE_OPTION,
    b"steelyard-priority": ROLE_OPTION,
    b"steelyard-session": ROLE_OPTION,
    b"x-session-id": ROLE_OPTION,
    b"steelyard-model": ROLE_OPTION,
    b"grpc-timeout": ROLE_OPTION,
    b"x-envoy-expected-rq-timeout-ms": ROLE_OPTION,
    b"x-slo-ttft-ms": ROLE_OPTION,
}
FORWARDED_PREFIX = b"x-forwarded-"  # the others: -port, -prefix, -ssl, -client-cert…

# Kept out of trailers by RFC 9110, 6.5.1, beside framing and routing.
_NO_TRAILERS = SECRET_HEADERS | {
    *(b"age", b"cache-control", b"date", b"expires", b"location", b"max-forwards", b"origin", b"pragma", b"range"),
    *(b"referer", b"retry-after", b"vary", b"www-authenticate", b"x-http-method-override"),
}
_NO_TRAILER_PREFIXES = (FORWARDED_PREFIX, b"steelyard-", b"content-", b"proxy-", b"if-", b"sec-")

RESPONSE_ROLES = _COMMON | {
    b"endpoint-load-metrics": ROLE_LOAD_REPORT,
    b"steelyard-replica": ROLE_RESERVED,
    b"steelyard-reason": ROLE_RESERVED,
    b"x-request-id": ROLE_TRACE,
}


class MalformedMessageError(ValueError):
    """A head that is refused. The message is a sentence for its sender."""


class RequestLoopError(MalformedMessageError):
    """The request has passed too many gateways of ours."""


def parse_content_length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise MalformedMessageError("The content-length is not a number.")
    return int(value)


def via_hops(value: bytes) -> int:
    return sum(hop.split()[1:2] == [b"steelyard"] for hop in value.lower().split(b","))


class Header:
    __slots__ = ("line", "name", "number", "role", "value")

    def __init__(self, role: int, name: bytes, value: bytes, line: bytes) -> None:
        self.number = (
            parse_content_length(value) if role == ROLE_CONTENT_LENGTH else via_hops(value) if role == ROLE_VIA else 0
        )
        self.role = role
        self.name = name  # in lower case
        self.value = value
        self.line = line


NOT_CACHED: Final = Header(-1, b"", b"", b"")


def parse_line(line: bytes) -> tuple[bytes, bytes]:
    """The lower-case name and the value of a header line."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise MalformedMessageError(_line_problem(line))
    return match[1].lower(), match[2].rstrip(b" \t")


def _line_problem(line: bytes) -> str:
    if line[:1] in (b" ", b"\t"):
        return "A header is continued on the next line; this is obsolete and refused."
    name, colon, _ = line.partition(b":")
    if not colon:
        return "A header line has no colon."
    if name != name.rstrip():
        return "There is space between a header's name and its colon."
    return "A header has characters that are not allowed."


class HeaderTable:
    """The header lines of one direction, cached with their roles."""

    def __init__(self, roles: dict[bytes, int], wanted: tuple[bytes, ...] = ()) -> None:
        self._roles = {**roles, **{name: ROLE_WANTED for name in wanted if name not in roles}}
        self._quick = b"authorization" not in self._roles
        self._forwarded = ROLE_FORWARDED if b"forwarded" in self._roles else ROLE_PLAIN  # in requests only
        self.cache: dict[bytes, Header | None] = {}  # None: plain

    def classify(self, lines: list[bytes], plain: list[bytes]) -> list[Header] | None:
        """Adds plain lines to `plain`; returns the others, or None. Raises MalformedMessageError."""
        known = self.cache
        special: list[Header] | None = None
        for line in lines:
            field = known.get(line, NOT_CACHED)
            if field is NOT_CACHED:
                field = self.classify_new(line)
            if field is None:
                plain.append(line)
            elif special is None:
                special = [field]
            else:
                special.append(field)
        return special

    def classify_new(self, line: bytes) -> Header | None:
        if self._quick and _is_secret(line) is not None:
            return None
        name, value = parse_line(line)
        role = self._role(name)
        if not role and b"_" in name and self._role(name.replace(b"_", b"-")):
            role = ROLE_HOP  # dropped: CGI and WSGI servers take x_forwarded_for for x-forwarded-for
        if role == ROLE_HOST and not is_host(value):
            raise MalformedMessageError("The host header is not a host and a port.")
        field = Header(role, name, value, line) if role else None
        differs_each_time = role in (ROLE_TRACE, ROLE_LOAD_REPORT)
        if len(line) <= MAX_CACHED_LINE_BYTES and name not in SECRET_HEADERS and not differs_each_time:
            if len(self.cache) >= MAX_CACHED_LINES:
                self.cache.clear()
            self.cache[line] = field
        return field

    def _role(self, name: bytes) -> int:
        return self._roles.get(name, self._forwarded if name.startswith(FORWARDED_PREFIX) else ROLE_PLAIN)

    def trailers(self, lines: list[bytes]) -> list[bytes]:
        """Those that may follow a body: none that decide framing, routing or trust."""
        return [line for line in lines if self._is_allowed_trailer(parse_line(line)[0].replace(b"_", b"-"))]

    def _is_allowed_trailer(self, name: bytes) -> bool:
        return not self._role(name) and name not in _NO_TRAILERS and not name.startswith(_NO_TRAILER_PREFIXES)


def is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None


def is_trace(name: bytes, value: bytes) -> bool:
    """Is it a valid request id or traceparent? Else a new one is made (W3C Trace Context, 4.3)."""
    return (_PARENT if name == b"traceparent" else _ID).fullmatch(value) is not None


def tokens(value: bytes) -> list[bytes]:
    """The members of a list such as connection's, in lower case."""
    return [part for token in value.lower().split(b",") if (part := token.strip(b" \t"))]

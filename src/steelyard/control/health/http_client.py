"""A minimal HTTP/1.1 client for probes, load scrapes and model repositories.

Each request has a connection of its own: accepting one is part of being healthy. Every failure is a
`ReplicaRequestError`, whose kind says what was learned about the replica; the caller adds the request to the message.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import httptools
import msgspec

from ...addresses import Address, replica_address
from ...config import ReplicaTlsConfig
from ...config.files import replica_tls_context
from ...core.errors import SteelyardError
from ...protocols.health import ServerRequest, json_object
from ...system import LOCAL_ERRNOS, NOT_LISTENING_ERRNOS
from ...units import format_size
from ..file_watcher import FileStamp, file_stamp
from .probe import ProbeTarget

MAX_HEAD_BYTES = 64 << 10
MAX_MESSAGE_CHARACTERS = 200  # of a server's own words
MAX_INSTANCE_BYTES = 128
INSTANCE_HEADER = b"steelyard-instance"
FRAMING_HEADERS = (b"content-length", b"transfer-encoding")
PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))
RESERVED_HEADERS = ("connection", "content-length", "transfer-encoding")  # set here, never by the configuration
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
RESET_ERRNOS = {errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED}


class ReplicaRequestError(SteelyardError):
    """No response."""


class ConnectRefusedError(ReplicaRequestError):
    """No process listens: it is gone, or not there yet."""


class ResponseTimeoutError(ReplicaRequestError):
    """No response in time."""


class InvalidResponseError(ReplicaRequestError):
    """Not HTTP, too long, or cut off."""


class ReplicaUnreachableError(ReplicaRequestError):
    """No such name, no route, or an untrusted certificate."""


class LocalFailureError(ReplicaRequestError):
    """This machine or its configuration cannot send the request: nothing was learned about the replica."""


def classify_error(error: Exception, address: Address) -> ReplicaRequestError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ReplicaUnreachableError(f"its certificate is not trusted: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return InvalidResponseError(f"no TLS with it: {error.reason or error}")
    if isinstance(error, socket.gaierror):
        return ReplicaUnreachableError(f"{address.host}: {error.strerror or error}")
    if isinstance(error, TimeoutError):  # the kernel's own, after many SYNs
        return ResponseTimeoutError("takes no connection")
    if isinstance(error, OSError):
        return _classify_os_error(error, address)
    return ReplicaUnreachableError(f"{type(error).__name__}: {error}")  # UnicodeError of a host name


def _classify_os_error(error: OSError, address: Address) -> ReplicaRequestError:
    number = error.errno
    # Where a name has several addresses, asyncio joins their errors into a text.
    if number in NOT_LISTENING_ERRNOS or (number is None and "refused" in str(error)):
        return ConnectRefusedError("there is no socket" if number == errno.ENOENT else "refuses connections")
    if number in LOCAL_ERRNOS:
        return LocalFailureError(f"this machine cannot ask: {error.strerror}")
    if number == errno.EAGAIN and address.path:  # its accept queue is full
        return ResponseTimeoutError("takes no connection")
    if number in RESET_ERRNOS:
        return InvalidResponseError("hangs up")
    return ReplicaUnreachableError(error.strerror or str(error))


class ProbeResponse(NamedTuple):
    status: int
    headers: dict[bytes, bytes]  # names in lower case
    body: bytes

    @property
    def instance(self) -> str:
        """The server process's name for itself; empty: it gives none."""
        return self.headers.get(INSTANCE_HEADER, b"")[:MAX_INSTANCE_BYTES].decode("latin-1")


def describe_request(method: str, path: str) -> str:
    """Without the query, which may hold secrets."""
    return f"{method} {path.partition('?')[0]}"


def describe_response(request: ServerRequest, response: ProbeResponse) -> str:
    text = f"answers {response.status} to {describe_request(request.method, request.path)}"
    if 200 <= response.status < 300:
        return text
    said = json_object(response.body)
    reason = said.get("reason") or said.get("error") or said.get("message") or said.get("detail")
    return f"{text}: {printable_line(reason)}" if isinstance(reason, str) else text


def printable_line(text: str) -> str:
    """Untrusted text as one line of bounded length."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else "\ufffd" for c in line[:MAX_MESSAGE_CHARACTERS])


class ResponseReader(asyncio.Protocol):
    """Sends `request` once connected; `done` then holds the response or a ReplicaRequestError."""

    def __init__(self, address: Address, request: bytes, max_bytes: int, *, truncate: bool = False) -> None:
        self.done: asyncio.Future[ProbeResponse] = asyncio.get_running_loop().create_future()
        self._address = address
        self._request = request
        self._max_bytes = max_bytes
        self._truncate = truncate
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._received = 0
        self._headers: dict[bytes, bytes] = {}
        self._status = 0  # 0: the head is incomplete
        self._body = bytearray()

    @property
    def missing(self) -> str:
        """What has not happened yet, for the message of a timeout."""
        if self._transport is None:
            return "no connection"
        return "no end of its answer" if self._received else "no answer"

    def end(self) -> None:
        """Does not wait for a TLS closing handshake."""
        if self._transport is not None:
            self._transport.abort()
        self.done.cancel()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.done.done():
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(InvalidResponseError("its answer is not HTTP/1.1"))
        if self._received > MAX_HEAD_BYTES and not self._status:
            self._fail(InvalidResponseError(f"the head of its answer is longer than {format_size(MAX_HEAD_BYTES)}"))

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if self._status and error is None and not any(name in self._headers for name in FRAMING_HEADERS):
            self.on_message_complete()  # the body ends with the connection (RFC 9112, section 6.3)
        elif self._received:
            self._fail(InvalidResponseError("hangs up before its answer ends"))
        elif error is None or isinstance(error, ConnectionError):
            self._fail(InvalidResponseError("hangs up without an answer"))
        else:
            self._fail(classify_error(error, self._address))

    def _fail(self, error: ReplicaRequestError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
            if self._request.startswith(b"HEAD "):
                self.on_message_complete()
        else:  # an interim response: the final one follows
            self._headers.clear()

    def on_body(self, data: bytes) -> None:
        room = self._max_bytes - len(self._body)
        if len(data) <= room:
            self._body += data
        elif self._truncate:
            self._body += data[:room]
        else:
            self._fail(InvalidResponseError(f"its answer is longer than {format_size(self._max_bytes)}"))

    def on_message_complete(self) -> None:
        if self._status and not self.done.done():
            self.done.set_result(ProbeResponse(self._status, self._headers, bytes(self._body)))


class TlsContexts:
    """One for each set of files, rebuilt when a file changes; while they cannot be read, the last good one stays."""

    def __init__(self) -> None:
        self._known: dict[ReplicaTlsConfig, tuple[list[FileStamp], ssl.SSLContext]] = {}

    def get(self, tls: ReplicaTlsConfig) -> ssl.SSLContext:
        """LocalFailureError: there never was a good one."""
        known = self._known.get(tls)
        stamps = [file_stamp(name) for name in (tls.ca, tls.certificate, tls.key) if name]
        if known is not None and known[0] == stamps:
            return known[1]
        try:
            context = replica_tls_context(tls)
        except (OSError, ValueError) as error:  # OpenSSL's errors are OSErrors
            if known is None:
                raise LocalFailureError(f"the files of `tls` cannot be used: {error}") from None
            context = known[1]
        self._known[tls] = stamps, context
        return context


class ProbeOrigin:
    """A replica's address and TLS settings. `port` 0: the port of its URL."""

    def __init__(self, target: ProbeTarget, contexts: TlsContexts, port: int = 0) -> None:
        address = replica_address(target.settings.url)
        if port and not address.path:
            address = msgspec.structs.replace(address, port=port)
        self.address: Address = address
        self._tls = target.tls
        self._contexts = contexts

    def build_request(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
        """LocalFailureError: a method or header would smuggle in a second request."""
        if not _HEADER_NAME.fullmatch(method):
            raise LocalFailureError(f"{method!r} is not a method")
        fields = {"host": self.address.authority, "user-agent": "steelyard", "accept": "*/*"}
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise LocalFailureError(f"header {name!r} has characters that no header may have")
            fields[name.lower()] = value
        for name in RESERVED_HEADERS:
            fields.pop(name, None)
        if body or method in ("POST", "PUT", "PATCH"):
            fields["content-length"] = str(len(body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"{method} {quote(path, safe=PRINTABLE_ASCII)} HTTP/1.1\r\n{lines}connection: close\r\n\r\n"
        return head.encode("latin-1" if head.isascii() else "utf-8") + body

    async def send(self, request: bytes, *, timeout: float, max_bytes: int, truncate: bool = False) -> ProbeResponse:
        """ReplicaRequestError: no response, or a body longer than `max_bytes`, unless `truncate` drops the rest."""
        tls = self._contexts.get(self._tls) if self.address.tls else None
        reader = ResponseReader(self.address, request, max_bytes, truncate=truncate)
        try:
            async with asyncio.timeout(timeout):
                await self._connect(reader, tls)
                return await reader.done
        except ReplicaRequestError:
            raise
        except TimeoutError:
            raise ResponseTimeoutError(f"{reader.missing} in time") from None
        except Exception as error:  # OSError, SSLError, gaierror, UnicodeError of a host name…
            raise classify_error(error, self.address) from None
        finally:
            reader.end()

    async def _connect(self, reader: ResponseReader, tls: ssl.SSLContext | None) -> None:
        loop, address = asyncio.get_running_loop(), self.address
        if address.path:
            await loop.create_unix_connection(lambda: reader, address.path)
        else:
            name = (self._tls.server_name or address.host) if tls is not None else None
            await loop.create_connection(lambda: reader, address.host, address.port, ssl=tls, server_hostname=name)

"""The way to one replica: its address and how to trust it; and requests as bytes."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec

from ....addresses import Address, replica_address
from ....config import ReplicaTlsConfig, SyntheticRequest
from ....config.files import replica_tls_context
from ..probe import ProbeTarget
from .errors import LocalFailureError, ReplicaRequestError, ResponseTimeoutError, classify_error
from .response import ProbeResponse, ResponseReader

# TLS to replicas: one context for each set of files, made anew when a file changes.

FileStamps = tuple[tuple[int, int, int], ...]


class TlsContexts:
    """What was read last goes on to be used as long as the files cannot be read: someone is replacing them."""

    def __init__(self) -> None:
        self._known: dict[ReplicaTlsConfig, tuple[FileStamps, ssl.SSLContext]] = {}

    def get(self, tls: ReplicaTlsConfig) -> ssl.SSLContext:
        """CannotAskError: there is none."""
        known = self._known.get(tls)
        marks = _file_stamps(tls)
        if known is not None and known[0] == marks:
            return known[1]
        try:
            context = replica_tls_context(tls)
        except (OSError, ValueError) as problem:  # OpenSSL's errors are OSErrors
            if known is None:
                raise LocalFailureError(f"the files of `tls` cannot be used: {problem}") from None
            context = known[1]
        self._known[tls] = marks, context
        return context


def _file_stamps(tls: ReplicaTlsConfig) -> FileStamps:
    marks = []
    for name in filter(None, (tls.ca, tls.certificate, tls.key)):
        with suppress(OSError):
            found = os.stat(name)
            marks.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(marks)


# One question to a server over HTTP/1.1, on a fresh connection: whether it takes one is part of what is asked.


async def send_request(
    address: Address,
    request: bytes,
    *,
    timeout: float,
    limit: int,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    cut: bool = False,
) -> ProbeResponse:
    """The answer to `request`, a whole one; or an AskError.

    `tls` is for an address that speaks it. A body longer than `limit` is an error; with `cut` the rest of it is
    read and dropped.
    """
    answer = ResponseReader(address, request, limit, cut=cut)
    try:
        async with asyncio.timeout(timeout):
            await _connect(answer, address, tls, server_name or address.host)
            return await answer.done
    except ReplicaRequestError:
        raise
    except TimeoutError:
        raise ResponseTimeoutError(f"{_timeout_stage(answer)} in time") from None
    except Exception as problem:  # OSError, SSLError, gaierror, UnicodeError of a host name…
        raise classify_error(problem, address) from None
    finally:
        answer.end()


async def _connect(answer: ResponseReader, address: Address, tls: ssl.SSLContext | None, name: str) -> None:
    loop = asyncio.get_running_loop()
    if address.path:
        await loop.create_unix_connection(lambda: answer, address.path)
    elif tls is None:
        await loop.create_connection(lambda: answer, address.host, address.port)
    else:
        await loop.create_connection(lambda: answer, address.host, address.port, ssl=tls, server_hostname=name)


def _timeout_stage(answer: ResponseReader) -> str:
    if not answer.connected:
        return "no connection"
    return "no end of its answer" if answer.begun else "no answer"


PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))
FRAMING_HEADERS = ("connection", "content-length", "transfer-encoding")  # ours to say
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


class ProbeOrigin:
    """To a port of a replica; 0: its own."""

    def __init__(self, target: ProbeTarget, contexts: TlsContexts, port: int = 0) -> None:
        address = replica_address(target.settings.url)
        if port and not address.path:
            address = msgspec.structs.replace(address, port=port)
        self.address: Address = address
        self._tls = target.tls
        self._contexts = contexts

    async def send(self, request: bytes, *, timeout: float, limit: int, cut: bool = False) -> ProbeResponse:
        """An AskError, if there is no answer."""
        tls = self._contexts.get(self._tls) if self.address.tls else None
        name = self._tls.server_name
        return await send_request(
            self.address, request, timeout=timeout, limit=limit, tls=tls, server_name=name, cut=cut
        )

    def build_request(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
        """A whole request. CannotAskError: a method or a header that would make another request of it."""
        if not _HEADER_NAME.fullmatch(method):
            raise LocalFailureError(f"{method!r} is not a method")
        fields = {"host": self.address.authority, "user-agent": "steelyard", "accept": "*/*"}
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise LocalFailureError(f"header {name!r} has characters that no header may have")
            fields[name.lower()] = value
        for name in FRAMING_HEADERS:
            fields.pop(name, None)
        if body or method in ("POST", "PUT", "PATCH"):
            fields["content-length"] = str(len(body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"{method} {quote(path, safe=PRINTABLE_ASCII)} HTTP/1.1\r\n{lines}connection: close\r\n\r\n"
        return head.encode("latin-1" if head.isascii() else "utf-8") + body


def method_of(asking: SyntheticRequest) -> str:
    return asking.method.upper() or ("GET" if asking.body is None else "POST")


def build_configured_request(way: ProbeOrigin, asking: SyntheticRequest, headers: Mapping[str, str]) -> bytes:
    """A request as it is configured. `headers` go with it, unless it has its own of that name."""
    body, kind = _encode_body(asking.body)
    fields = {"content-type": kind} if kind else {}
    for name, value in (*headers.items(), *asking.headers.items()):
        fields[name.lower()] = value
    return way.build_request(method_of(asking), asking.path, fields, body)


def _encode_body(body: Any) -> tuple[bytes, str]:
    if body is None:
        return b"", ""
    if not isinstance(body, str):
        return msgspec.json.encode(body), "application/json"
    return body.encode(), "application/json" if body.lstrip().startswith(("{", "[")) else "text/plain; charset=utf-8"

"""HTTP/1.1 requests to one replica, each over a new connection: accepting one is part of being healthy."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from ....addresses import Address, replica_address
from ....config import ReplicaTlsConfig
from ....config.files import replica_tls_context
from ...file_watcher import FileStamp, file_stamp
from ..probe import ProbeTarget
from .errors import LocalFailureError, ReplicaRequestError, ResponseTimeoutError, classify_error
from .response import ProbeResponse, ResponseReader

PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))
FRAMING_HEADERS = ("connection", "content-length", "transfer-encoding")  # set here, never by the configuration
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


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
        for name in FRAMING_HEADERS:
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

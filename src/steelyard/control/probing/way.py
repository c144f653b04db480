"""The way to one replica: its address and how to trust it; and requests as bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from ...addresses import Address, replica_address
from ...config import SyntheticRequest
from .answer import ProbeResponse
from .asking import send_request
from .errors import LocalFailureError
from .target import ProbeTarget
from .tls import TlsContexts

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

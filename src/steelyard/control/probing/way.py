"""The way to one replica: its address and how to trust it; and requests as bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from ...addresses import Address, replica_address
from ...config import Asking
from .answer import Reply
from .asking import ask
from .errors import CannotAskError
from .target import Target
from .tls import Contexts

PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
FRAMING = ("connection", "content-length", "transfer-encoding")  # ours to say
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


class Way:
    """To a port of a replica; 0: its own."""

    def __init__(self, target: Target, contexts: Contexts, port: int = 0) -> None:
        address = replica_address(target.settings.url)
        if port and not address.path:
            address = msgspec.structs.replace(address, port=port)
        self.address: Address = address
        self._tls = target.tls
        self._contexts = contexts

    async def ask(self, request: bytes, *, timeout: float, limit: int, cut: bool = False) -> Reply:
        """An AskError, if there is no answer."""
        tls = self._contexts.of(self._tls) if self.address.tls else None
        name = self._tls.server_name
        return await ask(self.address, request, timeout=timeout, limit=limit, tls=tls, server_name=name, cut=cut)

    def compose(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
        """A whole request. CannotAskError: a method or a header that would make another request of it."""
        if not _NAME.fullmatch(method):
            raise CannotAskError(f"{method!r} is not a method")
        fields = {"host": self.address.authority, "user-agent": "steelyard", "accept": "*/*"}
        for name, value in headers.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise CannotAskError(f"header {name!r} has characters that no header may have")
            fields[name.lower()] = value
        for name in FRAMING:
            fields.pop(name, None)
        if body or method in ("POST", "PUT", "PATCH"):
            fields["content-length"] = str(len(body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"{method} {quote(path, safe=PRINTABLE)} HTTP/1.1\r\n{lines}connection: close\r\n\r\n"
        return head.encode("latin-1" if head.isascii() else "utf-8") + body


def method_of(asking: Asking) -> str:
    return asking.method.upper() or ("GET" if asking.body is None else "POST")


def compose(way: Way, asking: Asking, headers: Mapping[str, str]) -> bytes:
    """A request as it is configured. `headers` go with it, unless it has its own of that name."""
    body, kind = _body(asking.body)
    fields = {"content-type": kind} if kind else {}
    for name, value in (*headers.items(), *asking.headers.items()):
        fields[name.lower()] = value
    return way.compose(method_of(asking), asking.path, fields, body)


def _body(body: Any) -> tuple[bytes, str]:
    if body is None:
        return b"", ""
    if not isinstance(body, str):
        return msgspec.json.encode(body), "application/json"
    return body.encode(), "application/json" if body.lstrip().startswith(("{", "[")) else "text/plain; charset=utf-8"

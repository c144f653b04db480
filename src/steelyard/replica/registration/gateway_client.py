"""The leases of a gateway's admin API: asked for, renewed and given up."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.errors import SteelyardError

if TYPE_CHECKING:
    from http.client import HTTPConnection

TIMEOUT_SECONDS = 5.0
MAX_RESPONSE_BYTES = 64 << 10


class GatewayUnreachableError(SteelyardError):
    """No answer, or none that can be understood."""

    reason = "gateway_away"


class GatewayResponse(NamedTuple):
    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def lease_seconds(self) -> float | None:
        parsed = _parsed(self.body)
        value = parsed.get("seconds") if isinstance(parsed, dict) else None
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    @property
    def error_message(self) -> str:
        parsed = _parsed(self.body)
        for key in ("error", "detail", "message"):
            if isinstance(parsed, dict) and key in parsed:
                parsed = parsed[key]
        text = parsed if isinstance(parsed, str) else ""
        return "".join(c if c.isprintable() else " " for c in text)[:300]


class GatewayClient:
    """One connection a call: they are seconds apart, and a kept one would often be stale."""

    def __init__(self, address: str, token: str = "", timeout: float = TIMEOUT_SECONDS) -> None:
        self.address = address
        self._token = token
        self._timeout = timeout

    def announce(self, model: str, replica: str, about: dict[str, Any]) -> GatewayResponse:
        return self._call("PUT", _path(model, replica), json.dumps(about).encode())

    def withdraw(self, model: str, replica: str, instance: str) -> GatewayResponse:
        """Answered when the gateway sends no more requests."""
        return self._call("DELETE", f"{_path(model, replica)}?instance={_quoted(instance)}")

    def _call(self, method: str, path: str, body: bytes | None = None) -> GatewayResponse:
        from http.client import HTTPException  # not at import: it brings ssl and email

        headers = {"content-type": "application/json"} if body is not None else {}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        connection, prefix = self._connection()
        try:
            connection.request(method, prefix + path, body, headers)
            answer = connection.getresponse()
            return GatewayResponse(answer.status, answer.read(MAX_RESPONSE_BYTES))
        except TimeoutError:
            raise GatewayUnreachableError(f"no answer in {self._timeout:g} s") from None
        except OSError as problem:
            raise GatewayUnreachableError(problem.strerror or str(problem)) from None
        except (HTTPException, ValueError) as problem:
            raise GatewayUnreachableError(f"not an HTTP response: {type(problem).__name__}") from None
        finally:
            connection.close()

    def _connection(self) -> tuple[HTTPConnection, str]:
        from http.client import HTTPConnection, HTTPSConnection
        from urllib.parse import urlsplit

        if self.address.startswith("unix:"):
            connection = HTTPConnection("localhost", timeout=self._timeout)
            connection.connect = lambda: self._connect_unix(connection)  # type: ignore[method-assign]
            return connection, ""
        parts = urlsplit(self.address)
        kind = HTTPSConnection if parts.scheme.lower() == "https" else HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=self._timeout), parts.path

    def _connect_unix(self, connection: HTTPConnection) -> None:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(self._timeout)
        link.connect(self.address.removeprefix("unix:"))
        connection.sock = link


def _path(model: str, replica: str) -> str:
    return f"/v1/models/{_quoted(model)}/leases/{_quoted(replica)}"


def _quoted(segment: str) -> str:
    from urllib.parse import quote

    return quote(segment, safe="")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None

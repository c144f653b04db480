"""The parts of ASGI that the agent needs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON_TYPE = "application/json"


class AgentResponse(NamedTuple):
    status: int
    body: bytes
    kind: str = JSON_TYPE
    headers: tuple[tuple[bytes, bytes], ...] = ()


def to_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def path_of(scope: Scope) -> str:
    """Without the prefix under which the app is mounted."""
    path: str = scope.get("path", "")
    root: str = (scope.get("root_path") or "").rstrip("/")
    return path[len(root) :] if root and path.startswith(root + "/") else path


def header(scope: Scope, name: bytes) -> bytes:
    """The first of that name, in lower case; empty: none."""
    for key, value in scope.get("headers") or ():
        if key == name:
            return bytes(value)
    return b""


async def respond(scope: Scope, send: Send, answer: AgentResponse) -> None:
    """To a request, or a web socket that is not accepted."""
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    headers = [
        (b"content-type", answer.kind.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        (b"cache-control", b"no-store"),
        *answer.headers,
    ]
    body = b"" if scope.get("method") == "HEAD" else answer.body
    await send({"type": f"{kind}.response.start", "status": answer.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})

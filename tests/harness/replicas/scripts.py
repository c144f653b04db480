"""Answers for stub replicas, from well-behaved to hostile. Each is a script: see stub_server.py."""

from __future__ import annotations

import base64
import json
from typing import Any

from .stub import Script

ANSWER_LATER = "answer"  # the gate used by `held`


def header(script: Script) -> dict[str, str]:
    """The request header that makes a stub answer so."""
    return {"x-stub": base64.b64encode(json.dumps(script).encode()).decode()}


def raw(text: str, *after: list[Any]) -> Script:
    """These very bytes, then what follows."""
    return [["body"], ["send", text], *after]


def fields(headers: dict[str, str] | None) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())


def plain(body: str = "ok", status: int = 200, headers: dict[str, str] | None = None) -> Script:
    """With a content-length."""
    return raw(f"HTTP/1.1 {status} Stub\r\ncontent-length: {len(body)}\r\n{fields(headers)}\r\n{body}")


def bare(status: int, headers: dict[str, str] | None = None) -> Script:
    """A head and nothing after it: 204, 304, or the answer to HEAD."""
    return raw(f"HTTP/1.1 {status} Stub\r\n{fields(headers)}\r\n")


def chunk(text: str) -> str:
    return f"{len(text):x}\r\n{text}\r\n"


def chunked(*parts: str, headers: dict[str, str] | None = None, trailers: dict[str, str] | None = None) -> Script:
    body = "".join(chunk(part) for part in parts) + f"0\r\n{fields(trailers)}\r\n"
    return raw(f"HTTP/1.1 200 Stub\r\ntransfer-encoding: chunked\r\n{fields(headers)}\r\n{body}")


def until_close(body: str, end: str = "close") -> Script:
    return raw(f"HTTP/1.1 200 Stub\r\ncontent-type: text/plain\r\n\r\n{body}", [end])


SSE_HEAD = "HTTP/1.1 200 Stub\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def sse(events: int, gate: str) -> Script:
    """An event stream; each event but the first waits for its gate `NAME-1`, `NAME-2`…"""
    script: Script = [["body"], ["send", SSE_HEAD]]
    for number in range(events):
        if number:
            script.append(["gate", f"{gate}-{number}"])
        script.append(["send", chunk(f"data: {number}\n\n")])
    return [*script, ["gate", f"{gate}-{events}"], ["send", "0\r\n\r\n"]]


def endless(gate: str = "never") -> Script:
    """An event stream that began and does not end."""
    return [["body"], ["send", SSE_HEAD], ["send", chunk("data: 0\n\n")], ["gate", gate]]


def held(gate: str = ANSWER_LATER) -> Script:
    """A plain answer once the gate is open."""
    return [["body"], ["gate", gate], ["reply"]]


def slow(seconds: float) -> Script:
    return [["body"], ["sleep", seconds], ["reply"]]


def fails(status: int = 500, headers: dict[str, str] | None = None) -> Script:
    return [["body"], ["reply", status, headers or {}]]


def silent() -> Script:
    """Takes the request and never answers."""
    return [["body"], ["until_gone"]]


def large(size: int, chunked: bool = False, gate: str = "") -> Script:
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {size}"
    start: Script = [["body"], ["send", f"HTTP/1.1 200 Stub\r\n{framing}\r\n\r\n"]]
    if gate:
        start.append(["gate", gate])
    return [*start, ["fill", size, chunked], *([["send", "0\r\n\r\n"]] if chunked else [])]


UPGRADE = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-key": "x3JJHMbDL1EzLkh9GBhXDw=="}
UPGRADED = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-accept": "HSmrc0sMlYUkAGmm5OPpG2HaGWk="}


def upgrade(greeting: str = "") -> Script:
    """The answer to `UPGRADE`: 101, then an echo; `greeting` is sent in the same packet as the 101."""
    return [["send", f"HTTP/1.1 101 Switching Protocols\r\n{fields(UPGRADED)}\r\n{greeting}"], ["echo"]]

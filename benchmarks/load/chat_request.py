"""The one request that all proxies forward: a chat completion with the nine headers and 400 bytes a client sends."""

from __future__ import annotations

import json

PATH = "/v1/chat/completions"
BODY_BYTES = 400
ANSWER_BYTES = 300

HEADERS = {  # and Host and Content-Length: nine
    "Accept": "application/json",
    "Accept-Encoding": "gzip, deflate",
    "Content-Type": "application/json",
    "User-Agent": "OpenAI/Python 3.49.0",
    "Authorization": "Bearer not-a-secret",
    "X-Stainless-Lang": "python",
    "X-Stainless-Package-Version": "3.49.0",
}


def padded(make: str, size: int) -> str:
    """`make` with its one `…` replaced by as much text as brings it to `size` bytes."""
    words = "the quick brown fox jumps over the lazy dog "
    missing = size - len(make.replace("…", ""))
    return make.replace("…", (words * (missing // len(words) + 1))[:missing].rstrip().ljust(missing, "."))


def body(*, stream: bool = False) -> str:
    message = {
        "model": "bench",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "…"},
        ],
        "max_tokens": 64,
        "temperature": 0.7,
        "stream": stream,
    }
    return padded(json.dumps(message, ensure_ascii=False), BODY_BYTES)


def answer() -> str:
    message = {
        "id": "chatcmpl-0123456789",
        "object": "chat.completion",
        "created": 1763200000,
        "model": "bench",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "…"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 71, "completion_tokens": 21, "total_tokens": 92},
    }
    return padded(json.dumps(message, ensure_ascii=False), ANSWER_BYTES)


def models() -> str:
    """The answer to `GET /v1/models`: some routers send nothing to a replica that does not name the model."""
    return json.dumps({"object": "list", "data": [{"id": "bench", "object": "model", "owned_by": "bench"}]})


def head(port: int, path: str, length: int) -> bytes:
    """The same request's head, as bytes, for clients that write it themselves."""
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *(f"{k}: {v}" for k, v in HEADERS.items())]
    return ("\r\n".join([*lines, f"Content-Length: {length}"]) + "\r\n\r\n").encode()

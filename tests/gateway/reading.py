"""HTTP/1.1 read and written by the tests themselves: simple, strict, and not the gateway's own code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

END = b"\r\n\r\n"


@dataclass
class Message:
    """A request or an answer. `body` is its content, without the framing."""

    first: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    whole: bool = True  # it came to its end

    @property
    def status(self) -> int:
        return int(self.first.split(" ")[1])

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def __getitem__(self, name: str) -> str:
        (value,) = self.all(name)
        return value

    def __contains__(self, name: str) -> bool:
        return bool(self.all(name))


def _lines(text: bytes) -> list[tuple[str, str]]:
    pairs = []
    for line in text.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        assert colon, line
        assert name == name.strip(), line
        assert b"\n" not in line, line
        assert b"\r" not in line, line
        pairs.append((name.decode("latin-1").lower(), value.strip(b" \t").decode("latin-1")))
    return pairs


def take_head(data: bytes) -> tuple[Message, bytes] | None:
    """The first head and what follows it; None: it is not all there."""
    end = data.find(END)
    if end < 0:
        return None
    first, _, lines = data[:end].partition(b"\r\n")
    return Message(first.decode("latin-1"), _lines(lines) if lines else []), data[end + 4 :]


def take_body(message: Message, data: bytes, ends: bool) -> bytes:
    """Fills in the body; returns what follows. `ends`: without a length it goes on to the end of the connection."""
    codings, lengths = message.all("transfer-encoding"), message.all("content-length")
    assert len(codings) + len(lengths) <= 1, "the body's end is ambiguous"
    if codings:
        assert codings == ["chunked"]
        return _take_chunks(message, data)
    if lengths:
        length = int(lengths[0])
        message.body, message.whole = data[:length], len(data) >= length
        return data[length:]
    if ends:
        message.body = data
        return b""
    return data


def _take_chunks(message: Message, data: bytes) -> bytes:
    while True:
        line, newline, rest = data.partition(b"\r\n")
        if not newline:
            message.whole = False
            return b""
        size = int(line.partition(b";")[0], 16)
        if not size:
            break
        message.body += rest[:size]
        if len(rest) < size + 2:
            message.whole = False
            return b""
        assert rest[size : size + 2] == b"\r\n"
        data = rest[size + 2 :]
    if rest.startswith(b"\r\n"):
        return rest[2:]
    end = rest.find(END)
    if end < 0:
        message.whole = False
        return b""
    message.trailers = _lines(rest[:end])
    return rest[end + 4 :]


def read_requests(data: bytes) -> list[Message]:
    """What a replica was asked."""
    found = []
    while data:
        taken = take_head(data)
        if taken is None:
            found.append(Message("", whole=False))
            break
        message, data = taken
        data = take_body(message, data, ends=False)
        found.append(message)
    return found


def read_answers(data: bytes, methods: Sequence[str] = ()) -> list[Message]:
    """What a client was told; the last may not be whole. `methods`: what it asked with, GET where nothing is said."""
    found: list[Message] = []
    finals = 0
    while data:
        taken = take_head(data)
        if taken is None:
            found.append(Message("", whole=False))
            break
        message, data = taken
        assert message.first.startswith("HTTP/1.1 "), message.first
        method = methods[finals] if finals < len(methods) else "GET"
        if message.status >= 200:
            finals += 1
            if method != "HEAD" and message.status not in (204, 304):
                data = take_body(message, data, ends=True)
        found.append(message)
    return found


def read_answer(data: bytes, method: str = "GET") -> Message:
    """The one answer there is."""
    (message,) = read_answers(data, [method])
    return message


def read_request(data: bytes) -> Message:
    (message,) = read_requests(data)
    return message


def request(line: str = "GET /", *headers: str, body: bytes | None = None, version: str = "1.1") -> bytes:
    """A request; with a content-length if there is a body."""
    lines = [f"{line} HTTP/{version}", *(["host: gateway"] if version == "1.1" else []), *headers]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def answer(body: bytes = b"", *headers: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    lines = [f"HTTP/{version} {status}", *headers, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def chunked(*pieces: bytes, trailers: Sequence[str] = ()) -> bytes:
    """A body in chunks, to its end."""
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return chunks + "\r\n".join(["0", *trailers, "", ""]).encode("latin-1")

"""Clients and replicas of the state machine: each knows what it said, and checks what it hears."""

from __future__ import annotations

from dataclasses import dataclass, field

from .loop import Wire
from .reading import Message, chunked, read_answers, request, take_body, take_head

BODY_UNIT_BYTES = 400  # of a body's unit


@dataclass
class Asked:
    """A request as the client sent it."""

    id: int
    method: str
    body: bytes = b""
    old: bool = False
    bad: bool = False  # it is no request at all
    executions: list[str] = field(default_factory=list)  # how each replica that had all of it answered


class Client:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.asked: list[Asked] = []
        self.unsent = b""
        self._heard = b""

    def asks(self, asked: Asked, model: str, size: int, framing: str, option: str, cut: float) -> None:
        """Say part of a request; the rest is left for `goes_on`."""
        self.asked.append(asked)
        if asked.bad:
            data = b"GET / HTTP/1.1\r\nhost : %d\r\n\r\n" % asked.id
        else:
            headers = [f"x-request-id: {asked.id}", f"steelyard-model: {model}", *([option] if option else [])]
            unit = b"(%d)" % asked.id
            asked.body = unit * (size // len(unit))
            version = "1.0" if asked.old else "1.1"
            line = f"{asked.method} /{asked.id}"
            if framing == "chunked" and not asked.old:
                half = len(asked.body) // 2
                pieces = [piece for piece in (asked.body[:half], asked.body[half:]) if piece]
                data = request(line, *headers, "transfer-encoding: chunked", version=version) + chunked(*pieces)
            else:
                data = request(line, *headers, body=asked.body, version=version)
        self.unsent += data
        self.goes_on(cut)

    def goes_on(self, part: float = 1.0) -> None:
        size = max(1, int(len(self.unsent) * part))
        data, self.unsent = self.unsent[:size], self.unsent[size:]
        self.wire.says(data)

    @property
    def gone(self) -> bool:
        return self.wire.transport.is_closing() or self.wire.transport.peer_ended

    def check(self) -> None:
        """Every answer is to the request of its place, and holds nothing of another's."""
        self._heard += self.wire.hears()
        answers = read_answers(self._heard, [asked.method for asked in self.asked])
        finals = [message for message in answers if message.first and message.status >= 200]
        assert len(finals) <= max(len(self.asked), 1), "more answers than questions"
        for asked, message in zip(self.asked, finals, strict=False):
            self._check(asked, message, last=message is finals[-1])
        for message in answers:
            if message.first and message.status < 200:
                assert message.status in (100, 103)
        clean = self.wire.closed and not self.wire.cut_off and not self.wire.transport.peer_ended
        if clean and finals:
            assert finals[-1].whole, "part of an answer, and a clean end"

    def _check(self, asked: Asked, message: Message, last: bool) -> None:
        if "steelyard-replica" not in message:
            assert "steelyard-reason" in message
            assert message.whole or not last or self.wire.cut_off or self.wire.transport.slow
            return
        assert not asked.bad
        assert message["x-request-id"] == str(asked.id)
        unit = b"<%d>" % asked.id
        assert message.body == (unit * (len(message.body) // len(unit) + 1))[: len(message.body)], "another's answer"
        assert message.whole or last


class Replica:
    """A replica's end of one connection. It answers requests with their own number, again and again."""

    def __init__(self, wire: Wire, asked: dict[int, Asked]) -> None:
        self.wire = wire
        self._all = asked
        self._heard = b""
        self.unsaid = b""  # of the answer it has begun
        self.closes = False  # after it
        self.broken = False  # said nonsense

    def listens(self) -> tuple[Asked | None, bool]:
        """The request it has, and whether it is all there."""
        self._heard += self.wire.hears()
        taken = take_head(self._heard)
        if taken is None:
            assert not self._heard, "heads are sent whole"
            return None, False
        message, rest = taken
        asked = self._all[int(message["x-request-id"])]
        assert message.first == f"{asked.method} /{asked.id} HTTP/1.1"
        after = take_body(message, rest, ends=False)
        assert asked.body.startswith(message.body), "another's body"
        if message.whole:
            assert message.body == asked.body
            assert not after, "a request before the answer to the last"
        return asked, message.whole

    def begins(self, asked: Asked, whole: bool, status: str, size: int, framing: str, part: float) -> None:
        unit = b"<%d>" % asked.id
        body = unit * (size // len(unit))
        if whole:
            if asked.method == "POST":
                assert all(how in ("503", "429") for how in asked.executions), "it ran, and was sent again"
            asked.executions.append(status[:3])
        lines = [f"HTTP/1.1 {status}", "x-of: replica"]
        if framing == "chunked":
            lines.append("transfer-encoding: chunked")
        elif framing == "sized":
            lines.append(f"content-length: {len(body)}")
        else:
            self.closes = True
        head = "\r\n".join([*lines, "", ""]).encode()
        if asked.method == "HEAD":
            body = b""
        elif framing == "chunked":
            body = chunked(*[body[i : i + BODY_UNIT_BYTES] for i in range(0, len(body), BODY_UNIT_BYTES)])
        self._heard = b"" if whole else self._heard
        self.closes = self.closes or not whole
        self.unsaid = head + body
        self.goes_on(part)

    def goes_on(self, part: float = 1.0) -> None:
        size = max(1, int(len(self.unsaid) * part))
        data, self.unsaid = self.unsaid[:size], self.unsaid[size:]
        self.wire.says(data)
        if self.closes and not self.unsaid and not self.wire.closed:
            self.wire.ends()

    @property
    def gone(self) -> bool:
        return self.wire.transport.is_closing() or self.wire.transport.peer_ended

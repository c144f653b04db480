"""A request as a line of JSON. By hand, and compiled: a general encoder was the largest part of what a log costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from time import time
from typing import Final

from ...core.prompt import TokenUsage
from ...core.slo.verdicts import SLO_VERDICTS
from ..exchange import Exchange
from ..routing.router import Route

Key = tuple[str, str, str, int, str, str, int]

MAX_CACHED_ENDS: Final = 4096  # when full, all are forgotten
_THOUSANDTHS: Final = [b'%03d+00:00","id":"' % n for n in range(1000)]
_STATUSES: Final = [b'%d,"ms":' % n for n in range(1000)]
_SHORT: Final = [b"%d.%02d" % divmod(n, 100) for n in range(10_000)]  # hundredths of a millisecond, up to 100 ms
_POINT: Final = [b".%03d" % n for n in range(1000)]
_QUOTE: Final = 34  # a number: to ask bytes for bytes takes ten times as long
_BACKSLASH: Final = 92
_NUMBERS: Final = [b"%d" % n for n in range(4096)]


class JsonLineEncoder:
    """A sink for requests that are over; caches what most lines share."""

    def __init__(self, enough: int, clock: Callable[[], float], on_full: Callable[[], None]) -> None:
        self._clock = clock
        self._on_full = on_full
        self._flush_bytes = enough
        self._lines: list[bytes] = []
        self._size = 0
        self._ends: dict[Key, bytes] = {}
        self._last_ends: dict[str, CachedLineEnd] = {}  # by replica: most requests end as the one before
        self._second = -1
        self._date = b""
        self._body_size = -1
        self._sizes = b""
        self._offset = 0.0
        self.set_clock()

    def set_clock(self) -> None:
        """A few times a second, by the wall clock: a log is for people."""
        self._offset = time() - self._clock()

    def finished(self, exchange: Exchange, outcome: str, reason: str, now: float) -> None:
        line = self._line(exchange, outcome, reason, now)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= self._flush_bytes:
            self._on_full()

    def __len__(self) -> int:
        return len(self._lines)

    def take(self, dropped: int) -> bytes:
        """All lines; the last tells of those lost before."""
        made, self._lines, self._size = self._lines, [], 0
        made[-1] += b',"dropped":%d}\n' % dropped if dropped else b"}\n"
        return b"}\n".join(made)

    def _line(self, exchange: Exchange, outcome: str, reason: str, now: float) -> bytes:
        """Without its last brace: `take` may add something."""
        began = exchange.started_at
        sent = exchange.dispatched_at
        first = exchange.first_byte
        route = exchange.route
        id = exchange.request_id
        wall = now + self._offset
        second = int(wall)
        if second != self._second:
            self._new_second(second)
        if exchange.body_size != self._body_size:
            self._new_body_size(exchange.body_size)
        return b"".join(
            (
                self._date,
                _THOUSANDTHS[int((wall - second) * 1000.0)],
                _text(id.decode("latin-1")) if _QUOTE in id or _BACKSLASH in id else id,
                b'","client":"',
                exchange.client.forwarding.client,
                route.access_log_part or _route_part(route),
                _STATUSES[exchange.status],
                milliseconds(now - began),
                b',"queue_ms":',
                milliseconds(sent - began) if sent else b"0",
                b',"first_byte_ms":',
                milliseconds(first - began) if first else b"0",
                self._sizes,
                number(exchange.bytes_out),
                b"" if exchange.usage is None else _tokens(exchange.usage),
                self._end(exchange, outcome, reason),
            )
        )

    def _new_second(self, second: int) -> None:
        self._second = second
        self._date = b'{"time":"' + datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.").encode()

    def _new_body_size(self, size: int) -> None:
        self._body_size = size
        self._sizes = b',"bytes_in":' + number(size) + b',"bytes_out":'

    def _end(self, exchange: Exchange, outcome: str, reason: str) -> bytes:
        verdict = exchange.slo_verdict if exchange.stats is not None and not exchange.route.health_request else -1
        last = self._last_ends.get(exchange.replica_id)
        if last is not None and last.matches(exchange, outcome, reason, verdict):
            return last.text
        key = (outcome, exchange.model, exchange.tenant, exchange.attempt_count, exchange.replica_id, reason, verdict)
        text = self._ends.get(key)
        if text is None:
            if len(self._ends) >= MAX_CACHED_ENDS:
                self._ends.clear()
                self._last_ends.clear()
            text = self._ends[key] = _encode_end(key)
        self._last_ends[exchange.replica_id] = CachedLineEnd(exchange, outcome, reason, verdict, text)
        return text


class CachedLineEnd:
    """How a line ended: comparing with the next is quicker than a look-up."""

    __slots__ = ("attempts", "model", "outcome", "reason", "tenant", "text", "verdict")

    def __init__(self, exchange: Exchange, outcome: str, reason: str, verdict: int, text: bytes) -> None:
        self.outcome = outcome
        self.model = exchange.model
        self.tenant = exchange.tenant
        self.attempts = exchange.attempt_count
        self.reason = reason
        self.verdict = verdict
        self.text = text

    def matches(self, exchange: Exchange, outcome: str, reason: str, verdict: int) -> bool:
        return (
            verdict == self.verdict
            and exchange.attempt_count == self.attempts
            and outcome == self.outcome
            and exchange.model == self.model
            and exchange.tenant == self.tenant
            and reason == self.reason
        )


def _encode_end(key: Key) -> bytes:
    outcome, model, tenant, attempts, replica, reason, verdict = key
    slo, fault = SLO_VERDICTS[verdict] if verdict >= 0 else ("", "")
    said: dict[str, str | int] = {
        "outcome": outcome,
        "model": model,
        "tenant": tenant,
        "replica": replica,
        "attempts": attempts,
        "reason": reason,
        "slo": slo,
        "fault": fault,
    }
    return "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in said.items() if value).encode()


def _route_part(route: Route) -> bytes:
    method, path = _text(route.method.decode("latin-1")), _text(route.path)
    route.access_log_part = b'","method":"' + method + b'","path":"' + path + b'","status":'
    return route.access_log_part


def _tokens(usage: TokenUsage) -> bytes:
    said = b',"prompt_tokens":' + number(usage.prompt) + b',"output_tokens":' + number(usage.output)
    return said + b',"cached_tokens":' + number(usage.cached) if usage.cached else said


def _text(text: str) -> bytes:
    """A JSON string without its quotes."""
    return json.dumps(text)[1:-1].encode()


def number(value: int) -> bytes:
    return _NUMBERS[value] if 0 <= value < 4096 else b"%d" % value


def milliseconds(seconds: float) -> bytes:
    hundredths = int(seconds * 1e5)
    if 0 <= hundredths < 10_000:
        return _SHORT[hundredths]
    micros = int(seconds * 1e6)
    return number(micros // 1000) + _POINT[micros % 1000]

"""A request as a line of the access log, in JSON. Written out by hand, and compiled, for it is made of every request:
with a general encoder it was the largest part of what a log costs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from time import monotonic, time
from typing import Final

from ..core.slo import JUDGEMENTS
from .exchange import Exchange
from .routing import Route

MOST: Final = 4096  # ends of lines remembered; when full, all are forgotten
_THOUSANDTHS: Final = [b'%03d+00:00","id":"' % n for n in range(1000)]
_STATUSES: Final = [b'%d,"ms":' % n for n in range(1000)]
_SHORT: Final = [b"%d.%02d" % divmod(n, 100) for n in range(10_000)]  # hundredths of a millisecond, up to 100 ms
_NUMBERS: Final = [b"%d" % n for n in range(4096)]


class JsonLines:
    """`line` for each request; keeps what most lines share."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, str, str, int, str, str, int], bytes] = {}
        self._second = -1
        self._date = b""
        self._offset = 0.0
        self.made: list[bytes] = []
        self.set_clock()

    def set_clock(self) -> None:
        """By the only wall clock in the gateway, a few times a second: a log is for people."""
        self._offset = time() - monotonic()

    def add(self, exchange: Exchange, verdict: str, reason: str, now: float) -> int:
        """How many there are now, with this one."""
        self.made.append(self.line(exchange, verdict, reason, now))
        return len(self.made)

    def take(self, dropped: int) -> bytes:
        """All that were made; the last tells of those that were lost before."""
        if not self.made:
            return b""
        made, self.made = self.made, []
        told = b',"dropped":%d' % dropped if dropped else b""
        return b"}\n".join(made) + told + b"}\n"

    def line(self, exchange: Exchange, verdict: str, reason: str, now: float) -> bytes:
        """Without its last brace and the end of the line: something may be to be added."""
        began = exchange.began
        sent = exchange.dispatched
        first = exchange.first_byte
        route = exchange.route
        judgement = exchange.judgement if exchange.account is not None and not route.look else -1
        key = (
            verdict,
            exchange.model,
            exchange.tenant,
            exchange.attempts,
            exchange.replica_id,
            reason,
            judgement,
        )
        end = self._ends.get(key)
        if end is None:
            end = self._end(key)
        id = exchange.request_id
        return b"".join(
            (
                self._time(now),
                id if b'"' not in id and b"\\" not in id else _text(id.decode("latin-1")),
                b'","client":"',
                exchange.client.forwarding.client,
                route.logged or _remembered(route),
                _STATUSES[exchange.status],
                milliseconds(now - began),
                b',"queue_ms":',
                milliseconds(sent - began) if sent else b"0",
                b',"first_byte_ms":',
                milliseconds(first - began) if first else b"0",
                b',"bytes_in":',
                number(exchange.body_size),
                b',"bytes_out":',
                number(exchange.bytes_out),
                end,
            )
        )

    def _time(self, now: float) -> bytes:
        wall = now + self._offset
        second = int(wall)
        if second != self._second:
            self._second = second
            self._date = b'{"time":"' + datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.").encode()
        return self._date + _THOUSANDTHS[int((wall - second) * 1000.0)]

    def _end(self, key: tuple[str, str, str, int, str, str, int]) -> bytes:
        verdict, model, tenant, attempts, replica, reason, judgement = key
        sla, fault = JUDGEMENTS[judgement] if judgement >= 0 else ("", "")
        said: dict[str, str | int] = {
            "verdict": verdict,
            "model": model,
            "tenant": tenant,
            "replica": replica,
            "attempts": attempts,
            "reason": reason,
            "sla": sla,
            "fault": fault,
        }
        end = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in said.items() if value).encode()
        if len(self._ends) >= MOST:
            self._ends.clear()
        self._ends[key] = end
        return end


def _remembered(route: Route) -> bytes:
    method, path = _text(route.method.decode("latin-1")), _text(route.path)
    route.logged = b'","method":"' + method + b'","path":"' + path + b'","status":'
    return route.logged


def _text(text: str) -> bytes:
    """As a string of JSON, without its quotes."""
    return json.dumps(text)[1:-1].encode()


def number(value: int) -> bytes:
    return _NUMBERS[value] if 0 <= value < 4096 else b"%d" % value


def milliseconds(seconds: float) -> bytes:
    hundredths = int(seconds * 1e5)
    return _SHORT[hundredths] if 0 <= hundredths < 10_000 else b"%.3f" % (seconds * 1e3)

"""200 event streams at once through a proxy: how long after it was sent does an event arrive?"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from time import monotonic_ns
from typing import cast

import uvloop

from ..load.chat_request import PATH, body, head
from ..mocks.stubs import STREAM_COUNT
from ..peers import PEERS, Peer
from ..testbed.rounds import Report, Rounds, verdict
from ..testbed.testbed import Proxy, Testbed

SENT_AT_PATTERN = re.compile(rb'"t":"(\d{20})"')
WARM_UP_SECONDS = 1.0  # before the counting begins
DIRECT = "direct"
GOAL_ADDED_MICROS = 100.0  # µs for each event, the goal


@dataclass(frozen=True)
class EventDelays:
    """Delays in µs, sorted, and the proxy's CPU µs for each event."""

    delays: list[float]
    cpu: float

    def quantile(self, share: float) -> float:
        return self.delays[min(len(self.delays) - 1, int(share * len(self.delays)))] if self.delays else float("nan")


class Listener(asyncio.Protocol):
    """One stream. Events are told apart by their end; chunk sizes in between do not matter."""

    def __init__(self, request: bytes, delays: list[float]) -> None:
        self.request = request
        self.delays = delays
        self.rest = b""
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self.request)

    def data_received(self, data: bytes) -> None:
        now = monotonic_ns()
        whole, _, self.rest = (self.rest + data).rpartition(b"\n\n")
        for sent in SENT_AT_PATTERN.findall(whole):
            self.delays.append((now - int(sent)) / 1000)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True


async def _listen(proxy: Proxy, seconds: float) -> EventDelays:
    loop = asyncio.get_running_loop()
    text = body(stream=True).encode()
    request = head(proxy.port, PATH, len(text)) + text
    delays: list[float] = []
    pairs = [
        await loop.create_connection(lambda: Listener(request, delays), "127.0.0.1", proxy.port)
        for _ in range(STREAM_COUNT)
    ]
    await asyncio.sleep(WARM_UP_SECONDS)
    delays.clear()
    before = proxy.running.cpu_seconds() if proxy.running else 0.0
    await asyncio.sleep(seconds)
    used = (proxy.running.cpu_seconds() if proxy.running else 0.0) - before
    events = sorted(delays)
    broken = sum(listener.ended for _, listener in pairs)
    for transport, _ in pairs:
        transport.abort()
    if broken or not events:
        raise ConnectionError(f"{broken} of {STREAM_COUNT} streams ended, {len(events)} events came")
    return EventDelays(events, used / len(events) * 1e6)


def measure(testbed: Testbed, peer: Peer | None, seconds: float) -> EventDelays:
    with testbed.proxy(peer, streaming=True) as proxy:
        return uvloop.run(_listen(proxy, seconds))


def report(seen: Rounds[EventDelays]) -> Report:
    header = ["proxy", "p50 µs", "p99 µs", "added p50", "± µs", "added p99", "CPU µs/event"]
    rows = [row(seen, name) for name in seen.seen]
    rows += [[name, "failed", *[""] * (len(header) - 2)] for name in seen.broken]
    raw = {
        name: [
            {"p50": r.quantile(0.5), "p99": r.quantile(0.99), "events": len(r.delays), "cpu": r.cpu} for r in results
        ]
        for name, results in seen.seen.items()
    }
    title = f"{STREAM_COUNT} streams, an event every 50 ms on each: from sent to received"
    return Report(title, header, rows, verdicts(seen), raw, seen.broken)


def _p50(events: EventDelays) -> float:
    return events.quantile(0.5)


def _p99(events: EventDelays) -> float:
    return events.quantile(0.99)


def row(seen: Rounds[EventDelays], name: str) -> list[str]:
    cells = [name, f"{seen.median(name, _p50):,.0f}", f"{seen.median(name, _p99):,.0f}"]
    if name == DIRECT:
        return [*cells, "", "", "", ""]
    return [
        *cells,
        f"{seen.above(name, DIRECT, _p50):,.0f}",
        f"{seen.spread(name, _p50) * seen.median(name, _p50):,.0f}",
        f"{seen.above(name, DIRECT, _p99):,.0f}",
        f"{seen.median(name, lambda e: e.cpu):.1f}",
    ]


def verdicts(seen: Rounds[EventDelays]) -> list[str]:
    return [
        verdict(f"{name}: added time per event, p50", seen.above(name, DIRECT, _p50), GOAL_ADDED_MICROS, unit=" µs")
        for name in seen.seen
        if name in PEERS and PEERS[name].ours
    ]

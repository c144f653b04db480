"""Large bodies through a proxy, up and down: MB/s over a few connections, CPU for each MB, and the proxy's memory."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import asdict, dataclass
from time import monotonic

import uvloop

from ..load.chat_request import PATH, head, padded
from ..load.http_protocol import ClientConnection
from ..peers import PEERS, Peer
from ..testbed.rounds import Report, Rounds, ratio, verdict
from ..testbed.testbed import Proxy, Testbed

BODY_BYTES = 10 << 20
CONNECTIONS = 4
WARM_UP_SECONDS = 1.0
DIRECT = "direct"
GOAL_RATE_TO_HAPROXY = 0.7
MIN_RECEIVED_SHARE = 0.99  # some routers write JSON anew, with other spaces
RECEIVED_PATTERN = re.compile(rb'\{"received": (\d+)\}')


@dataclass(frozen=True)
class Transfer:
    rate: float  # MB/s
    cpu: float  # µs of the proxy for each MB
    memory: float  # MiB, the peak of the proxy's processes together
    grown: float  # MiB, that above what they had before


class RepeatingClient(ClientConnection):
    """Repeats one request on one connection."""

    def __init__(self, request: bytes) -> None:
        super().__init__()
        self.request = request
        self.done = self.failed = 0

    def response(self, status: int | None, body: bytes) -> None:
        if status == 200 and received_bytes(body, self.length) >= MIN_RECEIVED_SHARE * BODY_BYTES:
            self.done += 1
        else:
            self.failed += 1
        if not self.lost:
            self.send(self.request)


def received_bytes(answer: bytes, length: int) -> int:
    """Bytes of the large body that came through: those the replica says it received, or those of the answer itself."""
    match = RECEIVED_PATTERN.match(answer)
    return int(match[1]) if match else length


def upload(port: int) -> bytes:
    chat = {"model": "bench", "messages": [{"role": "user", "content": "…"}], "max_tokens": 64}
    text = padded(json.dumps(chat, ensure_ascii=False), BODY_BYTES).encode()
    return head(port, PATH, len(text)) + text


def download(port: int) -> bytes:
    chat = {
        "model": "bench",
        "messages": [{"role": "user", "content": "long"}],
        "metadata": {"answer": str(BODY_BYTES)},
    }
    text = json.dumps(chat).encode()
    return head(port, PATH, len(text)) + text


async def _repeat(proxy: Proxy, request: bytes, seconds: float) -> Transfer:
    loop = asyncio.get_running_loop()
    pairs = [
        await loop.create_connection(lambda: RepeatingClient(request), "127.0.0.1", proxy.port)
        for _ in range(CONNECTIONS)
    ]
    ends = [end for _, end in pairs]
    if proxy.running:
        proxy.running.reset_peak_memory()
    idle = _peak(proxy)
    for end in ends:
        end.send(request)
    await asyncio.sleep(WARM_UP_SECONDS)
    begun, before, used = monotonic(), sum(end.done for end in ends), -_cpu(proxy)
    await asyncio.sleep(seconds)
    took, moved = monotonic() - begun, (sum(end.done for end in ends) - before) * BODY_BYTES / 1e6
    used += _cpu(proxy)
    peak = _peak(proxy)
    for transport, end in pairs:
        end.waiting = False
        transport.abort()
    if failed := sum(end.failed for end in ends):
        raise ConnectionError(f"{failed} bodies of 10 MiB did not come through whole")
    if not moved:
        raise ConnectionError(f"no body of 10 MiB came through in {seconds:g} s")
    return Transfer(moved / took, used * 1e6 / moved, peak, peak - idle)


def _cpu(proxy: Proxy) -> float:
    return proxy.running.cpu_seconds() if proxy.running else 0.0


def _peak(proxy: Proxy) -> float:
    return proxy.running.peak_memory() / 2**20 if proxy.running else 0.0


def measure(testbed: Testbed, peer: Peer | None, seconds: float) -> tuple[Transfer, Transfer]:
    """Up, then down, each with a proxy of its own: a peak is of one kind of load."""
    results = []
    for make in (upload, download):
        with testbed.proxy(peer, streaming=True) as proxy:
            results.append(uvloop.run(_repeat(proxy, make(proxy.port), seconds)))
    return results[0], results[1]


UpAndDown = tuple[Transfer, Transfer]
DIRECTIONS = ("up", "down")


def report(seen: Rounds[UpAndDown]) -> Report:
    header = ["proxy"]
    for direction in DIRECTIONS:
        header += [f"{direction} MB/s", "± %", "× haproxy", "CPU µs/MB", "peak MiB", "grown"]
    rows = [[name, *cells(seen, name, 0), *cells(seen, name, 1)] for name in seen.seen]
    rows += [[name, "failed", *[""] * (len(header) - 2)] for name in seen.broken]
    raw = {name: [[asdict(bulk) for bulk in both] for both in results] for name, results in seen.seen.items()}
    title = f"Bodies of 10 MiB over {CONNECTIONS} connections: requests (up) and answers (down)"
    return Report(title, header, rows, verdicts(seen), raw, seen.broken)


def cells(seen: Rounds[UpAndDown], name: str, direction: int) -> list[str]:
    def rate(both: UpAndDown) -> float:
        return both[direction].rate

    if name == DIRECT:
        return [f"{seen.median(name, rate):,.0f}", f"{100 * seen.spread(name, rate):.0f}", "", "", "", ""]
    return [
        f"{seen.median(name, rate):,.0f}",
        f"{100 * seen.spread(name, rate):.0f}",
        ratio(seen.against(name, "haproxy", rate)),
        f"{seen.median(name, lambda both: both[direction].cpu):,.0f}",
        f"{seen.median(name, lambda both: both[direction].memory):,.0f}",
        f"+{seen.median(name, lambda both: both[direction].grown):,.0f}",
    ]


def verdicts(seen: Rounds[UpAndDown]) -> list[str]:
    return [
        verdict(
            f"{name}: throughput of 10 MiB {title} ÷ haproxy's",
            seen.against(name, "haproxy", lambda both, direction=direction: both[direction].rate),  # type: ignore[misc]
            GOAL_RATE_TO_HAPROXY,
            least=True,
        )
        for name in seen.seen
        if name in PEERS and PEERS[name].ours
        for direction, title in enumerate(("requests", "answers"))
    ]

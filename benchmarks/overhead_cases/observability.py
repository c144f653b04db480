"""What it costs to know what happens: Steelyard with everything off and with everything on, at 32 connections.

On: an SLO to judge each request by, the history, an access log, tracing of 1 %, and metrics that are scraped once a
second (a Prometheus scrapes every 15 s). Off: none of these. `--baseline PROGRAM` takes another build of Steelyard
beside them, for example one from before any of this was counted. HAProxy, where it is installed, is measured beside.
"""

from __future__ import annotations

import http.client
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from ..peers import PEERS, Peer, Setting, Start
from ..peers.base import write
from ..peers.steelyard import Steelyard
from ..testbed.processes import free_ports
from ..testbed.rounds import Report, Rounds, ratio, verdict
from ..testbed.testbed import Testbed
from .small_requests import SmallRequestResult, measured

GOAL_CPU_RATIO = 1.10
GOAL_CPU_TO_HAPROXY = 1.65  # everything on
OFF, ON, BASELINE, HAPROXY = "off", "on", "baseline", "haproxy"

_CONFIG = """\
listen: 127.0.0.1:{listen}
workers: 1
models:
  "*":
    replicas: [{replicas}]
"""
_OFF = """\
admin: {listen: ""}
"""
_HISTORY_OFF = """\
history: {enabled: false}
"""
_ON = """\
    slo: {{latency: 200ms, percentile: 99, availability: 99.9}}
admin: {{listen: "127.0.0.1:{admin}"}}
history: {{path: "{folder}/history.sqlite"}}
access_log: {{path: "{folder}/access.log"}}
tracing: {{endpoint: "http://127.0.0.1:{sink}/v1/traces", sample_rate: 1%}}
"""


class ObservedSteelyard(Steelyard):
    """Steelyard by a configuration: `what` of the above."""

    def __init__(self, name: str, what: str, sink: int = 0, program: str | None = None) -> None:
        super().__init__(name)
        self.what = what
        self.sink = sink
        self.admin = 0
        self._program = program

    def find(self) -> str | None:
        return self._program or super().find()

    def start(self, program: str, setting: Setting) -> Start:
        replicas = ", ".join(f'{{url: "http://127.0.0.1:{port}"}}' for port in setting.replicas)
        text = _CONFIG.format(listen=setting.listen, replicas=replicas)
        if self.what == ON:
            self.admin = setting.extra[0]
            text += _ON.format(admin=self.admin, folder=setting.folder, sink=self.sink)
        else:
            text += _OFF + (_HISTORY_OFF if self.what == OFF else "")
        return Start([program, "serve", write(setting, f"{self.name}.yaml", text)])


def peers(testbed: Testbed, baseline: str | None) -> list[Peer]:
    (sink,) = free_ports(1)
    testbed.processes.start(
        "sink", [sys.executable, "-m", "benchmarks.mocks.trace_sink", str(sink)], testbed.load_core, [sink]
    )
    found: list[Peer] = [ObservedSteelyard(OFF, OFF), ObservedSteelyard(ON, ON, sink)]
    if PEERS[HAPROXY].find():
        found.append(PEERS[HAPROXY])
    return [ObservedSteelyard(BASELINE, BASELINE, program=baseline), *found] if baseline else found


def measure(testbed: Testbed, peer: Peer | None, seconds: float, lua: Path) -> SmallRequestResult:
    with testbed.proxy(peer) as proxy:
        admin = peer.admin if isinstance(peer, ObservedSteelyard) else 0
        with _scraped(admin):
            return measured(testbed, proxy, seconds, lua)


@contextmanager
def _scraped(port: int) -> Iterator[None]:
    """Scraped, once a second."""
    if not port:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_scrape, args=(port, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5.0)


def _scrape(port: int, over: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    while not over.wait(1.0):
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        page = answer.read()
        if answer.status != 200 or b"steelyard_" not in page:
            raise SystemExit(f"/metrics answers {answer.status}")
    connection.close()


def report(seen: Rounds[SmallRequestResult]) -> Report:
    header = ["Steelyard", "requests/s", "p50, 32", "p99, 32", "CPU µs/request", "± %", "÷ off"]
    rows = [_row(seen, name) for name in (BASELINE, OFF, ON, HAPROXY) if name in seen.seen]
    raw = {name: [asdict(result) for result in results] for name, results in seen.seen.items()}
    lines = [verdict("CPU per request, everything on ÷ off", seen.against(ON, OFF, _cpu), GOAL_CPU_RATIO)]
    if BASELINE in seen.seen:
        lines.append(
            verdict("CPU per request, everything on ÷ baseline", seen.against(ON, BASELINE, _cpu), GOAL_CPU_RATIO)
        )
    if HAPROXY in seen.seen:
        to_haproxy = seen.against(ON, HAPROXY, _cpu)
        lines.append(verdict("CPU per request, everything on ÷ haproxy's", to_haproxy, GOAL_CPU_TO_HAPROXY))
    title = "One POST of 400 bytes: µs; at 32 connections; medians over rounds"
    return Report(title, header, rows, lines, raw, seen.broken)


def _row(seen: Rounds[SmallRequestResult], name: str) -> list[str]:
    return [
        name,
        f"{seen.median(name, lambda s: s.many.rate):,.0f}",
        f"{seen.median(name, lambda s: s.many.p50):,.0f}",
        f"{seen.median(name, lambda s: s.many.p99):,.0f}",
        f"{seen.median(name, _cpu):.1f}",
        f"{100 * seen.spread(name, _cpu):.0f}",
        ratio(seen.against(name, OFF, _cpu)),
    ]


def _cpu(result: SmallRequestResult) -> float:
    return result.cpu

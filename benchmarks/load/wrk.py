"""Load from wrk, a closed loop, and replicas of negligible cost: one nginx process.

The replicas answer everything with 200 and 300 bytes of JSON, so that the core they share with wrk is not the limit.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from ..testbed.processes import ManagedProcess, ProcessManager
from .chat_request import HEADERS, PATH, answer, body, models

REPLICAS_CONFIG = """\
worker_processes {workers};
daemon off;
master_process {master};
pid {folder}/replicas.pid;
error_log /dev/null;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/replicas-body;
    proxy_temp_path {folder}/replicas-proxy;
    fastcgi_temp_path {folder}/replicas-fastcgi;
    uwsgi_temp_path {folder}/replicas-uwsgi;
    scgi_temp_path {folder}/replicas-scgi;
    keepalive_requests 1000000000;
    keepalive_timeout 3600s;
    default_type application/json;
{servers}
}}
"""

SERVER_CONFIG = """\
    server {{
        listen 127.0.0.1:{port} backlog=4096{reuseport};
        location / {{ return 200 '{answer}'; }}
        location = /v1/models {{ return 200 '{models}'; }}
    }}
"""

# After the summary, all latencies in µs and how often each was seen: percentiles are ours to take, see `uncorrected`.
LUA_SCRIPT = """\
wrk.method = "POST"
wrk.body = [[{body}]]
{headers}
done = function(summary, latency, requests)
    local e = summary.errors
    local errors = e.connect + e.read + e.write + e.status + e.timeout
    print(string.format("%s %d %d %d", "{mark}", summary.requests, summary.duration, errors))
    for i = 1, #latency do
        print(string.format("%d %d", latency(i)))
    end
end
"""
SUMMARY_MARK = "requests-micros-errors"


@dataclass(frozen=True)
class Load:
    """What wrk saw. Latencies in µs."""

    requests: int
    seconds: float
    errors: int
    mean: float
    p50: float
    p99: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def start_replicas(processes: ProcessManager, ports: tuple[int, ...], cores: int | Set[int]) -> ManagedProcess:
    """One process for each core."""
    workers = 1 if isinstance(cores, int) else len(cores)
    reuseport = " reuseport" if workers > 1 else ""  # or one process takes nearly all connections
    servers = "".join(
        SERVER_CONFIG.format(port=port, reuseport=reuseport, answer=answer(), models=models()) for port in ports
    )
    path = processes.folder / "replicas.conf"
    master = "on" if workers > 1 else "off"
    text = REPLICAS_CONFIG.format(workers=workers, master=master, folder=processes.folder, servers=servers)
    path.write_text(text, encoding="utf-8")
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    return processes.start("replicas", [program, "-c", str(path), "-e", "/dev/null"], cores, ports)


def script(folder: Path) -> Path:
    headers = "\n".join(f'wrk.headers["{key}"] = "{value}"' for key, value in HEADERS.items())
    path = folder / "post.lua"
    path.write_text(LUA_SCRIPT.format(body=body(), headers=headers, mark=SUMMARY_MARK), encoding="utf-8")
    return path


def load(port: int, connections: int, seconds: float, lua: Path, threads: int = 1) -> Load:
    """Runs on the cores of the caller."""
    options = ["-t", str(threads), "-c", str(connections), "-d", f"{max(1, round(seconds))}s", "--timeout", "10s"]
    done = subprocess.run(
        ["wrk", *options, "-s", str(lua), f"http://127.0.0.1:{port}{PATH}"], capture_output=True, text=True, check=True
    )
    return read(done.stdout, connections)


def read(output: str, connections: int) -> Load:
    lines = iter(output.splitlines())
    requests, micros, errors = next(
        (int(text) for text in line.split()[1:]) for line in lines if line.startswith(SUMMARY_MARK)
    )
    seen = {int(value): int(count) for value, count in (line.split() for line in lines)}
    latencies = uncorrected(seen, micros // max(1, requests // connections))
    return Load(requests, micros / 1e6, errors, mean(latencies), quantile(latencies, 0.5), quantile(latencies, 0.99))


def uncorrected(counts: dict[int, int], interval: int) -> dict[int, int]:
    """Latencies as measured, from wrk's corrected ones.

    Let `interval` be the mean between a connection's requests. For each latency n of 2 × interval or more, wrk 4.0 and
    4.1 add as many at n - interval, n - 2 × interval, … above interval, as if a request had been due each interval. In
    a closed loop none was: a stall of 10 ms becomes a hundred. From the largest down, it can be taken back.
    """
    left = dict(counts)
    for value in sorted(counts, reverse=True):
        if value < 2 * interval:
            break
        for lower in range(value - interval, interval, -interval):
            left[lower] -= left[value]
    return {value: count for value, count in left.items() if count}


def mean(counts: dict[int, int]) -> float:
    return sum(value * count for value, count in counts.items()) / max(1, sum(counts.values()))


def quantile(counts: dict[int, int], share: float) -> float:
    wanted = share * sum(counts.values())
    for value in sorted(counts):
        wanted -= counts[value]
        if wanted <= 0:
            return float(value)
    return 0.0

"""The servers on the card and the gateway before them, started for one run and ended after it."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..testbed.processes import ManagedProcess, StartError, free_ports
from .plan import MAX_GIB
from .server import DEVICE

HEADROOM_SHARE = 0.1  # of the card, left free
LOAD_TIMEOUT_SECONDS = 120.0  # that torch may take until a model is ready
POLICIES = {"without": "least_connections", "with": "least_work", "one": "least_work"}
RUNS = {
    "without": "without the ledger",
    "with": "with the ledger",
    "one": "one request at a time",
}


@dataclass(frozen=True)
class Setting:
    """What is the same in all runs."""

    replicas: int  # of each model
    threads: int  # requests that each runs at once
    workers: int  # of the gateway
    fake_device: Mapping[str, Any] | None  # the device in the configuration, where there is no card


def configuration(
    run: str, setting: Setting, listen: int, admin: int, ports: Mapping[str, list[int]]
) -> dict[str, Any]:
    device = DEVICE if run != "without" else ""
    written: dict[str, Any] = {
        "listen": f"127.0.0.1:{listen}",
        "workers": setting.workers,
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "models": {name: _model(run, setting, of, device) for name, of in ports.items()},
    }
    if device:
        known = setting.fake_device or {"gpu": "0"}
        once = {"concurrency": 1} if run == "one" else {}
        written["devices"] = {device: {**known, **once, "headroom": HEADROOM_SHARE}}
    return written


def _model(run: str, setting: Setting, ports: list[int], device: str) -> dict[str, Any]:
    """No retries, no ejections: every failure is seen."""
    return {
        "dialect": "oip",
        "policy": POLICIES[run],
        "concurrency": setting.threads,
        "max_queue": 10_000,
        "queue_timeout": "10m",
        "retry": {"max_attempts": 1},
        "outlier_detection": {"enabled": False},
        "health": {"path": "/steelyard/ready", "interval": "1s"},
        "load_metrics": {"enabled": True, "path": "/steelyard/metrics", "interval": "1s", "orca": True},
        "replicas": [{"url": f"http://127.0.0.1:{port}", "device": device} for port in ports],
    }


@dataclass(frozen=True)
class GpuTestbed:
    port: int  # of the gateway
    admin: int
    servers: list[ManagedProcess]
    gateway: ManagedProcess

    def fleet(self) -> Any:
        """What the gateway shows of itself."""
        return get(self.admin, "/v1/fleet")[1]


@contextmanager
def start_testbed(run: str, setting: Setting, folder: Path) -> Iterator[GpuTestbed]:
    names = [name for name in MAX_GIB for _ in range(setting.replicas)]
    listen, admin, *numbers = free_ports(2 + len(names))
    ports: dict[str, list[int]] = {name: [] for name in MAX_GIB}
    with ExitStack() as stack:
        servers = []
        for name, port in zip(names, numbers, strict=True):
            ports[name].append(port)
            log = folder / f"{name}-{len(ports[name])}"
            more = [str(folder)] if setting.fake_device else []
            words = ["benchmarks.gpu.server", name, str(port), str(setting.threads), f"{log}.notes", *more]
            servers.append(_start(stack, log.name, ["-m", *words], folder))
        for server, port in zip(servers, numbers, strict=True):
            wait_for(server, port, "/steelyard/ready")
        written = folder / "gateway.yaml"
        config = configuration(run, setting, listen, admin, ports)
        written.write_text(json.dumps(config, indent=1), encoding="utf-8")  # YAML reads JSON
        gateway = _start(stack, "gateway", ["-m", "steelyard", "serve", str(written)], folder)
        wait_for(gateway, admin, "/readyz")
        yield GpuTestbed(listen, admin, servers, gateway)


def _start(stack: ExitStack, name: str, words: list[str], folder: Path) -> ManagedProcess:
    running = ManagedProcess(name, [sys.executable, *words], folder / f"{name}.log", {})
    stack.callback(running.stop)
    return running


def wait_for(running: ManagedProcess, port: int, path: str) -> None:
    end = time.monotonic() + LOAD_TIMEOUT_SECONDS
    while (response := get(port, path))[0] != 200:
        if running.process.poll() is not None or time.monotonic() > end:
            raise StartError(f"{running.name} does not become ready: {response}\n{running.log_tail()}")
        time.sleep(0.1)


def get(port: int, path: str) -> tuple[int, Any]:
    """Status and what it said; 0: it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5.0) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as problem:
        return problem.code, problem.reason
    except (OSError, ValueError) as problem:
        return 0, str(problem)

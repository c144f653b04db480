"""A device that real processes share and that really runs out: a file system in memory of a fixed size (tmpfs).

The kernel kills the writer when it is full (SIGBUS), as the OOM killer does in a cgroup, but without
privileges: it is mounted in a namespace that ends with its processes. A supervisor in it starts the servers, restarts
them and records each death.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..testbed.processes import StartError, free_ports, is_listening

ROOT = Path(__file__).parents[2]
RESTART_DELAY_SECONDS = 0.05
START_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class HostedModel:
    """A model, and what it needs. Bytes."""

    name: str
    weights: int
    per_unit: int  # for each element of a request

    def elements(self, size: int) -> int:
        """Of a request that needs so much."""
        return max(1, round(size / self.per_unit))


@dataclass(frozen=True)
class ServerDeath:
    at: float  # monotonic
    server: str
    signal: int  # that killed it; or, negative, its exit status


def mount_command() -> list[str] | None:
    """How a process gets a namespace in which it may mount; None: it may not, on this machine."""
    for command in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        with suppress(OSError), tempfile.TemporaryDirectory() as folder:
            mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "steelyard-box", folder]
            if subprocess.run([*command, *mount], capture_output=True, check=False).returncode == 0:
                return command
    return None


class MemoryDevice:
    """The device and its servers, one for each model; everything is gone when this is left."""

    def __init__(self, size: int, models: Sequence[HostedModel]) -> None:
        self.size = size
        self.models = {model.name: model for model in models}
        self.port = dict(zip(self.models, free_ports(len(models)), strict=True))
        self._folder = Path(tempfile.mkdtemp(prefix="steelyard-box-"))
        self.device, self._deaths = self._folder / "device", self._folder / "deaths"
        self.device.mkdir()
        self._deaths.touch()

    def _command(self, model: HostedModel) -> list[str]:
        place = [str(self.port[model.name]), str(self.device)]
        sizes = [str(model.weights), str(model.per_unit)]
        return [sys.executable, "-m", "benchmarks.mocks.memory_replica", *place, model.name, *sizes]

    def __enter__(self) -> MemoryDevice:
        before = mount_command()
        if before is None:
            raise StartError("mounting a file system in a namespace is not permitted here")
        servers = {name: self._command(model) for name, model in self.models.items()}
        plan = {"device": str(self.device), "size": self.size, "deaths": str(self._deaths), "servers": servers}
        command = [*before, sys.executable, "-m", "benchmarks.mocks.memory_device", json.dumps(plan)]
        # In a session of its own: Ctrl-C goes to the parent, and stdin closes with it.
        self.supervisor = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True)
        try:
            self.wait_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self.supervisor.stdin is not None
        self.supervisor.stdin.close()
        self.supervisor.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def wait_up(self) -> None:
        end = time.monotonic() + START_TIMEOUT_SECONDS
        for name, port in self.port.items():
            while not is_listening(port):
                if self.supervisor.poll() is not None or time.monotonic() > end:
                    raise StartError(f"the server of {name} does not come up")
                time.sleep(0.02)

    def deaths(self) -> list[ServerDeath]:
        return [ServerDeath(*json.loads(line)) for line in self._deaths.read_text(encoding="utf-8").splitlines()]

    def in_use(self) -> int:
        """Bytes of the device, now."""
        stats = os.statvfs(f"/proc/{self.supervisor.pid}/root{self.device}")
        return (stats.f_blocks - stats.f_bfree) * stats.f_frsize


class ServerSupervisor:
    """In the namespace: one thread for each server."""

    def __init__(self, deaths: str, servers: dict[str, list[str]]) -> None:
        self._deaths = os.open(deaths, os.O_WRONLY | os.O_APPEND)
        self._over = threading.Event()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._keep, args=item) for item in servers.items()]

    def _keep(self, name: str, command: list[str]) -> None:
        while (running := self._start(name, command)) is not None:
            code = running.wait()
            if not self._over.is_set():
                os.write(self._deaths, (json.dumps([time.monotonic(), name, -code]) + "\n").encode())
            self._over.wait(RESTART_DELAY_SECONDS)

    def _start(self, name: str, command: list[str]) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._over.is_set():
                return None
            running = self._running[name] = subprocess.Popen(command, stdin=subprocess.PIPE)
            return running

    def run(self, until: Callable[[], object]) -> None:
        for thread in self._threads:
            thread.start()
        until()
        self._over.set()
        with self._lock:
            for running in self._running.values():
                running.kill()
        for thread in self._threads:
            thread.join()


def main() -> None:
    """Until stdin closes."""
    plan = json.loads(sys.argv[1])
    mount = ["mount", "-t", "tmpfs", "-o", f"size={plan['size']}", "steelyard-box", plan["device"]]
    subprocess.run(mount, check=True)
    ServerSupervisor(plan["deaths"], plan["servers"]).run(sys.stdin.read)


if __name__ == "__main__":
    main()

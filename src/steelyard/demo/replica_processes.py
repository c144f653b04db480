"""The demo's replica processes: started together, killed together, never left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import httpx
import msgspec

from ..control.errors import StartError
from .die_with_parent import tied_command

# An answer takes this many times its computing. Well over one: three replicas that only compute, on two cores, would
# measure the cores and not how requests are shared out.
SLOWDOWNS: Mapping[str, float] = MappingProxyType({"fast": 2.5, "half": 5.0, "quarter": 10.0})
HOST = "127.0.0.1"
START_TIMEOUT_SECONDS = 60.0  # a cold disk may be slow
SINGLE_THREAD_ENV = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def http_client(url: str, max_connections: int | None = None) -> httpx.AsyncClient:
    """Without timeouts: requests wait for a connection, and for their answer."""
    limits = httpx.Limits(max_connections=max_connections)
    return httpx.AsyncClient(base_url=url, limits=limits, timeout=None, trust_env=False)


class ReplicaProcess(msgspec.Struct, frozen=True):
    name: str
    slowdown: float
    pid: int
    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def ask(self, method: str, path: str, body: bytes = b"") -> httpx.Response:
        """Not through the gateway. httpx.TransportError: it does not answer."""
        async with http_client(self.url) as client:
            return await client.request(method, path, content=body)

    async def set_slowdown(self, slowdown: float) -> None:
        await self.ask("POST", "/slowdown", msgspec.json.encode({"slowdown": slowdown}))


class ReplicaProcesses(dict[str, ReplicaProcess]):
    def __init__(self) -> None:
        super().__init__()
        self._processes: dict[str, subprocess.Popen[str]] = {}

    async def start(self, slowdowns: Mapping[str, float]) -> None:
        for name, slowdown in slowdowns.items():
            self._processes[name] = _start(slowdown)
        for name, slowdown in slowdowns.items():
            self[name] = await _listening(name, slowdown, self._processes[name])

    def kill(self, name: str) -> None:
        process = self._processes[name]
        process.kill()
        _reap(process)

    async def restart(self, name: str, loading: float) -> None:
        """On the port it had. Returns when it listens, still loading."""
        was = self[name]
        self._processes[name] = _start(was.slowdown, was.port, loading)
        self[name] = await _listening(name, was.slowdown, self._processes[name])

    def kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()  # even if it was stopped with SIGSTOP
        for process in self._processes.values():
            _reap(process)


@asynccontextmanager
async def running_replicas(slowdowns: Mapping[str, float] = SLOWDOWNS) -> AsyncIterator[ReplicaProcesses]:
    """StartError: one is not ready, and none is left."""
    fleet = ReplicaProcesses()
    try:
        await fleet.start(slowdowns)
        yield fleet
    finally:
        fleet.kill_all()


def replica_arguments(port: int | str, slowdown: float, loading: float) -> tuple[str, ...]:
    return "--port", str(port), "--slowdown", f"{slowdown:g}", "--load-seconds", f"{loading:g}"


def _start(slowdown: float, port: int = 0, loading: float = 0.0) -> subprocess.Popen[str]:
    """Not with asyncio, which forgets a process when interrupted while starting it."""
    return subprocess.Popen(
        [*tied_command("steelyard.demo.replica"), *replica_arguments(port, slowdown, loading)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **SINGLE_THREAD_ENV},
        process_group=0,  # Ctrl-C in the terminal is for the demo alone
    )


def _reap(process: subprocess.Popen[str]) -> None:
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def _listening(name: str, slowdown: float, process: subprocess.Popen[str]) -> ReplicaProcess:
    assert process.stdout is not None
    try:
        said = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), START_TIMEOUT_SECONDS)
    except TimeoutError:
        raise StartError(
            f"replica {name} was not ready after {START_TIMEOUT_SECONDS:.0f} s; is the machine very busy?"
        ) from None
    if not said:
        raise StartError(f"replica {name} ended with exit code {process.wait()} before it was ready")
    if not said.strip().isdecimal():
        raise StartError(f"replica {name} cannot start: {said.strip()}")
    return ReplicaProcess(name, slowdown, process.pid, int(said))

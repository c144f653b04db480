"""Where proxies are measured: two cores, replicas on one, a proxy at a time on the other."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep

from ..load.chat_request import HEADERS, PATH, body
from ..peers import PEERS, Peer, Setting
from .machine import describe
from .processes import ManagedProcess, ProcessManager, StartError, cores, free_ports, raise_priority

SETTLE_SECONDS = 1.0  # from the first answer on: probes have seen all replicas


@dataclass(frozen=True)
class Proxy:
    """A proxy that answers. `running` is None for the way without one."""

    port: int
    running: ManagedProcess | None


class Testbed:
    """Takes the calling process to the load's core."""

    def __init__(self, processes: ProcessManager, replicas: int) -> None:
        self.processes = processes
        self._cores = sorted(os.sched_getaffinity(0))
        self.proxy_core, self.load_core = cores()
        self.ports = tuple(free_ports(replicas))
        os.sched_setaffinity(0, {self.load_core})
        raise_priority(os.getpid())

    def start_module(self, module: str, *arguments: str) -> ManagedProcess:
        """One of our own, on the load's core, serving all the replicas' ports."""
        command = [sys.executable, "-m", module, *arguments, *(str(port) for port in self.ports)]
        return self.processes.start(module, command, self.load_core, self.ports)

    def _proxy_cores(self, workers: int) -> set[int]:
        """One for each worker, if so many are left."""
        others = [core for core in self._cores if core not in (self.load_core, self.proxy_core)]
        return {self.proxy_core, *others[: workers - 1]}

    @contextmanager
    def proxy(
        self, peer: Peer | None, replicas: int | None = None, *, streaming: bool = False, workers: int = 1
    ) -> Iterator[Proxy]:
        """The peer in front of the replicas, or of the first `replicas`; None: directly to the first replica."""
        if peer is None:
            yield Proxy(self.ports[0], None)
            return
        program = peer.find()
        assert program is not None
        listen, *extra = free_ports(3)
        setting = Setting(listen, self.ports[:replicas], self.processes.folder, streaming, tuple(extra), workers)
        start = peer.start(program, setting)
        running = self.processes.start(peer.name, start.command, self._proxy_cores(workers), [listen], start.env)
        try:
            wait_until_answering(running, listen)
            yield Proxy(listen, running)
        finally:
            self.processes.stop(running)


def describe_with_load(command: str, program: str | None = None) -> str:
    """As `describe`; and whether the tree is what the commit says, and how busy the machine is with other things."""
    git = ["git", "--no-optional-locks", "status", "--porcelain", "--", "src"]
    changed = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    before, commit, after = describe(command, program).partition(", commit ")
    after = after.replace(",", " with changes,", 1) if changed else after
    return f"{before}, load average before {os.getloadavg()[0]:.1f}{commit}{after}"


def wait_until_answering(running: ManagedProcess, port: int, seconds: float = 30.0) -> None:
    """A port that accepts is not yet a proxy that knows its replicas."""
    end = monotonic() + seconds
    while (status := ask(port)) != "200":
        if monotonic() > end:
            raise StartError(f"{running.name} answers {status}, not 200:\n{running.log_tail()}")
        sleep(0.1)
    sleep(SETTLE_SECONDS)


def ask(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        connection.request("POST", PATH, body(), HEADERS)
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as problem:
        return repr(problem)
    finally:
        connection.close()


def installed_peers(names: Sequence[str]) -> tuple[list[Peer], list[str]]:
    """The peers that are there, and the names of those that are not installed."""
    for name in names:
        if name not in PEERS:
            raise SystemExit(f"no peer {name!r}; there are {', '.join(PEERS)}")
    found = [PEERS[name] for name in names if PEERS[name].find() is not None]
    return found, [name for name in names if PEERS[name].find() is None]

"""`steelyard serve` as users run it: real processes on a real port, looked at from outside."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from . import processes
from .client import Address, Connection, Response, ask
from .replicas.stub import StubReplica
from .waiting import START_TIMEOUT_SECONDS, WAIT_TIMEOUT_SECONDS, wait_until

# Unused connections to replicas end soon, so that file descriptors are soon back where they were.
# To make one may take a while, on a machine with more to do.
DEFAULTS: dict[str, Any] = {"timeouts": {"replica_idle": "200ms", "drain": "5s", "connect": "20s"}}

# Where a test counts what each replica sees, probes would be in the way; those that are about probes turn them on.
UNPROBED: dict[str, Any] = {"health": {"enabled": False}}


def config(
    models: Mapping[str, Mapping[str, Any]] | Sequence[StubReplica], listen: Any = None, **rest: Any
) -> dict[str, Any]:
    """A configuration; replicas alone make one model that takes every name."""
    if not isinstance(models, Mapping):
        models = {"*": {"replicas": [stub.config for stub in models]}}
    models = {name: {**UNPROBED, **settings} for name, settings in models.items()}
    whole = {
        "listen": listen or f"127.0.0.1:{processes.free_port()}",
        "models": models,
        "admin": {"listen": ""},
        **rest,
    }
    whole["timeouts"] = DEFAULTS["timeouts"] | rest.get("timeouts", {})
    return whole


def model(*stubs: StubReplica, **rest: Any) -> dict[str, Any]:
    return {"replicas": [stub.config for stub in stubs], **rest}


class Serving:
    """A gateway in its own processes: a supervisor and its workers."""

    def __init__(
        self,
        configuration: Mapping[str, Any] | None = None,
        *,
        arguments: Sequence[str] = (),
        wrapper: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        address: Address | None = None,
        close_fds: bool = True,
    ) -> None:
        """`arguments` instead of a configuration: `serve --replica …`; then `address` says where it will listen."""
        self.folder = Path(tempfile.mkdtemp(prefix="serving-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.file = self.folder / "steelyard.yaml"
        self.log = self.folder / "log"
        self._size = configuration.get("workers", 1) if configuration is not None else 1
        if configuration is not None:
            self.write(configuration)
            address = address or self._address(configuration["listen"])
            arguments = [*arguments, str(self.file)]
        assert address is not None
        self.address = address
        command = [*wrapper, sys.executable, "-m", "steelyard", "serve", *arguments]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                close_fds=close_fds,
            )
        try:
            self._wait_listening()
        except BaseException:
            self.kill()
            raise

    @staticmethod
    def _address(listen: str | Sequence[str]) -> Address:
        first = listen if isinstance(listen, str) else listen[0]
        if first.startswith("unix:"):
            return first.removeprefix("unix:")
        host, _, port = first.rpartition(":")
        return host.strip("[]") or "127.0.0.1", int(port)

    def _wait_listening(self) -> None:
        def listening() -> bool:
            assert self.process.poll() is None, f"serve ended with {self.process.returncode}:\n{self.output}"
            try:
                with Connection(self.address) as connection:
                    connection.send(b"?\r\n\r\n")  # nobody's request: refused, in plain or by TLS, but heard
                    connection.wait_closed(1.0)
            except (ConnectionError, FileNotFoundError, AssertionError):
                return False
            takers = self._takers()
            return len(takers) >= self._size and all(map(processes.has_loop, takers))

        try:
            wait_until(listening, f"nothing listens on {self.address}", START_TIMEOUT_SECONDS)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; it said:\n{self.output}") from None

    # ------------------------------------------------------------------ asking it

    def connect(self, **options: Any) -> Connection:
        return Connection(self.address, **options)

    def ask(self, method: str = "POST", target: str = "/work", **options: Any) -> Response:
        """One request on a connection of its own."""
        return ask(self.address, method, target, **options)

    # ------------------------------------------------------------------ looking at it

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        return self.process.pid

    @property
    def workers(self) -> list[int]:
        """The processes below the supervisor that take connections, once they do."""
        return [pid for pid in self._takers() if processes.has_loop(pid)]

    def _takers(self) -> list[int]:
        """The processes below the supervisor that have the listening socket."""
        family = processes.descendants(self.pid)
        if isinstance(self.address, str):
            inodes = {
                line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines() if self.address in line
            }
        else:
            port = self.address[1]
            inodes = {row[3] for row in processes.tcp_sockets() if row[0] == port and row[2] == processes.LISTENING}
        if not inodes:  # in a network namespace of its own
            return family
        return [pid for pid in family if processes.holds(pid, inodes)]

    @property
    def worker(self) -> int:
        (only,) = self.workers
        return only

    def worker_of(self, connection: Connection) -> int:
        """Which worker has this connection?"""
        assert not isinstance(self.address, str)
        local, remote = self.address[1], connection.sock.getsockname()[1]

        def owner() -> int:
            inodes = {row[3] for row in processes.tcp_sockets() if row[:2] == (local, remote)} - {"0"}
            return next((pid for pid in self.workers if processes.holds(pid, inodes)), 0)

        return wait_until(owner, "no worker took the connection")

    def descriptors(self) -> int:
        """Open file descriptors of all workers."""
        return sum(len(processes.descriptors(pid)) for pid in self.workers)

    def memory(self) -> int:
        return sum(processes.memory(pid) for pid in self.workers)

    # ------------------------------------------------------------------ changing it

    def write(self, configuration: Mapping[str, Any] | str) -> None:
        """Replace the configuration file at once, as editors do."""
        text = configuration if isinstance(configuration, str) else yaml.safe_dump(dict(configuration), sort_keys=False)
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self.file)

    def reload(self, configuration: Mapping[str, Any] | str) -> None:
        self.write(configuration)
        self.process.send_signal(signal.SIGHUP)

    # ------------------------------------------------------------------ ends

    def stop(self) -> int:
        """Ask it to end; returns its exit code once nothing of it is left."""
        family = processes.descendants(self.pid)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(WAIT_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            said = self.output
            self.kill()
            raise AssertionError(f"serve did not end after SIGTERM; it said:\n{said}") from None
        wait_until(lambda: not any(map(processes.alive, family)), "workers outlived their supervisor's clean end")
        return code

    def kill(self) -> None:
        """End it the hard way: only the processes started here."""
        family = [*processes.descendants(self.pid), self.pid]
        for pid in family:
            if processes.alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(WAIT_TIMEOUT_SECONDS)

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            print(f"---- serve said:\n{self.output[-4000:]}")
        if self.process.poll() is None:
            code = self.stop()
            assert kind is not None or code == 0, f"serve ended with {code}:\n{self.output}"
        if kind is None:
            assert "Traceback" not in self.output, f"serve logged an exception:\n{self.output[-8000:]}"

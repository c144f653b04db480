"""Every replica of real model servers is restarted under load, one after another: how many requests are lost?

    python -m benchmarks.rolling --venvs FOLDER [--kinds bentoml,vllm] [--replicas 2] [--idempotent] [--update-docs]

FOLDER has a virtual environment for each server, named as `--kinds` names it, made with `python -m venv` and the
`pip install` that this prints where one is missing. Steelyard is started with nothing but `--replica` URLs; a replica
is restarted with SIGTERM and the command it was started with. Lost is every request that is not answered with a 2xx.
"""

from __future__ import annotations

import argparse
import http.client
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import msgspec

from ..testbed.docs_pages import markdown_table, write_section
from ..testbed.machine import describe
from .clients import Clients
from .kinds import KINDS, ServerKind, version
from .programs import ProgramManager, free_ports, until

PAGE, SECTION = "replicas.md", "benchmarks/rolling"
START_TIMEOUT_SECONDS = 400.0
ANSWERS_BETWEEN_RESTARTS = 20  # answers of a replica before the next is restarted


class Row(msgspec.Struct):
    kind: str
    version: str
    command: str
    found: str
    requests: int
    restarts: int
    lost: dict[str, int]
    slowest: float
    longest_start: float


def rolling_restart(kind: ServerKind, venv: Path, options: argparse.Namespace) -> Row:
    with ProgramManager() as programs:
        kind.prepare(venv, programs.folder)
        replicas = [Replica(programs, kind, venv, free_ports(kind.ports)) for _ in range(options.replicas)]
        for replica in replicas:
            replica.start()
        for replica in replicas:
            replica.wait_until(lambda: True)
        gateway = Gateway(programs, [replica.port for replica in replicas], options)
        with Clients(kind, gateway.port, options.clients) as clients:
            for replica in replicas:
                _until_answered(clients, replica)
                replica.stop()
                replica.start()
                replica.wait_until(lambda port=replica.port: gateway.state(port)[0] == "ready")  # type: ignore[misc]
                _until_answered(clients, replica)
        requests = clients.answered.total() + clients.lost.total()
        longest = max(replica.longest for replica in replicas)
        counts = (requests, len(replicas), dict(clients.lost), clients.slowest, longest)
        return Row(kind.name, version(kind, venv), kind.shown, gateway.found, *counts)


class Replica:
    def __init__(self, programs: ProgramManager, kind: ServerKind, venv: Path, port: int) -> None:
        self.port = port
        self.longest = 0.0  # seconds of a start
        self._kind = kind
        self._program = programs.program(f"{kind.name}-{port}", *kind.start(venv, programs.folder, port))
        self.stop = self._program.stop

    def start(self) -> None:
        self._began = monotonic()
        self._program.start()

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """It answers a request well, and this is so too."""
        until(
            lambda: self._answers() and is_so(),
            START_TIMEOUT_SECONDS,
            lambda: f"{self._kind.name}:\n{self._program.log_tail()}",
        )
        self.longest = max(self.longest, monotonic() - self._began)

    def _answers(self) -> bool:
        if not self._program.runs:  # as a process manager would
            print(f"{self._kind.name} ended and is restarted:\n{self._program.log_tail()}", file=sys.stderr)
            self._program.start()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", self._kind.path, self._kind.octets, {"content-type": "application/json"})
            return 200 <= connection.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class Gateway:
    """`steelyard serve`, ready with all its replicas."""

    def __init__(self, programs: ProgramManager, ports: list[int], options: argparse.Namespace) -> None:
        self.port = free_ports(2)
        command = _serve(self.port, ports, options)
        program = programs.program("steelyard", command, {"PYTHONPATH": os.environ.get("PYTHONPATH", "")})
        program.start()
        until(lambda: all(self.state(port)[0] == "ready" for port in ports), 90.0, program.log_tail)
        self.found = self.state(ports[0])[1]

    def state(self, port: int) -> tuple[str, str]:
        """Of a replica, as the fleet has it: its state, and what its probe saw."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port + 1, timeout=10)
        try:
            connection.request("GET", f"/v1/models/*/replicas/127.0.0.1:{port}")
            shown = msgspec.json.decode(connection.getresponse().read())
        except (OSError, http.client.HTTPException, msgspec.DecodeError):
            return "", ""
        finally:
            connection.close()
        return shown.get("state", ""), (shown.get("probe") or {}).get("message", "")


def _serve(port: int, ports: list[int], options: argparse.Namespace) -> list[str]:
    """Only URLs, and `--idempotent` if given."""
    urls = [f"http://127.0.0.1:{replica}" for replica in ports]
    command = [sys.executable, "-m", "steelyard", "serve", "--listen", f"127.0.0.1:{port}"]
    command += ["--admin", f"127.0.0.1:{port + 1}"]
    command += ["--idempotent"] if options.idempotent else []
    return [*command, *(word for url in urls for word in ("--replica", url))]


def _until_answered(clients: Clients, replica: Replica) -> None:
    name = f"127.0.0.1:{replica.port}"
    wanted = clients.answered[name] + ANSWERS_BETWEEN_RESTARTS
    until(lambda: clients.answered[name] >= wanted, 120.0, lambda: f"gets nothing: {clients.answered}, {clients.lost}")


def report(rows: list[Row], command: str, options: argparse.Namespace) -> str:
    header = ["server", "started with", "ready is", "requests", "restarts", "lost", "slowest s", "a start takes s"]
    cells = []
    for row in rows:
        lost = ", ".join(f"{count} × {what}" for what, count in row.lost.items()) or "0"
        named = f"{row.kind} {row.version}"
        times = [f"{row.slowest:.1f}", f"{row.longest_start:.0f}"]
        cells.append([named, f"`{row.command}`", row.found, f"{row.requests:,}", str(row.restarts), lost, *times])
    how = "`--idempotent` and `--replica` URLs" if options.idempotent else "nothing but `--replica` URLs"
    return f"Measured {describe(command)}; Steelyard with {how}.\n\n{markdown_table(header, cells)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venvs", type=Path, required=True)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    rows: list[Row] = []
    text = "nothing was measured"
    for name in options.kinds.split(","):
        kind, venv = KINDS[name], options.venvs.absolute() / name
        if not version(kind, venv):
            print(f"{name}: python -m venv {venv} && {venv}/bin/pip install {kind.install}", file=sys.stderr)
            continue
        try:
            rows.append(rolling_restart(kind, venv, options))
        except (TimeoutError, subprocess.CalledProcessError) as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            continue
        print(rows[-1], flush=True)
        flags = " --idempotent" if options.idempotent else ""
        text = report(rows, f"python -m benchmarks.rolling --venvs FOLDER{flags}", options)
        if options.update_docs:  # after each: a run is long
            write_section(PAGE, SECTION + ("/idempotent" if options.idempotent else ""), text)
    print(text)


if __name__ == "__main__":
    main()

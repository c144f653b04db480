"""A gateway that starts its replicas itself, and requests at a rate that can change, for `scaling_spike`."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any
from urllib.request import urlopen

import uvloop

from .processes import ProcessManager, StartError, cores, free_ports

REPLICA_PROGRAM = Path(__file__).parents[2] / "tests" / "harness" / "replicas" / "scaled_replica.py"
MODEL = "m"
TIMEOUT_SECONDS = 180.0  # ; longer than anything here takes
POLL_SECONDS = 0.05


class Gateway:
    def __init__(self, port: int, admin: int) -> None:
        self.port = port
        self._admin = admin

    def scaling(self) -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{self._admin}/v1/models/{MODEL}/scaling", timeout=10) as answer:
            view: dict[str, Any] = json.load(answer)
        return view

    def wait(self, least: int, most: int) -> None:
        """Until `least` to `most` replicas are ready; if equal, with none starting or stopping."""
        end = monotonic() + TIMEOUT_SECONDS
        while True:
            view = self.scaling()
            moving = view["starting"] + view["terminating"] if least == most else 0
            if least <= view["ready"] <= most and not moving:
                return
            if monotonic() > end:
                raise StartError(f"{view['ready']} replicas, not {least}: {view['exc_info']}")
            sleep(POLL_SECONDS)


@contextmanager
def gateway(cold: float, work: float, at_once: int, **autoscale: Any) -> Iterator[Gateway]:
    """With one model: replicas that are ready so many seconds after their start, and work so long on each of so many
    requests at once."""
    port, admin = free_ports(2)
    times = ["--cold", str(cold), "--seconds", str(work), "--at-once", str(at_once)]
    command = [sys.executable, "-S", "-E", str(REPLICA_PROGRAM), "--port", "{port}", *times]
    with ProcessManager() as processes:
        model = {
            "concurrency": at_once,
            "runtime": {"command": command, "log_directory": str(processes.folder)},
            "autoscale": {"cold_start": cold, **autoscale},
            "health": {"path": "/health", "loading_interval": "100ms"},
        }
        settings = {
            "listen": f"127.0.0.1:{port}",
            "workers": 2,
            "admin": {"listen": f"127.0.0.1:{admin}"},
            "models": {MODEL: model},
        }
        file = processes.folder / "scaled.yaml"
        file.write_text(json.dumps(settings), encoding="utf-8")  # which is YAML too
        processes.start("steelyard", [sys.executable, "-m", "steelyard", "serve", str(file)], cores()[0], [port, admin])
        yield Gateway(port, admin)


class Load:
    """Requests by chance at a rate, each on a connection of its own, sent when due whatever became of the others."""

    def __init__(self, port: int, rate: float, seed: int) -> None:
        self.rate = rate
        self.answers: list[tuple[float, float]] = []  # when it was due, and seconds from then to its answer
        self.failed: list[str] = []
        self._port = port
        self._chance = Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._send())

    async def _send(self) -> None:
        asking: set[asyncio.Task[None]] = set()
        due = monotonic()
        while not self._over.is_set():
            due += self._chance.expovariate(self.rate)
            await asyncio.sleep(due - monotonic())
            asking.add(task := asyncio.create_task(self._ask(due)))
            task.add_done_callback(asking.discard)
        if asking:
            await asyncio.wait(asking)

    async def _ask(self, due: float) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                answer = await ask(self._port)
        except (OSError, TimeoutError) as problem:
            answer = repr(problem).encode()
        if answer.startswith(b"HTTP/1.1 200 "):
            self.answers.append((due, monotonic() - due))
        else:
            self.failed.append(answer[:200].decode("latin-1"))


async def ask(port: int) -> bytes:
    """One request on a connection of its own; the whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"POST /work HTTP/1.1\r\nhost: bench\r\nsteelyard-model: {MODEL}\r\nconnection: close\r\n"
        writer.write(f"{head}content-length: 0\r\n\r\n".encode())
        return await reader.read()
    finally:
        writer.close()

"""Replicas that the gateway starts itself: a model that has them, who runs, and traffic at a rate."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvloop

from steelyard.control.observability.views import ScalingView

from .admin import PROBED, AdminClient, admin_config
from .client import Address, Response, Truncated, request
from .processes import alive, free_port
from .serving import Serving, config
from .waiting import WAIT_TIMEOUT_SECONDS, wait_until

PROGRAM = Path(__file__).parent / "replicas" / "scaled_replica.py"
MARK = "STEELYARD_STARTED_BY"  # in the environment of each replica: the gateway's name
QUICK = {
    "window": 6,
    "panic_window": 1,
    "stabilization_window": 1,
}  # options of the scaler `work`, for those who cannot wait


def command(*more: object, program: Path = PROGRAM) -> list[str]:
    """Without site-packages: an interpreter that starts in a moment."""
    return [sys.executable, "-S", "-E", str(program), "--port", "{port}", *map(str, more)]


def started(folder: Path, *more: object, runtime: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    """A model whose replicas are started with these arguments, each start written down in `folder/replica_log`."""
    folder.mkdir(exist_ok=True)
    first = free_port() + 10_000  # away from what other tests use
    made = {
        "command": command("--replica-log", folder / "replica_log", *more),
        "port_range": f"{first}-{first + 99}",
        "working_directory": str(folder),  # else that of the configuration, which is another for each `Serving`
        "drain_timeout": "10s",
        "stop_timeout": "5s",
        "log_directory": str(folder / "logs"),
        **(runtime or {}),
    }
    return {"runtime": made, "concurrency": 1, "idempotent": True, "health": PROBED, "slow_start": 0, **rest}


class ReplicaLog:
    """What the replicas themselves wrote down."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "replica_log"

    def _pids(self, what: str) -> list[int]:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith(what)]

    @property
    def starts(self) -> list[int]:
        return self._pids("start")

    @property
    def requests(self) -> list[int]:
        """Which process got each."""
        return self._pids("request")


def running(name: str, model: str = "") -> dict[int, str]:
    """The processes that a gateway of this name has started: pid → replica. Seen from outside, as `ps` would."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pairs = [word.partition("=") for word in (folder / "environ").read_text(errors="replace").split("\0")]
            marks = {key: value for key, _, value in pairs if key.startswith("STEELYARD_")}
            ours = marks.get(MARK) == name and model in ("", marks["STEELYARD_MODEL"])
            if ours and alive(int(folder.name)):
                found[int(folder.name)] = marks["STEELYARD_ID"]
    return found


class Scaled(NamedTuple):
    gateway: Serving
    admin: AdminClient
    settings: dict[str, Any]

    def scaling(self, model: str = "m") -> ScalingView:
        """With its whole history."""
        response = self.admin.http.get(f"/v1/models/{model}/scaling")
        assert response.is_success, response.text
        return msgspec.json.decode(response.content, type=ScalingView)

    def wait_ready(self, count: int, model: str = "m", timeout: float = WAIT_TIMEOUT_SECONDS) -> ScalingView:
        """Until exactly so many are ready, and none is on its way in or out."""

        def settled() -> ScalingView | None:
            view = self.scaling(model)
            return view if (view.ready, view.starting, view.terminating) == (count, 0, 0) else None

        try:
            return wait_until(settled, f"{count} replicas of {model}", timeout)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; {self.scaling(model)}") from None

    def running(self, model: str = "") -> dict[int, str]:
        """Of this model, or of all."""
        return running(self.settings["name"], model)

    def ask(self, model: str = "m", **headers: str) -> Response:
        return self.gateway.ask("POST", headers={"steelyard-model": model, **headers})

    def reload(self, models: dict[str, dict[str, Any]]) -> None:
        self.settings["models"] = models
        self.gateway.reload(self.settings)


@contextmanager
def scaled(models: dict[str, dict[str, Any]], *, workers: int = 2, **rest: Any) -> Iterator[Scaled]:
    """A gateway with these models. Whatever becomes of it, no process that it started outlives the block."""
    settings = config(models, admin=admin_config(), workers=workers, **rest)
    settings["name"] = f"test-{os.getpid()}-{settings['listen'].rpartition(':')[2]}"
    with ended(settings["name"]), Serving(settings) as gateway, AdminClient(settings) as admin:
        admin.wait_up()
        yield Scaled(gateway, admin, settings)


@contextmanager
def ended(name: str) -> Iterator[None]:
    try:
        yield
    finally:
        for pid in running(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Load:
    """Requests at a rate, each on a connection of its own, sent when due whatever became of the ones before."""

    def __init__(self, address: Address, rate: float, model: str = "m") -> None:
        self.rate = rate
        self.ends: Counter[str] = Counter()
        self._address = address
        self._message = request("POST", headers={"steelyard-model": model, "connection": "close"})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """The last answers are waited for."""
        self._over.set()
        self._thread.join(2 * WAIT_TIMEOUT_SECONDS)

    @property
    def ok(self) -> int:
        return self.ends["200"]

    def some_more(self, count: int = 20) -> None:
        before = self.ok
        wait_until(lambda: self.ok >= before + count, f"{count} more answers; {self.ends}")

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._send())

    async def _send(self) -> None:
        asking: set[asyncio.Task[None]] = set()
        due = time.monotonic()
        while not self._over.is_set():
            due += 1.0 / self.rate
            await asyncio.sleep(due - time.monotonic())
            task = asyncio.create_task(self._ask())
            asking.add(task)
            task.add_done_callback(asking.discard)
        if asking:
            await asyncio.wait(asking, timeout=WAIT_TIMEOUT_SECONDS)

    async def _ask(self) -> None:
        response = Response("POST")
        try:
            reader, writer = await asyncio.open_connection(*self._address)
            try:
                writer.write(self._message)
                while not response.complete:
                    data = await reader.read(1 << 16)
                    if not data:
                        response.end()
                    response.feed(data)
            finally:
                writer.close()
            self.ends[str(response.status)] += 1
        except (Truncated, OSError) as problem:
            self.ends[repr(problem)] += 1

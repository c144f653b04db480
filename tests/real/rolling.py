"""Rolling restarts of real servers under load: clients that never stop asking, replicas that note what they saw."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.harness.admin import AdminClient, admin_config
from tests.harness.client import Connection, NoAnswer, Response, Truncated, new_id, request
from tests.harness.processes import free_port
from tests.harness.serving import Serving, config
from tests.harness.waiting import wait_until

from .processes import ROOT, SERVERS, WAIT_TIMEOUT_SECONDS, Program, mlserver_environment, servers_python

CLIENTS = 4
PAUSE_SECONDS = 0.01  # between two requests of a client: this is no benchmark
# Probed as by default; soon as good as the others, so that a test need not wait for it.
PROBED: dict[str, Any] = {"health": {}, "slow_start": "1s", "policy": "least_connections", "idempotent": False}
TOOK = re.compile(r"replica;dur=([0-9.]+)")  # milliseconds from the gateway's choice to the answer's head
ROUNDING_SECONDS = 0.01  # for numbers that are rounded


class Asked(NamedTuple):
    id: str
    chosen: float  # when the gateway had surely sent it to a replica, as its answer says
    end: str  # `ok`, or what went wrong


@dataclass
class Restarted:
    """A server that takes its time to load and is started again and again; each start has a log of its own."""

    program: Program
    logs: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.program.name

    def start(self) -> None:
        self.logs.append(self.program.folder / f"{self.name}.{len(self.logs)}.jsonl")
        self.logs[-1].touch()
        self.program.environment["WITNESS"] = str(self.logs[-1])
        if "--log" in self.program.command:
            self.program.command[-1] = str(self.logs[-1])
        self.program.start()

    def stop(self) -> None:
        self.program.stop()

    def saw(self, start: int = -1) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.logs[start].read_text().splitlines()]

    def wait_loaded(self, processes: int = 1) -> None:
        def loaded() -> bool:
            assert self.program.process.poll() is None, self.program.log_tail()
            return sum(line["event"] == "loaded" for line in self.saw()) >= processes

        wait_until(loaded, f"{self.name} does not load", WAIT_TIMEOUT_SECONDS)

    def wait_asked(self) -> None:
        """Until it got a request in its present start."""
        wait_until(
            lambda: any(line["event"] == "came" for line in self.saw()),
            f"{self.name} gets no request",
            WAIT_TIMEOUT_SECONDS,
        )


class Load:
    """Clients that ask one after another on connections that stay open, and note how each request ended."""

    def __init__(self, gateway: Serving, make: Callable[[str], bytes]) -> None:
        self.asked: list[Asked] = []
        self._gateway = gateway
        self._make = make
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._client, daemon=True) for _ in range(CLIENTS)]

    def _client(self) -> None:
        while not self._over.is_set():
            with self._gateway.connect() as connection:
                while not self._over.is_set() and self._ask(connection):
                    time.sleep(PAUSE_SECONDS)

    def _ask(self, connection: Connection) -> bool:
        """False: the connection is of no more use."""
        id = new_id("roll")
        try:
            connection.send(self._make(id))
            response = connection.response("POST")
        except (NoAnswer, Truncated, ConnectionError) as problem:
            self.asked.append(Asked(id, time.monotonic(), type(problem).__name__))
            return False
        reason = response.headers.get("steelyard-reason", "")
        end = "ok" if response.status == 200 else f"{response.status} {reason} {bytes(response.body[:200])!r}"
        self.asked.append(Asked(id, chosen(response), end))
        return response.headers.get("connection") != "close"

    @property
    def ends(self) -> Counter[str]:
        return Counter(asked.end for asked in self.asked)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)


def chosen(response: Response) -> float:
    took = TOOK.search(response.headers.get("server-timing", ""))
    return time.monotonic() - (float(took[1]) / 1e3 if took else 0.0)


@contextmanager
def running(servers: list[Restarted]) -> Iterator[None]:
    """Started together, and ended whatever happens."""
    try:
        for server in servers:
            server.start()
        yield
    finally:
        for server in servers:
            server.program.ask_to_stop()
        for server in servers:
            server.stop()


@contextmanager
def fronted(fleet: dict[str, list[Restarted]], **options: Any) -> Iterator[tuple[Serving, AdminClient]]:
    """A gateway with two workers: a model of each kind of server, probed as it is unless told otherwise."""
    models = {
        kind: {
            "replicas": [{"id": server.name, "url": server.program.url} for server in servers],
            **PROBED,
            **KINDS[kind].model,
            **options,
        }
        for kind, servers in fleet.items()
    }
    settings = config(models, workers=2, admin=admin_config())
    with Serving(settings) as gateway, AdminClient(settings) as admin:
        admin.wait_up()
        yield gateway, admin


def wait_ready(admin: AdminClient, model: str, *servers: Restarted) -> None:
    """A real server may take longer than the patience of most tests."""

    def there() -> bool:
        states = admin.states(model)
        return all(states.get(server.name) == "ready" for server in servers)

    wait_until(there, f"{model}: not all are ready", WAIT_TIMEOUT_SECONDS)


def check(load: Load, servers: list[Restarted], *, processes: int = 1, attempts: int = 1) -> None:
    """No request failed; none came to a replica that was loading. The replicas' own logs say so.

    `processes`: how many of a server load. `attempts`: how often a request may have run.
    """
    load.stop()
    assert load.ends.keys() == {"ok"}, load.ends
    sent = {asked.id: asked.chosen for asked in load.asked}
    seen: Counter[str] = Counter()
    for server in servers:
        for start in range(len(server.logs)):
            seen.update(line["id"] for line in requests_of(server, start, processes, sent))
    often = {id: count for id, count in seen.items() if count > attempts}
    assert not often, f"ran too often: {often}"
    assert seen.keys() == sent.keys(), "answered, but no replica saw them"


def requests_of(server: Restarted, start: int, processes: int, sent: dict[str, float]) -> list[dict[str, Any]]:
    """What one start of a server saw of these; an error if any of it came too early."""
    lines, name = server.saw(start), server.logs[start].name
    came = [line for line in lines if line["event"] == "came" and line["id"] in sent]
    assert came, f"{name}: it never got a request"
    early = [line for line in came if line["state"] == "loading"]  # one that leaves may still get some, and serves them
    assert not early, f"{name}: {len(early)} of {len(came)} requests came while it was loading"
    # A server that blocks while it loads notes a request only afterwards: then its answer tells when it was sent.
    loaded = [line["at"] for line in lines if line["event"] == "loaded"][processes - 1]
    waited = [line for line in came if sent[line["id"]] < loaded - ROUNDING_SECONDS]
    assert not waited, f"{name}: {len(waited)} requests were sent before it was loaded and waited there"
    return came


# ---------------------------------------------------------------------- the servers


def litserve(name: str, folder: Path, seconds: float) -> Restarted:
    port = free_port()
    command = [str(servers_python()), str(SERVERS / "slow_litserve.py"), str(port), str(seconds)]
    return Restarted(Program(name, command, port, folder))


def mlserver(name: str, folder: Path, seconds: float) -> Restarted:
    home = folder / name
    home.mkdir()
    (home / "model-settings.json").write_text('{"name": "mlserver", "implementation": "slow_mlserver.Slow"}')
    port = free_port()
    environment = {**mlserver_environment(port), "LOAD_SECONDS": str(seconds)}
    command = [str(servers_python()), str(SERVERS / "slow_mlserver.py"), "start", str(home)]
    return Restarted(Program(name, command, port, home, environment=environment))


def demo(name: str, folder: Path, seconds: float, admin: str) -> Restarted:
    """The agent's own: it registers itself."""
    port = free_port()
    command = [sys.executable, "-m", "tests.replica.fake_replica", "--port", str(port), "--load-seconds", str(seconds)]
    command += ["--gateway", admin, "--model", "demo", "--id", name, "--seconds", "0.02", "--log", "-"]
    return Restarted(Program(name, command, port, folder, environment={"PYTHONPATH": str(ROOT)}))


def infer(id: str) -> bytes:
    """For MLServer."""
    body = {"id": id, "inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}]}
    return _json(id, "/v2/models/mlserver/infer", body)


def predict(id: str) -> bytes:
    """For LitServe."""
    return _json(id, "/predict", {"text": id})


def work(id: str) -> bytes:
    """For the demo replica."""
    return _json(id, "/work", {})


def _json(id: str, path: str, body: dict[str, Any]) -> bytes:
    headers = {"content-type": "application/json", "x-request-id": id}
    return request("POST", path, id=id, headers=headers, body=json.dumps(body).encode())


class Kind(NamedTuple):
    make: Callable[[str, Path, float], Restarted]
    processes: int  # of a server that load
    ask: Callable[[str], bytes]
    model: dict[str, Any]  # what the configuration says of it


KINDS = {
    "mlserver": Kind(mlserver, 1, infer, {"dialect": "oip"}),
    "litserve": Kind(litserve, 2, predict, {"paths": ["/predict"]}),
}

"""What engines say of their load: it corrects the gateway's own counts. What is broken or old is shown, not used."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from steelyard.control.observability.views import LoadSignalView
from tests.harness import Connection, Serving, new_id, request, scripts, wait_until
from tests.harness.replicas.probed import ProbedReplica, Watched, watched

pytestmark = pytest.mark.xdist_group("load signals")

MODELS = ("garbage", "crowded", "idle")
LISTED = scripts.plain(json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]}))


def metrics(text: str, status: int = 200) -> scripts.Script:
    return scripts.plain(text, status, {"content-type": "text/plain; version=0.0.4"})


def engine(running: float, waiting: float = 0) -> scripts.Script:
    lines = (
        "# TYPE vllm:num_requests_running gauge",
        f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}',
        f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}',
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25',
    )
    return metrics("\n".join(lines) + "\n")


GARBAGE: dict[str, scripts.Script] = {
    "nonsense": metrics("\0\xff{{{vllm:num_requests_running}} many\n" * 50),
    "numbers": engine(float("nan"), -7),
    "huge": engine(1e300, 1e300),
    "empty": metrics("\n"),
    "another": metrics("process_open_fds 12\n" * 100),
    "refused": metrics("no", 500),
    "silent": scripts.silent(),
    "trickle": [["send", "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nvllm:"], ["until_gone"]],
    "cut": [["send", "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nvllm:num"], ["close"]],
    "no_http": [["send", "SSH-2.0-OpenSSH_9\r\n\r\n"], ["close"]],
    "endless": [["send", "HTTP/1.1 200 OK\r\n\r\n"], ["fill", 64 << 20], ["close"]],
}

ODD = ("numbers", "huge")  # single values that cannot be, on a page that is fine: they are left out


STALE_AFTER_SECONDS = 3.0  # three reads are missing
CROWDED = {"quiet": engine(0), "crowded": engine(20, 10)}
IDLE = {"one": engine(0), "two": engine(0)}
Stubs = dict[str, ProbedReplica]


@pytest.fixture(scope="module")
def stubs() -> Iterator[Stubs]:
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(ProbedReplica(name, paths={"/v1/models": LISTED, "/metrics": page}))
            for name, page in {"good": engine(0), **GARBAGE, **CROWDED, **IDLE}.items()
        }


@pytest.fixture(scope="module")
def deployment(stubs: Stubs) -> Iterator[Watched]:
    """One gateway for all: each test has a model of its own."""
    options: dict[str, Any] = {"dialect": "vllm", "load_metrics": {"interval": "1s"}, "idempotent": False}
    models = {
        name: {"replicas": [stubs[one].config for one in ones], **options}
        for name, ones in (("garbage", ["good", *GARBAGE]), ("crowded", [*CROWDED]), ("idle", [*IDLE]))
    }
    with watched(models=models, health={"path": ""}) as deployment:
        for name, ones in models.items():
            deployment.admin.wait_ready(*(one["id"] for one in ones["replicas"]), model=name)
        yield deployment


def ask(gateway: Serving, name: str, script: scripts.Script | None = None) -> Connection:
    connection = gateway.connect()
    body = json.dumps({"model": name, "prompt": "a word"}).encode()
    connection.send(request("POST", "/v1/completions", id=new_id(), body=body, script=script))
    return connection


def send(gateway: Serving, name: str, stubs: list[ProbedReplica], count: int) -> list[int]:
    """So many that are all there at once; how many each of the replicas got."""
    gate = new_id("gate")
    connections = [ask(gateway, name, scripts.held(gate)) for _ in range(count)]

    def got() -> list[int]:
        return [len(stub.of("waiting", gate=gate)) for stub in stubs]

    wait_until(lambda: sum(got()) == count, "they do not all arrive")
    shares = got()
    for stub in stubs:
        stub.open(gate)
    for connection in connections:
        with connection:
            assert connection.response().status == 200
    return shares


def test_garbage_is_shown_and_not_used(deployment: Watched, stubs: Stubs) -> None:
    gateway, admin = deployment
    for name in GARBAGE:
        stubs[name].wait("request", 2, target="/metrics")

    def shown() -> bool:
        signals = {name: view.load_signals for name, view in admin.replicas("garbage").items()}
        good = signals.pop("good")
        said = all(view and (view.problem or name in ODD) for name, view in signals.items())
        return said and good is not None and good.running is not None

    wait_until(shown, f"what is wrong is not shown: {admin.replicas('garbage')}")
    for name, view in admin.replicas("garbage").items():
        assert view.state == "ready", view
        assert view.load_signals is not None
        assert view.balancer is not None
        assert view.balancer.external_load == 0, f"{name}: {view.balancer}"
        assert view.load_signals.running == (0.0 if name == "good" else None), "what cannot be is shown as if it were"
    names = ["good", *GARBAGE]
    got = send(gateway, "garbage", [stubs[name] for name in names], 3 * len(names))
    assert min(got) >= 1, f"some get nothing: {dict(zip(names, got, strict=True))}"


def test_somebody_else_s_load_moves_ours_away_until_it_is_stale(deployment: Watched, stubs: Stubs) -> None:
    gateway, admin = deployment
    both = [stubs[name] for name in CROWDED]

    def signals() -> LoadSignalView:
        signals_now = admin.replica("crowded", "crowded").load_signals
        assert signals_now is not None
        return signals_now

    def external_load() -> int:
        decided_by = admin.replica("crowded", "crowded").balancer
        return decided_by.external_load if decided_by is not None else 0

    def believed() -> list[int]:
        """How six are shared out while what it says is fresh; nothing, if this machine is too slow for that."""
        wait_until(lambda: external_load() > 0, "nothing is concluded from thirty requests that are not ours")
        began, now, others = time.monotonic(), signals(), external_load()
        assert (now.running, now.waiting, now.cache) == (20, 10, 0.25)
        got = send(gateway, "crowded", both, 6)
        fresh = others and now.age is not None and now.age + time.monotonic() - began < STALE_AFTER_SECONDS
        return got if fresh else []

    assert wait_until(believed, "it is never read in time") == [6, 0]
    stubs["crowded"].on_path("/metrics", scripts.silent())
    wait_until(lambda: external_load() == 0 and signals().stale, "what was said long ago is still believed")
    assert signals().problem
    assert send(gateway, "crowded", both, 6) == [3, 3]


@pytest.mark.slow
def test_own_counts_are_not_replaced(deployment: Watched, stubs: Stubs) -> None:
    """An engine that says it is idle while it has our requests is not believed."""
    gateway, admin = deployment
    one, two = stubs["one"], stubs["two"]
    gate = new_id("gate")
    held = [ask(gateway, "idle", scripts.held(gate)) for _ in range(2)]
    wait_until(lambda: one.of("waiting", gate=gate) and two.of("waiting", gate=gate), "they did not spread")
    one.open(gate)
    seen = len(two.of("request", target="/metrics"))
    two.wait("request", seen + 3, target="/metrics")
    for _ in range(5):
        with ask(gateway, "idle") as connection:
            assert connection.response().status == 200
    assert (len(one.real()), len(two.real())) == (6, 1)
    wait_until(lambda: admin.replica("two", "idle").in_flight == 1, "its own count is gone")
    two.open(gate)
    for connection in held:
        with connection:
            assert connection.response().status == 200

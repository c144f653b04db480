"""A new configuration under load: nothing is lost; a bad one changes nothing and says why."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness import (
    Ledger,
    Serving,
    StubReplica,
    config,
    model,
    new_id,
    nothing_left,
    request,
    scripts,
    wait_until,
)
from tests.harness.processes import alive
from tests.harness.traffic import traffic
from tests.harness.waiting import WAIT_TIMEOUT_SECONDS


@pytest.fixture(scope="module")
def stubs() -> Iterator[list[StubReplica]]:
    with StubReplica("a") as a, StubReplica("b") as b, StubReplica("c") as c:
        yield [a, b, c]


def listed(gateway: Serving) -> set[str]:
    return {entry["id"] for entry in json.loads(gateway.ask("GET", "/v1/models").body)["data"]}


def applied(gateway: Serving, marker: str) -> None:
    """Wait until a model of that name is there in every worker (the kernel picks one for each connection)."""
    wait_until(lambda: all(marker in listed(gateway) for _ in range(8)), f"{marker} is not there:\n{gateway.output}")


def settings(stubs: list[StubReplica], marker: str, listen: str, **rest: Any) -> dict[str, Any]:
    return config({"m": model(*stubs, idempotent=False), marker: model(stubs[0])}, listen, **rest)


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("workers", [1, 2])
def test_under_load(stubs: list[StubReplica], workers: int, rounds: int) -> None:
    """Replicas come and go, policies and limits change; every request is answered, once."""
    ledger = Ledger(*stubs)
    first = settings(stubs, "start", "", workers=workers)
    with Serving(first) as gateway, nothing_left(gateway, spare=2):
        options = {"headers": {"steelyard-model": "m"}, "script": scripts.slow(0.002)}
        with traffic(gateway, ledger, clients=4, options=lambda: options):
            for number in range(rounds):
                fleet = stubs if number % 2 else stubs[: 1 + number % 3]
                changed = settings(fleet, f"round-{number}", first["listen"], workers=workers)
                changed["models"]["m"]["policy"] = ["least_work", "round_robin", "least_connections"][number % 3]
                changed["models"]["m"]["concurrency"] = ["unlimited", 4, 1][number % 3]
                gateway.reload(changed)
                applied(gateway, f"round-{number}")
        ledger.check()
        assert set(ledger.count()) == {"ok"}, ledger.count()
        assert ledger.count()["ok"] > rounds
        last = settings(stubs, "start", first["listen"], workers=workers)
        gateway.reload(last)
        applied(gateway, "start")


@pytest.mark.parametrize("sizes", [[2, 1], pytest.param([3, 1, 2, 1] * 20, marks=pytest.mark.slow)])
def test_other_numbers_of_workers_turn_nobody_away(stubs: list[StubReplica], sizes: list[int]) -> None:
    """Also not who connects in the moment in which a worker leaves: each of these is a new connection."""
    first = settings(stubs, "start", "", workers=1)
    over, ends = threading.Event(), Counter[str]()

    def connect() -> None:
        while not over.is_set():
            try:
                ends[str(gateway.ask("GET", "/v1/models").status)] += 1
            except Exception as problem:
                ends[repr(problem)] += 1

    with Serving(first) as gateway:
        clients = [threading.Thread(target=connect, daemon=True) for _ in range(4)]
        for client in clients:
            client.start()
        for size in sizes:
            before = set(gateway.workers)
            gateway.reload(settings(stubs, "start", first["listen"], workers=size))
            wait_until(
                lambda before=before, size=size: len(now := gateway.workers) == size and not before & set(now),
                f"{size} workers are not there:\n{gateway.output}",
            )
        over.set()
        for client in clients:
            client.join(WAIT_TIMEOUT_SECONDS)
        assert set(ends) == {"200"}, ends


def test_who_waits_to_be_accepted_when_a_worker_leaves_is_served(stubs: list[StubReplica]) -> None:
    """Though nobody else has its socket: its supervisor was killed."""
    with Serving(settings(stubs, "start", "", timeouts={"drain": "60s"})) as gateway, ExitStack() as waiting:
        worker = gateway.worker
        gateway.process.kill()
        gateway.process.wait(WAIT_TIMEOUT_SECONDS)
        os.kill(worker, signal.SIGSTOP)
        try:
            clients = [waiting.enter_context(gateway.connect()) for _ in range(20)]
            for client in clients:
                client.send(request("POST", headers={"steelyard-model": "m"}))
            os.kill(worker, signal.SIGTERM)
            os.kill(worker, signal.SIGCONT)
            assert [client.response().status for client in clients] == [200] * 20
            wait_until(lambda: not alive(worker), "the worker stays")
        finally:
            if alive(worker):
                os.kill(worker, signal.SIGKILL)


def test_a_changed_file_is_enough(stubs: list[StubReplica]) -> None:
    first = settings(stubs, "before", "")
    with Serving(first) as gateway:
        gateway.write(settings(stubs, "after", first["listen"]))
        applied(gateway, "after")
        assert "before" not in listed(gateway)


def test_what_runs_on_a_removed_replica_ends_well(stubs: list[StubReplica]) -> None:
    """A stream on a replica that is taken out goes on to its end; nothing new goes there."""
    a, b, _ = stubs
    first = config({"m": model(a), "start": model(a)})
    gate = new_id("gate")
    with Serving(first) as gateway, nothing_left(gateway, spare=2), gateway.connect() as connection:
        connection.send(request("POST", headers={"steelyard-model": "m"}, script=scripts.sse(2, gate)))
        response = connection.begin()
        connection.read_body(response, b"data: 0\n\n")
        gateway.reload(config({"m": model(b), "moved": model(b)}, first["listen"]))
        applied(gateway, "moved")
        assert gateway.ask(headers={"steelyard-model": "m"}).headers["steelyard-replica"] == "b"
        for number in (1, 2):
            a.open(f"{gate}-{number}")
        assert connection.finish(response).body == b"data: 0\n\ndata: 1\n\n"


def test_what_waits_for_a_removed_replica_goes_elsewhere(stubs: list[StubReplica]) -> None:
    a, b, _ = stubs
    gate, running, waiting = new_id("gate"), new_id(), new_id()
    first = config({"m": model(a, concurrency=1), "start": model(a)})
    with Serving(first) as gateway, gateway.connect() as holder, gateway.connect() as waiter:
        headers = {"steelyard-model": "m"}
        holder.send(request("POST", id=running, headers=headers, script=scripts.held(gate)))
        a.wait("waiting", id=running)
        waiter.send(request("POST", id=waiting, headers=headers))
        assert waiter.quiet(0.2)
        gateway.reload(config({"m": model(b, concurrency=1), "moved": model(b)}, first["listen"]))
        assert waiter.response().headers["steelyard-replica"] == "b"
        a.open(gate)
        assert holder.response().status == 200


def test_a_model_that_is_taken_away(stubs: list[StubReplica]) -> None:
    """Its running requests end well, its waiting ones are refused, new ones are told there is no such model."""
    a = stubs[0]
    gate, running = new_id("gate"), new_id()
    first = config({"m": model(a, concurrency=1), "start": model(a)})
    with Serving(first) as gateway, gateway.connect() as holder, gateway.connect() as waiter:
        headers = {"steelyard-model": "m"}
        holder.send(request("POST", id=running, headers=headers, script=scripts.held(gate)))
        a.wait("waiting", id=running)
        waiter.send(request("POST", headers=headers))
        assert waiter.quiet(0.2)
        gateway.reload(config({"start": model(a), "moved": model(a)}, first["listen"]))
        applied(gateway, "moved")
        assert gateway.ask(headers=headers).status == 404
        a.open(gate)
        assert holder.response().status == 200
        assert waiter.response().status in (200, 404, 503)


BAD = {
    "not YAML": ("models: [", ""),
    "empty": ("", ""),
    "an unknown key": ("lissten: 1", "lissten"),
    "a wrong value": (None, "concurrency"),
    "no such policy": (None, "policy"),
    "a bad URL": (None, "url"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_configuration(stubs: list[StubReplica], name: str) -> None:
    """The last good one stays in force, the message names the key, and a good one is taken afterwards."""
    text, word = BAD[name]
    first = settings(stubs, "start", "")
    ledger = Ledger(*stubs)
    with Serving(first) as gateway:
        bad: Any = text if text is not None else settings(stubs, "bad", first["listen"])
        if name == "a wrong value":
            bad["models"]["m"]["concurrency"] = "plenty"
        elif name == "no such policy":
            bad["models"]["m"]["policy"] = "roundish_robin"
        elif name == "a bad URL":
            bad["models"]["m"]["replicas"][0]["url"] = "ftp://nowhere"
        elif name == "an unknown key":
            bad = json.dumps({**first, "lissten": 1})
        workers, said = gateway.workers, len(gateway.output)
        with traffic(gateway, ledger, options=lambda: {"headers": {"steelyard-model": "m"}}):
            gateway.reload(bad)
            wait_until(lambda: "steelyard.yaml" in gateway.output[said:], "not a word about the bad file")
            wait_until(lambda: word in gateway.output[said:], f"{word} is not named")
            assert {"m", "start"} <= listed(gateway)
            gateway.reload(settings(stubs, "good", first["listen"]))
            applied(gateway, "good")
        ledger.check()
        assert set(ledger.count()) == {"ok"}
        assert gateway.workers == workers


def test_hundreds_of_signals_at_once(stubs: list[StubReplica]) -> None:
    first = settings(stubs, "start", "")
    ledger = Ledger(*stubs)
    with Serving(first) as gateway, nothing_left(gateway, spare=2):
        with traffic(gateway, ledger, options=lambda: {"headers": {"steelyard-model": "m"}}):
            for _ in range(200):
                os.kill(gateway.pid, signal.SIGHUP)
            gateway.reload(settings(stubs, "end", first["listen"]))
            applied(gateway, "end")
        ledger.check()
        assert set(ledger.count()) == {"ok"}


def test_connections_outlive_reloads(stubs: list[StubReplica]) -> None:
    """A client's connection, a stream and a body on its way all survive."""
    a = stubs[0]
    limits = {"replay_bytes": "1KiB"}
    first = settings([a], "start", "", limits=limits)
    gate, id, half = new_id("gate"), new_id(), b"x" * 50_000
    with (
        Serving(first) as gateway,
        gateway.connect() as kept,
        gateway.connect() as sending,
        gateway.connect() as reading,
    ):
        headers = {"steelyard-model": "m"}
        assert kept.ask(headers=headers).status == 200
        sending.send(request("POST", id=id, headers={**headers, "content-length": "100000"}) + half)
        a.wait("request", id=id)
        reading.send(request("POST", headers=headers, script=scripts.sse(2, gate)))
        response = reading.begin()
        for number in range(3):
            gateway.reload(settings([a], f"round-{number}", first["listen"], limits=limits))
            applied(gateway, f"round-{number}")
        assert kept.ask(headers=headers).status == 200
        sending.send(half)
        assert sending.response().status == 200
        for number in (1, 2):
            a.open(f"{gate}-{number}")
        assert reading.finish(response).body == b"data: 0\n\ndata: 1\n\n"
        assert threading.active_count() < 50

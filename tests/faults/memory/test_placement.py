"""Models loaded on demand, end to end: a real gateway with two workers in front of one server on which two of three
models fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.admin import PROBED, AdminClient, admin_config
from tests.harness.serving import Serving, config
from tests.harness.waiting import wait_until
from tests.real.processes import Program
from tests.replica.programs import answers, demo, get, running

MIB = 1 << 20
DECLARED_BYTES = 100 * MIB
WEIGHTS_BYTES = 90 * MIB  # what they really hold, as is learned after a while
BOX = {"memory": "300MiB", "headroom": "10%"}  # of which the process itself takes some fifty: two fit, either way


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Program]:
    models = ",".join(f"{name}={WEIGHTS_BYTES}" for name in "abc")
    with running(demo(tmp_path, "--models", models, "--load-seconds", 0.2)) as server:
        answers(server)
        yield server


def model(server: Program, **placement: Any) -> dict[str, Any]:
    return {
        "dialect": "oip",
        "replicas": [{"id": "s", "url": server.url, "device": "box"}],
        "memory": {"weights": DECLARED_BYTES, "per_request": MIB},
        "placement": {"load_api": "agent", "load_time": "1s", **placement},
        "health": {key: value for key, value in PROBED.items() if key != "path"},
    }


@contextmanager
def fronted(server: Program, **models: dict[str, Any]) -> Iterator[tuple[Serving, AdminClient]]:
    settings = config(models, admin=admin_config(), devices={"box": BOX}, workers=2)
    with Serving(settings) as gateway, AdminClient(settings) as admin:
        admin.wait_up()
        yield gateway, admin


def infer(gateway: Serving, name: str) -> int:
    body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()
    return gateway.ask("POST", f"/v2/models/{name}/infer", body=body).status


def loaded(server: Program) -> set[str]:
    _, index = get(server, "/steelyard/models")
    return {entry["model"] for entry in index["models"] if entry["state"] == "ready"}


def test_each_is_answered_though_only_two_fit(server: Program) -> None:
    with fronted(server, a=model(server), b=model(server), c=model(server)) as (gateway, admin):
        assert loaded(server) == set(), "nobody asked for any"
        for name in "abcabc":
            assert infer(gateway, name) == 200
            there = loaded(server)
            assert name in there
            assert len(there) <= 2
            (device,) = admin.fleet().devices
            assert device.reserved <= device.budget
        # Several at once, of all three: each waits for its turn.
        with ThreadPoolExecutor(12) as crowd:
            assert set(crowd.map(lambda name: infer(gateway, name), "abcabcabcabc")) == {200}
        assert len(loaded(server)) <= 2
        kinds = {event.kind for event in admin.events()}
        assert "placement" in kinds


def test_who_is_pinned_is_loaded_at_once_and_stays(server: Program) -> None:
    with fronted(server, a=model(server, pinned=True), b=model(server), c=model(server)) as (gateway, admin):
        admin.wait_ready("s", model="a")
        for name in "bcbc":
            assert infer(gateway, name) == 200
            assert "a" in loaded(server)


def test_an_operator_may_load_and_unload(server: Program) -> None:
    with fronted(server, a=model(server), b=model(server)) as (_, admin):
        wait_until(
            lambda: admin.replica("s", "a").state == "unloaded" and admin.fleet().placement.hosts, "not seen yet"
        )
        wait_until(
            lambda: all(host.known for host in admin.fleet().placement.hosts), "the server's models are not known"
        )
        assert admin.place("s", "load", model="a").status_code == 200
        admin.wait_ready("s", model="a")
        assert loaded(server) == {"a"}
        assert admin.place("s", "load", model="a").status_code == 409
        assert admin.place("s", "unload", model="a").status_code == 200
        wait_until(lambda: loaded(server) == set(), "it was not unloaded")
        wait_until(lambda: admin.replica("s", "a").state == "unloaded", "it does not stand as unloaded")


def test_a_server_that_dies_is_filled_again(server: Program) -> None:
    with fronted(server, a=model(server), b=model(server)) as (gateway, admin):
        assert infer(gateway, "a") == 200
        server.process.kill()
        server.process.wait()
        admin.wait_state("s", "unreachable", "unloaded", model="a")
        server.start()
        answers(server)
        wait_until(lambda: infer(gateway, "a") == 200, "it was not loaded again")
        assert loaded(server) == {"a"}

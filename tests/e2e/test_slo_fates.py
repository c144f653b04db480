"""SLOs and real sockets: who takes the time gets the blame, tenants are told apart, and what a worker had counted
when it was killed is there, once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness import scripts
from tests.harness.admin import AdminClient, admin_config
from tests.harness.client import Connection, Truncated, new_id, request
from tests.harness.replicas.stub import StubReplica
from tests.harness.serving import Serving, config, model
from tests.harness.waiting import wait_until

HASTE: dict[str, Any] = {"slo": {"latency": "3s"}, "retry": {"max_attempts": 1}}
CALM: dict[str, Any] = {"slo": {"latency": "60s"}, "retry": {"max_attempts": 1}}
TOO_LATE_SECONDS = 4.0  # more than the target, which itself is far more than anything else takes
LARGE_BODY_BYTES = 64 << 20  # more than all buffers on the way to a client that does not read
Counts = dict[str, int]


@pytest.fixture
def stub() -> Iterator[StubReplica]:
    with StubReplica("stub") as stub:
        yield stub


@pytest.fixture
def serving(stub: StubReplica) -> Iterator[tuple[Serving, AdminClient, dict[str, Any]]]:
    stream = {"slo": {"first_byte": "3s", "latency": "1ms"}, "retry": {"max_attempts": 1}}
    tenants = {"slo": {"latency": "1ms", "tenants": {"patient": {"latency": "60s"}}}, "retry": {"max_attempts": 1}}
    kinds = {"haste": HASTE, "calm": CALM, "stream": stream, "shared": tenants}
    models = {name: model(stub, **settings) for name, settings in kinds.items()}
    settings = config(
        models,
        workers=2,
        admin=admin_config(),
        history={"enabled": False},
        tenant_header="x-tenant",
        limits={"replay_bytes": "4KiB"},
    )
    with ExitStack() as stack:
        gateway = stack.enter_context(Serving(settings))
        admin = stack.enter_context(AdminClient(settings))
        admin.wait_up()
        yield gateway, admin, settings


def of(model: str, **headers: str) -> dict[str, str]:
    return {"steelyard-model": model, **{name.replace("_", "-"): value for name, value in headers.items()}}


def counts(admin: AdminClient, model: str) -> dict[str, Counts]:
    """By tenant."""
    return {view.tenant: view.counts for view in admin.fleet().slo if view.model == model and view.counts}


def agree(admin: AdminClient, model: str, expected: dict[str, Counts]) -> None:
    wait_until(lambda: counts(admin, model) == expected, f"{counts(admin, model)} and not {expected}")


def test_who_takes_the_time_gets_the_blame(
    serving: tuple[Serving, AdminClient, dict[str, Any]], stub: StubReplica
) -> None:
    gateway, admin, _ = serving
    with ExitStack() as stack:
        small, large, reader, slow = (stack.enter_context(gateway.connect()) for _ in range(4))
        slow.send(request(headers=of("haste"), script=scripts.slow(TOO_LATE_SECONDS)))
        small.send(request(headers=of("haste", content_length="2")) + b"a")
        large.send(request(headers=of("haste", content_length="20000")) + b"a" * 10_000)  # too much to be kept
        reader.send(request(headers=of("haste"), script=scripts.large(LARGE_BODY_BYTES)))
        assert small.quiet(TOO_LATE_SECONDS)
        small.send(b"b")
        large.send(b"b" * 10_000)
        assert [each.response("POST").status for each in (small, large, reader, slow)] == [200] * 4
    assert gateway.ask(headers=of("haste")).status == 200
    agree(admin, "haste", {"": {"late/client": 3, "late/replica": 1, "met": 1}})


def test_of_a_stream_the_first_byte_counts(
    serving: tuple[Serving, AdminClient, dict[str, Any]], stub: StubReplica
) -> None:
    gateway, admin, _ = serving
    gate = new_id("gate")
    late: list[list[Any]] = [["body"], ["send", scripts.SSE_HEAD], ["sleep", TOO_LATE_SECONDS], ["send", "0\r\n\r\n"]]
    with gateway.connect() as prompt, gateway.connect() as left, gateway.connect() as slow:
        slow.send(request(headers=of("stream"), script=late))
        for connection in (prompt, left):
            connection.send(request(headers=of("stream"), script=scripts.sse(1, gate)))
            connection.read_body(connection.begin("POST"), b"data: 0")
        assert prompt.quiet(TOO_LATE_SECONDS)  # the stream goes on for longer than anything with a target
        left.close()
        wait_until(lambda: counts(admin, "stream").get("", {}).get("abandoned/client"), "its leaving is not seen")
        stub.open(f"{gate}-1")
        assert slow.response("POST").status == 200
        wait_until(lambda: sum(counts(admin, "stream").get("", {}).values()) == 3, "the stream does not end")
    agree(admin, "stream", {"": {"met": 1, "abandoned/client": 1, "late/replica": 1}})


def test_tenants_have_their_own_slos_and_odd_names_harm_nobody(
    serving: tuple[Serving, AdminClient, dict[str, Any]],
) -> None:
    gateway, admin, _ = serving
    odd = 'a"\\\t\x80\x9b' + "x" * 300
    for tenant in ("patient", "other", "*", odd):
        assert gateway.ask(headers=of("shared", x_tenant=tenant), script=scripts.slow(0.05)).status == 200
    late = {"late/replica": 1}
    agree(admin, "shared", {"patient": {"met": 1}, "other": late, "*": late, odd[:256]: late})


def test_of_a_worker_that_is_killed_at_most_the_last_second_is_lost_and_nothing_counts_twice(
    serving: tuple[Serving, AdminClient, dict[str, Any]], stub: StubReplica
) -> None:
    gateway, admin, settings = serving
    for _ in range(20):
        assert gateway.ask(headers=of("calm")).status == 200
    agree(admin, "calm", {"": {"met": 20}})
    id = new_id()
    with gateway.connect() as connection:
        connection.send(request(id=id, headers=of("calm"), script=scripts.silent()))
        stub.wait("request", id=id)
        killed = gateway.worker_of(connection)
        os.kill(killed, signal.SIGKILL)
        connection.wait_closed()
    wait_until(lambda: len(gateway.workers) == 2 and killed not in gateway.workers, "no other worker")
    seen = [counts(admin, "calm")[""]]
    for _ in range(10):
        assert gateway.ask(headers=of("calm")).status == 200
        seen.append(counts(admin, "calm")[""])
    agree(admin, "calm", {"": {"met": 30, "failed/gateway": 1}})
    assert [each["met"] for each in seen] == sorted(each["met"] for each in seen)
    for _ in range(10):
        assert gateway.ask(headers=of("calm")).status == 200
    os.kill(gateway.workers[0], signal.SIGKILL)  # before it has told of all of them, perhaps
    wait_until(lambda: answered(gateway), "nobody serves")
    wait_until(lambda: counts(admin, "calm")[""]["met"] > 30, "nothing is counted any more")
    assert counts(admin, "calm")[""]["met"] <= 41
    wait_until(lambda: len(gateway.workers) == 2, "no other worker")
    # A model that is gone and comes back at once: what was counted before is not new.
    others = settings | {"models": {name: each for name, each in settings["models"].items() if name != "calm"}}
    gateway.reload(others)
    wait_until(lambda: "calm" not in admin.models(), "the model stays")
    gateway.reload(settings)
    wait_until(lambda: "calm" in admin.models(), "the model does not come back")
    wait_until(lambda: answered(gateway), "no worker knows it")
    agree(admin, "calm", {"": {"met": 1}})


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_worker_had_in_hand_when_it_was_killed_failed(stub: StubReplica, workers: int) -> None:
    settings = config(
        {"m": model(stub, **CALM)},
        workers=workers,
        admin=admin_config(),
        history={"enabled": False},
        tenant_header="x-tenant",
    )
    with ExitStack() as stack:
        gateway = stack.enter_context(Serving(settings))
        admin = stack.enter_context(AdminClient(settings))
        admin.wait_up()
        assert gateway.ask(headers={"x-tenant": "acme"}).status == 200
        held = [stack.enter_context(gateway.connect()) for _ in range(6)]
        gates = [new_id("gate") for _ in held]
        for connection, gate in zip(held, gates, strict=True):
            connection.send(request(headers={"x-tenant": "acme"}, script=scripts.sse(1, gate)))
            connection.read_body(connection.begin("POST"), b"data: 0")
        wait_until(lambda: admin.models()["m"].in_flight == 6, "the streams are not told of")
        killed = gateway.worker_of(held[0])
        cut = [connection for connection in held if gateway.worker_of(connection) == killed]
        os.kill(killed, signal.SIGKILL)
        for connection in cut:
            connection.wait_closed()
        wait_until(lambda: "acme" in counts(admin, "m") and "failed/gateway" in counts(admin, "m")["acme"], "not told")
        for gate in gates:
            stub.open(f"{gate}-1")
        agree(admin, "m", {"acme": {"met": 1 + len(held) - len(cut), "failed/gateway": len(cut)}})
        wait_until(lambda: admin.models()["m"].outcomes["failed"] == len(cut), "the verdicts say something else")


def answered(gateway: Serving) -> bool:
    """A worker that was killed may have had the connection, and one may not know the model yet."""
    try:
        return gateway.ask(headers=of("calm")).status == 200
    except (Truncated, ConnectionError):
        return False


def test_what_is_cut_off_at_the_end_is_the_gateways_fault(stub: StubReplica, tmp_path: Any) -> None:
    log = tmp_path / "access.jsonl"
    settings = config({"m": model(stub, **HASTE)}, timeouts={"drain": "100ms"}, access_log={"path": str(log)})
    id = new_id()
    with Serving(settings) as gateway, Connection(gateway.address) as connection:
        connection.send(request(id=id, headers={"x-request-id": id}, script=scripts.silent()))
        stub.wait("request", id=id)
        gateway.stop()
        connection.wait_closed()
    assert f'"id":"{id}"' in log.read_text()
    assert '"outcome":"failed"' in log.read_text()
    assert '"slo":"failed","fault":"gateway"' in log.read_text()

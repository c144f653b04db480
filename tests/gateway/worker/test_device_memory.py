"""Memory on the way of requests: what does not fit waits or is refused, what answers say is noted, and what runs out
of memory is told."""

from collections.abc import Callable

import msgspec
import pytest

from steelyard.core.memory.request_size import RequestSizeModel
from steelyard.core.replica import Event
from steelyard.gateway.worker.fleet_updates import apply_replica_events, apply_start_progress
from steelyard.gateway.worker.worker_report import worker_report
from steelyard.link.messages import (
    DeviceCapacities,
    MemorySizes,
    OutOfMemory,
    Quarantine,
    ReplicaDemand,
    ReplicaEvent,
    StartProgress,
)

from ..reading import answer, chunked, read_answer, read_request, request
from ..stage import Stage

# A byte of a body is a byte of the device; a tenth of 100 KiB is kept free.
BOX = """
devices: {box: {memory: 100KiB}}
models:
  m:
    max_queue: 9
    policy: round_robin
    memory: {per_request: 1KiB, per_unit: 1}
    replicas: [{url: 'http://a:1', device: box}]
"""
TWO = """
devices: {one: {memory: 100KiB}, two: {memory: 100KiB}}
models:
  m:
    policy: round_robin
    memory: {per_request: 1KiB, per_unit: 1}
    replicas: [{url: 'http://a:1', device: one}, {url: 'http://b:1', device: two}]
"""
ORCA = 'endpoint-load-metrics: JSON {"named_metrics": %s}'


def large(kib: int, *headers: str) -> bytes:
    return request("PUT /", *headers, body=b"x" * (kib << 10))


def with_report(body: bytes, **named: float) -> bytes:
    return answer(body, ORCA % msgspec.json.encode(named).decode())


def test_what_does_not_fit_now_waits(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX)
    first, second = stage.client(), stage.client()
    first.says(large(60))
    replica = stage.replica()
    second.says(large(60))
    assert stage.dialling == []
    replica.says(answer(b"done"))
    assert read_answer(first.hears()).status == 200
    stage.replica().says(answer(b"done too"))
    assert read_answer(second.hears()).body == b"done too"
    stage.check_idle(counted=2)


def test_what_can_never_fit_is_refused_with_the_numbers(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX)
    client = stage.client()
    client.says(large(95))
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (413, "too_large")
    assert "needs about 96 KiB" in response.body.decode()
    assert "90 KiB (box)" in response.body.decode()
    stage.check_idle(counted=1)


def test_who_waits_too_long_hears_that_it_was_for_memory(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX)
    first, second = stage.client(), stage.client()
    first.says(large(60))
    replica = stage.replica()
    second.says(large(60, "steelyard-timeout-ms: 2000"))
    stage.pass_time(3.0)
    response = read_answer(second.hears())
    assert (response.status, response["steelyard-reason"]) == (503, "insufficient_memory")
    replica.says(answer(b"done"))
    stage.check_idle(counted=2)


def test_a_client_that_leaves_gives_its_room_back(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX)
    first, second = stage.client(), stage.client()
    first.says(large(60))
    stage.replica()
    second.says(large(60))
    first.breaks()
    assert stage.dialling == [], "its server goes on with it"
    stage.pass_time(5.0)
    stage.replica().says(answer(b"done"))
    assert read_answer(second.hears()).status == 200
    stage.check_idle(counted=2)


def test_answers_are_asked_what_they_took_and_it_is_told(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX)
    client = stage.client()
    client.says(large(10))
    replica = stage.replica()
    assert read_request(replica.hears())["endpoint-load-metrics-format"] == "JSON"
    replica.says(with_report(b"ok", memory_request_bytes=20000, memory_held_bytes=30000, memory_base_bytes=5000))
    assert read_answer(client.hears()).status == 200
    report = worker_report(stage.proxy, stage.loop.now, decides=True)
    (sample,) = report.samples
    assert (sample.model, sample.id, sample.bytes, sample.features[0]) == ("m", "a:1", 20000, 10 << 10)
    assert (report.replicas[0].held, report.replicas[0].base) == (30000, 5000)
    assert worker_report(stage.proxy, stage.loop.now, decides=True).samples == ()
    ledger = stage.balancer.ledger
    assert ledger is not None
    assert ledger.used(ledger.devices["box"]) == 30000
    stage.check_idle(counted=1)


def test_what_the_supervisor_learned_counts(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX)
    memory = stage.proxy.dispatcher.memory
    assert memory is not None
    memory.apply(MemorySizes("m", 50 << 10, RequestSizeModel(float(45 << 10), 0.0).state()), stage.loop.now)
    client = stage.client()
    client.says(large(1))
    assert read_answer(client.hears())["steelyard-reason"] == "too_large"  # 45 and 50 are more than 90
    memory.apply(DeviceCapacities({"box": 200 << 10}), stage.loop.now)
    stage.pass_time(2.0)
    client.says(large(1))
    stage.replica().says(answer(b"ok"))
    assert read_answer(client.hears()).status == 200
    memory.apply(MemorySizes("gone", 0, RequestSizeModel().state()), stage.loop.now)
    stage.check_idle(counted=2)


ENCODED = (
    "/steelyard/models/m/unload",
    "/steelyard/model%73/m/unload?force=1",
    "/%73teelyard/models/m/load",
    "/v2/repositor%79/models/m/unload",
    "/v2/repository/models/%6D/unload",
)
OUT = b'{"error": "CUDA out of memory. Tried to allocate 20.00 GiB"}'


@pytest.mark.parametrize("how", ["at once", "in pieces", "chunked", "507"])
def test_out_of_memory_is_told_and_tried_elsewhere(staged: Callable[..., Stage], how: str) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(large(20))
    first = stage.replica()
    if how == "507":
        first.says(answer(b"", status="507 Insufficient Storage"))
    elif how == "chunked":
        whole = b"HTTP/1.1 500 Broken\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(OUT)
        first.says(whole[:-20])
        assert stage.dialling == []
        first.says(whole[-20:])
    else:
        whole = answer(OUT, status="500 Broken")
        at = len(whole) - 40 if how == "in pieces" else len(whole)
        first.says(whole[:at])
        if how == "in pieces":
            assert stage.dialling == []
            first.says(whole[at:])
    second = stage.replica()
    assert second.place != first.place
    second.says(answer(b"fine"))
    assert read_answer(client.hears()).status == 200
    (notice,) = stage.said
    assert isinstance(notice, OutOfMemory)
    assert (notice.model, notice.id, notice.bytes) == ("m", first.place, 21 << 10)
    assert notice.available > 21 << 10
    # That size is not sent there again, a smaller one is.
    for _ in range(2):
        client.says(large(20))
        again = stage.replica()
        assert again.place == second.place
        again.says(answer(b"fine"))
        assert read_answer(client.hears()).status == 200
    places = set()
    for _ in range(2):
        client.says(large(2))
        again = stage.replica()
        places.add(again.place)
        again.says(answer(b"fine"))
        assert read_answer(client.hears()).status == 200
    assert places == {"a:1", "b:1"}
    stage.check_idle(counted=5)


def test_where_there_is_no_elsewhere_the_client_gets_the_replica_s_own_words(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX)
    client = stage.client()
    client.says(large(20))
    stage.replica().says(answer(OUT, status="507 Insufficient Storage"))
    response = read_answer(client.hears())
    assert (response.status, response.body) == (507, OUT)
    assert [type(message) for message in stage.said] == [OutOfMemory]
    stage.check_idle(counted=1)


def test_an_error_whose_body_does_not_come_is_not_waited_for_long(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(large(1))
    stage.replica().says(b"HTTP/1.1 503 Busy\r\ncontent-length: 10\r\n\r\n")
    assert stage.dialling == []
    stage.pass_time(1.5)
    stage.replica().says(answer(b"fine"))
    assert read_answer(client.hears()).body == b"fine"
    stage.check_idle(counted=1)


@pytest.mark.parametrize("rest", [b"abc", b""])
def test_an_error_that_is_cut_off_is_an_error(staged: Callable[..., Stage], rest: bytes) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(large(1))
    replica = stage.replica()
    replica.says(b"HTTP/1.1 500 Broken\r\ncontent-length: 10\r\n\r\n" + rest)
    replica.breaks()
    stage.replica().says(answer(b"fine"))
    assert read_answer(client.hears()).body == b"fine"
    stage.check_idle(counted=1)


def test_an_error_in_chunks_with_trailers_is_passed_on(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX.replace("max_queue: 9", "max_queue: 9\n    retry: {max_attempts: 1}"))
    client = stage.client()
    client.says(large(1))
    head = b"HTTP/1.1 500 Broken\r\ntransfer-encoding: chunked\r\n\r\n"
    stage.replica().says(head + chunked(b"sorry", trailers=["x: y"]))
    stage.pass_time(1.5)
    response = read_answer(client.hears())
    assert (response.status, response.body) == (500, b"sorry")
    stage.check_idle(counted=1)


def test_a_model_that_is_removed_lets_its_requests_end(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX)
    client = stage.client()
    client.says(large(20))
    replica = stage.replica()
    stage.reload(BOX.replace("  m:", "  n:"))
    replica.says(with_report(b"done", memory_request_bytes=100, memory_held_bytes=100))
    assert read_answer(client.hears()).body == b"done"
    ledger = stage.balancer.ledger
    assert ledger is not None
    assert ledger.reserved(ledger.devices["box"]) == 0


def test_a_restart_on_purpose_is_no_crash(staged: Callable[..., Stage]) -> None:
    """Little of what the device has for requests was in use."""
    stage = staged(TWO)
    client = stage.client()
    client.says(large(2))
    first = stage.replica()
    first.breaks()
    apply_replica_events(stage.proxy.dispatcher, [ReplicaEvent("m", first.place, Event.LOST.value)], stage.loop.now)
    assert stage.said == []


def test_errors_do_not_say_that_nobody_measures(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX.replace("    memory: {per_request: 1KiB, per_unit: 1}\n", ""))
    client = stage.client()
    for _ in range(20):
        client.says(request("POST /", body=b"x"))
        stage.replica().says(answer(b"no", status="400 Bad"))
        assert read_answer(client.hears()).status == 400
    assert worker_report(stage.proxy, stage.loop.now, decides=True).unmeasured == ()
    for _ in range(16):
        client.says(request("POST /", body=b"x"))
        stage.replica().says(answer(b"yes"))
        assert read_answer(client.hears()).status == 200
    assert worker_report(stage.proxy, stage.loop.now, decides=True).unmeasured == ("m",)


def test_what_is_learned_outlives_a_reload(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX)
    memory = stage.proxy.dispatcher.memory
    assert memory is not None
    memory.apply(Quarantine("m", "box", 10 << 10, 60.0), stage.loop.now)
    stage.reload(BOX.replace("per_request: 1KiB,", "weights: 1KiB, per_request: 1KiB,"))
    client = stage.client()
    client.says(large(20, "steelyard-timeout-ms: 1000"))
    stage.pass_time(2.0)
    assert read_answer(client.hears())["steelyard-reason"] == "insufficient_memory"


def test_another_error_is_no_lack_of_memory(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(large(20))
    stage.replica().says(answer(b'{"error": "shape mismatch"}', status="500 Broken"))
    stage.replica().says(answer(b"fine"))
    assert read_answer(client.hears()).status == 200
    assert stage.said == []
    stage.check_idle(counted=1)


def test_a_crash_under_load_is_blamed_on_the_largest(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO.replace("round_robin", "least_connections"))
    clients = [stage.client() for _ in range(4)]
    for client, kib in zip(clients, (40, 40, 20, 20), strict=True):
        client.says(large(kib))
        if stage.dialling:
            stage.accept()
    on_a = [w for w in stage.loop.wires if w.place == "a:1" and w.transport.protocol in stage.proxy.active]
    assert len(on_a) == 2
    for wire in on_a:
        wire.breaks()
    assert not [message for message in stage.said if isinstance(message, OutOfMemory)], "it may only have broken"
    apply_replica_events(stage.proxy.dispatcher, [ReplicaEvent("m", "a:1", Event.LOST.value)], stage.loop.now)
    notices = [message for message in stage.said if isinstance(message, OutOfMemory)]
    assert [(m.id, m.how, m.bytes) for m in notices] == [("a:1", "crash", 41 << 10)]


def test_a_model_that_is_loaded_on_demand_is_asked_for(staged: Callable[..., Stage]) -> None:
    config = """
    devices: {box: {memory: 1MiB}}
    models:
      m:
        dialect: oip
        memory: {weights: 1KiB, per_request: 1KiB}
        placement: {}
        replicas: [{url: 'http://a:1', device: box, id: a}]
    """
    stage = staged(config)
    now = stage.loop.now
    stage.proxy.dispatcher.execute(stage.balancer.report("a", Event.UNLOAD, "m", now=now), now)
    client = stage.client()
    client.says(request("POST /v2/models/m/infer", body=b"{}"))
    (wanted,) = stage.said
    assert isinstance(wanted, ReplicaDemand)
    assert (wanted.model, wanted.waiting) == ("m", 1)
    apply_start_progress(stage.proxy.dispatcher, StartProgress("m", 5.0), now)
    hurried = stage.client()
    hurried.says(request("POST /v2/models/m/infer", "steelyard-timeout-ms: 2000", body=b"{}"))
    response = read_answer(hurried.hears())
    assert (response.status, response["steelyard-reason"], response["retry-after"]) == (503, "deadline", "5")
    for event in (Event.LOAD, Event.LOADED):
        stage.proxy.dispatcher.execute(stage.balancer.report("a", event, "m", now=now), now)
    stage.replica().says(answer(b"{}"))
    assert read_answer(client.hears()).status == 200
    stage.check_idle(counted=2)


def test_clients_may_not_load_and_unload_what_the_gateway_does(staged: Callable[..., Stage]) -> None:
    config = """
    devices: {box: {memory: 1MiB}}
    models:
      m: {dialect: oip, placement: {}, replicas: [{url: 'http://a:1', device: box}]}
      n: {dialect: oip, replicas: [{url: 'http://b:1', device: box}]}
    """
    stage = staged(config)
    for path in ("/v2/repository/models/m/unload", "/v2/repository/models/m/load", *ENCODED):
        client = stage.client()
        client.says(request(f"POST {path}", body=b"{}"))
        response = read_answer(client.hears())
        assert (response.status, response["steelyard-reason"]) == (403, "model_control")
    client = stage.client()
    client.says(request("POST /v2/repository/models/n/unload", body=b"{}"))
    stage.replica().says(answer(b"{}"))
    assert read_answer(client.hears()).status == 200


def test_a_quarantine_of_the_supervisor_holds_here_too(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    memory = stage.proxy.dispatcher.memory
    assert memory is not None
    memory.apply(Quarantine("m", "one", 10 << 10, 60.0), stage.loop.now)
    client = stage.client()
    for _ in range(3):
        client.says(large(20))
        replica = stage.replica()
        assert replica.place == "b:1"
        replica.says(answer(b"fine"))
        assert read_answer(client.hears()).status == 200


def test_devices_may_come_and_go_with_the_configuration(staged: Callable[..., Stage]) -> None:
    stage = staged(BOX)
    client = stage.client()
    client.says(large(60))
    replica = stage.replica()
    stage.reload(BOX.replace("100KiB", "200KiB"))
    other = stage.client()
    other.says(large(60))
    stage.accept().says(answer(b"fits now"))
    assert read_answer(other.hears()).status == 200
    stage.reload("models: {m: {policy: round_robin, replicas: [{url: 'http://a:1'}]}}")
    replica.says(answer(b"done"))
    assert read_answer(client.hears()).status == 200
    client.says(large(500))
    stage.replica().says(answer(b"whatever"))
    assert read_answer(client.hears()).status == 200
    stage.check_idle(counted=3)

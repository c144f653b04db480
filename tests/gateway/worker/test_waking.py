"""Models without a replica whose replicas are started on demand: requests wait, and somebody hears of it."""

from collections.abc import Callable

import pytest

from steelyard.core.slo.verdicts import REFUSED, REFUSED_BY_DEADLINE, REPLICA, VERDICT_INDEX
from steelyard.gateway.worker.fleet_updates import apply_start_progress
from steelyard.gateway.worker.worker_report import worker_report
from steelyard.link.messages import MemberUpdate, ReplicaDemand, StartProgress

from ..reading import answer, read_answer, request
from ..stage import Stage

AT_ZERO = """
models:
  m: {dialect: oip, runtime: {command: 'serve {port}'}, autoscale: {min: 0, max: 2}, max_queue: 1}
  n: {dialect: oip, replicas: [{url: 'http://b:1'}]}
"""


ONE = """
models:
  m:
    runtime: {command: 'serve {port}'}
    autoscale: {min: 0, max: 2}
    health: {path: '/mine?deep=1'}
"""


def infer(stage: Stage, model: str = "m", *headers: str):
    client = stage.client()
    client.says(request(f"POST /v2/models/{model}/infer", *headers, body=b"{}"))
    return client


def wanted(stage: Stage) -> list[tuple[str, int]]:
    return [(message.model, message.waiting) for message in stage.said if isinstance(message, ReplicaDemand)]


def come(stage: Stage) -> None:
    """A replica was started and is seen ready."""
    replicas = stage.config.models["n"].replicas
    stage.fleet.update_members(MemberUpdate("m", (), replicas, {}), stage.loop.now)
    stage.probe()


def test_a_request_waits_and_is_answered_when_a_replica_is_there(staged: Callable[..., Stage]) -> None:
    stage = staged(AT_ZERO)
    client = infer(stage)
    assert wanted(stage) == [("m", 1)]
    come(stage)
    stage.replica().says(answer(b"{}"))
    assert read_answer(client.hears()).status == 200
    stage.check_idle(counted=1)


def test_one_that_cannot_wait_is_told_when_and_wakes_it_all_the_same(staged: Callable[..., Stage]) -> None:
    stage = staged(AT_ZERO)
    apply_start_progress(stage.proxy.dispatcher, StartProgress("m", 7.0), stage.loop.now)
    hurried = infer(stage, "m", "steelyard-timeout-ms: 2000")
    response = read_answer(hurried.hears())
    assert (response.status, response["steelyard-reason"], response["retry-after"]) == (503, "deadline", "7")
    assert wanted(stage) == [("m", 1)]
    stage.check_idle(counted=1)


def test_one_that_waits_already_is_told_as_soon_as_it_is_known(staged: Callable[..., Stage]) -> None:
    stage = staged(AT_ZERO)
    hurried = infer(stage, "m", "steelyard-timeout-ms: 2000")
    assert not hurried.hears()
    apply_start_progress(stage.proxy.dispatcher, StartProgress("m", 7.0), stage.loop.now)
    response = read_answer(hurried.hears())
    assert (response.status, response["steelyard-reason"], response["retry-after"]) == (503, "deadline", "7")
    stage.check_idle(counted=1)


def test_nobody_is_refused_for_a_guess(staged: Callable[..., Stage]) -> None:
    stage = staged(AT_ZERO)
    apply_start_progress(stage.proxy.dispatcher, StartProgress("m", 60.0, is_default=True), stage.loop.now)
    client = infer(stage, "m", "steelyard-timeout-ms: 5000")
    come(stage)
    stage.replica().says(answer(b"{}"))
    assert read_answer(client.hears()).status == 200


def test_the_line_is_bounded_at_zero_too(staged: Callable[..., Stage]) -> None:
    stage = staged(AT_ZERO)
    first, second = infer(stage), infer(stage)
    response = read_answer(second.hears())
    assert (response.status, response["steelyard-reason"]) == (503, "queue_full")
    come(stage)
    stage.replica().says(answer(b"{}"))
    assert read_answer(first.hears()).status == 200
    stage.check_idle(counted=2)


def test_whoever_waits_in_vain_for_a_replica_that_never_comes_was_not_refused_for_others(
    staged: Callable[..., Stage],
) -> None:
    stage = staged(AT_ZERO)
    infer(stage, "m", "steelyard-timeout-ms: 5000")
    infer(stage)  # the line is full
    stage.pass_time(6.0)
    counts = stage.account("m").tenants[""].counts
    assert counts[VERDICT_INDEX[REFUSED, REPLICA]] + counts[REFUSED_BY_DEADLINE[REPLICA, "total"]] == sum(counts) == 2


def test_nobody_is_woken_for_what_waits_behind_others_or_has_no_runtime(staged: Callable[..., Stage]) -> None:
    stage = staged(AT_ZERO.replace("max_queue: 1", "max_queue: 9, concurrency: 1"))
    come(stage)
    one, two = infer(stage), infer(stage)
    stage.replica().says(answer(b"{}"))
    assert read_answer(one.hears()).status == 200
    stage.replica().says(answer(b"{}"))
    assert read_answer(two.hears()).status == 200
    assert read_answer_of_n(stage) == 200
    assert wanted(stage) == []


def read_answer_of_n(stage: Stage) -> int:
    client = infer(stage, "n")
    stage.replica().says(answer(b"{}"))
    return read_answer(client.hears()).status


def test_whoever_starts_replicas_is_told_sooner_while_requests_wait(staged: Callable[..., Stage]) -> None:
    stage = staged(AT_ZERO)
    memory = stage.proxy.dispatcher.memory
    assert memory is not None
    assert not memory.has_waiting()
    infer(stage)
    assert memory.has_waiting()
    come(stage)
    assert not memory.has_waiting()
    infer(stage, "n")


def look(stage: Stage, line: str) -> tuple[int, bytes]:
    client = stage.client()
    client.says(request(line))
    response = read_answer(client.hears(), line.partition(" ")[0])
    return response.status, response.body


@pytest.mark.parametrize("line", ["GET /health", "HEAD /healthz", "GET /ping", "GET /mine?deep=1"])
def test_a_probe_hears_that_all_is_well_and_wakes_nobody(staged: Callable[..., Stage], line: str) -> None:
    stage = staged(ONE)
    status, body = look(stage, line)
    assert (status, b"a request starts one" in body) == (200, not line.startswith("HEAD"))
    assert wanted(stage) == []
    assert asked(stage) == 0


def test_a_scrape_wakes_nobody_either(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    assert look(stage, "GET /metrics")[0] == 503
    assert wanted(stage) == []


def test_a_look_keeps_no_model_awake_and_goes_to_a_replica_that_is_there(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE + "    replicas: [{url: 'http://b:1'}]\n")
    client = stage.client()
    client.says(request("GET /health"))
    stage.replica().says(answer(b"mine"))
    assert read_answer(client.hears()).body == b"mine"
    assert asked(stage) == 0
    client.says(request("GET /picture"))
    stage.replica().says(answer(b"real"))
    assert read_answer(client.hears()).body == b"real"
    assert asked(stage) == 1


def test_others_may_get_what_looks_like_a_look(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    client = stage.client()
    client.says(request("POST /health", body=b"{}"))
    assert wanted(stage) == [("m", 1)]


def test_a_model_at_rest_is_served(staged: Callable[..., Stage]) -> None:
    """Who asks before it sends would never send."""
    stage = staged(AT_ZERO.replace("http://b:1", "http://b:2"))
    assert look(stage, "GET /v2/health/ready") == (200, b'{"ready":true}')
    assert look(stage, "GET /v2/models/m/ready") == (200, b'{"name":"m","ready":true}')


def asked(stage: Stage) -> int:
    (model,) = worker_report(stage.proxy, stage.loop.now, decides=True).models
    return model.arrived

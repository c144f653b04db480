"""What is counted: each request once, as what it was, and how long the answered ones took."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.statistics.histogram import BUCKET_COUNT, Histogram
from steelyard.gateway.telemetry.model_stats import OUTCOMES, ModelStats

from ..reading import answer, request
from ..stage import Stage

TWO = "models: {m: {retry: {max_attempts: 1}, replicas: [{url: 'http://a:1'}]}, n: {replicas: []}}"


@given(st.lists(st.floats(0, 1e9), max_size=50))
def test_buckets_are_those_of_the_histogram(seconds: list[float]) -> None:
    account, histogram = ModelStats(), Histogram()
    for second in seconds:
        account.count_ok(second)
        histogram.add(second)
    assert account.ok == len(seconds)
    assert [account.latency_buckets.get(index, 0) for index in range(BUCKET_COUNT)] == histogram.counts


def test_a_clock_that_stands_still_is_no_error() -> None:
    account = ModelStats()
    for seconds in (0.0, -1e-9, 5e-324):
        account.count_ok(seconds)
    assert account.latency_buckets == {0: 3}


def test_outcomes() -> None:
    account = ModelStats()
    for outcome in OUTCOMES:
        account.count_outcome(outcome)
    assert account.outcomes() == dict.fromkeys(OUTCOMES, 1)


def status(code: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        stage.replica().says(answer(b"", status=code))

    return play


def breaks(stage: Stage) -> None:
    stage.replica().breaks()


def cut(stage: Stage) -> None:
    stage.replica().says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
    stage.replica().breaks()


def leaves(stage: Stage) -> None:
    stage.replica()
    stage.clients[-1].breaks()


def switches(stage: Stage) -> None:
    stage.replica().says(b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
    stage.pass_time(200)
    stage.replica().breaks()


@pytest.mark.parametrize(
    ("play", "outcome"),
    [
        (status("200 OK"), "ok"),
        (status("302 There"), "ok"),
        (status("404 No"), "client_error"),
        (status("429 Slow"), "failed"),
        (status("500 Broken"), "failed"),
        (status("501 What"), "failed"),
        (breaks, "failed"),
        (cut, "failed"),
        (leaves, "cancelled"),
        (switches, "ok"),
    ],
)
def test_each_end_is_counted_once(staged: Callable[..., Stage], play: Callable[[Stage], None], outcome: str) -> None:
    stage = staged(TWO)
    client = stage.client()
    upgrade = ("connection: upgrade", "upgrade: x") if play is switches else ()
    client.says(request("POST /", "steelyard-model: m", *upgrade, body=b""))
    play(stage)
    assert stage.account("m").outcomes() == {name: int(name == outcome) for name in OUTCOMES}
    assert sum(stage.account("n").outcomes().values()) == sum(stage.proxy.recorder.unrouted.outcomes().values()) == 0
    stage.check_idle(counted=1)


def test_refusals_are_counted_at_their_model(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request("GET /", "steelyard-model: n") + request("GET /", "steelyard-model: nobody"))
    assert stage.account("n").refused == 1
    assert stage.proxy.recorder.unrouted.client_error == 1
    stage.check_idle(counted=2)


def test_the_time_is_from_the_head_to_the_last_byte(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request("POST /", "steelyard-model: m", "content-length: 1"))
    stage.pass_time(1.0)
    client.says(b"x")
    replica = stage.replica()
    stage.pass_time(1.0)
    replica.says(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n")
    stage.pass_time(1.0)
    replica.says(b"x")
    expected = ModelStats()
    expected.count_ok(3.0)
    assert stage.account("m").latency_buckets == expected.latency_buckets

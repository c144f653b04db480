"""The end of a drain: whoever has nothing of an answer is told to try again, an answer that has begun is cut."""

from collections.abc import Callable

import pytest

from ...reading import answer, read_answer, request
from ...stage import Stage

BUSY = """
models:
  m: {dialect: oip, replicas: [{url: 'http://a:1'}], concurrency: 1}
  zero: {dialect: oip, runtime: {command: 'serve {port}'}, autoscale: {min: 0}}
"""
STOPPING = (503, "stopping", "1", "close")


def ask(stage: Stage, model: str = "m", body: bytes = b"{}"):
    client = stage.client()
    client.says(request(f"POST /v2/models/{model}/infer", body=body))
    return client


def refusal(client) -> tuple[object, ...]:
    said = read_answer(client.hears())
    return said.status, said["steelyard-reason"], said["retry-after"], said["connection"]


@pytest.mark.parametrize("drained", [False, True])
def test_who_waits_or_runs_without_an_answer_is_told(staged: Callable[..., Stage], drained: bool) -> None:
    stage = staged(BUSY)
    runs, waits, zero = ask(stage), ask(stage), ask(stage, "zero")
    stage.replica()
    if drained:
        stage.proxy.drain()
    stage.proxy.reject_pending()
    assert [refusal(client) for client in (runs, waits, zero)] == [STOPPING] * 3
    assert all(client.closed for client in (runs, waits, zero))
    assert stage.account("m").failed == 2
    stage.check_idle()


def test_who_still_sends_its_request_is_told(staged: Callable[..., Stage]) -> None:
    stage = staged(BUSY)
    client = stage.client()
    client.says(request("POST /v2/models/m/infer", "content-length: 100") + b"{")
    stage.proxy.reject_pending()
    assert refusal(client) == STOPPING
    stage.proxy.abort_all()
    stage.check_idle()


def test_an_answer_that_has_begun_is_cut_and_not_followed_by_another(staged: Callable[..., Stage]) -> None:
    stage = staged(BUSY)
    client = ask(stage)
    stage.replica().says(answer(b"12345678")[:-4])
    heard = client.hears()
    assert heard.endswith(b"1234")
    stage.proxy.reject_pending()
    assert not client.hears()
    assert not client.closed
    stage.proxy.abort_all()
    assert not client.hears()
    assert client.closed
    stage.check_idle()


def test_where_nobody_can_say_that_a_replica_is_ready_only_who_waits_for_one_is_told(
    staged: Callable[..., Stage],
) -> None:
    stage = staged(BUSY)
    runs, waits, zero = ask(stage), ask(stage), ask(stage, "zero")
    replica = stage.replica()
    stage.proxy.drain()
    stage.proxy.reject_pending(only_without_replica=True)
    assert refusal(zero) == STOPPING
    for client in (runs, waits):
        assert not client.closed
        replica.says(answer(b"{}"))
        assert read_answer(client.hears()).status == 200
    stage.check_idle()

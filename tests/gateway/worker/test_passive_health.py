"""While the supervisor is frozen or dead, requests show which replicas serve (issue 13, point 26)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from steelyard.core.replica import State
from steelyard.gateway.worker.passive_health import (
    ASSUME_LOADED_SECONDS,
    FIRST_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    PassiveHealth,
)

from ..reading import answer, read_answer, request
from ..stage import Stage
from .test_fleet_updates import TWO, states, tell

ONE = "models: {m: {restart_grace: 0s, replicas: [{id: a, url: 'http://a:1'}]}}"


def silent(stage: Stage) -> PassiveHealth:
    """The supervisor of this worker has just died."""
    fallback = PassiveHealth(stage.proxy.dispatcher)
    stage.proxy.dispatcher.on_replica_failure = fallback.request_failed
    return fallback


def look(stage: Stage, fallback: PassiveHealth, seconds: float, silent_for: float = 3.0) -> None:
    stage.pass_time(seconds)
    fallback.tick(stage.loop.now, silent_for)
    stage.loop.settle()


def refuse(stage: Stage) -> None:
    """Every connection that is wanted; a request may try again."""
    while stage.dialling:
        stage.dial().fail()


def test_a_replica_that_refuses_is_out_for_a_moment_and_tried_by_one(
    staged: Callable[..., Stage],
) -> None:
    stage = staged(TWO)
    fallback = silent(stage)
    client = stage.client()
    client.says(request())
    stage.dial().fail()
    stage.replica().says(answer(b"elsewhere"))
    assert read_answer(client.hears()).body == b"elsewhere"
    assert sorted(state.value for state in states(stage).values()) == ["ready", "unreachable"]
    look(stage, fallback, FIRST_RETRY_SECONDS + 0.01)
    assert set(states(stage).values()) == {State.READY}
    assert [r.unverified for r in stage.balancer.pool("m").replicas.values()].count(True) == 1


def test_others_wait_for_the_one_that_tries(staged: Callable[..., Stage]) -> None:
    """And go as soon as its answer begins."""
    stage = staged(ONE)
    fallback = silent(stage)
    tell(stage, ("a", "lost"))
    look(stage, fallback, 0.01)
    first, second = stage.client(), stage.client()
    first.says(request())
    second.says(request())
    assert stage.dialling == ["a:1"]
    stage.replica().says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nbe")
    assert stage.dialling == ["a:1"]  # the second, beside the answer that goes on
    stage.accept().says(answer(b"too"))
    assert read_answer(second.hears()).body == b"too"


def test_pauses_grow_while_it_stays_away(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    fallback = silent(stage)
    pauses, waited = [], 0.0
    client = stage.client()
    for _ in range(400):
        look(stage, fallback, 0.05)
        waited += 0.05
        if states(stage)["a"] is State.READY:
            pauses.append(waited)
            waited = 0.0
            client.says(request())
            refuse(stage)
            assert read_answer(client.hears()).status in (502, 503)
    assert pauses[1] < 0.5
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(MAX_RETRY_SECONDS, abs=0.1)


def test_a_loading_one_is_tried_when_news_are_old_and_there_is_no_other(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    fallback = silent(stage)
    tell(stage, ("a", "live"))
    look(stage, fallback, 0.1, silent_for=ASSUME_LOADED_SECONDS + 1.0)
    assert states(stage)["a"] is State.LOADING
    tell(stage, ("b", "drain"))
    look(stage, fallback, 0.1)
    assert states(stage) == {"a": State.LOADING, "b": State.DRAINING}
    look(stage, fallback, 0.1, silent_for=ASSUME_LOADED_SECONDS + 1.0)
    assert states(stage) == {"a": State.READY, "b": State.DRAINING}


def test_the_supervisor_is_asked_about_whom_it_does_not_miss(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    fallback = silent(stage)
    client = stage.client()
    client.says(request())
    refuse(stage)
    assert read_answer(client.hears()).status == 503
    assert [replica.id for replica in fallback.end()] == ["a"]
    assert fallback.end() == []

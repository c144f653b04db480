"""A user's own policy raises: that costs one request at most, and one line of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest

from steelyard import Attempt, Outcome, Policy, Replica, Request
from steelyard.core.replica import State
from steelyard.gateway.worker.policy_guard import LOG_INTERVAL_SECONDS, PolicyErrorLog, guard_policy

from ..reading import answer, read_answer, request
from ..shared_balancer.wired import MODEL, Wired
from ..stage import Stage


class Faulty(Policy):
    """The first candidate; raises in the methods named in `broken`."""

    broken: ClassVar[set[str]] = set()
    result: ClassVar[Any] = None  # what `choose` returns in place of a replica

    def _fail(self, method: str) -> None:
        if method in self.broken:
            raise ValueError(f"no table\nfor {method}")

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        self._fail("choose")
        return self.result if self.result is not None else candidates[0]

    def patience(self, request: Request, replica: Replica, ahead: float, now: float) -> float:
        self._fail("patience")
        return 0.0

    def joined(self, replica: Replica, now: float) -> None:
        self._fail("joined")

    def left(self, replica: Replica, now: float) -> None:
        self._fail("left")

    def sent(self, attempt: Attempt, now: float) -> None:
        self._fail("sent")

    def finished(self, attempt: Attempt, seconds: float, outcome: Outcome, now: float) -> None:
        self._fail("finished")

    def tick(self, members: Sequence[Replica], now: float) -> None:
        self._fail("tick")


NAME = f"{__name__}:Faulty"
MODELS = f"models: {{m: {{policy: '{NAME}', replicas: [{{url: 'http://a:1'}}, {{url: 'http://b:1'}}]}}}}"
ONE_SLOT = f"models: {{m: {{policy: '{NAME}', concurrency: 1, replicas: [{{url: 'http://a:1'}}]}}}}"


@pytest.fixture(autouse=True)
def repaired() -> Iterator[None]:
    Faulty.broken, Faulty.result = set(), None
    yield
    Faulty.broken, Faulty.result = set(), None


def ask(stage: Stage) -> Any:
    client = stage.client()
    client.says(request())
    return client


@pytest.mark.parametrize("method", ["choose", "patience"])
def test_the_request_is_refused_and_the_next_is_served(
    staged: Callable[..., Stage], method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = staged(MODELS)
    Faulty.broken = {method}
    client = ask(stage)
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (500, "policy_failed")
    assert b"policy of this model raised an error" in response.body
    stage.check_idle(counted=1)
    assert not client.closed
    Faulty.broken = set()
    client.says(request())
    stage.replica().says(answer(b"fine"))
    assert read_answer(client.hears()).status == 200
    stage.check_idle(counted=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error policy {NAME}: {method} raised ValueError: no table for {method} ({__file__}, line ")
    assert line.endswith("): its request is refused with policy_failed")


def test_what_is_no_replica_is_an_error_too(staged: Callable[..., Stage], capsys: pytest.CaptureFixture[str]) -> None:
    stage = staged(MODELS)
    Faulty.result = "a:1"
    assert read_answer(ask(stage).hears())["steelyard-reason"] == "policy_failed"
    assert "choose raised TypeError: it returned 'a:1', which is no replica" in capsys.readouterr().err
    stage.check_idle(counted=1)


def test_queued_requests_are_refused_and_the_one_that_ends_is_not_disturbed(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE_SLOT)
    first, second, third = ask(stage), ask(stage), ask(stage)
    Faulty.broken = {"choose"}
    stage.replica().says(answer(b"fine"))
    assert read_answer(first.hears()).status == 200
    assert [read_answer(client.hears())["steelyard-reason"] for client in (second, third)] == ["policy_failed"] * 2
    stage.check_idle(counted=3)


def test_a_retry_is_refused_and_the_client_gets_what_the_replica_said(staged: Callable[..., Stage]) -> None:
    stage = staged(MODELS)
    client = ask(stage)
    Faulty.broken = {"choose"}
    stage.replica().says(answer(b"sorry", status="500 Broken"))
    response = read_answer(client.hears())
    assert (response.status, response.body) == (500, b"sorry")
    stage.check_idle(counted=1)


@pytest.mark.parametrize("method", ["sent", "finished", "joined", "left", "tick"])
def test_hooks_cost_no_request(staged: Callable[..., Stage], method: str, capsys: pytest.CaptureFixture[str]) -> None:
    stage = staged(MODELS)
    Faulty.broken = {method}
    client = ask(stage)
    stage.replica().says(answer(b"fine"))
    assert read_answer(client.hears()).status == 200
    for replica in list(stage.balancer.pool("m").replicas.values()):
        stage.balancer.remove_replica(replica.id, "m", now=stage.loop.now)
        assert replica.state is State.GONE
    stage.balancer.add_replica("c", "m", now=stage.loop.now)
    assert [replica.id for replica in stage.balancer.pool("m").members] == ["c"]
    stage.balancer.remove_replica("c", "m", now=stage.loop.now)
    stage.pass_time(3.0)
    assert f"{method} raised ValueError" in capsys.readouterr().err
    stage.check_idle(counted=1)


def test_a_policy_that_is_set_later_is_guarded_too(staged: Callable[..., Stage]) -> None:
    stage = staged(MODELS.replace(NAME, "round_robin"))
    stage.reload(MODELS)
    Faulty.broken = {"choose"}
    assert read_answer(ask(stage).hears())["steelyard-reason"] == "policy_failed"


def test_behind_a_balancer_process() -> None:
    lines: list[str] = []
    stage = Wired(policy=NAME, concurrency=1)
    guard_policy(stage.balancer.pool(MODEL).policy, NAME, PolicyErrorLog(lines.append, lambda: stage.now))
    one, two = stage.workers
    running = [one.submit(), two.submit()]  # one on each replica
    stage.settle()
    waiting = two.submit()
    stage.settle()
    Faulty.broken = {"choose"}
    (sent,) = [replica for request, replica in one.running if request is running[0]]
    one.finish(running[0], sent)
    stage.settle()
    late = one.submit()
    stage.settle()
    assert (two.reasons[waiting], one.reasons[late]) == ("policy_failed", "policy_failed")
    Faulty.broken = set()
    again = one.submit()
    stage.settle()
    assert [request for request, _ in one.running] == [again]
    assert stage.loads() == stage.running() == {"a": 1, "b": 1}
    assert len(lines) == 1


def test_what_repeats_is_counted() -> None:
    lines: list[str] = []
    now = 5.0
    log = PolicyErrorLog(lines.append, lambda: now)
    for _ in range(100):
        log.record("p:P", "choose", ValueError(), "refused")
    log.record("p:P", "choose", KeyError("x"), "refused")
    assert lines == [
        "error policy p:P: choose raised ValueError: refused",
        "error policy p:P: choose raised KeyError: 'x': refused",
    ]
    now += LOG_INTERVAL_SECONDS
    log.record("p:P", "choose", ValueError(), "refused")
    assert lines[2:] == ["error policy p:P: choose raised ValueError: refused (99 more like it since the last line)"]

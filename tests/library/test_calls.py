"""`lb.call(fn)` and `await lb.acall(fn)`: the retries of the core, its budget, and what may not be sent twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from steelyard import LoadBalancer, MisuseError, OptionError, Refused, RetryOptions, State

from ..harness.waiting import WAIT_TIMEOUT_SECONDS, wait_until

Work = Callable[[str], Any]


def sync(lb: LoadBalancer, fn: Work, **more: Any) -> Any:
    return lb.call(fn, **more)


def in_a_loop(lb: LoadBalancer, fn: Work, **more: Any) -> Any:
    async def work(replica: str) -> Any:
        await asyncio.sleep(0)
        return fn(replica)

    return asyncio.run(lb.acall(work, **more))


BOTH = pytest.mark.parametrize("call", [sync, in_a_loop])


class Worker:
    """Fails with these errors, one a call, and then answers."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.tried: list[str] = []

    def __call__(self, replica: str) -> str:
        self.tried.append(str(replica))
        if self.errors:
            raise self.errors.pop(0)
        return "an answer"


@BOTH
def test_a_failed_call_is_tried_on_another_replica(call: Any) -> None:
    lb = LoadBalancer(["a", "b", "c"], seed=1)
    worker = Worker(ConnectionResetError(), TimeoutError())
    assert call(lb, worker) == "an answer"
    assert sorted(worker.tried) == ["a", "b", "c"]
    assert (lb.stats().retries, lb.load) == (2, {"a": 0, "b": 0, "c": 0})
    assert sum(r.failed for r in lb.stats().replicas.values()) == 2


@BOTH
def test_the_last_error_is_raised_when_attempts_are_used_up(call: Any) -> None:
    lb = LoadBalancer(["a", "b", "c", "d"])
    worker = Worker(*(ConnectionResetError(str(n)) for n in range(9)))
    with pytest.raises(ConnectionResetError, match="2"):
        call(lb, worker)
    assert len(worker.tried) == 3
    assert set(lb.load.values()) == {0}


@BOTH
def test_a_bug_of_the_callers_is_not_tried_again(call: Any) -> None:
    lb = LoadBalancer(["a", "b"])
    worker = Worker(KeyError("logits"))
    with pytest.raises(KeyError):
        call(lb, worker)
    assert len(worker.tried) == 1
    assert lb.load == {"a": 0, "b": 0}


@BOTH
def test_what_is_not_idempotent_is_sent_again_only_if_nothing_was_sent(call: Any) -> None:
    lb = LoadBalancer(["a", "b"])
    begun = Worker(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        call(lb, begun, idempotent=False)
    assert len(begun.tried) == 1
    unreachable = Worker(ConnectionRefusedError())
    assert call(lb, unreachable, idempotent=False) == "an answer"
    assert len(unreachable.tried) == 2


@BOTH
def test_retries_are_bounded_by_the_budget_of_the_core(call: Any) -> None:
    lb = LoadBalancer(
        ["a", "b"], outlier_detection=False, retry=RetryOptions(max_attempts=2, budget=0.1, initial_tokens=1.0)
    )
    tried = 0

    def work(_: str) -> None:
        nonlocal tried
        tried += 1
        raise ConnectionResetError

    for _ in range(50):
        with pytest.raises(ConnectionResetError):
            call(lb, work)
    assert tried <= 50 * 1.1 + 1
    assert lb.stats().retries == tried - 50


def test_retries_can_be_switched_off() -> None:
    worker = Worker(ConnectionRefusedError())
    with pytest.raises(ConnectionRefusedError):
        LoadBalancer(["a", "b"], retry=False).call(worker)
    with pytest.raises(OptionError, match="retry"):
        LoadBalancer(["a"], retry=3)  # type: ignore[arg-type]


def test_what_is_no_function_is_not_called() -> None:
    lb = LoadBalancer(["a"])
    with pytest.raises(OptionError, match="fn: must be a function of the replica, not 5"):
        lb.call(5)  # type: ignore[arg-type]
    assert lb.stats().requests == 0


def test_a_route_is_never_sent_again_by_itself() -> None:
    lb = LoadBalancer(["a", "b"], hedge=True)
    with pytest.raises(ConnectionRefusedError), lb.route():
        raise ConnectionRefusedError
    lb.complete_request(lb.route_request(), "unreachable")
    assert lb.load == {"a": 0, "b": 0}
    assert lb.stats().retries == 0


@BOTH
def test_arguments_reach_the_balancer_and_refusals_the_caller(call: Any) -> None:
    lb = LoadBalancer(["a"], concurrency=1)
    held = lb.route_request()
    worker = Worker()
    with pytest.raises(Refused):
        call(lb, worker, wait=0.01)
    with pytest.raises(OptionError, match="features"):
        call(lb, worker, features=[-1.0])
    with pytest.raises(OptionError, match="idempotent: must be True or False"):
        call(lb, worker, idempotent="no")
    assert worker.tried == []
    lb.complete_request(held)
    assert call(lb, worker, features=[3.0], kind="k", key="s", tenant="t", priority=1, timeout=60.0) == "an answer"


def test_a_retry_waits_for_a_free_replica() -> None:
    lb = LoadBalancer(["a", "b"], concurrency=1)
    held = lb.route_request()
    other = "b" if held == "a" else "a"
    worker = Worker(ConnectionRefusedError())
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(lb.call(worker)))
    thread.start()
    wait_until(lambda: worker.tried == [other] and lb.waiting, "its retry waits for the other replica")
    lb.complete_request(held)
    thread.join(WAIT_TIMEOUT_SECONDS)
    assert got == ["an answer"]
    assert worker.tried == [other, held]


def test_a_retry_that_finds_no_free_replica_raises_the_failure() -> None:
    lb = LoadBalancer(["a", "b"], concurrency=1, queue_timeout=0.05)
    lb.route_request()
    with pytest.raises(ConnectionRefusedError):
        lb.call(Worker(ConnectionRefusedError()))
    assert sum(lb.load.values()) == 1


def test_a_cancelled_call_gives_its_slot_back_and_blames_nobody() -> None:
    async def main() -> None:
        lb = LoadBalancer(["a"], concurrency=1)

        async def forever(_: str) -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(lb.acall(forever))
        await asyncio.sleep(0)
        assert lb.load == {"a": 1}
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (lb.load, lb.states, lb.stats().replicas["a"].failed) == ({"a": 0}, {"a": State.READY}, 0)

    asyncio.run(main())


def test_the_wrong_kind_of_function_is_told() -> None:
    async def coroutine(_: str) -> None:
        raise AssertionError("not reached")

    lb = LoadBalancer(["a"], concurrency=1)
    with pytest.raises(MisuseError, match="acall"):
        lb.call(coroutine)
    with pytest.raises(MisuseError, match=r"lb\.call"):
        asyncio.run(lb.acall(lambda _: "at once"))  # type: ignore[arg-type,return-value]
    assert lb.load == {"a": 0}

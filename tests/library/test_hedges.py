"""With `hedge`, a call that takes too long is run on a second replica as well, and the first answer wins."""

from __future__ import annotations

import asyncio
import threading

import pytest

from steelyard import HedgeOptions, LoadBalancer, OptionError
from steelyard.library.engine import Engine

from ..harness.waiting import WAIT_TIMEOUT_SECONDS, wait_until
from .engines import with_engine

HEDGE = HedgeOptions(enabled=True, quantile=0.5, budget=1.0)


def trained(**more: object) -> LoadBalancer:
    return trained_with_engine(**more)[0]


def trained_with_engine(**more: object) -> tuple[LoadBalancer, Engine]:
    """A balancer that has seen many short requests, and has saved up for hedges."""
    lb, engine = with_engine(["a", "b"], policy="least_work", hedge=HEDGE, seed=1, **more)
    for _ in range(200):
        lb.complete_request(lb.route_request(), latency=0.01)
    engine.pool.hedge_budget.seconds_left = 1.0  # route_request is never hedged, and pays for none
    return lb, engine


def test_a_slow_call_is_run_on_a_second_replica_and_the_first_answer_wins() -> None:
    lb = trained()
    slow = threading.Event()
    ran: list[str] = []

    def work(replica: str) -> str:
        ran.append(str(replica))
        if len(ran) == 1:
            assert slow.wait(WAIT_TIMEOUT_SECONDS)
        return f"from {replica}"

    answer = lb.call(work)
    assert len(ran) == 2
    assert answer == f"from {ran[1]}"
    assert (lb.stats().hedges, lb.stats().hedges_won) == (1, 1)
    assert lb.load == {"a": 0, "b": 0}  # the one that lost still runs, and nobody waits for it
    slow.set()


def test_a_slow_task_is_hedged_and_the_loser_is_cancelled() -> None:
    async def main() -> None:
        lb = trained()
        ran: list[str] = []
        cancelled = asyncio.Event()

        async def work(replica: str) -> str:
            ran.append(str(replica))
            if len(ran) == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.set()
            return f"from {replica}"

        assert await lb.acall(work) == f"from {ran[1]}"
        await asyncio.wait_for(cancelled.wait(), WAIT_TIMEOUT_SECONDS)
        assert (lb.stats().hedges_won, lb.load) == (1, {"a": 0, "b": 0})

    asyncio.run(main())


def test_when_one_of_two_attempts_fails_the_other_decides() -> None:
    lb = trained()
    second = threading.Event()
    ran: list[str] = []

    def work(replica: str) -> str:
        ran.append(str(replica))
        if len(ran) == 1:
            assert second.wait(WAIT_TIMEOUT_SECONDS)
            wait_until(lambda: sum(lb.load.values()) == 1, "the hedge has failed")
            return "from the first"
        second.set()
        raise ConnectionResetError

    assert lb.call(work) == "from the first"
    assert sum(r.failed for r in lb.stats().replicas.values()) == 1
    assert lb.load == {"a": 0, "b": 0}


def test_hedged_calls_are_retried_and_raise_as_others_do() -> None:
    lb = trained()
    tried: list[str] = []

    def flaky(replica: str) -> str:
        tried.append(str(replica))
        if len(tried) == 1:
            raise ConnectionRefusedError
        return "an answer"

    assert lb.call(flaky) == "an answer"
    assert set(tried) == {"a", "b"}

    def buggy(_: str) -> str:
        raise KeyError("logits")

    with pytest.raises(KeyError):
        lb.call(buggy)

    async def buggy_task(_: str) -> str:
        raise KeyError("logits")

    with pytest.raises(KeyError):
        asyncio.run(lb.acall(buggy_task))
    assert lb.load == {"a": 0, "b": 0}


def test_what_is_not_idempotent_runs_once_in_the_callers_own_thread() -> None:
    lb = trained()
    assert lb.call(lambda _: threading.current_thread(), idempotent=False) is threading.current_thread()


def test_a_cancelled_race_leaves_nothing_behind() -> None:
    async def main() -> None:
        lb, engine = trained_with_engine()
        began, ended = asyncio.Semaphore(0), asyncio.Semaphore(0)

        async def forever(_: str) -> None:
            began.release()
            try:
                await asyncio.Event().wait()
            finally:
                ended.release()

        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            task = asyncio.create_task(lb.acall(forever))
            await began.acquire()
            await began.acquire()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert lb.load == {"a": 0, "b": 0}
            await ended.acquire()
            await ended.acquire()
        assert not engine.waiters

    asyncio.run(main())


def test_hedge_options_are_checked() -> None:
    with pytest.raises(OptionError, match="hedge"):
        LoadBalancer(["a"], hedge="yes")  # type: ignore[arg-type]

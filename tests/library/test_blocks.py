"""`with lb.route()` in sync code and in async code: waiting, threads, event loops, generators, timeouts."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from steelyard import LoadBalancer, MisuseError, OptionError, Refused

from ..harness.waiting import WAIT_TIMEOUT_SECONDS, wait_until
from .clock import Clock
from .engines import with_engine


def test_a_sync_block_counts_while_it_runs() -> None:
    lb = LoadBalancer(["a", "b"], concurrency=1)
    with lb.route() as one, lb.route() as other:
        assert {one, other} == {"a", "b"}
        assert lb.load == {"a": 1, "b": 1}
    assert lb.load == {"a": 0, "b": 0}


def test_a_sync_block_waits_when_every_replica_is_full() -> None:
    lb = LoadBalancer(["a"], concurrency=1)
    got: list[str] = []

    def work() -> None:
        with lb.route() as replica:
            got.append(replica)

    threads = [threading.Thread(target=work) for _ in range(5)]
    with lb.route():
        for thread in threads:
            thread.start()
        wait_until(lambda: lb.waiting == 5, "five threads wait")
        assert not got
    for thread in threads:
        thread.join(WAIT_TIMEOUT_SECONDS)
    assert got == ["a"] * 5
    assert lb.load == {"a": 0}


def test_the_wait_of_a_block_is_bounded() -> None:
    lb = LoadBalancer(["a"], concurrency=1, queue_timeout=0.05)
    with lb.route():
        for arguments in ({"wait": 0.0}, {"wait": 0.01}, {}):
            with pytest.raises(Refused) as refused, lb.route(**arguments):
                raise AssertionError("not reached")
            assert refused.value.reason == "queue_timeout"
    assert (lb.load, lb.waiting) == ({"a": 0}, 0)


def test_a_timeout_ends_the_wait_and_says_so() -> None:
    lb = LoadBalancer(["a"], concurrency=1)
    with lb.route(), pytest.raises(Refused) as refused, lb.route(timeout=0.02):
        raise AssertionError("not reached")
    assert refused.value.reason == "deadline"


def test_a_timeout_does_not_interrupt_the_block_and_is_there_to_pass_on() -> None:
    clock = Clock()
    lb = LoadBalancer(["a"], clock=clock)
    with lb.route(timeout=10.0) as replica:
        clock.now += 4.0
        assert replica.seconds_left == 6.0
        clock.now += 20.0
        assert replica.seconds_left == 0.0
    with lb.route() as replica:
        assert replica.seconds_left is None
    assert lb.load == {"a": 0}


def test_a_route_is_entered_once() -> None:
    lb = LoadBalancer(["a"])
    route = lb.route()
    with route:
        with pytest.raises(MisuseError, match="entered before"), route:
            raise AssertionError("not reached")
        assert lb.load == {"a": 1}
    with pytest.raises(MisuseError, match="entered before"), route:
        raise AssertionError("not reached")
    assert lb.load == {"a": 0}


def test_wrong_arguments_are_told_before_the_block() -> None:
    lb = LoadBalancer(["a"])
    with pytest.raises(OptionError, match="wait"):
        lb.route(wait=-1.0)
    with pytest.raises(OptionError, match="timeout"):
        lb.route(timeout=float("nan"))


def test_waiting_in_sync_code_does_not_block_an_event_loop_for_itself() -> None:
    """The slot is held by a task of the same loop: it would wait in vain."""

    async def main() -> None:
        lb = LoadBalancer(["a"], concurrency=1)
        async with lb.route():
            with pytest.raises(MisuseError, match="async with"), lb.route():
                raise AssertionError("not reached")
        with lb.route():  # not full: fine
            pass
        assert (lb.load, lb.waiting) == ({"a": 0}, 0)

    asyncio.run(main())


def test_a_busy_event_loop_keeps_nobody_else_waiting_longer_than_allowed() -> None:
    """The first to wait wakes up for all; here it is a task of a loop that does not get round to it."""
    lb = LoadBalancer(["a"], concurrency=1, queue_timeout=0.3)
    held = lb.route_request()
    refused = threading.Event()

    async def first() -> None:
        async with lb.route():
            raise AssertionError("not reached")

    def second() -> None:
        with pytest.raises(Refused), lb.route():
            raise AssertionError("not reached")
        refused.set()

    async def main() -> None:
        task = asyncio.create_task(first())
        await asyncio.sleep(0)
        thread = threading.Thread(target=second)
        thread.start()
        assert refused.wait(WAIT_TIMEOUT_SECONDS)  # the loop stands still
        thread.join(WAIT_TIMEOUT_SECONDS)
        with pytest.raises(Refused):
            await task

    asyncio.run(main())
    lb.complete_request(held)
    assert (lb.load, lb.waiting) == ({"a": 0}, 0)


def test_waiting_without_asyncio_is_told_and_takes_no_place() -> None:
    """As under trio: without waiting it works there."""
    lb = LoadBalancer(["a"], concurrency=1)
    with pytest.raises(StopIteration):
        lb.route().__aenter__().send(None)
    with pytest.raises(MisuseError, match="asyncio"):
        lb.route().__aenter__().send(None)
    assert (lb.load, lb.waiting) == ({"a": 1}, 0)


def test_event_loops_in_several_threads_share_the_slots() -> None:
    lb, engine = with_engine(["a", "b"], concurrency=1, policy="least_work")
    seen: list[int] = []

    async def one() -> None:
        async with lb.route([5.0], wait=WAIT_TIMEOUT_SECONDS):
            seen.append(max(lb.load.values()))
            await asyncio.sleep(0)

    async def many() -> None:
        await asyncio.gather(*(one() for _ in range(40)))

    def in_blocks() -> None:
        for _ in range(40):
            with lb.route([5.0], wait=WAIT_TIMEOUT_SECONDS):
                seen.append(max(lb.load.values()))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(3)]
    threads += [threading.Thread(target=in_blocks) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_TIMEOUT_SECONDS)
    assert len(seen) == 240
    assert max(seen) == 1
    assert (lb.load, lb.waiting, len(engine.waiters)) == ({"a": 0, "b": 0}, 0, 0)


def answers(lb: LoadBalancer) -> Iterator[str]:
    with lb.route() as replica:
        yield replica
        yield replica


def test_a_generator_that_is_left_gives_its_slot_back() -> None:
    lb = LoadBalancer(["a"], concurrency=1)
    stream = answers(lb)
    assert next(stream) == "a"
    assert lb.load == {"a": 1}
    del stream
    gc.collect()
    assert lb.load == {"a": 0}


@pytest.mark.interpreted("replaces a method of a compiled object")
def test_a_generator_collected_in_the_middle_of_a_decision_does_no_harm() -> None:
    """Garbage is collected at any allocation, so also in the core, with the lock held."""
    lb, engine = with_engine(["a", "b"], concurrency=2, seed=1)
    stream = answers(lb)
    next(stream)
    submit = engine.balancer.submit

    def collecting(*arguments: object, **more: object) -> object:
        decided = submit(*arguments, **more)  # type: ignore[arg-type]
        stream.close()  # type: ignore[attr-defined]
        return decided

    engine.balancer.submit = collecting  # type: ignore[method-assign,assignment]
    target = lb.route_request()
    assert sum(lb.load.values()) == 1
    lb.complete_request(target)
    assert lb.load == {"a": 0, "b": 0}


@pytest.mark.interpreted("replaces a method of a compiled object")
def test_ctrl_c_while_a_replica_is_chosen_or_given_back_keeps_no_slot() -> None:
    lb, engine = with_engine(["a"], concurrency=1)
    for name in ("submit", "finish"):
        method = getattr(engine.balancer, name)

        def interrupted(*arguments: object, method: Any = method, name: str = name, **more: object) -> None:
            if name == "submit":
                method(*arguments, **more)
            raise KeyboardInterrupt

        setattr(engine.balancer, name, interrupted)
        with pytest.raises(KeyboardInterrupt), lb.route():
            pass
        setattr(engine.balancer, name, method)
        assert lb.load == {"a": 0}
    with lb.route():
        pass


def test_a_policy_that_calls_its_balancer_is_told() -> None:
    lb, engine = with_engine(["a", "b"], seed=1)
    policy = engine.pool.policy
    choose = policy.choose
    seen: list[dict[str, int]] = []

    def calling(*arguments: object) -> object:
        seen.append(lb.load)  # to look is fine
        lb.route_request()
        return choose(*arguments)  # type: ignore[arg-type]

    policy.choose = calling  # type: ignore[method-assign,assignment]
    with pytest.raises(MisuseError, match="in the middle of its own decision"):
        lb.route_request()
    policy.choose = choose  # type: ignore[method-assign]
    assert seen == [{"a": 0, "b": 0}]
    lb.complete_request(lb.route_request())
    assert lb.load == {"a": 0, "b": 0}


def test_replicas_added_at_run_time_serve_those_who_wait() -> None:
    lb = LoadBalancer(["a"], concurrency=1)
    held = lb.route_request()
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(lb.route_request(wait=WAIT_TIMEOUT_SECONDS)))
    thread.start()
    wait_until(lambda: lb.waiting, "a thread waits")
    lb.add_replica("b")
    thread.join(WAIT_TIMEOUT_SECONDS)
    assert got == ["b"]
    lb.remove_replica("a")
    lb.complete_request(held)
    lb.complete_request(got[0])
    assert lb.load == {"b": 0}


@pytest.mark.parametrize("features", ["123", b"12", [None], ["x"]])
def test_features_that_are_no_numbers_are_refused(features: object) -> None:
    with pytest.raises(OptionError, match="features"):
        LoadBalancer(["a"]).route(features)  # type: ignore[arg-type]


def test_features_of_another_length_are_refused() -> None:
    lb = LoadBalancer(["a"])
    with lb.route([1.0, 2.0]):
        pass
    with pytest.raises(OptionError, match="1 given, and earlier requests had 2"):
        lb.route_request([1.0])
    with lb.route():  # none at all: a request of unknown size
        pass
    assert lb.load == {"a": 0}


def test_a_refusal_travels_to_other_processes() -> None:
    lb = LoadBalancer(["a"], concurrency=1, max_queue=0)
    with lb.route(), pytest.raises(Refused) as refused, lb.route():
        raise AssertionError("not reached")
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (type(copy), copy.reason, copy.status, str(copy)) == (Refused, "queue_full", 503, str(refused.value))

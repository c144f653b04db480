"""The small API, as the design promises it word for word, and what happens on wrong use."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import Counter

import pytest

from steelyard import LoadBalancer, MisuseError, OptionError, Outcome, Refused, State, UnknownReplicaError

from .engines import with_engine


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_five_lines_of_the_design_work() -> None:
    lb = LoadBalancer(replicas=["model_v1_a", "model_v1_b", "model_v1_c"])
    target = lb.route_request()
    assert target in ("model_v1_a", "model_v1_b", "model_v1_c")
    assert lb.load == {"model_v1_a": 0, "model_v1_b": 0, "model_v1_c": 0} | {target: 1}
    lb.complete_request(target)
    assert lb.load == {"model_v1_a": 0, "model_v1_b": 0, "model_v1_c": 0}


def test_the_default_is_least_connections() -> None:
    lb = LoadBalancer(replicas=["a", "b", "c"], seed=1)
    for _ in range(30):
        lb.route_request()
    assert lb.load == {"a": 10, "b": 10, "c": 10}


def test_a_plain_id_completes_the_oldest_request_there() -> None:
    lb = LoadBalancer(replicas=["a"])
    first, second = lb.route_request(), lb.route_request()
    lb.complete_request("a")
    with pytest.raises(MisuseError, match="completed before"):
        lb.complete_request(first)
    lb.complete_request(second)
    assert lb.load == {"a": 0}


def test_completing_twice_raises_and_changes_nothing() -> None:
    lb = LoadBalancer(replicas=["a", "b"])
    kept = lb.route_request()
    target = lb.route_request()
    lb.complete_request(target)
    before = lb.load
    with pytest.raises(MisuseError):
        lb.complete_request(target)
    with pytest.raises(MisuseError, match="no request in flight"):
        lb.complete_request(str(target))
    assert lb.load == before
    lb.complete_request(kept)


def test_an_unknown_replica_is_named_with_those_known() -> None:
    lb = LoadBalancer(replicas=["a", "b"])
    with pytest.raises(UnknownReplicaError, match=r"'z'.*a, b"):
        lb.complete_request("z")
    with pytest.raises(UnknownReplicaError, match=r"^no replica 'z' in the pool \(known: a, b\)$"):
        lb.drain("z")
    assert lb.load == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"replicas": []}, "at least one"),
        ({"replicas": "abc"}, "a list of ids"),
        ({"replicas": ["a", "a"]}, "more than once"),
        ({"replicas": ["a", ""]}, "non-empty"),
        ({"replicas": ["a", 3]}, "string"),
        ({"replicas": ["a"], "weights": [1, 2]}, "2 given for 1"),
        ({"replicas": ["a"], "weights": {"b": 1}}, "no replica 'b'"),
        ({"replicas": ["a"], "weights": [0]}, "positive"),
        ({"replicas": ["a"], "weights": [-1]}, "positive"),
        ({"replicas": ["a"], "weights": [float("nan")]}, "positive"),
        ({"replicas": ["a"], "weights": ["2"]}, "number"),
        ({"replicas": ["a"], "policy": "best"}, "least_work"),
        ({"replicas": ["a"], "policy": "peak_ewma", "policy_options": {"tua": 1}}, "tua"),
        ({"replicas": ["a"], "concurrency": 0}, "concurrency"),
        ({"replicas": ["a"], "concurrency": True}, "concurrency"),
        ({"replicas": None}, "replicas: must be a list of ids"),
        ({"replicas": ["a"], "policy": 5}, "policy: must be a string"),
        ({"replicas": ["a"], "weights": 2}, "weights: must be a list of numbers"),
        ({"replicas": ["a"], "max_queue": "long"}, "max_queue: must be a whole number"),
        ({"replicas": ["a"], "queue_timeout": "30s"}, "queue_timeout: must be a number of seconds"),
        ({"replicas": ["a"], "clock": 5}, "clock: must be a function of no arguments"),
    ],
)
def test_wrong_construction_says_what_is_wrong(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        LoadBalancer(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("features", [[-1.0], [float("nan")], [float("inf")]])
def test_features_that_are_no_sizes_are_refused(features: list[float]) -> None:
    lb = LoadBalancer(replicas=["a"])
    with pytest.raises(OptionError, match="features"):
        lb.route_request(features)
    assert lb.load == {"a": 0}


def test_wrong_outcome_or_latency_changes_nothing() -> None:
    lb = LoadBalancer(replicas=["a"])
    target = lb.route_request()
    with pytest.raises(OptionError, match="outcome"):
        lb.complete_request(target, "fine")
    with pytest.raises(OptionError, match="latency"):
        lb.complete_request(target, latency=-1.0)
    assert lb.load == {"a": 1}
    lb.complete_request(target, "ok", latency=0.2)
    assert lb.load == {"a": 0}


def test_weights_are_respected() -> None:
    lb = LoadBalancer(replicas=["big", "small"], policy="weighted_round_robin", weights={"big": 3})
    picks = Counter(str(lb.route_request()) for _ in range(400))
    assert picks == {"big": 300, "small": 100}


def test_told_latencies_teach_the_policy() -> None:
    clock = Clock()
    lb = LoadBalancer(replicas=["fast", "slow"], policy="least_response_time", clock=clock, seed=1)
    for _ in range(50):
        clock.now += 0.1
        target = lb.route_request()
        lb.complete_request(target, latency=0.01 if target == "fast" else 0.5)
    picks = Counter()
    for _ in range(50):
        clock.now += 0.1
        target = lb.route_request()
        picks[str(target)] += 1
        lb.complete_request(target, latency=0.01 if target == "fast" else 0.5)
    assert picks["fast"] > 45


def test_least_work_learns_which_requests_are_large() -> None:
    clock = Clock()
    lb = LoadBalancer(replicas=["a", "b"], policy="least_work", clock=clock, seed=1)
    for step in range(300):
        size = 1000.0 if step % 3 == 0 else 10.0
        target = lb.route_request([size])
        clock.now += size / 1000
        lb.complete_request(target)
    large = lb.route_request([1000.0])
    # One large request weighs more than several small ones: they all go to the other replica.
    others = {str(lb.route_request([10.0])) for _ in range(5)}
    assert others == {"b" if large == "a" else "a"}


def test_failures_eject_a_replica() -> None:
    clock = Clock()
    lb = LoadBalancer(replicas=["good", "good2", "bad"], clock=clock, seed=1)
    for _ in range(600):
        clock.now += 0.01
        target = lb.route_request()
        lb.complete_request(target, "error" if target == "bad" else "ok")
    assert lb.states["bad"] is State.EJECTED
    assert all(lb.route_request() != "bad" for _ in range(20))


def test_drained_replicas_get_nothing_and_come_back() -> None:
    lb = LoadBalancer(replicas=["a", "b"], seed=1)
    held = lb.route_request()
    lb.drain(held)
    assert all(lb.route_request() != held for _ in range(10))
    lb.complete_request(held)
    lb.undrain(held)
    assert held in {str(lb.route_request()) for _ in range(200)}


def test_a_removed_replica_can_still_be_completed() -> None:
    lb = LoadBalancer(replicas=["a", "b"], seed=1)
    targets = [lb.route_request() for _ in range(4)]
    lb.remove_replica("a")
    for target in targets:
        lb.complete_request(target)
    assert lb.load == {"b": 0}
    with pytest.raises(OptionError, match="last one"):
        lb.remove_replica("b")


def test_a_full_replica_refuses_with_a_reason() -> None:
    lb = LoadBalancer(replicas=["a"], concurrency=1)
    target = lb.route_request()
    with pytest.raises(Refused) as refused:
        lb.route_request()
    assert refused.value.reason == "queue_timeout"
    assert lb.waiting == 0
    lb.complete_request(target)
    assert lb.load == {"a": 0}


def test_a_deadline_nobody_can_make_is_refused_at_once() -> None:
    clock = Clock()
    lb = LoadBalancer(replicas=["a"], policy="least_work", concurrency=1, clock=clock)
    for _ in range(40):
        target = lb.route_request()
        clock.now += 2.0
        lb.complete_request(target)
    with pytest.raises(Refused) as refused:
        lb.route_request(timeout=0.1)
    assert (refused.value.reason, refused.value.status) == ("deadline", 503)
    assert lb.load == {"a": 0}


def test_a_blocked_thread_gets_the_replica_another_frees() -> None:
    lb = LoadBalancer(replicas=["a"], concurrency=1)
    held = lb.route_request()
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(lb.route_request(wait=30.0)))
    thread.start()
    while not lb.waiting:
        pass
    lb.complete_request(held)
    thread.join(timeout=30.0)
    assert got == ["a"]
    assert lb.load == {"a": 1}


def test_many_threads_keep_the_count() -> None:
    lb = LoadBalancer(replicas=["a", "b", "c"], policy="least_work")

    def work() -> None:
        for _ in range(300):
            lb.complete_request(lb.route_request([5.0]))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lb.load == {"a": 0, "b": 0, "c": 0}


def test_async_with_counts_while_the_block_runs() -> None:
    async def main() -> None:
        lb = LoadBalancer(replicas=["a", "b"], concurrency=1)
        async with lb.route() as one, lb.route() as other:
            assert {one, other} == {"a", "b"}
            waiting = asyncio.create_task(enter(lb))
            await asyncio.sleep(0)
            assert lb.waiting == 1
        assert await waiting in ("a", "b")
        assert lb.load == {"a": 0, "b": 0}

    async def enter(lb: LoadBalancer) -> str:
        async with lb.route() as replica:
            return str(replica)

    asyncio.run(main())


def test_async_failures_count_and_cancellation_frees_the_place() -> None:
    async def main() -> None:
        lb = LoadBalancer(replicas=["a"], concurrency=1)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                async with lb.route():
                    raise RuntimeError("the model broke")
        assert lb.load == {"a": 0}
        held = lb.route_request()
        waiting = asyncio.create_task(enter(lb))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert lb.waiting == 0
        lb.complete_request(held, Outcome.OK)
        assert lb.load == {"a": 0}

    async def enter(lb: LoadBalancer) -> None:
        async with lb.route():
            pass

    asyncio.run(main())


def test_async_refusal_carries_the_reason() -> None:
    async def main() -> None:
        lb = LoadBalancer(replicas=["a"], concurrency=1, max_queue=0)
        async with lb.route():
            with pytest.raises(Refused, match="Too many requests"):
                async with lb.route():
                    raise AssertionError("not reached")

    asyncio.run(main())


def test_the_policy_can_be_switched_with_requests_in_flight() -> None:
    lb = LoadBalancer(replicas=["a", "b"], seed=1)
    targets = [lb.route_request() for _ in range(6)]
    lb.set_policy("peak_ewma", tau=5.0)
    targets += [lb.route_request() for _ in range(6)]
    for target in targets:
        lb.complete_request(target)
    assert lb.load == {"a": 0, "b": 0}


def test_a_bad_wait_takes_no_place() -> None:
    lb = LoadBalancer(replicas=["a"], concurrency=1)
    held = lb.route_request()
    with pytest.raises(OptionError, match="wait"):
        lb.route_request(wait=-1)
    assert lb.waiting == 0
    lb.complete_request(held)
    assert lb.load == {"a": 0}


@pytest.mark.parametrize("wrong", [{"priority": "high"}, {"priority": True}, {"tenant": 3}, {"kind": 3}, {"key": 3}])
def test_wrong_kinds_of_arguments_are_named(wrong: dict[str, object]) -> None:
    lb = LoadBalancer(replicas=["a"], concurrency=1)
    with pytest.raises(OptionError, match=next(iter(wrong))):
        lb.route_request(**wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="features"):
        lb.route_request([None])  # type: ignore[list-item]
    assert lb.load == {"a": 0}


def test_an_interrupted_wait_takes_no_place() -> None:
    """Ctrl-C in a blocked call: here the clock raises it."""
    clock = Clock()
    lb, engine = with_engine(replicas=["a"], concurrency=1, clock=clock)
    held = lb.route_request()
    reads = 0

    def interrupted() -> float:
        nonlocal reads
        reads += 1
        if reads == 2:
            raise KeyboardInterrupt
        return clock.now

    engine.clock = interrupted
    with pytest.raises(KeyboardInterrupt):
        lb.route_request(wait=5.0)
    assert lb.waiting == 0
    lb.complete_request(held)
    assert lb.load == {"a": 0}


def test_a_full_line_is_not_disturbed_by_one_that_will_not_wait() -> None:
    lb = LoadBalancer(replicas=["a"], concurrency=1, max_queue=1)
    held = lb.route_request()
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(lb.route_request(wait=30.0)))
    thread.start()
    while not lb.waiting:
        pass
    with pytest.raises(Refused):
        lb.route_request(priority=1)
    lb.complete_request(held)
    thread.join(timeout=30.0)
    assert got == ["a"]


def test_many_waiting_threads_all_get_their_turn() -> None:
    lb, engine = with_engine(replicas=["a", "b"], concurrency=1, policy="least_work")
    done: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            target = lb.route_request([5.0], wait=60.0)
            lb.complete_request(target)
        done.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60.0)
    assert sorted(done) == list(range(16))
    assert lb.load == {"a": 0, "b": 0}
    assert not engine.waiters


def test_a_waiter_whose_loop_is_closed_keeps_no_replica() -> None:
    lb = LoadBalancer(replicas=["a"], concurrency=1)
    held = lb.route_request()
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        async with lb.route():
            raise AssertionError("not reached")

    task = loop.create_task(wait())
    loop.run_until_complete(asyncio.sleep(0))
    assert lb.waiting == 1
    loop.stop()
    loop.close()
    lb.complete_request(held)  # would raise "Event loop is closed", and leave the place taken
    assert lb.load == {"a": 0}
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert coroutine is not None
    with pytest.raises(RuntimeError):
        coroutine.throw(RuntimeError)


def test_a_block_may_tell_its_outcome_itself() -> None:
    async def main() -> None:
        lb = LoadBalancer(replicas=["a"])
        async with lb.route() as replica:
            lb.complete_request(replica, "overloaded")
        assert lb.load == {"a": 0}

    asyncio.run(main())


def test_a_target_travels_to_other_processes_as_its_id() -> None:
    lb = LoadBalancer(replicas=["a"])
    assert pickle.loads(pickle.dumps(lb.route_request())) == "a"


def test_a_cancelled_wait_that_expires_at_the_same_time_is_still_cancelled() -> None:
    async def main() -> None:
        clock = Clock()
        lb = LoadBalancer(replicas=["a"], concurrency=1, clock=clock)
        lb.route_request()
        task = asyncio.create_task(enter(lb))
        await asyncio.sleep(0)
        clock.now += 1000.0  # past the longest wait
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def enter(lb: LoadBalancer) -> None:
        async with lb.route():
            pass

    asyncio.run(main())

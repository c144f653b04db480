"""Simulated replicas, by small conversations with exact times."""

from __future__ import annotations

from heapq import heappop, heappush

import pytest

from steelyard.simulate.engine.job import Job
from steelyard.simulate.engine.servers import BatchServer, ModelMemory, PrefixCache, Server, SlotServer
from steelyard.simulate.scenario.schema import Batching


class Talk:
    """Speaks to one server as the engine does, and writes down who finished when."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.now = 0.0
        self.finished: list[tuple[str, float]] = []
        self.scheduled: list[tuple[float, str]] = []
        self._events: list[tuple[float, int, Job]] = []

    def schedule(self, when: float, job: Job) -> None:
        assert when >= self.now, "an event in the past"
        self.scheduled.append((when, job.id))
        heappush(self._events, (when, len(self.scheduled), job))

    def send(self, name: str, work: float, at: float, **known: object) -> Job:
        self.until(at)
        job = Job(at, work, (1.0,), **known)  # type: ignore[arg-type]
        job.id = name
        self.server.accept(job, at, self.schedule)
        return job

    def abandon(self, job: Job, at: float) -> None:
        self.until(at)
        self.server.abandon(job, at, self.schedule)

    def set_speed(self, speed: float, at: float) -> None:
        self.until(at)
        self.server.set_speed(speed, at, self.schedule)

    def crash(self, at: float) -> list[str]:
        self.until(at)
        return [job.id for job in self.server.clear()]

    def until(self, when: float) -> None:
        while self._events and self._events[0][0] <= when:
            self.now, _, job = heappop(self._events)
            if job.finish == self.now:  # else stale
                job.finish = -1.0
                self.server.ended(job, self.now, self.schedule)
                self.finished.append((job.id, self.now))
        self.now = when

    def rest(self) -> list[tuple[str, float]]:
        """Everything that finished, once nothing more happens."""
        self.until(float("inf"))
        return [(name, pytest.approx(when, abs=1e-9)) for name, when in self.finished]


def batch(slots: int = 8, speed: float = 1.0, slope: float = 1.0) -> Talk:
    return Talk(BatchServer("b", speed, slots, Batching(slope=slope)))


def slot(slots: int = 1, speed: float = 1.0) -> Talk:
    return Talk(SlotServer("s", speed, slots))


# Slots


def test_a_slot_server_takes_work_over_speed() -> None:
    talk = slot(speed=4.0)
    talk.send("a", 2.0, at=1.0)
    assert talk.rest() == [("a", 1.5)]
    assert talk.server.served == 1


def test_a_slot_server_queues_first_come_first_served() -> None:
    talk = slot()
    for name, work in (("a", 3.0), ("b", 2.0), ("c", 0.5), ("d", 1.0)):
        talk.send(name, work, at=0.0)
    assert (talk.server.busy, len(talk.server.queue)) == (1, 3)
    assert talk.rest() == [("a", 3.0), ("b", 5.0), ("c", 5.5), ("d", 6.5)]
    assert (talk.server.busy, len(talk.server.queue), talk.server.served) == (0, 0, 4)


def test_slots_run_side_by_side_at_full_speed() -> None:
    talk = slot(slots=2)
    talk.send("long", 10.0, at=0.0)
    talk.send("short", 1.0, at=0.0)
    talk.send("next", 2.0, at=0.5)
    talk.send("last", 1.0, at=0.5)
    assert talk.rest() == [("short", 1.0), ("next", 3.0), ("last", 4.0), ("long", 10.0)]


def test_an_idle_slot_server_starts_at_arrival_not_when_it_became_idle() -> None:
    talk = slot()
    talk.send("a", 1.0, at=0.0)
    talk.send("b", 1.0, at=7.0)
    assert talk.rest() == [("a", 1.0), ("b", 8.0)]


def test_a_slot_server_slowed_midway_stretches_only_what_is_left() -> None:
    talk = slot()
    talk.send("a", 4.0, at=0.0)
    talk.send("b", 1.0, at=0.0)
    talk.set_speed(0.5, at=3.0)  # 1 of 4 left: 2 seconds
    assert talk.rest() == [("a", 5.0), ("b", 7.0)]


def test_a_slot_server_that_slows_and_recovers_finishes_each_job_once() -> None:
    talk = slot(slots=2)
    talk.send("a", 4.0, at=0.0)
    talk.send("b", 6.0, at=0.0)
    talk.set_speed(0.25, at=2.0)
    talk.set_speed(1.0, at=6.0)  # one second of work done meanwhile
    assert talk.rest() == [("a", 7.0), ("b", 9.0)]
    assert talk.server.served == 2


def test_a_speed_that_changes_and_changes_back_at_once_changes_nothing() -> None:
    for talk in (slot(), batch()):
        talk.send("a", 4.0, at=0.0)
        talk.set_speed(0.1, at=1.0)
        talk.set_speed(1.0, at=1.0)
        assert talk.rest() == [("a", 4.0)]
        assert talk.server.served == 1


def test_abandoning_what_runs_in_a_slot_starts_the_next() -> None:
    talk = slot()
    a = talk.send("a", 5.0, at=0.0)
    talk.send("b", 1.0, at=0.0)
    talk.abandon(a, at=2.0)
    assert talk.rest() == [("b", 3.0)]
    assert talk.server.served == 1


def test_abandoning_what_waits_for_a_slot_leaves_the_others_in_order() -> None:
    talk = slot()
    talk.send("a", 5.0, at=0.0)
    b = talk.send("b", 1.0, at=0.0)
    talk.send("c", 1.0, at=0.0)
    talk.abandon(b, at=2.0)
    assert talk.rest() == [("a", 5.0), ("c", 6.0)]


def test_abandoning_the_only_one_leaves_a_slot_server_idle() -> None:
    talk = slot()
    talk.abandon(talk.send("a", 5.0, at=0.0), at=2.0)
    assert talk.server.busy == 0
    talk.send("b", 1.0, at=3.0)
    assert talk.rest() == [("b", 4.0)]


@pytest.mark.parametrize("talk", [slot(slots=2), batch(slots=2)], ids=["slots", "batch"])
def test_a_crash_returns_everything_once_and_nothing_of_it_finishes(talk: Talk) -> None:
    for name in "abcd":
        talk.send(name, 3.0, at=0.0)
    assert sorted(talk.crash(at=1.0)) == ["a", "b", "c", "d"]
    assert (talk.server.busy, len(talk.server.queue)) == (0, 0)
    assert talk.crash(at=1.5) == []
    talk.send("e", 1.0, at=2.0)
    assert talk.rest() == [("e", 3.0)]
    assert talk.server.served == 1


@pytest.mark.parametrize("talk", [slot(slots=2), batch(slots=2)], ids=["slots", "batch"])
def test_a_crash_does_not_return_what_was_abandoned_or_is_over(talk: Talk) -> None:
    talk.send("over", 0.5, at=0.0)
    gone = talk.send("gone", 9.0, at=0.0)
    talk.send("queued", 9.0, at=0.0)
    talk.until(2.0)
    talk.abandon(gone, at=2.0)
    assert talk.crash(at=3.0) == ["queued"]


# Batching


def test_a_batch_of_one_runs_at_full_speed() -> None:
    talk = batch(speed=2.0, slope=0.5)
    talk.send("a", 3.0, at=1.0)
    assert talk.rest() == [("a", 2.5)]


def test_a_batch_slows_by_its_curve() -> None:
    talk = batch(slope=0.5)  # three at once: 2 times as long
    for name in "abc":
        talk.send(name, 3.0, at=0.0)
    assert talk.rest() == [("a", 6.0), ("b", 6.0), ("c", 6.0)]


def test_who_joins_a_batch_later_slows_the_first_from_then_on() -> None:
    talk = batch()  # slope 1: a fair share each
    talk.send("a", 4.0, at=0.0)
    talk.send("b", 4.0, at=2.0)  # a has 2 left: both at half speed until 6
    assert talk.rest() == [("a", 6.0), ("b", 8.0)]


def test_a_shorter_job_overtakes_in_a_batch() -> None:
    talk = batch()
    talk.send("long", 10.0, at=0.0)
    talk.send("short", 1.0, at=4.0)  # at half speed: 2 seconds
    assert talk.rest() == [("short", 6.0), ("long", 11.0)]
    assert talk.server.served == 2


def test_overtaking_twice_finishes_each_job_once() -> None:
    talk = batch()
    talk.send("long", 10.0, at=0.0)
    talk.send("middle", 4.0, at=2.0)
    talk.send("short", 1.0, at=4.0)  # long 7, middle 3, short 1 left; a third each until 7
    # then long 6, middle 2: a half each until 11; then long 4 alone
    assert talk.rest() == [("short", 7.0), ("middle", 11.0), ("long", 15.0)]


def test_equal_jobs_of_a_batch_finish_in_order_of_arrival() -> None:
    talk = batch()
    for name in "abcd":
        talk.send(name, 1.0, at=0.0)
    assert [name for name, _ in talk.rest()] == ["a", "b", "c", "d"]


def test_a_full_batch_queues_first_come_first_served() -> None:
    talk = batch(slots=2, slope=0.0)
    talk.send("a", 4.0, at=0.0)
    talk.send("b", 1.0, at=0.0)
    talk.send("c", 2.0, at=0.0)
    talk.send("d", 0.5, at=0.0)
    assert (talk.server.busy, len(talk.server.queue)) == (2, 2)
    assert talk.rest() == [("b", 1.0), ("c", 3.0), ("d", 3.5), ("a", 4.0)]


def test_a_batch_slowed_midway_stretches_only_what_is_left() -> None:
    talk = batch()
    talk.send("a", 2.0, at=0.0)
    talk.send("b", 4.0, at=0.0)
    talk.set_speed(0.5, at=2.0)  # a has 1 left, b 3: a quarter each until 6; then b's 2 at half speed
    assert talk.rest() == [("a", 6.0), ("b", 10.0)]


def test_an_idle_batch_server_that_changes_speed_is_at_it_for_the_next() -> None:
    talk = batch()
    talk.set_speed(0.5, at=3.0)
    talk.send("a", 1.0, at=4.0)
    assert talk.rest() == [("a", 6.0)]


def test_abandoning_the_next_of_a_batch_speeds_up_the_rest() -> None:
    talk = batch()
    a = talk.send("a", 2.0, at=0.0)
    talk.send("b", 4.0, at=0.0)
    talk.abandon(a, at=2.0)  # b has 3 left
    assert talk.rest() == [("b", 5.0)]
    assert talk.server.served == 1


def test_abandoning_one_behind_in_a_batch_speeds_up_the_next() -> None:
    talk = batch()
    talk.send("a", 2.0, at=0.0)
    b = talk.send("b", 4.0, at=0.0)
    talk.abandon(b, at=2.0)  # a has 1 left
    talk.send("c", 1.0, at=5.0)
    assert talk.rest() == [("a", 3.0), ("c", 6.0)]
    assert talk.server.served == 2
    assert talk.server.busy == 0


def test_abandoning_in_a_full_batch_lets_one_in_from_the_queue() -> None:
    talk = batch(slots=1)
    a = talk.send("a", 9.0, at=0.0)
    b = talk.send("b", 9.0, at=0.0)
    talk.send("c", 1.0, at=0.0)
    talk.abandon(b, at=1.0)
    talk.abandon(a, at=2.0)
    assert talk.rest() == [("c", 3.0)]


def test_abandoning_the_only_one_leaves_a_batch_server_idle() -> None:
    talk = batch()
    talk.abandon(talk.send("a", 5.0, at=0.0), at=2.0)
    assert talk.server.busy == 0
    talk.send("b", 1.0, at=3.0)
    assert talk.rest() == [("b", 4.0)]


def test_a_batch_does_as_much_work_as_it_was_given() -> None:
    # With slope 1 the whole server does one second of work a second, whoever it is for.
    talk = batch(slots=3)
    works = [0.7, 2.9, 0.1, 1.3, 4.2, 0.4, 0.4]
    for number, work in enumerate(works):
        talk.send(str(number), work, at=0.1 * number)
    assert talk.rest()[-1][1] == pytest.approx(sum(works))


# The prefix cache


def test_a_prefix_is_all_there_after_it_was_taken() -> None:
    cache = PrefixCache(10)
    assert cache.touch((1, 2, 3)) == 0
    assert cache.touch((1, 2, 3)) == 3


def test_only_the_leading_run_of_a_prefix_counts() -> None:
    cache = PrefixCache(10)
    cache.touch((1, 2, 3))
    assert cache.touch((1, 2, 9, 3)) == 2
    assert cache.touch((8, 1, 2)) == 0
    assert cache.touch((2, 3)) == 2


def test_the_least_recently_used_block_goes_first() -> None:
    cache = PrefixCache(3)
    for block in (1, 2, 3):
        cache.touch((block,))
    cache.touch((1,))
    cache.touch((4,))  # 2 goes
    assert cache.touch((3,)) == 1
    assert cache.touch((1,)) == 1
    assert cache.touch((4,)) == 1
    assert cache.touch((2,)) == 0


def test_of_a_prefix_the_end_goes_before_the_front() -> None:
    cache = PrefixCache(4)
    cache.touch((1, 2, 3))
    cache.touch((8, 9))
    assert cache.touch((1, 2, 3)) == 2


def test_of_a_prefix_longer_than_the_cache_the_front_stays() -> None:
    cache = PrefixCache(3)
    cache.touch(tuple(range(10)))
    assert cache.touch(tuple(range(10))) == 3


def test_the_cache_never_holds_more_than_its_size() -> None:
    cache = PrefixCache(5)
    for start in range(100):
        cache.touch(tuple(range(start, start + 7)))
        held = [block for block in range(120) if block in cache.blocks]
        assert len(held) == len(cache.blocks) <= 5


@pytest.mark.parametrize("kind", ["slots", "batch"])
def test_cached_blocks_save_their_work(kind: str) -> None:
    cache = PrefixCache(10)
    server = SlotServer("s", 2.0, 1, cache) if kind == "slots" else BatchServer("b", 2.0, 1, Batching(), cache)
    talk = Talk(server)
    talk.send("cold", 10.0, at=0.0, prefix=(1, 2, 3), saved_per_block=2.0)
    talk.send("warm", 10.0, at=10.0, prefix=(1, 2, 4), saved_per_block=2.0)
    talk.send("none", 10.0, at=20.0)
    assert talk.rest() == [("cold", 5.0), ("warm", 13.0), ("none", 25.0)]


def test_a_request_never_gets_shorter_than_nothing() -> None:
    talk = Talk(SlotServer("s", 1.0, 1, PrefixCache(10)))
    talk.send("cold", 1.0, at=0.0, prefix=(1, 2, 3), saved_per_block=2.0)
    talk.send("warm", 1.0, at=2.0, prefix=(1, 2, 3), saved_per_block=2.0)
    talk.until(10.0)
    assert talk.finished[1][1] == pytest.approx(2.0, abs=1e-5)
    assert talk.finished[1][1] > 2.0


# Models


def test_a_model_is_loaded_once_and_stays() -> None:
    memory = ModelMemory(2, 3.0)
    assert [memory.touch(kind) for kind in ("a", "a", "b", "a", "b")] == [3.0, 0.0, 3.0, 0.0, 0.0]
    assert memory.loads == 2


def test_the_least_recently_used_model_goes_out() -> None:
    memory = ModelMemory(2, 3.0)
    for kind in ("a", "b", "a", "c"):  # b goes
        memory.touch(kind)
    assert [memory.touch(kind) for kind in ("a", "c")] == [0.0, 0.0]
    assert memory.touch("b") == 3.0  # a goes
    assert memory.touch("c") == 0.0
    assert memory.touch("a") == 3.0
    assert memory.loads == 5


@pytest.mark.parametrize("speed", [0.5, 4.0])
@pytest.mark.parametrize("kind", ["slots", "batch"])
def test_loading_takes_its_time_whatever_the_speed(kind: str, speed: float) -> None:
    memory = ModelMemory(1, 3.0)
    if kind == "slots":
        talk = Talk(SlotServer("s", speed, 1, memory=memory))
    else:
        talk = Talk(BatchServer("b", speed, 1, Batching(), memory=memory))
    talk.send("cold", speed, at=0.0, kind="m")
    talk.send("warm", speed, at=10.0, kind="m")
    assert talk.rest() == [("cold", 4.0), ("warm", 11.0)]


# A crash and memory: docs/simulator.md says a crash "loses its requests"


def test_a_crash_empties_the_prefix_cache() -> None:
    talk = Talk(SlotServer("s", 1.0, 1, PrefixCache(10)))
    talk.send("a", 10.0, at=0.0, prefix=(1, 2), saved_per_block=2.0)
    talk.crash(at=20.0)
    talk.send("b", 10.0, at=30.0, prefix=(1, 2), saved_per_block=2.0)
    assert talk.rest() == [("a", 10.0), ("b", 40.0)]


def test_a_crash_unloads_the_models() -> None:
    talk = Talk(SlotServer("s", 1.0, 1, memory=ModelMemory(1, 3.0)))
    talk.send("a", 1.0, at=0.0, kind="m")
    talk.crash(at=20.0)
    talk.send("b", 1.0, at=30.0, kind="m")
    assert talk.rest() == [("a", 4.0), ("b", 34.0)]

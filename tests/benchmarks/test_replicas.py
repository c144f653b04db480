"""The arena's mock replicas: when a request is done, and that what goes wrong goes wrong as planned."""

from __future__ import annotations

import msgspec
import pytest
from benchmarks.load.contests import CONTESTS, Contest
from benchmarks.load.open_loop import MAX_PROMPT_CHARS, request
from benchmarks.mocks.timed_replicas import WORK_PATTERN, Plan, ServiceTimes
from hypothesis import given
from hypothesis import strategies as st

from steelyard.simulate.engine.job import Job


@pytest.mark.parametrize(
    ("start", "work", "done"),
    [
        (0.0, 4.0, 2.0),  # before it is slow
        (9.0, 2.0, 10.0),  # just before
        (9.0, 4.0, 15.0),  # half of it at a fifth of the speed
        (12.0, 2.0, 17.0),  # all of it
        (29.0, 2.0, 30.8),  # the last second slow: a fifth of a second's work
        (30.0, 2.0, 31.0),  # over
        (9.0, 14.0, 32.0),  # before, throughout and after: 1 + 4 + 2 seconds of it
    ],
)
def test_a_slow_stretch_does_less(start: float, work: float, done: float) -> None:
    assert ServiceTimes(2.0, [(10.0, 30.0, 5.0)]).finish(start, work) == pytest.approx(done)


@given(st.floats(0, 100), st.lists(st.floats(0.001, 30), min_size=2, max_size=2))
def test_work_done_in_two_pieces_takes_as_long(start: float, parts: list[float]) -> None:
    pace = ServiceTimes(1.5, [(10.0, 30.0, 5.0), (40.0, 50.0, 2.0)])
    halfway = pace.finish(start, parts[0])
    assert pace.finish(halfway, parts[1]) == pytest.approx(pace.finish(start, sum(parts)))


@pytest.mark.parametrize("feature", [0.2, 1000.0, 1e9])
def test_a_request_tells_the_replica_its_work_and_the_proxy_its_length(feature: float) -> None:
    head, _, body = request(80, Job(0.0, 0.0123, (feature,))).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")
    work = WORK_PATTERN.search(body)
    assert work is not None
    assert float(work[1]) == 0.0123
    assert body.count(b"x") == pytest.approx(max(1, min(MAX_PROMPT_CHARS, feature)), abs=1)


@pytest.mark.parametrize("contest", [c for contests in CONTESTS.values() for c in contests], ids=lambda c: c.title)
def test_a_plan_reaches_the_replicas_as_it_was_made(contest: Contest) -> None:
    plan = Plan.of(contest.scenario, 100.0)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert len(plan.speeds) == sum(group.count for group in contest.scenario.fleet)
    faults = [(t.kind, t.begin - 100.0, t.end - t.begin) for t in plan.faults]
    assert faults == [(f.kind, f.at, f.duration) for f in contest.scenario.faults]


def test_contests_that_have_a_fault_last_until_it_is_over() -> None:
    for contest in (contest for contests in CONTESTS.values() for contest in contests):
        asked = contest.of(500)
        seconds = asked.scenario.requests / asked.rate
        assert asked.scenario.requests >= 500
        assert all(seconds > fault.at + fault.duration for fault in asked.scenario.faults)

"""Frozen or busy: what the requests that run on a replica tell of it."""

from steelyard.core.outcome import Outcome
from steelyard.core.outliers.probation import MIN_STALL_SECONDS, stalls_after

from ..driving import fleet, replica, serve, start


def taught(seconds=0.5):
    """A fleet that knows how long a request takes."""
    balancer = fleet("a")
    for number in range(50):
        serve(balancer, seconds, number * 1.0)
    return balancer


def is_overdue(balancer, heard, now):
    """As the supervisor combines it with what workers hear (control/fleet/worker_sync.py)."""
    there = replica(balancer, "a")
    oldest = next(iter(there.running_attempts), None)
    if oldest is None:
        return False
    return now - max(heard, oldest.started) > stalls_after(there, balancer.pool().estimator)


def test_with_nothing_running_nothing_is_overdue():
    assert not is_overdue(taught(), 0.0, 1000.0)


def test_a_request_that_takes_its_time_is_not_overdue():
    balancer = taught(seconds=5.0)
    start(balancer, 100.0)
    assert not is_overdue(balancer, 99.0, 104.0)


def test_one_that_takes_far_longer_than_any_is():
    balancer = taught(seconds=5.0)
    start(balancer, 100.0)
    assert is_overdue(balancer, 99.0, 130.0)


def test_a_byte_heard_meanwhile_is_progress():
    balancer = taught(seconds=0.5)
    start(balancer, 100.0)
    assert is_overdue(balancer, 99.0, 110.0)
    assert not is_overdue(balancer, 109.5, 110.0)


def test_short_silences_are_nothing_however_quick_it_usually_is():
    balancer = taught(seconds=0.001)
    start(balancer, 100.0)
    assert not is_overdue(balancer, 99.0, 100.0 + MIN_STALL_SECONDS)
    assert is_overdue(balancer, 99.0, 100.1 + MIN_STALL_SECONDS)


def test_the_end_of_a_request_that_failed_is_no_progress():
    balancer = taught()
    first, second = start(balancer, 100.0), start(balancer, 100.0)
    balancer.finish(first, Outcome.CANCELLED, 109.0)
    assert is_overdue(balancer, 99.0, 109.5)
    balancer.finish(second, Outcome.CANCELLED, 110.0)
    assert not is_overdue(balancer, 99.0, 200.0)


def test_before_anything_is_known_of_requests_the_probe_is_believed():
    balancer = fleet("a")
    start(balancer, 0.0)
    assert not is_overdue(balancer, 0.0, MIN_STALL_SECONDS)
    assert is_overdue(balancer, 0.0, MIN_STALL_SECONDS + 0.1)

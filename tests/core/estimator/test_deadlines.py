"""A deadline is judged by what it is about: the first byte, or the end of the answer."""

from random import Random

import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Reject
from steelyard.core.estimator.first_byte import FirstByteEstimator
from steelyard.core.outcome import Outcome
from steelyard.core.request import Request

from ..driving import fleet, refused, sent, start, waits


def streamed(balancer: Balancer, first: float, total: float, now: float, **fields) -> None:
    """An answer that began after `first` seconds and ended after `total`."""
    request = start(balancer, now, **fields)
    request.first_byte = now + first
    balancer.finish(request, Outcome.OK, now + total)


def learned(first: float = 0.05, total: float = 10.0, **options) -> Balancer:
    balancer = fleet("a", **options)
    for i in range(100):
        streamed(balancer, first, total, 20.0 * i)
    return balancer


NOW = 10_000.0


def test_a_first_byte_deadline_does_not_refuse_a_long_stream_of_an_idle_fleet() -> None:
    balancer = learned()
    request = Request(first_byte_by=NOW + 1.0)
    assert sent(balancer.submit(request, NOW)) == "a"
    assert request.binding_deadline == "first_byte"
    assert request.predicted_seconds == pytest.approx(0.05, rel=0.2)


def test_a_total_deadline_is_judged_by_the_end() -> None:
    balancer = learned()
    request = Request(deadline=NOW + 1.0, first_byte_by=NOW + 1.0)
    assert refused(balancer.submit(request, NOW)) == "deadline"
    assert request.binding_deadline == "total"
    assert request.predicted_seconds == pytest.approx(10.0, rel=0.2)


def test_a_first_byte_that_would_be_late_is_refused() -> None:
    balancer = learned(first=2.0)
    request = Request(first_byte_by=NOW + 1.0, deadline=NOW + 60.0)
    assert refused(balancer.submit(request, NOW)) == "deadline"
    assert request.binding_deadline == "first_byte"
    assert request.predicted_seconds == pytest.approx(2.0, rel=0.2)


def test_an_answer_in_one_piece_begins_when_it_is_done() -> None:
    balancer = learned()
    assert refused(balancer.submit(Request(first_byte_by=NOW + 1.0, streams=False), NOW)) == "deadline"


def test_who_waits_before_it_delays_its_first_byte() -> None:
    balancer = learned(concurrency=1)
    start(balancer, NOW)
    for _ in range(3):
        assert waits(balancer.submit(Request(), NOW))
    assert refused(balancer.submit(Request(first_byte_by=NOW + 20.0), NOW)) == "deadline"
    assert waits(balancer.submit(Request(first_byte_by=NOW + 60.0), NOW))


def test_in_line_it_is_given_up_when_its_first_byte_would_be_late() -> None:
    balancer = learned(concurrency=1)
    start(balancer, NOW)
    request = Request(first_byte_by=NOW + 15.0)
    assert waits(balancer.submit(request, NOW))
    assert request.expires == pytest.approx(NOW + 14.95, abs=0.05)
    decisions = balancer.expire(NOW + 15.0)
    assert [refused(d) for d in decisions if isinstance(d, Reject)] == ["deadline"]
    assert request.binding_deadline == "first_byte"


def test_what_runs_beside_it_slows_its_first_byte_only_as_it_slows_everything() -> None:
    """Ten long streams run on a replica that takes as many as come: a newcomer still begins soon."""
    balancer = learned()
    for _ in range(10):
        start(balancer, NOW)
    assert sent(balancer.submit(Request(first_byte_by=NOW + 1.0), NOW)) == "a"


def test_the_first_byte_is_learned_by_what_delays_it() -> None:
    """A long prompt delays the first byte; a long answer does not."""
    rng, first = Random(1), FirstByteEstimator()
    assert first.seconds((100.0, 100.0)) == 0.0
    for _ in range(600):
        prompt, output = rng.uniform(10, 10_000), rng.uniform(1, 4_000)
        first.observe((prompt, output), (0.02 + prompt * 1e-3) * rng.lognormvariate(0.0, 0.1))
    assert first.seconds((100.0, 4000.0)) == pytest.approx(0.12, rel=0.3)
    assert first.seconds((9000.0, 10.0)) == pytest.approx(9.0, rel=0.3)


@pytest.mark.parametrize("odd", [(float("nan"), 1.0), (-1.0, 1.0), (1e300, 1.0), (1.0,), ()])
def test_odd_features_do_no_harm(odd: tuple[float, ...]) -> None:
    first = FirstByteEstimator()
    for _ in range(50):
        first.observe(odd, 1.0)
        first.observe((5.0, 1.0), 0.1)
        assert 0.0 <= first.seconds(odd) < 1e3
    assert 0.0 < first.seconds((5.0, 1.0)) < 10.0

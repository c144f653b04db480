"""core/queue.py does what the plain queue does, with any number of tenants, and looks at few of them."""

import gc
from random import Random

import pytest

from steelyard.core.queue import MIN_STALE_ENTRIES, RequestQueue
from steelyard.core.request import INFINITY, Request

from .plain_queue import RequestQueue as PlainQueue


def newcomer(rng, number, tenants):
    request = Request(id=f"r{number}", tenant=f"t{rng.randrange(tenants)}", priority=rng.choice((0, 0, 0, 1, -1)))
    request.base = rng.choice((0.5, 1.0, 1.0, rng.random()))
    request.expires = INFINITY if rng.random() < 0.2 else float(rng.randrange(200)) + rng.choice((0.0, rng.random()))
    return request


def assert_same(ours, plain, now):
    assert len(ours) == len(plain)
    assert [r.id for r in ours.ordered()] == [r.id for r in plain.ordered()]
    assert ours.next_expiry() == plain.next_expiry()
    assert [r.id for r in ours.expired(now)] == [r.id for r in plain.expired(now)]
    assert ours.work == plain.work
    for priority, klass in plain.classes.items():
        assert ours.classes[priority].absent_tags == klass.absent_tags


def step(rng, number, tenants, ours, plain, now):
    waiting = list(plain.ordered())
    if len(waiting) < ours.limit and (not waiting or rng.random() < 0.55):
        request = newcomer(rng, number, tenants)
        victims = [line.preemption_victim(request) for line in (ours, plain)]
        assert victims[0] is victims[1]
        assert ours.tenant_at_fair_share(request) == plain.tenant_at_fair_share(request)
        ours.add(request)
        plain.add(request)
        return
    # Mostly the first; sometimes one further on, as where the first is patient, or one that left or expired.
    request = waiting[0] if rng.random() < 0.6 else rng.choice(waiting[:40])
    served = rng.random() < 0.8
    ours.remove(request, served=served)
    plain.remove(request, served=served)
    if rng.random() < 0.1:
        request.expires += 5.0  # its wait is extended
        ours.add(request)
        plain.add(request)


@pytest.mark.parametrize("tenants", [1, 2, 3, 17, 300])
@pytest.mark.parametrize("seed", range(6))
def test_the_same_order_expiry_and_victims_as_the_plain_queue(tenants, seed):
    rng = Random(seed)
    ours, plain = RequestQueue(60), PlainQueue(60)
    for number in range(1500):
        step(rng, number, tenants, ours, plain, float(number) / 8)
        if number % 7 == 0 or tenants < 17:
            assert_same(ours, plain, float(number) / 8)


def test_the_same_tenants_are_forgotten(monkeypatch):
    monkeypatch.setattr("steelyard.core.queue.MAX_REMEMBERED_TENANTS", 8)
    monkeypatch.setattr("tests.core.plain_queue.MAX_REMEMBERED_TENANTS", 8)
    rng = Random(5)
    ours, plain = RequestQueue(30), PlainQueue(30)
    for number in range(4000):
        step(rng, number, 60, ours, plain, 0.0)
        assert_same(ours, plain, 0.0)


def requests_in_memory():
    gc.collect()
    return sum(isinstance(each, Request) for each in gc.get_objects())


def test_what_was_served_long_before_it_expires_is_not_kept():
    before = requests_in_memory()
    queue = RequestQueue(10)
    for number in range(5000):
        queue.add(newcomer(Random(number), number, 50))
        if len(queue) == 10:
            queue.remove(next(queue.ordered()), served=True)
    assert requests_in_memory() - before <= 2 * len(queue) + MIN_STALE_ENTRIES
    for klass in queue.classes.values():
        assert len(klass.by_tag) <= 2 * len(klass.absent_tags) + MIN_STALE_ENTRIES
        assert len(klass.turns) == (len(klass.tenants) if len(klass.tenants) > 1 else 0)

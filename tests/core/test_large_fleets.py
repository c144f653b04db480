"""What is looked up in a large fleet is what a look at all replicas would find."""

from random import Random

import pytest

from steelyard import POLICIES, Balancer, Outcome, PoolOptions, Request, Send
from steelyard.core import candidates, membership, scheduler
from steelyard.core.candidates import first_after, is_candidate, leave_out
from steelyard.core.decision import Wait
from steelyard.core.memory.ledger import MemoryLedger
from steelyard.core.memory.request_size import RequestSizeModel
from steelyard.core.options import HedgeOptions
from steelyard.core.policies import consistent_hash, least_connections, make_policy, random, round_robin
from steelyard.core.pool import Pool
from steelyard.core.replica import Event, Replica, State, weighted_choice

MODULES = (
    candidates,
    membership,
    scheduler,
    consistent_hash,
    least_connections,
    random,
    round_robin,
)
LOOKED_UP = ("least_connections", "random", "round_robin", "consistent_hash", "power_of_two", "least_work")


class Fleet:
    """One run of random events; what the balancer decides is written down."""

    def __init__(self, policy, concurrency, seed):
        self.rng = Random(seed)
        self.balancer = Balancer(Random(7))
        self.balancer.add_model("", policy, PoolOptions(concurrency=concurrency, warm_keys=4))
        self.now = 0.0
        self.made = 0
        self.running = []
        self.written = []
        self.indexed = False
        for _ in range(150):
            self.join()

    def join(self):
        self.made += 1
        weight = self.rng.choice((1.0, 1.0, 2.0, 0.5))
        self.carry_out(self.balancer.add_replica(f"r{self.made}", weight=weight, now=self.now))

    def carry_out(self, decisions):
        for decision in decisions:
            if isinstance(decision, Send):
                self.written.append((decision.request.id, decision.replica.id))
                self.running.append((decision.request, decision.replica))
            elif not isinstance(decision, Wait):
                self.written.append((decision.request.id, type(decision).__name__))

    def step(self, number):
        rng, balancer = self.rng, self.balancer
        self.now += rng.random() / 50
        what = rng.random()
        ids = list(balancer.pool().replicas)
        if what < 0.5:
            key = f"k{rng.randrange(40)}" if rng.random() < 0.8 else None
            self.carry_out([balancer.submit(Request("", (rng.random(),), id=f"q{number}", key=key), self.now)])
        elif what < 0.9 and self.running:
            request, replica = self.running.pop(rng.randrange(len(self.running)))
            outcome = rng.choice((Outcome.OK, Outcome.OK, Outcome.OK, Outcome.UNREACHABLE, Outcome.TIMEOUT))
            self.carry_out(balancer.finish(request, outcome, self.now, replica=replica))
        elif what < 0.92:
            self.join()
        elif what < 0.94:
            self.carry_out(balancer.remove_replica(rng.choice(ids), now=self.now))
        elif what < 0.96:
            balancer.set_weight(rng.choice(ids), rng.choice((1.0, 2.0, 4.0)), now=self.now)
        elif what < 0.98:
            self.carry_out(balancer.report_peer_load(rng.choice(ids), rng.randrange(3), now=self.now))
        else:
            replica = balancer.pool().replicas[rng.choice(ids)]
            event = Event.LOST if replica.state is State.READY else Event.LOADED
            self.carry_out(balancer.report(replica.id, event, now=self.now))
        self.carry_out(balancer.expire(self.now))
        self.indexed = self.indexed or balancer.pool().load_index is not None


def run(policy, concurrency, seed):
    fleet = Fleet(policy, concurrency, seed)
    for number in range(1200):
        fleet.step(number)
    return fleet


@pytest.mark.parametrize("concurrency", ["unlimited", 2, "auto"])
@pytest.mark.parametrize("policy", LOOKED_UP)
def test_the_same_decisions_as_by_looking_at_all(policy, concurrency, monkeypatch):
    looked_up = run(policy, concurrency, 3)
    assert looked_up.indexed == (policy in ("least_connections", "random", "consistent_hash"))
    for module in MODULES:
        monkeypatch.setattr(module, "MANY_CANDIDATES", 10**9)
    looked_at = run(policy, concurrency, 3)
    assert not looked_at.indexed
    assert len(looked_up.written) > 500
    assert looked_up.written == looked_at.written


def test_every_policy_of_the_table_chooses_where_some_are_left_out():
    for policy in POLICIES:
        balancer = Balancer(Random(1))
        balancer.add_model("", policy, PoolOptions())
        for n in range(100):
            balancer.add_replica(f"r{n}", now=0.0)
        failed = []
        request = Request("", (1.0,), key="k")
        decision = balancer.submit(request, 0.0)
        for attempt in range(1, 3):
            failed.append(decision.replica)
            (decision,) = balancer.finish(request, Outcome.UNREACHABLE, 0.1 * attempt)
            assert decision.replica not in failed, policy


def test_a_view_without_some_is_a_sequence_of_the_rest():
    replicas = []
    for n in range(100):
        replica = Replica(f"r{n}")
        replica.order = 3 * n
        replicas.append(replica)
    orders = [r.order for r in replicas]
    stranger = Replica("stranger")
    stranger.order = 7
    for places in ((0,), (99, 98), (50, 0, 49), ()):
        some = [stranger, *(replicas[place] for place in places)]
        view = leave_out(replicas, orders, some)
        rest = [r for r in replicas if r not in some]
        assert list(view) == rest == [view[i] for i in range(len(view))] == view[:]
        assert view[-1] is rest[-1]
        assert list(reversed(view)) == rest[::-1]
        assert Random(1).sample(view, 5) == Random(1).sample(rest, 5)
        assert [view.index(rest[7]), view.count(rest[7]), view.count(stranger)] == [7, 1, 0]
        assert view[::7] == rest[::7]
        assert [r for r in replicas if r in view] == rest
        assert [r for r in replicas if is_candidate(view, r)] == rest
        assert stranger not in view
        assert not is_candidate(view, stranger)
        assert first_after(view, -1) == 0
        assert first_after(view, 10**9) == len(rest)
        with pytest.raises(IndexError):
            view[len(rest)]


def test_the_index_gives_what_a_weighted_choice_gives():
    rng = Random(4)
    pool = Pool("", make_policy("least_connections", Random(1), {}), PoolOptions())
    for n in range(300):
        pool.add(Replica(f"r{n}", rng.choice((0.5, 1.0, 2.0)), state=State.READY), 0.0)
    index = pool.index_of(pool.open)
    for _ in range(500):
        replica = rng.choice(pool.members)
        replica.load = rng.randrange(3)
        pool.update_open(replica)
        without = rng.sample(pool.members, rng.randrange(4))
        rest = [r for r in pool.open if r not in without]
        drawn = rng.random()
        least = min(r.load / r.effective_weight for r in rest)
        tied = [r for r in rest if r.load / r.effective_weight == least]
        assert index.least_loaded(lambda drawn=drawn: drawn, without, True) is weighted_choice(tied, drawn)
        assert index.by_weight(drawn, without) is weighted_choice(rest, drawn)
        assert index.totals(without) == (sum(r.load for r in rest), sum(r.effective_weight for r in rest))


@pytest.mark.parametrize("weights", [(1.0,), (0.5, 1.0, 3.0)])
@pytest.mark.parametrize("count", [3, 8, 9, 40, 300])
def test_a_keys_replicas_are_chosen_in_the_order_of_their_scores(count, weights):
    pool = Pool("", make_policy("consistent_hash", Random(1), {}), PoolOptions())
    for n in range(count + 5):
        pool.add(Replica(f"r{n}", weights[n % len(weights)], state=State.READY), 0.0)
    for n in range(5):
        pool.remove(f"r{n}", 0.0)
    for key in map(str, range(30)):
        request = Request(key=key)
        ranked = sorted(pool.members, key=lambda r: pool.policy.score(request, r, 0.0))
        for place in [*range(min(count, 40)), *range(40, count, 10)]:
            left = sorted(ranked[place:], key=lambda r: r.order)  # without those that come before it
            assert pool.policy.choose(request, left, 0.0) is ranked[place]


def test_a_request_finds_the_one_device_with_room():
    ledger = MemoryLedger()
    balancer = Balancer(Random(3), ledger)
    balancer.add_model("", "least_work", PoolOptions(), sizes=RequestSizeModel(0.0, 1.0))
    for n in range(200):
        device = ledger.set_device(f"gpu{n}", n, capacity=2000 if n == 150 else 1000, headroom=0.0)
        balancer.add_replica(f"r{n}", place=ledger.add_residency(device, f"s{n}", n), now=0.0)
    small = [Request("", (600.0,)) for _ in range(202)]
    places = [balancer.submit(request, 0.0).replica.id for request in small]
    assert len(set(places)) == 200
    assert places.count("r150") == 3
    assert isinstance(balancer.submit(Request("", (600.0,)), 0.0), Wait)
    (decision,) = balancer.finish(small[7], Outcome.OK, 1.0)
    assert decision.replica.id == places[7]
    too_large = balancer.submit(Request("", (3000.0,)), 2.0)
    assert too_large.too_large == (3000, 2000, "gpu150")
    assert isinstance(balancer.submit(Request("", (1900.0,)), 3.0), Wait)


def test_a_late_request_is_hedged_in_a_large_fleet_too():
    balancer = Balancer(Random(1))
    balancer.add_model("", "least_connections", PoolOptions(hedge=HedgeOptions(enabled=True, budget=1.0)))
    for n in range(200):
        balancer.add_replica(f"r{n}", now=0.0)
    now = 0.0
    for _ in range(600):
        request = Request("", (1.0,))
        balancer.submit(request, now)
        balancer.finish(request, Outcome.OK, now + 0.1)
        now += 0.1
    late = Request("", (1.0,))
    first = balancer.submit(late, now)
    hedges = []
    for _ in range(100):
        now += 0.01
        hedges += [decision for decision in balancer.expire(now) if isinstance(decision, Send)]
    assert [hedge.request for hedge in hedges] == [late]
    assert hedges[0].hedged
    assert hedges[0].replica is not first.replica

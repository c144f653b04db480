"""What each policy promises, beyond what the conformance suite asks of all."""

from collections import Counter
from itertools import pairwise
from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.core.options import PoolOptions
from steelyard.core.outcome import Outcome
from steelyard.core.policies import POLICIES, find_policy, make_policy, policy_options
from steelyard.core.pool import Pool
from steelyard.core.replica import Event, Replica, State
from steelyard.core.request import Request, RequestPhase

from .driving import NO_EJECTION, Balancer, fleet, replica, runs_on, sent, serve_on, start, waits


def pool_of(name, weights, seed=1, **options):
    """A pool of ready replicas a, b, c… with these weights, in charge of it the policy."""
    pool = Pool("", make_policy(name, Random(seed), options), PoolOptions())
    for id, weight in zip("abcdefghijklmnopqrstuvwxyz", weights, strict=False):
        pool.add(Replica(id, weight, state=State.READY), 0.0)
    return pool


def choices(pool, count, now=1.0, keys=None):
    """Who is chosen again and again while all stay as they are."""
    choose, candidates = pool.policy.choose, pool.open
    return [choose(Request(key=keys[i] if keys else None), candidates, now).id for i in range(count)]


def set_loads(pool, *loads):
    for r, load in zip(pool.members, loads, strict=True):
        r.load = r.other_load = load


# ---------------------------------------------------------------------- the table


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_says_what_it_does_and_when_it_wins_and_loses(name):
    kind = find_policy(name)
    for sentence in (kind.rule, kind.wins, kind.loses):
        assert 10 < len(sentence) < 130


def test_an_unknown_policy_is_refused_with_the_names_there_are():
    with pytest.raises(OptionError, match="no policy 'fastest'") as caught:
        make_policy("fastest", Random(), {})
    for name in POLICIES:
        assert name in str(caught.value)
    assert "package.module:Class" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_module:Policy", "cannot import 'no_such_module'"),
        ("steelyard.core.policies.random:Nothing", "has no 'Nothing'"),
        ("steelyard.core.policies.random:weighted_choice", "not a subclass of steelyard.Policy"),
        ("random:Random", "not a subclass of steelyard.Policy"),
    ],
)
def test_a_policy_that_cannot_be_found_is_refused_with_the_reason(name, problem):
    with pytest.raises(OptionError, match=problem):
        make_policy(name, Random(), {})


def test_options_and_their_defaults_can_be_listed():
    assert policy_options(find_policy("peak_ewma")) == {"tau": 10.0}
    assert policy_options(find_policy("random")) == {}


@pytest.mark.parametrize("name", POLICIES)
def test_an_unknown_option_is_refused_by_name_with_those_there_are(name):
    with pytest.raises(OptionError, match="unknown option 'colour'") as caught:
        make_policy(name, Random(), {"colour": "red"})
    for option in policy_options(find_policy(name)):
        assert option in str(caught.value)


BAD_VALUES = [
    ("least_work", "wait_factor", 0.5),
    ("least_work", "tie", -1.0),
    ("prefix_work", "cache_blocks", 0),
    ("prefix_work", "wait_factor", 0.5),
    ("prefix_work", "tie", -1.0),
    ("least_response_time", "tau", 0.0),
    ("peak_ewma", "tau", -1.0),
    ("latency_aware", "percentile", 0.0),
    ("latency_aware", "percentile", 100.0),
    ("latency_aware", "min_samples", 0),
    ("prequal", "pool_size", 1),
    ("prequal", "max_age", 0.0),
    ("prequal", "probes_per_request", 0),
    ("prequal", "removals_per_request", -1),
    ("prequal", "hot_quantile", 1.0),
    ("consistent_hash", "bound", 0.9),
]
EVERY_OPTION = [(name, option) for name in POLICIES for option in policy_options(find_policy(name))]


@pytest.mark.parametrize(("name", "option", "value"), BAD_VALUES)
def test_a_value_that_cannot_work_is_refused_by_the_name_of_its_option(name, option, value):
    with pytest.raises(OptionError, match=rf"{name}.*\b{option}\b"):
        make_policy(name, Random(), {option: value})


def test_every_option_of_every_policy_is_in_the_table_above():
    assert {(name, option) for name, option, _ in BAD_VALUES} == set(EVERY_OPTION)


@pytest.mark.parametrize(("name", "option"), EVERY_OPTION)
def test_a_value_that_is_no_number_is_refused_by_the_name_of_its_option(name, option):
    for value in ("10s", None, float("nan")):
        with pytest.raises(OptionError, match=rf"{name}.*\b{option}\b"):
            make_policy(name, Random(), {option: value})


# ---------------------------------------------------------------------- round robin


def test_round_robin_takes_each_in_turn():
    assert "".join(choices(pool_of("round_robin", [1, 1, 1]), 7)) == "abcabca"


def test_round_robin_keeps_its_turn_when_replicas_come_and_go():
    pool = pool_of("round_robin", [1, 1, 1, 1])
    assert "".join(choices(pool, 2)) == "ab"
    pool.remove("b", 1.0)
    assert "".join(choices(pool, 2)) == "cd"
    pool.add(Replica("e", state=State.READY), 1.0)
    assert "".join(choices(pool, 5)) == "eacde"


def test_smooth_weighted_round_robin_is_nginxs():
    pool = pool_of("weighted_round_robin", [5, 1, 1])
    assert "".join(choices(pool, 14)) == "aabacaa" * 2


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_smooth_weighted_round_robin_is_exact_over_each_cycle(weights):
    pool = pool_of("weighted_round_robin", weights)
    for _ in range(3):
        counts = Counter(choices(pool, sum(weights)))
        assert [counts[r.id] for r in pool.members] == weights


@pytest.mark.parametrize(
    ("name", "tolerance"), [("weighted_round_robin", 0.01), ("random", 0.03), ("latency_aware", 0.01)]
)
def test_shares_follow_weights_over_a_hundred_thousand_choices(name, tolerance):
    weights = [1.0, 2.5, 0.5, 4.0]
    pool = pool_of(name, weights)
    counts = Counter(choices(pool, 100_000))
    for r in pool.members:
        assert counts[r.id] / 100_000 == pytest.approx(r.weight / sum(weights), rel=tolerance)


def test_a_weight_changed_later_counts_from_then_on():
    pool = pool_of("weighted_round_robin", [1, 1])
    choices(pool, 10)
    pool.set_weight(pool.find("b"), 3.0, 1.0)
    assert Counter(choices(pool, 400))["b"] == 300


# ---------------------------------------------------------------------- by load

LOADS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0.5, 1.0, 2.0, 3.0])), min_size=2, max_size=8)


@given(LOADS, st.integers(0, 1000))
def test_least_connections_joins_the_shortest_queue_for_its_weight(replicas, seed):
    pool = pool_of("least_connections", [w for _, w in replicas], seed)
    set_loads(pool, *(load for load, _ in replicas))
    least = min(load / weight for load, weight in replicas)
    best = {r.id for r in pool.members if r.load / r.weight == least}
    assert set(choices(pool, 5)) <= best


def test_least_connections_breaks_ties_by_weight():
    pool = pool_of("least_connections", [1.0, 2.0, 1.0, 1.0])
    set_loads(pool, 2, 4, 2, 9)
    counts = Counter(choices(pool, 20_000))
    assert counts["d"] == 0
    assert counts["b"] / 20_000 == pytest.approx(0.5, abs=0.02)
    assert counts["a"] / 20_000 == pytest.approx(0.25, abs=0.02)


@given(st.integers(0, 9), st.integers(0, 9), st.sampled_from([1.0, 3.0]), st.integers(0, 1000))
def test_power_of_two_takes_the_lower_of_two(one, other, weight, seed):
    pool = pool_of("power_of_two", [1.0, weight], seed)
    set_loads(pool, one, other)
    chosen = set(choices(pool, 20))
    if one != other / weight:
        assert chosen == {"a" if one < other / weight else "b"}


def test_power_of_two_draws_two_different_ones_evenly():
    """Of five with rising loads the k-th lowest wins when it is drawn with one of the higher: 4, 3, 2, 1, 0 in ten."""
    pool = pool_of("power_of_two", [1] * 5)
    set_loads(pool, 3, 1, 5, 2, 4)
    counts = Counter(choices(pool, 50_000))
    for id, of_ten in zip("bdaec", (4, 3, 2, 1, 0), strict=True):
        assert counts[id] / 50_000 == pytest.approx(of_ten / 10, abs=0.01)


# ---------------------------------------------------------------------- by latency


def test_least_response_time_takes_the_least_load_times_latency():
    balancer = fleet(*"abc", policy="least_response_time", outlier_detection=NO_EJECTION)
    for id, seconds in zip("abc", (0.1, 0.2, 0.4), strict=True):
        for i in range(5):
            serve_on(balancer, id, seconds, float(i))
    # (in flight + 1) × latency of a, b, c, step by step
    for expected in ("a", "a", "b", "a", "a"):
        options = {r.id: (r.load + 1) * s for r, s in zip(balancer.pool().members, (0.1, 0.2, 0.4), strict=True)}
        chosen = sent(balancer.submit(Request(), 10.0))
        assert options[chosen] == pytest.approx(min(options.values()))
        assert chosen == expected or sorted(options.values())[0] == pytest.approx(sorted(options.values())[1])


def test_least_response_time_tries_a_replica_nobody_has_tried():
    balancer = fleet(*"ab", policy="least_response_time")
    for i in range(20):
        serve_on(balancer, "a", 0.1, float(i))
    balancer.add_replica("c", now=20.0)
    assert {sent(balancer.submit(Request(), 20.0)) for _ in range(6)} == {"a", "b", "c"}


def peak(balancer, id):
    return replica(balancer, id).notes.cost


def test_peak_ewma_jumps_up_at_once_and_comes_down_with_tau():
    balancer = fleet("a", policy="peak_ewma")
    serve_on(balancer, "a", 0.1, 0.0)
    assert peak(balancer, "a") == pytest.approx(0.1)
    serve_on(balancer, "a", 2.0, 1.0)
    assert peak(balancer, "a") == pytest.approx(2.0)
    serve_on(balancer, "a", 0.1, 12.9)  # ends ten seconds, one τ, after the peak
    assert peak(balancer, "a") == pytest.approx(2.0 * exp(-1) + 0.1 * (1 - exp(-1)))
    now, last = 13.0, peak(balancer, "a")
    for _ in range(40):
        now += 2.0
        serve_on(balancer, "a", 0.1, now)
        assert peak(balancer, "a") <= last
        last = peak(balancer, "a")
    assert last == pytest.approx(0.1, rel=0.01)


def test_peak_ewma_turns_away_from_a_slow_replica_after_its_first_slow_answer():
    balancer = fleet(*"abc", policy="peak_ewma")
    for id in "abc":
        serve_on(balancer, id, 0.1, 0.0)
    serve_on(balancer, "b", 3.0, 1.0)
    counts = Counter()
    for i in range(100):
        request = start(balancer, 4.0 + i / 100)
        counts[runs_on(request)] += 1
        balancer.finish(request, Outcome.OK, 4.0 + i / 100)
    assert counts["b"] == 0


def test_peak_ewma_does_not_flood_a_replica_that_has_not_answered_yet():
    balancer = fleet(*"ab", policy="peak_ewma")
    serve_on(balancer, "a", 0.1, 0.0)
    assert [sent(balancer.submit(Request(), 1.0)) for _ in range(4)] == ["b", "a", "a", "a"]


def test_peak_ewma_tries_a_replica_that_only_others_have_tried():
    """Several balancers share a fleet: a newcomer busy with the others' requests must get some of ours."""
    balancer = fleet(*"abc", policy="peak_ewma")
    for id in "ab":
        serve_on(balancer, id, 0.1, 0.0)
        balancer.report_peer_load(id, 2, now=0.1)
    balancer.report_peer_load("c", 2, now=0.1)
    counts = Counter()
    for i in range(200):
        request = start(balancer, 1.0 + i)
        counts[runs_on(request)] += 1
        balancer.finish(request, Outcome.OK, 1.1 + i)
    assert counts["c"] > 20


def latencies(*seconds, count=50):
    balancer = fleet(*"abcde", policy="latency_aware", outlier_detection=NO_EJECTION)
    for id, each in zip("abcde", seconds, strict=True):
        for _ in range(count):
            serve_on(balancer, id, each, 1.0)
    balancer.expire(20.0)
    counts = Counter()
    for _ in range(10_000):
        request = start(balancer, 20.0)
        counts[runs_on(request)] += 1
        balancer.cancel(request, 20.0)
    return counts


def test_latency_aware_gives_shares_inverse_to_the_tail():
    counts = latencies(0.1, 0.1, 0.2, 0.1, 0.05)
    weights = {"a": 1.0, "b": 1.0, "c": 0.5, "d": 1.0, "e": 2.0}
    for id, weight in weights.items():
        assert counts[id] / 10_000 == pytest.approx(weight / sum(weights.values()), rel=0.05)


def test_latency_aware_never_goes_under_a_tenth_nor_over_ten_times():
    counts = latencies(0.01, 0.01, 0.01, 0.01, 9.0)
    assert counts["e"] / counts["a"] == pytest.approx(0.1, rel=0.05)
    counts = latencies(9.0, 9.0, 9.0, 9.0, 0.01)
    assert counts["e"] / counts["a"] == pytest.approx(10.0, rel=0.05)


def test_latency_aware_believes_no_tail_of_a_few():
    counts = latencies(0.1, 0.1, 0.1, 0.1, 9.0, count=9)
    assert counts["e"] == pytest.approx(2000, rel=0.01)


# ---------------------------------------------------------------------- prequal


def probes(pool):
    return pool.policy.probes


def test_prequal_keeps_a_bounded_number_of_probes_none_of_them_old():
    pool = pool_of("prequal", [1] * 20)
    rng = Random(3)
    now = 1.0
    for _ in range(2000):
        now += rng.choice([0.001, 0.01, 0.3, 1.5])
        pool.policy.choose(Request(), pool.open, now)
        assert 0 < len(probes(pool)) <= 16
        assert all(now - probe.stamp <= 1.0 for probe in probes(pool))


def test_prequal_forgets_probes_of_who_left():
    pool = pool_of("prequal", [1] * 4)
    choices(pool, 20)
    pool.remove("b", 1.0)
    assert "b" not in {probe.replica.id for probe in probes(pool)}
    assert "b" not in choices(pool, 100)


def test_prequal_draws_at_random_while_it_knows_too_little():
    firsts = Counter(choices(pool_of("prequal", [1] * 4, seed=seed), 1)[0] for seed in range(400))
    assert min(firsts[id] for id in "abcd") > 60


def test_prequal_prefers_the_fast_among_those_not_busy():
    balancer = fleet(*"abcd", policy="prequal", outlier_detection=NO_EJECTION)
    for id, seconds in zip("abcd", (0.5, 0.1, 0.5, 0.5), strict=True):
        for i in range(10):
            serve_on(balancer, id, seconds, i / 10)
    counts = Counter()
    for i in range(400):
        request = start(balancer, 2.0 + i / 50)
        counts[runs_on(request)] += 1
        balancer.finish(request, Outcome.OK, 2.0 + i / 50 + {"b": 0.01}.get(runs_on(request), 0.015))
    assert counts["b"] > 2 * max(counts[id] for id in "acd")


def test_prequal_avoids_the_busy():
    pool = pool_of("prequal", [1] * 6)
    set_loads(pool, 0, 0, 9, 0, 9, 0)
    counts = Counter(choices(pool, 2000))
    assert counts["c"] + counts["e"] < 0.1 * 2000


# ---------------------------------------------------------------------- consistent hash

KEYS = [f"session-{i}" for i in range(4000)]


def homes(pool, keys=KEYS):
    return dict(zip(keys, choices(pool, len(keys), keys=keys), strict=True))


def test_the_same_key_finds_the_same_replica():
    pool = pool_of("consistent_hash", [1] * 8)
    assert homes(pool) == homes(pool)
    assert homes(pool_of("consistent_hash", [1] * 8, seed=99)) == homes(pool)


def test_keys_are_spread_by_weight():
    weights = [1.0, 2.0, 3.0, 2.0]
    counts = Counter(homes(pool_of("consistent_hash", weights)).values())
    for id, weight in zip("abcd", weights, strict=True):
        assert counts[id] / len(KEYS) == pytest.approx(weight / 8, rel=0.15)


def test_when_a_replica_leaves_only_its_keys_move():
    pool = pool_of("consistent_hash", [1] * 8)
    before = homes(pool)
    pool.remove("c", 1.0)
    after = homes(pool)
    moved = [key for key in KEYS if before[key] != after[key]]
    assert all(before[key] == "c" for key in moved)
    assert len(moved) / len(KEYS) == pytest.approx(1 / 8, rel=0.2)
    assert len({after[key] for key in moved}) == 7


def test_when_a_replica_joins_only_the_keys_it_gets_move():
    pool = pool_of("consistent_hash", [1] * 7)
    before = homes(pool)
    pool.add(Replica("new", state=State.READY), 1.0)
    after = homes(pool)
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in moved} == {"new"}
    assert len(moved) / len(KEYS) == pytest.approx(1 / 8, rel=0.2)


def test_a_replica_that_comes_back_gets_its_keys_back():
    pool = pool_of("consistent_hash", [1] * 5)
    before = homes(pool)
    pool.apply_event(pool.find("b"), Event.LOST, 1.0)
    assert "b" not in homes(pool).values()
    pool.apply_event(pool.find("b"), Event.LOADED, 2.0)
    for now in range(3, 20):
        pool.tick(float(now))
    assert homes(pool) == before


def test_where_a_key_goes_does_not_depend_on_who_joined_first():
    one = Pool("", make_policy("consistent_hash", Random(1), {}), PoolOptions())
    other = Pool("", make_policy("consistent_hash", Random(2), {}), PoolOptions())
    for ids, pool in (("abcd", one), ("dbca", other)):
        for id in ids:
            pool.add(Replica(id, state=State.READY), 0.0)
    assert homes(one) == homes(other)


def test_where_a_key_goes_is_the_same_in_every_process_and_version():
    """Two gateways must agree, and an upgrade must not empty every cache: this string may not change."""
    pool = pool_of("consistent_hash", [1] * 4)
    assert "".join(homes(pool, [str(i) for i in range(16)]).values()) == "dccbaabadbbbdbca"


def test_a_changed_weight_counts_for_keys_seen_before_too():
    pool = pool_of("consistent_hash", [1.0] * 4)
    homes(pool)
    pool.set_weight(pool.find("a"), 5.0, 1.0)
    fresh = pool_of("consistent_hash", [5.0, 1.0, 1.0, 1.0])
    assert homes(pool) == homes(fresh)


@given(st.lists(st.integers(0, 20), min_size=2, max_size=8), st.integers(0, 50))
def test_no_replica_is_filled_over_the_bound(loads, key):
    pool = pool_of("consistent_hash", [1] * len(loads))
    set_loads(pool, *loads)
    chosen = pool.find(choices(pool, 1, keys=[str(key)])[0])
    allowed = 1.25 * (sum(loads) + 1) / len(loads)
    assert chosen.load + 1 <= max(1.0, allowed) or chosen.load == min(loads)


def test_a_hot_key_spills_over_in_its_own_order_and_comes_back():
    pool = pool_of("consistent_hash", [1] * 4)
    (home,) = set(choices(pool, 5, keys=["hot"] * 5))
    order = []
    for _ in range(4):
        (id,) = set(choices(pool, 5, keys=["hot"] * 5))
        order.append(id)
        pool.find(id).load = 50
    assert order[0] == home
    assert sorted(order) == list("abcd")
    set_loads(pool, 0, 0, 0, 0)
    assert set(choices(pool, 5, keys=["hot"] * 5)) == {home}


def test_a_request_without_a_key_goes_to_the_least_loaded():
    pool = pool_of("consistent_hash", [1] * 4)
    set_loads(pool, 3, 1, 1, 2)
    assert set(choices(pool, 50)) == {"b", "c"}


def test_a_key_whose_home_is_full_goes_elsewhere():
    balancer = fleet(*"abc", policy="consistent_hash", concurrency=1)
    assert {sent(balancer.submit(Request(key="hot"), 0.0)) for _ in range(3)} == {"a", "b", "c"}
    assert waits(balancer.submit(Request(key="hot"), 0.0))


# ---------------------------------------------------------------------- least work


def fast_and_slow(slow=0.1, **options):
    """One replica ten times slower than the other, and one request at a time on each."""
    balancer = Balancer(Random(1))
    balancer.add_model("", "least_work", PoolOptions(concurrency=1, **options))
    balancer.add_replica("fast", now=0.0)
    balancer.add_replica("slow", weight=slow, now=0.0)
    return balancer


def test_least_work_takes_the_replica_that_finishes_soonest():
    balancer = fast_and_slow()
    assert sent(balancer.submit(Request(), 0.0)) == "fast"


def test_least_work_waits_for_a_fast_replica_that_is_about_to_be_free():
    balancer = fast_and_slow()
    first = start(balancer)
    second = Request()
    assert waits(balancer.submit(second, 0.0))
    (decision,) = balancer.finish(first, Outcome.OK, 1.0)
    assert decision.request is second
    assert sent(decision) == "fast"


def test_least_work_takes_the_slow_replica_when_the_wait_would_be_longer():
    balancer = fast_and_slow()
    decisions = [balancer.submit(Request(), 0.0) for _ in range(30)]
    assert [d.replica.id for d in decisions if type(d).__name__ == "Send"] == ["fast", "slow"]


def test_what_waits_goes_to_a_replica_that_just_came_though_it_starts_slowly():
    """A spike: the new one is for those who wait, at once, not ten seconds later."""
    balancer = fleet("a", policy="least_work", concurrency=1, slow_start=10.0)
    for i in range(50):
        serve_on(balancer, "a", 1.0, 2.0 * i)
    now = 1000.0
    start(balancer, now)
    waiting = [Request() for _ in range(3)]
    assert all(waits(balancer.submit(request, now)) for request in waiting)
    balancer.add_replica("b", state=State.LOADING, now=now)
    (sent_there,) = balancer.report("b", Event.LOADED, now=now)
    assert sent(sent_there) == "b"
    assert replica(balancer, "b").slow_start_factor > 5.0, "and it does start slowly"


def test_least_work_does_not_wait_for_ever_for_a_replica_that_hangs():
    balancer = fast_and_slow()
    start(balancer)
    second = Request()
    assert waits(balancer.submit(second, 0.0))
    now = 0.0
    while second.phase is RequestPhase.WAITING and now < 29.0:
        now = max(now, balancer.next_wake())
        balancer.expire(now)
    assert runs_on(second) == "slow"


def test_least_work_takes_equal_replicas_as_they_come():
    balancer = fleet(*"abcd", policy="least_work", concurrency=1)
    assert {sent(balancer.submit(Request(), 0.0)) for _ in range(4)} == set("abcd")


def test_least_work_knowing_nothing_takes_the_least_loaded():
    balancer = fleet(*"abc", policy="least_work")
    for _ in range(6):
        for _ in range(3):
            balancer.submit(Request(), 0.0)
        assert len({r.load for r in balancer.pool().members}) == 1


def test_least_work_prefers_a_replica_that_is_warm_for_the_key():
    balancer = fleet(*"abcd", policy="least_work", warm_keys=10)
    first = start(balancer, key="k", cold_seconds=50.0)
    home = runs_on(first)
    balancer.finish(first, Outcome.OK, 0.5)
    assert {sent(balancer.submit(Request(key="k", cold_seconds=50.0), 1.0)) for _ in range(5)} == {home}


def test_a_policy_that_waits_for_nobody_sends_at_once_what_the_one_before_let_wait():
    balancer = fast_and_slow()
    start(balancer)
    request = Request()
    assert waits(balancer.submit(request, 0.0))
    decisions = [*(balancer.set_policy("", "least_connections", now=0.1) or ()), *balancer.expire(0.1)]
    assert [d.request for d in decisions] == [request]
    assert runs_on(request) == "slow"


@pytest.mark.parametrize("after", POLICIES)
@pytest.mark.parametrize("before", POLICIES)
def test_a_request_on_a_removed_replica_can_end_under_another_policy(before, after):
    """What the old policy noted of that replica is still there, and means nothing to the new one."""
    balancer = fleet(*"ab", policy=before)
    requests = [start(balancer) for _ in range(4)]
    balancer.remove_replica("a", now=1.0)
    balancer.set_policy("", after, now=1.0)
    for request in requests:
        balancer.finish(request, Outcome.OK, 2.0)
    assert replica(balancer, "b").in_flight == 0


def test_the_slowness_of_replicas_is_learned_whatever_policy_is_in_charge():
    """Then switching to least_work at run time starts with what is known."""
    balancer = fleet(*"ab", policy="round_robin", outlier_detection=NO_EJECTION)
    for i in range(100):
        for id, seconds in (("a", 0.1), ("b", 0.8)):
            serve_on(balancer, id, seconds, 2.0 * i)
        balancer.expire(2.0 * i + 1)
    balancer.set_policy("", "least_work", now=200.0)
    counts = Counter(sent(balancer.submit(Request(), 300.0 + i)) for i in range(1))
    assert counts == {"a": 1}


def test_smooth_round_robin_spreads_its_picks():
    order = choices(pool_of("weighted_round_robin", [3, 1]), 400)
    assert not any(one == other == "b" for one, other in pairwise(order))


def test_news_of_other_balancers_older_than_a_request_takes_is_ignored():
    """Everyone would run to the replica that was idle a while ago."""
    balancer = fleet(*"ab", policy="least_connections")
    for i in range(40):
        serve_on(balancer, "ab"[i % 2], 0.1, float(i))
    balancer.report_peer_load("a", 5, now=50.0, age=0.01)
    assert balancer.pool().find("a").load == 5
    balancer.report_peer_load("a", 5, now=50.1, age=3.0)
    assert balancer.pool().find("a").load == 0

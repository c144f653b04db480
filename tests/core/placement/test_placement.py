"""Which models are loaded where, and who goes for them."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.placement.eviction import MAX_EXHAUSTIVE_CANDIDATES, least_loss_set
from steelyard.core.placement.load_spread import LoadSpread, mean_waiting
from steelyard.core.placement.planner import LoadDecision, ModelCopy, ModelDemand, PlacementPlanner, ServerState

GIB = 1 << 30
MODELS = ("a", "b", "c", "d", "e", "f")
LONG_AGO = -1e6


def holds(model, *, size=GIB, state="resident", since=LONG_AGO, in_flight=0, pinned=False):
    return ModelCopy(model, size, state, since, in_flight, pinned)


def server(name, *held, device=None, may_hold=MODELS, busy=False):
    return ServerState(name, name if device is None else device, held, frozenset(may_hold), busy)


def wants(model, waiting=0, work=None, *, oldest=0.1, rate=0.0, size=GIB, load=2.0, pinned=False):
    work = 0.05 * waiting if work is None else work
    return ModelDemand(model, size, load, waiting, work, oldest if waiting else 0.0, rate, pinned)


def decide(servers, rooms, *demands, now=0.0, placement=None):
    return (placement or PlacementPlanner()).decide(servers, rooms, {d.model: d for d in demands}, now)


def loaded(loads):
    return [(load.model, load.server, load.evict) for load in loads]


# ---------------------------------------------------------------------- the first copy


def test_nobody_asks_nothing_is_loaded():
    assert decide([server("x"), server("y", holds("a"))], {"x": GIB, "y": 0}, wants("a"), wants("b")) == []


def test_a_model_somebody_waits_for_is_loaded_where_there_is_room():
    servers = [server("x", holds("b")), server("y")]
    assert loaded(decide(servers, {"x": 0, "y": GIB}, wants("a", 1), wants("b", rate=0.5))) == [("a", "y", ())]


def test_a_pinned_model_is_loaded_without_demand_and_before_others():
    loads = decide([server("x")], {"x": GIB}, wants("a", 9), wants("b", pinned=True))
    assert loaded(loads) == [("b", "x", ())]
    assert loads[0].reason == "pinned"


def test_of_two_that_wait_the_one_that_has_waited_longer_is_first():
    assert loaded(decide([server("x")], {"x": 4 * GIB}, wants("a", 5, oldest=0.1), wants("b", 1, oldest=0.2))) == [
        ("b", "x", ())
    ]


def test_two_that_wait_are_loaded_at_once_on_two_devices():
    loads = decide([server("x"), server("y")], {"x": GIB, "y": GIB}, wants("a", 1), wants("b", 1))
    assert {(load.model, load.server) for load in loads} == {("a", "x"), ("b", "y")}


def test_it_goes_where_the_least_is_done():
    servers = [server("x", holds("b")), server("y", holds("c"))]
    loads = decide(servers, {"x": GIB, "y": GIB}, wants("a", 1), wants("b", rate=0.6), wants("c", rate=0.1))
    assert loaded(loads) == [("a", "y", ())]


def test_it_does_not_go_where_many_wait_for_the_server():
    servers = [server("x", holds("b"), holds("c")), server("y", holds("d", in_flight=1))]
    loads = decide(servers, {"x": GIB, "y": GIB}, wants("a", 1), wants("b", 40), wants("d"))
    assert loaded(loads)[0] == ("a", "y", ())


def test_it_is_not_loaded_where_it_cannot_be():
    assert decide([server("x", may_hold=("b",))], {"x": 9 * GIB}, wants("a", 1)) == []


def test_it_is_not_loaded_where_nothing_is_known_of_the_device():
    assert decide([server("x", device="gpu0")], {}, wants("a", 1)) == []


def test_a_server_of_no_device_has_all_the_room_there_is():
    loads = decide([server("x", device=""), server("y", device="")], {}, wants("a", 1), wants("b", 1))
    assert len(loads) == 2


# ---------------------------------------------------------------------- one at a time


@pytest.mark.parametrize("state", ["loading", "unloading"])
def test_a_device_on_which_something_is_under_way_is_left_alone(state):
    mates = [server("x", holds("b", state=state), device="gpu0"), server("y", device="gpu0")]
    assert decide(mates, {"gpu0": 9 * GIB}, wants("a", 1)) == []


def test_a_busy_server_is_left_alone():
    assert decide([server("x", busy=True)], {"x": 9 * GIB}, wants("a", 1)) == []


def test_two_loads_at_once_where_that_is_wished():
    servers = [server("x", holds("b", state="loading"))]
    demands = [wants("a", 1), wants("c", 1)]
    placement = PlacementPlanner(at_once=2)
    assert loaded(decide(servers, {"x": 9 * GIB}, *demands, placement=placement)) == [("a", "x", ())]


def test_a_model_that_is_being_loaded_is_not_loaded_again():
    servers = [server("x", holds("a", state="loading")), server("y")]
    assert decide(servers, {"x": 0, "y": GIB}, wants("a", 1)) == []


def test_a_copy_that_is_being_unloaded_is_none():
    servers = [server("x", holds("a", state="unloading")), server("y")]
    assert loaded(decide(servers, {"x": 0, "y": GIB}, wants("a", 1))) == [("a", "y", ())]


def test_it_is_not_loaded_again_where_it_is_being_unloaded():
    assert decide([server("x", holds("a", state="unloading"))], {"x": 9 * GIB}, wants("a", 1)) == []


def test_one_more_copy_waits_until_all_have_one():
    servers = [server("x", holds("a")), server("y", holds("b", state="loading"))]
    demands = [wants("a", 400, rate=2.0), wants("c", 1)]
    assert loaded(decide(servers, {"x": 0, "y": 9 * GIB}, *demands)) == []


# ---------------------------------------------------------------------- who goes


def test_the_one_that_is_used_least_goes():
    servers = [server("x", holds("b"), holds("c"), holds("d"))]
    demands = [wants("a", 1), wants("b", rate=0.3), wants("c", rate=0.001), wants("d", rate=0.2)]
    loads = decide(servers, {"x": 0}, *demands)
    assert loaded(loads) == [("a", "x", (("x", "c"),))]
    assert loads[0].reason == "1 request waits, 0.1 s of work; c was used least, 2 s to reload"


def test_the_one_that_is_quick_to_reload_goes():
    servers = [server("x", holds("b"), holds("c"))]
    demands = [wants("a", 1), wants("b", rate=0.1, load=30.0), wants("c", rate=0.1, load=1.0)]
    assert loaded(decide(servers, {"x": 0}, *demands)) == [("a", "x", (("x", "c"),))]


def test_one_with_another_copy_goes_before_one_without():
    servers = [server("x", holds("b"), holds("c")), server("y", holds("b"), may_hold=("b",))]
    demands = [wants("a", 1), wants("b", rate=0.1), wants("c", rate=0.1)]
    loads = decide(servers, {"x": 0, "y": 0}, *demands)
    assert loaded(loads) == [("a", "x", (("x", "b"),))]
    assert loads[0].reason.endswith("b has 1 other copy")


def test_an_idle_one_goes_before_one_that_runs_requests():
    servers = [server("x", holds("b", in_flight=3), holds("c"))]
    assert loaded(decide(servers, {"x": 0}, wants("a", 1), wants("b"), wants("c"))) == [("a", "x", (("x", "c"),))]


def test_a_pinned_one_never_goes():
    assert decide([server("x", holds("b", pinned=True))], {"x": 0}, wants("a", 1, oldest=1e6)) == []


@pytest.mark.parametrize("state", ["loading", "unloading"])
def test_one_that_is_not_resident_never_goes(state):
    servers = [server("x", holds("b", state=state)), server("y", may_hold=())]
    assert decide(servers, {"x": 0, "y": 0}, wants("a", 1), placement=PlacementPlanner(at_once=9)) == []


def test_no_more_go_than_must():
    servers = [server("x", holds("b", size=GIB), holds("c", size=2 * GIB), holds("d", size=4 * GIB))]
    demands = [wants("a", 1, size=4 * GIB), wants("b"), wants("c"), wants("d")]
    assert loaded(decide(servers, {"x": 2 * GIB}, *demands)) == [("a", "x", (("x", "c"),))]


def test_what_does_not_fit_even_then_is_not_loaded_and_nobody_goes():
    servers = [server("x", holds("b"), holds("c"))]
    assert decide(servers, {"x": GIB}, wants("a", 1, size=4 * GIB)) == []


def test_who_goes_may_be_on_another_server_of_the_device():
    mates = [server("x", device="gpu0"), server("y", holds("b"), device="gpu0", may_hold=("b",))]
    assert loaded(decide(mates, {"gpu0": 0}, wants("a", 1))) == [("a", "x", (("y", "b"),))]


def test_a_server_where_nobody_must_go_is_preferred():
    servers = [server("x", holds("b")), server("y", holds("c"))]
    demands = [wants("a", 1), wants("b", rate=0.01), wants("c", rate=0.01)]
    assert loaded(decide(servers, {"x": 0, "y": GIB}, *demands)) == [("a", "y", ())]


# ---------------------------------------------------------------------- turns


def test_one_that_was_just_loaded_and_is_used_stays_for_its_turn():
    servers = [server("x", holds("b", since=10.0, in_flight=1))]
    demands = [wants("a", 5), wants("b", 5, rate=1.0)]
    assert decide(servers, {"x": 0}, *demands, now=13.9) == []
    assert loaded(decide(servers, {"x": 0}, *demands, now=14.1)) == [("a", "x", (("x", "b"),))]


def test_who_shares_a_server_has_a_longer_turn():
    held = [holds(m, since=10.0, in_flight=1) for m in "bc"]
    demands = [wants("a", 5), wants("b", 5, rate=1.0), wants("c", 5, rate=1.0)]
    assert decide([server("x", *held)], {"x": 0}, *demands, now=17.9) == []
    assert decide([server("x", *held)], {"x": 0}, *demands, now=18.1) != []


def test_one_that_is_idle_again_goes_before_its_turn_is_over_but_not_at_once():
    servers = [server("x", holds("b", since=10.0))]
    assert decide(servers, {"x": 0}, wants("a", 5), wants("b", rate=1.0), now=10.9) == []
    assert decide(servers, {"x": 0}, wants("a", 5), wants("b", rate=1.0), now=11.1) != []


# ---------------------------------------------------------------------- one more copy


def test_another_copy_is_loaded_when_what_is_offered_would_wait_for_longer_than_it_takes_to_load():
    servers = [server("x", holds("a")), server("y")]
    rooms = {"x": 0, "y": GIB}
    assert decide(servers, rooms, wants("a", rate=0.1)) == []
    loads = decide(servers, rooms, wants("a", rate=0.7))
    assert loaded(loads) == [("a", "y", ())]
    assert loads[0].reason == "0.70 s of work a second, for 1 copy"


def test_another_copy_is_loaded_for_a_long_line():
    servers = [server("x", holds("a")), server("y")]
    rooms = {"x": 0, "y": GIB}
    assert decide(servers, rooms, wants("a", 4, 2.0)) == []
    assert loaded(decide(servers, rooms, wants("a", 12, 30.0))) == [("a", "y", ())]


def test_what_takes_long_to_load_is_loaded_less_readily():
    servers = [server("x", holds("a")), server("y")]
    assert decide(servers, {"x": 0, "y": GIB}, wants("a", rate=0.4, load=1.0)) != []
    assert decide(servers, {"x": 0, "y": GIB}, wants("a", rate=0.4, load=60.0)) == []


def test_another_copy_is_not_loaded_where_it_would_not_help():
    """The other server has as much to do."""
    servers = [server("x", holds("a"), holds("b")), server("y", holds("c"), holds("d"))]
    demands = [wants("a", rate=0.05), wants("b", rate=0.6), wants("c", rate=0.7), wants("d", rate=0.25)]
    assert "a" not in [load.model for load in decide(servers, {"x": 0, "y": GIB}, *demands)]


def test_the_only_copy_of_a_model_in_use_does_not_go_for_another_s_second():
    servers = [server("x", holds("a")), server("y", holds("b"))]
    assert decide(servers, {"x": 0, "y": 0}, wants("a", 50, rate=0.9), wants("b", rate=0.01)) == []


def test_the_only_copy_of_a_model_nobody_uses_does():
    servers = [server("x", holds("a")), server("y", holds("b"))]
    loads = decide(servers, {"x": 0, "y": 0}, wants("a", rate=0.9), wants("b"))
    assert loaded(loads) == [("a", "y", (("y", "b"),))]


def test_a_needless_copy_goes_for_one_that_is_needed():
    servers = [server("x", holds("a")), server("y", holds("b")), server("z", holds("b"), may_hold="ab")]
    loads = decide(servers, {"x": 0, "y": 0, "z": 0}, wants("a", rate=0.9), wants("b", rate=0.05))
    assert loaded(loads) == [("a", "y", (("y", "b"),))] or loaded(loads) == [("a", "z", (("z", "b"),))]


def test_a_copy_that_was_just_loaded_does_not_go_for_a_little_more():
    """Two models that are wanted about as much do not take each other's places in turn."""
    servers = [server("x", holds("a")), server("y", holds("b")), server("z", holds("b", since=99.0))]
    demands = [wants("a", rate=0.5), wants("b", rate=0.45)]
    assert decide(servers, {"x": 0, "y": 0, "z": 0}, *demands, now=100.0) == []


def test_a_model_with_a_copy_everywhere_has_enough():
    servers = [server("x", holds("a"), holds("b")), server("y", holds("a"), holds("c"))]
    assert decide(servers, {"x": 9 * GIB, "y": 9 * GIB}, wants("a", 500, rate=2.0)) == []


# ---------------------------------------------------------------------- whatever the fleet


@st.composite
def fleets(draw):
    devices = draw(st.integers(1, 3))
    placed = []
    rooms = {f"d{n}": draw(st.integers(0, 6)) for n in range(devices)}
    for n in range(draw(st.integers(1, 5))):
        models = draw(st.lists(st.sampled_from(MODELS), unique=True, max_size=4))
        held = tuple(
            ModelCopy(
                model,
                draw(st.integers(0, 4)),
                draw(st.sampled_from(("resident", "resident", "resident", "loading", "unloading"))),
                draw(st.floats(-100.0, 0.0)),
                draw(st.integers(0, 3)),
                draw(st.booleans()) and draw(st.booleans()),
            )
            for model in models
        )
        may = frozenset(draw(st.lists(st.sampled_from(MODELS), unique=True))) | set(models)
        placed.append(ServerState(f"s{n}", f"d{n % devices}", held, may, draw(st.integers(0, 4)) == 0))
    demands = {}
    for model in MODELS:
        count = draw(st.sampled_from((0, 0, 1, 7, 300)))
        demands[model] = ModelDemand(
            model,
            draw(st.integers(0, 8)),
            draw(st.floats(0.01, 100.0)),
            count,
            count * draw(st.floats(0.001, 2.0)),
            draw(st.floats(0.0, 50.0)) if count else 0.0,
            draw(st.sampled_from((0.0, 0.01, 0.3, 1.0, 4.0))),
            draw(st.integers(0, 9)) == 0,
        )
    return placed, rooms, demands, draw(st.sampled_from((1, 1, 3)))


@settings(max_examples=300, deadline=None)
@given(fleets())
def test_whatever_the_fleet_a_decision_is_sound(fleet):
    servers, rooms, demands, at_once = fleet
    loads = PlacementPlanner(at_once=at_once).decide(servers, rooms, demands, 1.0)
    assert loads == PlacementPlanner(at_once=at_once).decide(servers, rooms, demands, 1.0)
    by_name = {s.server: s for s in servers}
    held = {(s.server, h.model): h for s in servers for h in s.copies}
    left = dict(rooms)
    begun: dict[str, int] = {}
    for load in loads:
        home = by_name[load.server]
        assert load.model in home.loadable_models
        assert not home.busy
        assert (load.server, load.model) not in held
        for where, model in load.evict:
            victim = held.pop((where, model))  # nobody goes twice
            assert by_name[where].device == home.device
            assert victim.state == "resident"
            assert not victim.pinned
            assert model != load.model
            left[home.device] += victim.size
        left[home.device] -= demands[load.model].size
        assert left[home.device] >= 0 or not demands[load.model].size
        begun[home.device] = begun.get(home.device, 0) + 1
        assert load.reason
    for device, count in begun.items():
        mates = [s for s in servers if s.device == device]
        before = sum(h.state != "resident" for s in mates for h in s.copies)
        assert count + before <= at_once
    assert len({(load.model, load.server) for load in loads}) == len(loads)


@settings(max_examples=200, deadline=None)
@given(fleets())
def test_nobody_goes_for_a_model_that_has_enough(fleet):
    """One that nobody waits for, of which little is offered, and that has a copy, or needs none."""
    servers, rooms, demands, _ = fleet
    quiet = {m: d._replace(waiting=0, waiting_work=0.0, rate=0.0, pinned=False) for m, d in demands.items()}
    assert PlacementPlanner().decide(servers, rooms, quiet, 1.0) == []
    held = {h.model for s in servers for h in s.copies if h.state != "unloading"}
    served = {m: d if m not in held else quiet[m] for m, d in demands.items()}
    assert held.isdisjoint(load.model for load in PlacementPlanner().decide(servers, rooms, served, 1.0))


# ---------------------------------------------------------------------- over time


class World:
    """Servers that do what is decided: each serves one request at a time, and a load takes its time."""

    STEP = 0.1

    def __init__(self, models, servers, places, load_seconds, arrivals):
        self.models, self.places, self.load_seconds, self.arrivals = models, places, load_seconds, arrivals
        self.held = {f"s{n}": {} for n in range(servers)}  # model → (state, since)
        self.lines = {m: [] for m in models}
        self.served = dict.fromkeys(models, 0)
        self.rates = dict.fromkeys(models, 0.0)
        self.loads = 0
        self.worst = 0.0
        self.now = 0.0
        self.placement = PlacementPlanner()

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now += self.STEP
            for model in self.models:
                came = self.arrivals(model, self.now)
                self.lines[model] += [self.now] * came
                self.rates[model] += (came - self.rates[model]) * 0.01  # of late: ten seconds; 0.1 s of work each
            self.finish_loads()
            for held in self.held.values():
                self.serve(held)
            self.place()

    def finish_loads(self):
        for held in self.held.values():
            for model, (state, since) in held.items():
                if state == "loading" and self.now - since >= self.load_seconds:
                    held[model] = ("resident", self.now)

    def serve(self, held):
        """One request of 0.1 s a step, the oldest first; nothing while it loads."""
        ready = [m for m, (state, _) in held.items() if state == "resident" and self.lines[m]]
        if ready and all(state == "resident" for state, _ in held.values()):
            model = min(ready, key=lambda m: self.lines[m][0])
            self.worst = max(self.worst, self.now - self.lines[model].pop(0))
            self.served[model] += 1

    def place(self):
        rooms = [
            ServerState(s, s, tuple(ModelCopy(m, 1, *state, 0) for m, state in held.items()), frozenset(self.models))
            for s, held in self.held.items()
        ]
        free = {s: self.places - len(held) for s, held in self.held.items()}
        demands = {m: self.demand(m) for m in self.models}
        for load in self.placement.decide(rooms, free, demands, self.now):
            self.loads += 1
            for where, model in load.evict:
                del self.held[where][model]
            self.held[load.server][load.model] = ("loading", self.now)
            assert len(self.held[load.server]) <= self.places

    def demand(self, model):
        line = self.lines[model]
        oldest = self.now - line[0] if line else 0.0
        return ModelDemand(model, 1, self.load_seconds, len(line), 0.1 * len(line), oldest, self.rates[model])


def every(seconds, offset=0.0):
    """Arrivals at regular times."""
    return lambda now: int((now + offset) / seconds) - int((now + offset - World.STEP) / seconds)


@pytest.mark.parametrize(("models", "servers", "places"), [(2, 1, 1), (5, 2, 1), (6, 1, 2), (8, 2, 2)])
def test_more_models_in_constant_demand_than_fit_all_get_their_turns(models, servers, places):
    names = [f"m{n}" for n in range(models)]
    period = 1.0 * models / servers  # a third of what the servers could do without loads
    ticks = {m: every(0.3 * period, 0.37 * n) for n, m in enumerate(names)}
    world = World(names, servers, places, 2.0, lambda m, now: ticks[m](now))
    world.run(100.0)
    before = dict(world.served)
    world.run(30.0 * models / servers)
    for name in names:
        assert world.served[name] > before[name], "each is served again and again"
    assert world.worst < 6 * models * 2.0, "nobody waits for more than some rounds of loads"
    busy = sum(world.served.values()) * 0.1
    assert busy >= 0.25 * world.loads * 2.0, "loads are paid for by work"


@pytest.mark.parametrize(("models", "servers", "places"), [(2, 1, 1), (5, 2, 1), (6, 1, 2)])
def test_with_more_work_than_can_be_done_a_turn_is_longer_than_its_load(models, servers, places):
    names = [f"m{n}" for n in range(models)]
    ticks = {m: every(0.11 * models / servers, 0.37 * n) for n, m in enumerate(names)}
    world = World(names, servers, places, 2.0, lambda m, now: ticks[m](now))
    world.run(150.0)
    assert 0.1 * sum(world.served.values()) > world.loads * 2.0
    assert min(world.served.values()) > 0.5 * max(world.served.values()), "and turns are fair"


def test_models_that_fit_come_to_rest():
    names = [f"m{n}" for n in range(6)]
    ticks = {m: every(0.5 * (n + 1), 0.13 * n) for n, m in enumerate(names)}
    world = World(names, 3, 3, 2.0, lambda m, now: ticks[m](now))
    world.run(100.0)
    settled = world.loads
    world.run(150.0)
    assert world.loads == settled, "constant demand, constant places"
    assert all(len(line) < 5 for line in world.lines.values())


def test_a_model_that_becomes_popular_gets_more_copies():
    names = ["a", "b"]
    often, seldom = every(0.12), every(2.0)
    world = World(names, 3, 1, 2.0, lambda m, now: (often if (m == "a") == (now < 150.0) else seldom)(now))
    world.run(145.0)
    assert sum("a" in held for held in world.held.values()) == 2
    world.run(155.0)
    assert sum("b" in held for held in world.held.values()) == 2
    assert world.loads < 12


# ---------------------------------------------------------------------- the set that loses least


def by_hand(losses, sizes, needed):
    sets = [c for n in range(len(sizes) + 1) for c in combinations(range(len(sizes)), n)]
    enough = [sum(losses[i] for i in c) for c in sets if sum(sizes[i] for i in c) >= needed]
    return min(enough, default=None)


candidates = st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 9)), max_size=7)


@given(candidates, st.integers(1, 30))
def test_of_few_the_set_that_loses_least_is_found(pairs, needed):
    losses, sizes = [p[0] for p in pairs], [p[1] for p in pairs]
    found = least_loss_set(losses, sizes, needed)
    best = by_hand(losses, sizes, needed)
    if best is None:
        assert found is None
    else:
        assert found is not None
        assert sum(sizes[i] for i in found) >= needed
        assert sum(losses[i] for i in found) == pytest.approx(best)


@given(
    st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(1, 9)), min_size=MAX_EXHAUSTIVE_CANDIDATES + 1, max_size=40),
    st.integers(1, 50),
)
def test_of_many_a_set_is_found_of_which_none_is_needless(pairs, needed):
    losses, sizes = [p[0] for p in pairs], [p[1] for p in pairs]
    found = least_loss_set(losses, sizes, needed)
    if sum(sizes) < needed:
        assert found is None
        return
    assert found is not None
    freed = sum(sizes[i] for i in found)
    assert freed >= needed
    assert all(freed - sizes[i] < needed for i in found)


# ---------------------------------------------------------------------- how work divides


def test_work_divides_so_that_the_fullest_is_as_empty_as_can_be():
    spread = LoadSpread({"x": 1.0, "y": 1.0, "z": 2.0})
    spread.divide_all({"a": 0.5, "b": 1.0, "c": 0.9}, {"a": ["x"], "b": ["x", "y"], "c": ["z"]})
    assert spread.load == pytest.approx({"x": 0.75, "y": 0.75, "z": 0.9})
    assert spread.level("d", 0.3, ["z"]) == pytest.approx(0.6)
    assert spread.level("b", 1.0, ["x"]) == pytest.approx(1.5)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(0.001, 3.0), min_size=1),
    st.lists(st.sets(st.sampled_from("xyz"), min_size=1), min_size=4, max_size=4),
)
def test_no_work_is_lost_and_none_goes_where_the_model_is_not(rates, where):
    holders = dict(zip("abcd", map(sorted, where), strict=True))
    spread = LoadSpread({"x": 1.0, "y": 2.0, "z": 0.5})
    spread.divide_all(rates, holders)
    assert sum(spread.load.values()) == pytest.approx(sum(rates.values()))
    for name in "xyz":
        assert spread.load[name] <= sum(r for m, r in rates.items() if name in holders[m]) + 1e-9


def test_fewer_wait_with_more_copies_and_more_with_more_to_do():
    levels = [0.1, 0.5, 0.9, 0.95, 1.0, 1.5, 3.0]
    for fewer, more in zip((1, 2, 4), (2, 4, 8), strict=True):
        assert all(mean_waiting(0.3, fewer, level) > mean_waiting(0.3, more, level) for level in levels)
    for one, two in pairwise(levels):
        assert mean_waiting(0.3, 2, one) < mean_waiting(0.3, 2, two)
    assert mean_waiting(0.0, 1, 0.5) == 0.0
    assert mean_waiting(0.5, 1, 0.5) == pytest.approx(0.5)  # M/M/1: ρ² / (1 - ρ)


def test_a_decision_tells_its_fields_by_name():
    assert LoadDecision("a", "x") == LoadDecision(model="a", server="x", evict=(), reason="")

"""Who holds memory of a device: from when a replica is up until it is gone, or from a load to its unload."""

from __future__ import annotations

import pytest

from steelyard.control.memory.device_replicas import UNREACHABLE_SECONDS
from steelyard.core.replica import State
from steelyard.link.messages import ReplicaReport
from steelyard.protocols.load import EngineLoad

from .making import GIB, LOADING, ON_DEMAND, READY, UNLOADED, UNREACHABLE, made, model, report

DEVICE = "{d: {memory: 100, headroom: 10%}}"
M = f"{{m: {model(more='memory: {weights: 30, workspace: 10}')}}}"
BOTH = f"{{m: {model(more='memory: {weights: 40}')}, n: {model(port=2, more='memory: {weights: 60}')}}}"
M_LOADED = BOTH.replace("weights: 40}", f"weights: 40}}, {ON_DEMAND}")


def test_room_is_its_own_from_when_it_is_up() -> None:
    with made(DEVICE, M) as it:
        assert it.base("m") == 0
        for state in (LOADING, READY, State.EJECTED, State.DRAINING, LOADING):
            it.accounts.state_changed(("m", "a"), state, 1.0)
            assert it.base("m") == 40
        assert it.accounts.free_bytes() == {"d": 50}


def test_who_is_out_of_reach_keeps_it_for_a_while() -> None:
    with made(DEVICE, M) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        it.accounts.load_reported(("m", "a"), EngineLoad(held=50), 0.5)
        it.accounts.state_changed(("m", "a"), UNREACHABLE, 1.0)
        it.accounts.tick(UNREACHABLE_SECONDS)
        assert it.base("m") == 40
        it.accounts.tick(1.0 + UNREACHABLE_SECONDS)
        assert (it.base("m"), it.accounts.free_bytes()["d"]) == (0, 90)
        it.accounts.state_changed(("m", "a"), LOADING, 99.0)
        assert it.base("m") == 40


def test_it_comes_back_before_that() -> None:
    with made(DEVICE, M) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        it.accounts.state_changed(("m", "a"), UNREACHABLE, 1.0)
        it.accounts.state_changed(("m", "a"), READY, 20.0)
        it.accounts.tick(1000.0)
        assert it.base("m") == 40


def test_who_is_up_counts_even_if_it_does_not_fit() -> None:
    with made(DEVICE, BOTH) as it:
        for name in "mn":
            it.accounts.state_changed((name, "a"), READY, 1.0)
        assert (it.base("m"), it.base("n")) == (40, 60)
        assert it.accounts.free_bytes() == {"d": 0}
        assert it.codes(2.0)["memory_over_budget"] == (
            "d: its models hold 100 B, but only 90 B may be given out (100 B less 10%): no request has room there"
        )


@pytest.mark.parametrize("state", [LOADING, UNLOADED, UNREACHABLE])
def test_on_demand_room_is_reserved_and_released_by_who_loads(state: State) -> None:
    with made(DEVICE, M_LOADED) as it:
        key = ("m", "a")
        it.accounts.state_changed(key, state, 0.0)
        assert it.base("m") == 0
        assert it.accounts.reserve(key, it.accounts.footprint("m"))
        it.accounts.tick(1000.0)
        assert it.base("m") == 40, "a server that loads may be out of reach for long"
        it.accounts.release(key)
        assert it.base("m") == 0


def test_a_load_that_does_not_fit() -> None:
    with made(DEVICE, M_LOADED) as it:
        it.accounts.state_changed(("n", "a"), READY, 0.0)
        assert not it.accounts.reserve(("m", "a"), 40)
        assert it.accounts.reserve(("m", "a"), 30)
        assert not it.accounts.reserve(("m", "a"), 31), "what it has is part of it"
        assert it.base("m") == 30


def test_on_demand_but_found_there() -> None:
    with made(DEVICE, M_LOADED) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        assert it.base("m") == 40
    with made(DEVICE, M_LOADED) as it:
        it.accounts.resident(("m", "a"))
        assert it.base("m") == 40


def test_of_whom_nothing_is_known() -> None:
    with made(DEVICE, M) as it:
        nobody = ("x", "a")
        assert it.accounts.reserve(nobody, 1000)
        it.accounts.release(nobody)
        it.accounts.resident(nobody)
        it.accounts.load_reported(nobody, EngineLoad(held=1), 1.0)
        it.accounts.state_changed(nobody, READY, 1.0)
        assert it.accounts.footprint("x") == 0


def test_a_replica_is_removed_and_another_comes() -> None:
    with made(DEVICE, M) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        column = it.column("m")
        it.follow(DEVICE, f"{{m: {model(id='b', more='memory: {weights: 30}')}}}", 1.0)
        assert it.shared_ledger.base[column] == 0
        it.accounts.state_changed(("m", "b"), READY, 2.0)
        assert it.base("m", "b") == 30


def test_what_runs_at_one_that_was_removed_counts_until_it_ends() -> None:
    with made(DEVICE, BOTH) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        column = it.column("m")
        it.shared_ledger.add(column, it.numbers["d"], 20)
        it.follow(DEVICE, f"{{n: {model(port=2)}}}", 1.0)
        assert it.accounts.free_bytes() == {"d": 70}
        it.shared_ledger.subtract(column, it.numbers["d"], 20)
        it.accounts.tick(2.0)
        assert it.accounts.free_bytes() == {"d": 90}


def test_its_state_was_told_before_it_was_followed() -> None:
    with made(DEVICE, "{n: {replicas: [{url: 'http://h:2'}]}}") as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        it.follow(DEVICE, "{m: {replicas: [{id: a, url: 'http://h:1'}]}}", 1.0)
        it.accounts.state_changed(("m", "a"), READY, 1.0)
        it.follow(DEVICE, M, 2.0)
        assert it.base("m") == 40


def test_another_device_and_another_number() -> None:
    with made(DEVICE, M) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        it.follow(
            "{e: {memory: 200, headroom: 0}, f: {memory: 1, headroom: 0}}", M.replace("device: d", "device: e"), 1.0
        )
        assert it.accounts.free_bytes() == {"e": 160, "f": 1}
        it.follow(
            "{f: {memory: 1, headroom: 0}, e: {memory: 200, headroom: 50%}}", M.replace("device: d", "device: e"), 1.0
        )
        assert it.accounts.free_bytes()["e"] == 60
        assert it.base("m") == 40


def test_a_size_that_is_not_known_bounds_nothing() -> None:
    with made("{d: {}}", M) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        assert it.accounts.free_bytes()["d"] > 1 << 50
        assert it.base("m") == 40
        assert (it.device().capacity, it.device().budget) == (None, 0)
        assert "nothing is counted" in it.codes(0.0)["memory_unknown"]


def test_declared_anew() -> None:
    with made(DEVICE, M) as it:
        it.accounts.state_changed(("m", "a"), READY, 0.0)
        it.follow(DEVICE, M.replace("30", "20"), 1.0)
        assert it.base("m") == 30


def test_many_replicas_on_many_devices() -> None:
    devices = ", ".join(f"g{n}: {{memory: 80GiB}}" for n in range(8))
    models = ", ".join(f"m{n}: {model(n + 1, f'g{n}', 'memory: {weights: 60GiB}')}" for n in range(8))
    with made(f"{{{devices}}}", f"{{{models}}}") as it:
        for n in range(8):
            it.accounts.state_changed((f"m{n}", "a"), READY, 0.0)
        assert set(it.accounts.free_bytes().values()) == {12 * GIB}


ITS_OWN_SERVER = f"{{m: {model(more='memory: {weights: 40}, ' + ON_DEMAND)}, n: {model(port=2)}}}"
SAID = ReplicaReport("m", "a", "ready", 0, 0, 0, 0.0, 1.0, base=70)


def test_a_model_on_demand_is_not_its_server() -> None:
    """The server of its own that it is loaded into stays when it goes, and is counted apart."""
    with made(DEVICE, ITS_OWN_SERVER) as it:
        key = ("m", "a")
        it.accounts.load_reported(key, EngineLoad(held=30, base=30), 0.0)
        for begin in (1.0, 11.0):
            assert it.accounts.free_bytes_at(key) == 60
            assert it.accounts.reserve(key, it.accounts.footprint("m"))
            it.accounts.state_changed(key, READY, begin)
            it.accounts.load_reported(key, EngineLoad(held=70, base=70), begin + 1.0)
            it.accounts.worker_reported(report(replicas=(SAID,)), begin + 2.0)
            assert (it.accounts.footprint("m"), it.device().reserved) == (40, 70)
            it.accounts.release(key)
            it.accounts.state_changed(key, UNLOADED, begin + 3.0)


def test_what_a_server_keeps_is_room_for_loads_there() -> None:
    with made(DEVICE, ITS_OWN_SERVER) as it:
        it.accounts.load_reported(("m", "a"), EngineLoad(held=80, base=30), 0.0)
        assert it.accounts.free_bytes() == {"d": 10}
        assert (it.accounts.free_bytes_at(("m", "a")), it.accounts.free_bytes_at(("n", "a"))) == (60, 10)
        assert it.accounts.free_bytes_at(("x", "a")) == 0
        assert it.accounts.reserve(("m", "a"), 40)


def test_room_is_there_as_soon_as_a_model_is_gone() -> None:
    """Not only when its server has said again what it holds."""
    with made(DEVICE, ITS_OWN_SERVER) as it:
        assert it.accounts.reserve(("m", "a"), 40)
        it.accounts.load_reported(("m", "a"), EngineLoad(held=85, base=70), 1.0)
        assert it.accounts.free_bytes() == {"d": 5}
        it.accounts.release(("m", "a"))
        assert it.accounts.free_bytes() == {"d": 45}
        it.accounts.load_reported(("m", "a"), EngineLoad(held=35), 2.0)
        assert it.accounts.free_bytes() == {"d": 55}


def test_a_load_that_failed_makes_its_server_no_smaller() -> None:
    with made(DEVICE, ITS_OWN_SERVER) as it:
        it.accounts.load_reported(("m", "a"), EngineLoad(held=30, base=30), 0.0)
        assert it.accounts.reserve(("m", "a"), 40)
        it.accounts.release(("m", "a"))
        assert it.accounts.free_bytes() == {"d": 60}


def test_less_than_was_declared_is_free_at_once_too() -> None:
    with made(DEVICE, ITS_OWN_SERVER) as it:
        assert it.accounts.reserve(("m", "a"), 40)
        it.accounts.state_changed(("m", "a"), READY, 1.0)
        it.accounts.load_reported(("m", "a"), EngineLoad(held=35, base=35), 2.0)
        it.accounts.release(("m", "a"))
        assert it.accounts.free_bytes() == {"d": 90}


def test_what_was_measured_before_a_model_came_is_without_it() -> None:
    with made(DEVICE, ITS_OWN_SERVER) as it:
        it.accounts.load_reported(("m", "a"), EngineLoad(held=30, base=30), 0.0)
        assert it.accounts.reserve(("m", "a"), 40)
        it.accounts.state_changed(("m", "a"), READY, 1.0)
        it.accounts.release(("m", "a"))
        assert it.accounts.free_bytes() == {"d": 60}
        assert it.accounts.reserve(("m", "a"), 40)
        it.shared_ledger.held[it.column("m")] = 70  # by a worker that heard so
        it.accounts.release(("m", "a"))
        assert it.accounts.free_bytes() == {"d": 60}

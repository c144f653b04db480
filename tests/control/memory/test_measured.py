"""Measured, not declared: footprints, what servers hold, what others use, how large a device is."""

from __future__ import annotations

from pathlib import Path

from steelyard.control.memory.monitored_device import OVERCOUNT_SAMPLES, OvercountDetector
from steelyard.link.messages import DeviceCapacities, MemorySizes, ReplicaReport
from steelyard.link.shared_ledger import SharedLedger
from steelyard.protocols.load import EngineLoad

from .making import LOADING, ON_DEMAND, READY, UNLOADED, UNREACHABLE, made, model, report
from .meters.test_cgroup import group

DEVICE = "{d: {memory: 1000, headroom: 10%}}"
M = f"{{m: {model(more='memory: {weights: 400}')}}}"
TWO = f"{{m: {model(more='memory: {weights: 400}')}, n: {model(port=2, more='memory: {weights: 100}')}}}"
ONE_SERVER = f"{{m: {model(more='memory: {weights: 400}, ' + ON_DEMAND)}, n: {model(1, more=ON_DEMAND)}}}"
A, B = ("m", "a"), ("n", "a")


def boxed(folder: Path, more: str = "") -> str:
    return f"{{d: {{cgroup: '{folder}', headroom: 0{more}}}}}"


def test_a_server_says_what_its_model_holds() -> None:
    with made(DEVICE, M) as it:
        it.accounts.state_changed(A, READY, 0.0)
        it.accounts.load_reported(A, EngineLoad(base=450), 1.0)
        assert (it.base("m"), it.accounts.footprint("m"), it.sizes("m").footprint_source) == (450, 450, "measured")
        it.accounts.tick(2.0)
        assert it.heard(MemorySizes)[-1].footprint == 450


def test_less_than_declared_after_several() -> None:
    with made(DEVICE, M) as it:
        it.accounts.state_changed(A, READY, 0.0)
        bases = []
        for second in range(1, 5):
            it.accounts.load_reported(A, EngineLoad(base=300), float(second))
            bases.append(it.base("m"))
        assert bases == [400, 400, 300, 300]


def test_while_it_loads_nothing_is_concluded() -> None:
    with made(DEVICE, M) as it:
        it.accounts.state_changed(A, LOADING, 0.0)
        for second in range(9):
            it.accounts.load_reported(A, EngineLoad(base=10 * second), float(second))
        assert it.base("m") == 400


def test_more_than_there_is_counts_and_is_told() -> None:
    with made(DEVICE, M) as it:
        it.accounts.state_changed(A, READY, 0.0)
        it.accounts.load_reported(A, EngineLoad(base=950), 1.0)
        assert (it.base("m"), it.accounts.free_bytes()["d"]) == (950, 0)
        assert "its models hold 950 B, but only 900 B" in it.codes(2.0)["memory_over_budget"]
        assert [a.age for a in it.accounts.alarms(5.0) if a.code == "memory_over_budget"] == [3.0]


def test_a_worker_heard_it_and_the_server_itself_is_believed_more() -> None:
    said = ReplicaReport("m", "a", "ready", 0, 0, 0, 0.0, 1.0, base=500)
    with made(DEVICE, M) as it:
        it.accounts.state_changed(A, READY, 0.0)
        it.accounts.worker_reported(report(replicas=(said,)), 1.0)
        assert it.base("m") == 500
    with made(DEVICE, M) as it:
        it.accounts.state_changed(A, READY, 0.0)
        it.accounts.load_reported(A, EngineLoad(base=450), 1.0)
        it.accounts.worker_reported(report(replicas=(said,)), 2.0)
        assert it.base("m") == 450


def test_what_a_server_holds_is_of_all_its_models() -> None:
    with made(DEVICE, ONE_SERVER) as it:
        it.accounts.reserve(A, 400)
        it.accounts.state_changed(B, READY, 0.0)
        it.accounts.load_reported(B, EngineLoad(held=600, base=600), 1.0)
        assert [it.shared_ledger.held[it.column(name)] for name in "mn"] == [600, 600]
        assert it.accounts.free_bytes()["d"] == 300
        assert it.device().reserved == 600
        assert [it.base(name) for name in "mn"] == [400, 0], "nobody knows whose base it is"


def test_a_load_by_what_the_server_holds_more() -> None:
    with made(DEVICE, ONE_SERVER) as it:
        it.accounts.state_changed(B, UNLOADED, 0.0)
        it.accounts.load_reported(B, EngineLoad(held=500), 1.0)
        it.accounts.reserve(B, 0)
        it.accounts.state_changed(B, LOADING, 2.0)
        it.accounts.load_reported(B, EngineLoad(held=550), 3.0)
        it.accounts.state_changed(B, READY, 4.0)
        it.accounts.load_reported(B, EngineLoad(held=620), 5.0)
        assert (it.accounts.footprint("n"), it.base("n")) == (120, 120)
        assert it.accounts.footprint("m") == 400


def test_a_load_by_what_the_server_holds_more_with_nothing_running() -> None:
    """What it keeps for later is not its model's."""
    with made(DEVICE, ONE_SERVER) as it:
        it.accounts.state_changed(B, UNLOADED, 0.0)
        it.accounts.load_reported(B, EngineLoad(held=500, base=410), 1.0)
        it.accounts.reserve(B, 0)
        it.accounts.state_changed(B, READY, 4.0)
        it.shared_ledger.add(it.column("n"), it.numbers["d"], 90)
        it.accounts.load_reported(B, EngineLoad(held=900), 5.0)  # requests came at once: the base is not known yet
        assert it.accounts.footprint("n") == 0
        it.accounts.load_reported(B, EngineLoad(held=900, base=530), 6.0)
        assert it.accounts.footprint("n") == 120


def test_of_a_server_of_several_models_one_goes() -> None:
    with made(DEVICE, ONE_SERVER) as it:
        it.accounts.reserve(A, 400)
        it.accounts.reserve(B, 200)
        it.accounts.load_reported(B, EngineLoad(base=650), 1.0)
        assert it.device().reserved == 650, "it holds something itself"
        it.accounts.release(A)
        assert it.device().reserved == 250
        assert it.accounts.reserve(A, 400)
        it.accounts.load_reported(B, EngineLoad(base=650), 2.0)
        assert it.device().reserved == 650


def test_a_load_as_the_server_weighed_it() -> None:
    with made(DEVICE, ONE_SERVER) as it:
        it.accounts.reserve(B, 0)
        it.accounts.footprint_measured(B, 130, 1.0)
        assert (it.accounts.footprint("n"), it.base("n")) == (130, 130)


def test_the_device_says_how_large_it_is_and_what_is_used(tmp_path: Path) -> None:
    group(tmp_path, 2000, 700)
    with made(boxed(tmp_path), M) as it:
        assert "nothing is counted" in it.codes(0.0)["memory_unknown"]
        it.accounts.state_changed(A, READY, 0.0)
        for tick in range(5):
            it.accounts.tick(float(tick))
        view = it.device(4.0)
        assert (view.capacity, view.source, view.measured, view.external_usage) == (2000, "cgroup", 700, 300)
        assert it.heard(DeviceCapacities) == [DeviceCapacities({"d": 2000})]
        assert it.accounts.free_bytes()["d"] == 2000 - 400 - 300
        assert not it.codes(4.0)


def test_of_a_configured_part_others_may_have_the_rest(tmp_path: Path) -> None:
    group(tmp_path, 2000, 1500)
    with made(boxed(tmp_path, ", memory: 1000"), M) as it:
        it.accounts.state_changed(A, READY, 0.0)
        for tick in range(5):
            it.accounts.tick(float(tick))
        assert (it.device().source, it.device().external_usage, it.accounts.free_bytes()["d"]) == (
            "configured",
            100,
            500,
        )
        assert it.heard(DeviceCapacities) == [], "workers know what is configured"


def test_configured_more_than_there_is(tmp_path: Path) -> None:
    group(tmp_path, 700, 400)
    with made(boxed(tmp_path, ", memory: 1000"), M) as it:
        it.accounts.state_changed(A, READY, 0.0)
        for tick in range(5):
            it.accounts.tick(float(tick))
        assert it.accounts.free_bytes()["d"] == 300, "what is not there cannot be given out"
        assert "it has 700 B, not 1000 B" in it.codes(5.0)["memory_capacity_mismatch"]


def test_a_cgroup_without_a_limit(tmp_path: Path) -> None:
    group(tmp_path, "max", 500)
    for more, alarms in ((", memory: 1000", set()), ("", {"memory_meter_failed", "memory_unknown"})):
        with made(boxed(tmp_path, more), M) as it:
            it.accounts.state_changed(A, READY, 0.0)
            for tick in range(5):
                it.accounts.tick(float(tick))
            assert set(it.codes(5.0)) == alarms
            assert (it.device().measured, it.device().external_usage) == (500, 100)


def test_a_meter_that_fails(tmp_path: Path) -> None:
    folder = group(tmp_path / "box", 2000, 400)
    with made(boxed(folder), M) as it:
        for tick in range(3):
            it.accounts.tick(float(tick))
        for file in folder.iterdir():
            file.unlink()
        for tick in range(3, 9):
            it.accounts.tick(float(tick))
        assert it.device(9.0).capacity == 2000, "what was known is still true"
        assert "cannot be measured" in it.codes(9.0)["memory_meter_failed"]


def test_a_load_by_what_the_device_has_in_use(tmp_path: Path) -> None:
    def used(amount: int, start: int) -> None:
        group(tmp_path, 2000, amount)
        for tick in range(start, start + 4):
            it.accounts.tick(float(tick))

    with made(boxed(tmp_path), TWO) as it:
        it.accounts.state_changed(A, UNREACHABLE, 0.0)
        it.accounts.state_changed(B, READY, 0.0)
        used(150, 1)
        used(600, 10)  # it loads, and does not answer yet
        it.accounts.state_changed(A, READY, 20.0)
        used(700, 21)
        assert it.accounts.footprint("m") == 550
        assert it.accounts.footprint("n") == 100


def test_a_load_beside_which_another_came_tells_nothing(tmp_path: Path) -> None:
    with made(boxed(tmp_path), TWO) as it:
        it.accounts.state_changed(A, UNREACHABLE, 0.0)
        group(tmp_path, 2000, 50)
        for tick in range(3):
            it.accounts.tick(float(tick))
        for key in (A, B):
            it.accounts.state_changed(key, LOADING, 3.0)
        for key in (A, B):
            it.accounts.state_changed(key, READY, 4.0)
        group(tmp_path, 2000, 900)
        for tick in range(5, 9):
            it.accounts.tick(float(tick))
        assert (it.accounts.footprint("m"), it.accounts.footprint("n")) == (400, 100)


def test_replicas_say_how_large_their_device_is() -> None:
    with made("{d: {headroom: 0}}", TWO) as it:
        for key in (A, B):
            it.accounts.state_changed(key, READY, 0.0)
        for second in range(1, 9):
            it.accounts.load_reported(A, EngineLoad(memory_total=2000, memory_used=800), float(second))
            it.accounts.load_reported(B, EngineLoad(memory_total=2100, memory_used=790), second + 0.1)
        it.accounts.tick(9.0)
        view = it.device(9.0)
        assert (view.capacity, view.source, view.measured, view.external_usage) == (2000, "replicas", 800, 300)
        assert it.heard(DeviceCapacities)[-1] == DeviceCapacities({"d": 2000})


def test_memory_that_is_kept_for_later_is_no_strangers(tmp_path: Path) -> None:
    group(tmp_path, 2000, 900)
    with made(boxed(tmp_path), M) as it:
        it.accounts.state_changed(A, READY, 0.0)
        it.accounts.load_reported(A, EngineLoad(held=850), 0.0)
        for tick in range(5):
            it.accounts.tick(float(tick))
        assert it.device().external_usage == 50
        assert it.accounts.free_bytes()["d"] == 2000 - 900


def test_requests_that_ran_when_it_was_looked_at_are_no_strangers(tmp_path: Path) -> None:
    """A look is heard of a tick later, when what ran then may be over."""
    folder = group(tmp_path, 2000, 400)
    with made(boxed(folder), M) as it:
        it.accounts.state_changed(A, READY, 0.0)
        worker = SharedLedger(it.shared_ledger.fd, 1)
        for tick in range(12):
            worker.add(it.column("m"), 0, 500)
            group(folder, 2000, 900)
            it.accounts.tick(2.0 * tick)
            worker.subtract(it.column("m"), 0, 500)
            group(folder, 2000, 400)
            it.accounts.tick(2.0 * tick + 0.5)
        assert it.device().external_usage == 0


def test_a_stranger_that_came_with_a_load_is_not_taken_for_the_model_for_good(tmp_path: Path) -> None:
    def used(amount: int, start: int, looks: int = 4) -> None:
        group(tmp_path, 2000, amount)
        for tick in range(start, start + looks):
            it.accounts.tick(float(tick))

    with made(boxed(tmp_path), TWO) as it:
        it.accounts.state_changed(A, UNREACHABLE, 0.0)
        it.accounts.state_changed(B, READY, 0.0)
        used(100, 1)
        it.accounts.state_changed(A, READY, 10.0)
        used(1800, 11, 9)
        assert (it.base("m"), it.device().external_usage) == (800, 900), "at most twice what was declared"
        used(500, 20, OVERCOUNT_SAMPLES - 1)
        assert it.base("m") == 800
        used(500, 40, 3 * OVERCOUNT_SAMPLES)
        assert (it.base("m"), it.base("n"), it.device().external_usage) == (400, 100, 0)


def test_nothing_is_proved_by_less_use_of_servers_that_are_measured(tmp_path: Path) -> None:
    folder = group(tmp_path, 2000, 100)
    with made(boxed(folder), M) as it:
        it.accounts.state_changed(A, READY, 0.0)
        it.accounts.load_reported(A, EngineLoad(held=600, base=600), 1.0)
        for tick in range(3 * OVERCOUNT_SAMPLES):
            it.accounts.tick(float(tick))
        assert it.base("m") == 600


def test_what_is_proved_while_requests_run() -> None:
    overcount = OvercountDetector()
    found = [overcount.sample(50, 80, looks != 3) for looks in range(4 + OVERCOUNT_SAMPLES)]
    assert found == [0] * (3 + OVERCOUNT_SAMPLES) + [30]
    assert [overcount.sample(90, 80, True) for _ in range(OVERCOUNT_SAMPLES)] == [0] * OVERCOUNT_SAMPLES

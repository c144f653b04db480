"""Models that were on their servers before anybody here knew of them."""

from __future__ import annotations

from pathlib import Path

from steelyard.protocols.load import EngineLoad

from .making import ON_DEMAND, Made, made, model
from .meters.test_cgroup import group

KEY = ("n", "a")
M = model(more=f"memory: {{weights: 100}}, {ON_DEMAND}")
N = model(more=f"memory: {{weights: 600}}, {ON_DEMAND}")


def looks(it: Made, start: int, count: int = 6) -> None:
    for tick in range(start, start + count):
        it.accounts.tick(float(tick))


def test_what_it_holds_was_taken_for_a_strangers(tmp_path: Path) -> None:
    devices = f"{{d: {{cgroup: '{group(tmp_path, 1000, 650)}', headroom: 10%}}}}"
    with made(devices, f"{{m: {M}}}") as it:
        looks(it, 0)
        assert it.device().external_usage == 650
        it.follow(devices, f"{{m: {M}, n: {N}}}", 6.0)
        assert not it.accounts.reserve(KEY, 600)
        it.accounts.resident(KEY)
        assert (it.base("n"), it.device().external_usage, it.accounts.free_bytes()["d"]) == (600, 50, 250)
        looks(it, 7)
        assert (it.device().external_usage, it.accounts.is_over(KEY, 12.0)) == (50, False)


def test_of_a_measured_server_it_was_ours_all_the_time(tmp_path: Path) -> None:
    devices = f"{{d: {{cgroup: '{group(tmp_path, 1000, 850)}', headroom: 10%}}}}"
    with made(devices, f"{{m: {M}, n: {N}}}") as it:
        it.accounts.load_reported(KEY, EngineLoad(held=650), 0.0)
        looks(it, 1)
        assert it.device().external_usage == 200
        it.accounts.resident(KEY)
        assert it.device().external_usage == 200


def test_is_a_device_over_its_budget(tmp_path: Path) -> None:
    folder = group(tmp_path, 1000, 850)
    with made(f"{{d: {{cgroup: '{folder}', headroom: 10%}}}}", f"{{m: {M}, n: {N}}}") as it:
        looks(it, 0)
        assert not it.accounts.is_over(KEY, 5.0)
        group(tmp_path, 1000, 950)
        looks(it, 6)
        assert it.accounts.is_over(KEY, 11.0)
        assert not it.accounts.is_over(("x", "a"), 11.0)
    for memory, over in ((600, True), (1000, False)):  # nobody measures: then as declared
        with made(f"{{d: {{memory: {memory}, headroom: 10%}}}}", f"{{m: {M}, n: {N}}}") as it:
            it.accounts.resident(KEY)
            assert it.accounts.is_over(KEY, 0.0) is over
    with made("{d: {}}", f"{{n: {N}}}") as it:
        it.accounts.resident(KEY)
        assert not it.accounts.is_over(KEY, 0.0), "nobody knows how large it is"

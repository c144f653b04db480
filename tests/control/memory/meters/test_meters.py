"""Looks at devices: in threads of their own, about once a second, never two at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

from steelyard.config import DeviceConfig
from steelyard.control.memory.meters.devices import MeterReading
from steelyard.control.memory.meters.poller import EAGER_READS, FAILURE_RETRY_SECONDS, HUNG_AFTER_SECONDS, MeterPoller

from ...driving import WAIT_TIMEOUT_SECONDS, run, until
from ..making import at_once
from .test_cgroup import group


class Later:
    """Runs nothing before it is told to."""

    def __init__(self) -> None:
        self.begun: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], None]) -> None:
        self.begun.append(work)

    def finish(self) -> None:
        self.begun.pop()()


def at(folder: Path) -> dict[str, DeviceConfig]:
    return {"d": DeviceConfig(cgroup=str(folder))}


def test_about_once_a_second_after_an_eager_start(tmp_path: Path) -> None:
    group(tmp_path, 1000, 10)
    meters = MeterPoller(Random(1), at_once)
    meters.set_devices(at(tmp_path), 0.0)
    began = [seen.began for tick in range(1000) for seen in meters.tick(tick / 100)]
    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert all(pause < 0.05 for pause in pauses[: EAGER_READS - 1])
    assert all(0.85 < pause < 1.15 for pause in pauses[EAGER_READS:])
    assert len(set(pauses[EAGER_READS:])) > 1, "jittered"


def test_never_two_at_once_however_long_one_takes(tmp_path: Path) -> None:
    group(tmp_path, 1000, 10)
    later = Later()
    meters = MeterPoller(Random(1), later)
    meters.set_devices(at(tmp_path), 0.0)
    problems = [seen.reading.problem for tick in range(60) for seen in meters.tick(float(tick))]
    assert len(later.begun) == 1
    assert problems == [f"it does not answer: a reading began {HUNG_AFTER_SECONDS + 1:.0f} s ago"]
    later.finish()
    assert [seen.reading for seen in meters.tick(61.0)] == [MeterReading(1000, 10)]


def test_after_a_failure_it_is_asked_less_often(tmp_path: Path) -> None:
    meters = MeterPoller(Random(1), at_once)
    meters.set_devices(at(tmp_path / "none"), 0.0)
    seen = [seen for tick in range(200) for seen in meters.tick(tick / 10)]
    assert all(each.reading.problem for each in seen)
    assert len(seen) <= 20.0 / FAILURE_RETRY_SECONDS + 1


def test_only_devices_of_this_machine_and_others_when_told_so(tmp_path: Path) -> None:
    meters = MeterPoller(Random(1), at_once)
    meters.set_devices({"far": DeviceConfig(), "near": DeviceConfig(cgroup=str(group(tmp_path / "a", 5, 1)))}, 0.0)
    meters.tick(0.0)
    assert [seen.device for seen in meters.tick(0.1)] == ["near"]
    assert (meters.source("near"), meters.source("far")) == ("cgroup", "")
    meters.set_devices({"near": DeviceConfig(cgroup=str(group(tmp_path / "b", 7, 1)))}, 1.0)
    meters.tick(1.0)
    assert [seen.reading.capacity for seen in meters.tick(1.1)] == [7]
    meters.set_devices({"near": DeviceConfig(gpu="0")}, 2.0)
    assert meters.source("near") == "nvml"


def test_no_thread_is_left_to_be_had(tmp_path: Path) -> None:
    def full(work: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    meters = MeterPoller(Random(1), full)
    meters.set_devices(at(group(tmp_path, 1000, 10)), 0.0)
    meters.tick(0.0)
    assert [seen.reading.problem for seen in meters.tick(0.1)] == ["it cannot be measured: can't start new thread"]


def test_in_real_threads_and_none_is_left(tmp_path: Path) -> None:
    group(tmp_path, 1000, 10)

    async def looks() -> None:
        meters, seen = MeterPoller(), []
        loop = asyncio.get_running_loop()
        meters.set_devices(at(tmp_path), loop.time())
        await until(lambda: seen.extend(meters.tick(loop.time())) or seen)
        assert seen[0].reading == MeterReading(1000, 10)
        await meters.close()
        await until(lambda: all(t.name != "steelyard-meter" for t in threading.enumerate()))

    run(looks())


def test_the_end_does_not_wait_for_one_that_hangs(tmp_path: Path) -> None:
    group(tmp_path, 1000, 10)
    go_on = threading.Event()

    def hang(work: Callable[[], None]) -> None:
        threading.Thread(target=lambda: (go_on.wait(WAIT_TIMEOUT_SECONDS), work()), daemon=True).start()

    async def ends() -> None:
        meters = MeterPoller(Random(1), hang)
        meters.set_devices(at(tmp_path), 0.0)
        meters.tick(0.0)
        await meters.close()
        assert meters.tick(1.0) == []

    run(ends())
    go_on.set()

"""The memory of a GPU by NVML. There is no GPU here: a stand-in for the module `pynvml` answers as the real one."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from steelyard.control.memory.meters.devices import NOT_INSTALLED, GpuMeter, MeterReading, Nvml

GIB = 1 << 30
UUID = "GPU-8f6d1f0e-0000-0000-0000-000000000000"


class NVMLError(Exception):
    pass


class StandIn(ModuleType):
    """For the package nvidia-ml-py."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.opened = 0
        self.closed = 0
        self.failing: str = ""

    def nvmlInit(self) -> None:
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetHandleByIndex(self, number: int) -> str:
        if number != 0:
            raise NVMLError("Invalid Argument")
        return "first"

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        if name != UUID:
            raise NVMLError("Not Found")
        return "first"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        if self.failing:
            raise NVMLError(self.failing)
        return SimpleNamespace(total=80 * GIB, used=3 * GIB, free=77 * GIB)


@pytest.fixture
def pynvml(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    return stand_in


@pytest.mark.parametrize("gpu", ["0", UUID])
def test_by_number_and_by_uuid(pynvml: StandIn, gpu: str) -> None:
    assert GpuMeter(gpu, Nvml()).read() == MeterReading(80 * GIB, 3 * GIB)


def test_opened_once_for_all_looks(pynvml: StandIn) -> None:
    nvml = Nvml()
    for _ in range(3):
        GpuMeter("0", nvml).read()
    assert (pynvml.opened, pynvml.closed) == (1, 0)
    nvml.close()
    nvml.close()
    assert pynvml.closed == 1


def test_no_such_gpu(pynvml: StandIn) -> None:
    assert GpuMeter("3", Nvml()).read() == MeterReading(problem="GPU 3 cannot be measured: Invalid Argument")


def test_a_driver_that_was_reloaded(pynvml: StandIn) -> None:
    meter = GpuMeter("0", Nvml())
    meter.read()
    pynvml.failing = "GPU is lost"
    assert meter.read().problem == "GPU 0 cannot be measured: GPU is lost"
    pynvml.failing = ""
    assert meter.read().capacity == 80 * GIB
    assert pynvml.opened == 2


def test_the_package_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert GpuMeter("0", Nvml()).read() == MeterReading(problem=NOT_INSTALLED)

"""GPU memory is told by whoever the app has brought along, and nothing that is wrong with a GPU is our trouble."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from steelyard.replica.memory import gpu
from steelyard.replica.memory.gpu import GpuMemory, read_gpus

GIB = 1 << 30


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "nvml_library", gpu.NvmlLibrary())
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import of it fails
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


class Cuda:
    """Two devices, of which the app uses some."""

    def __init__(self, reserved: dict[int, int], initialized: bool = True) -> None:
        self.reserved = reserved
        self.initialized = initialized
        self.asked: list[int] = []

    def is_initialized(self) -> bool:
        return self.initialized

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return 1

    def memory_reserved(self, device: int) -> int:
        return self.reserved.get(device, 0)

    def mem_get_info(self, device: int) -> tuple[int, int]:
        self.asked.append(device)
        return 30 * GIB, 80 * GIB

    def max_memory_allocated(self, device: int) -> int:
        return 60 * GIB


def with_torch(monkeypatch: pytest.MonkeyPatch, cuda: Any) -> None:
    torch = ModuleType("torch")
    torch.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)


def test_torch_tells_of_the_devices_it_has_memory_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda({0: GIB})
    with_torch(monkeypatch, cuda)
    assert read_gpus() == (GpuMemory("cuda:0", 50 * GIB, 80 * GIB, 60 * GIB),)
    assert cuda.asked == [0]  # to ask of the other would open it


def test_torch_that_has_nothing_yet_tells_of_its_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with_torch(monkeypatch, Cuda({}))
    assert [device.name for device in read_gpus()] == ["cuda:1"]


def test_torch_that_has_not_opened_a_gpu_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda({0: GIB}, initialized=False)
    with_torch(monkeypatch, cuda)
    assert read_gpus() == ()
    assert cuda.asked == []


@pytest.mark.parametrize("cuda", [None, SimpleNamespace(), SimpleNamespace(is_initialized=lambda: 1 / 0)])
def test_a_torch_that_is_odd_is_no_trouble(monkeypatch: pytest.MonkeyPatch, cuda: Any) -> None:
    with_torch(monkeypatch, cuda)
    assert read_gpus() == ()


def test_torch_is_never_imported() -> None:
    read_gpus()
    assert "torch" not in sys.modules


class Nvml(ModuleType):
    def __init__(self, working: bool = True) -> None:
        super().__init__("pynvml")
        self.working = working
        self.opened = 0

    def nvmlInit(self) -> None:
        self.opened += 1
        if not self.working:
            raise RuntimeError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        if not 0 <= number < 3:
            raise RuntimeError("no such device")
        return number

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return {"GPU-b": 1}[uuid]

    def nvmlDeviceGetIndex(self, handle: int) -> int:
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=handle * GIB, total=24 * GIB)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-b", [1]),
        ("", []),
        ("-1", []),
        ("1,-1,2", [1]),
        ("7", []),
        ("GPU-x", []),
    ],
)
def test_nvml_tells_of_the_visible_ones(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[int]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert read_gpus() == tuple(GpuMemory(f"nvml:{number}", number * GIB, 24 * GIB) for number in expected)


def test_nvml_that_does_not_work_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(working=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert [read_gpus() for _ in range(3)] == [(), (), ()]
    assert nvml.opened == 1

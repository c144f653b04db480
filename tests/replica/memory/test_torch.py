"""What the agent makes of torch's allocator. `torch` is a stand-in here, with the names and figures of the real one; on
a real GPU the same parts are used by benchmarks/gpu_memory.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from steelyard.replica import ReplicaAgent
from steelyard.replica.memory import gpu
from steelyard.replica.memory.gauge import DEFAULT_CONTEXT_BYTES, GaugeReading, MemoryGauge
from steelyard.replica.memory.peaks import MeasuredSection, PeakTracker

from ..talking import ask, run
from .test_gpu import Nvml

GIB = 1 << 30


class Cuda:
    """An allocator that keeps what is freed, as torch's does."""

    def __init__(self, count: int = 1) -> None:
        self.allocated = [0] * count
        self.peak = [0] * count
        self.reserved = [0] * count
        self.emptied = 0
        self.initialized = True

    def use(self, amount: int, device: int = 0) -> None:
        self.allocated[device] += amount
        self.peak[device] = max(self.peak[device], self.allocated[device])
        self.reserved[device] = max(self.reserved[device], self.allocated[device])

    def is_initialized(self) -> bool:
        return self.initialized

    def device_count(self) -> int:
        return len(self.allocated)

    def current_device(self) -> int:
        return 0

    def memory_allocated(self, device: int) -> int:
        return self.allocated[device]

    def max_memory_allocated(self, device: int) -> int:
        return self.peak[device]

    def memory_reserved(self, device: int) -> int:
        return self.reserved[device]

    def reset_peak_memory_stats(self, device: int) -> None:
        self.peak[device] = self.allocated[device]

    def mem_get_info(self, device: int) -> tuple[int, int]:
        return 80 * GIB - self.reserved[device] - GIB, 80 * GIB

    def get_device_properties(self, device: int) -> Any:
        return SimpleNamespace(total_memory=80 * GIB, uuid=f"uuid-{device}")

    def empty_cache(self) -> None:
        self.emptied += 1
        self.reserved = list(self.allocated)


class NestedCuda(Cuda):
    """Newer ones tell all in one call."""

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        return {
            "allocated_bytes": {"all": {"current": self.allocated[device], "peak": self.peak[device]}},
            "reserved_bytes": {"all": {"current": self.reserved[device]}},
        }


class DriverThatCounts(Nvml):
    """NVML with what each process uses, which the plain stand-in does not tell."""

    def __init__(self, used: int, pid: int | None = None) -> None:
        super().__init__()
        self.used = used
        self.pid = pid

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return {"GPU-uuid-0": 0, "GPU-uuid-1": 1}[uuid]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        other = SimpleNamespace(pid=1, usedGpuMemory=7 * GIB)
        own = SimpleNamespace(pid=os.getpid() if self.pid is None else self.pid, usedGpuMemory=self.used)
        return [other, own] if handle == 0 else []


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "nvml_library", gpu.NvmlLibrary())
    monkeypatch.setattr(gpu, "torch_peaks", {})
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def with_torch(monkeypatch: pytest.MonkeyPatch, cuda: Any) -> None:
    torch = ModuleType("torch")
    torch.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.fixture(params=[Cuda, NestedCuda])
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = request.param()
    with_torch(monkeypatch, found)
    return found


def test_what_is_held_is_what_torch_has_reserved_and_the_context(cuda: Cuda) -> None:
    cuda.use(3 * GIB)
    cuda.use(-GIB)
    assert MemoryGauge().read() == GaugeReading("cuda:0", 2 * GIB, 3 * GIB, DEFAULT_CONTEXT_BYTES, GIB, 80 * GIB)
    reading = MemoryGauge().read()
    assert reading is not None
    assert (reading.base, reading.held) == (2 * GIB + DEFAULT_CONTEXT_BYTES, 3 * GIB + DEFAULT_CONTEXT_BYTES)


@pytest.mark.parametrize(
    ("used", "pid", "context"),
    [
        (3 * GIB, None, GIB),
        (3 * GIB, 99, DEFAULT_CONTEXT_BYTES),
        (GIB, None, DEFAULT_CONTEXT_BYTES),
        (60 * GIB, None, DEFAULT_CONTEXT_BYTES),
        (0, None, DEFAULT_CONTEXT_BYTES),
    ],
    ids=["told", "a number of another container", "less than reserved", "far too much", "not available"],
)
def test_the_context_is_what_the_driver_counts_besides(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, used: int, pid: int | None, context: int
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", DriverThatCounts(used, pid))
    cuda.use(2 * GIB)
    reading = MemoryGauge().read()
    assert reading is not None
    assert reading.overhead == context


def test_of_several_gpus_the_one_used_most_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = NestedCuda(3)
    with_torch(monkeypatch, cuda)
    now = [100.0]
    gauge = MemoryGauge(lambda: now[0])
    cuda.use(GIB, 1)
    assert gauge.read() == GaugeReading("cuda:1", GIB, GIB, DEFAULT_CONTEXT_BYTES, 0, 80 * GIB)
    cuda.use(2 * GIB, 2)
    now[0] += 1.5
    reading = gauge.read()
    assert reading is not None
    assert reading.source == "cuda:2"


def test_without_torch_the_driver_tells_what_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", DriverThatCounts(5 * GIB))
    gauge = MemoryGauge()
    assert gauge.read() == GaugeReading("nvml:0", 5 * GIB, None)
    assert gauge.reset() is None  # it does not tell peaks


def test_a_torch_that_has_no_gpu_open_is_left_alone(cuda: Cuda) -> None:
    cuda.initialized = False
    reading = MemoryGauge().read()
    assert reading is not None
    assert reading.source == "process"


def test_a_torch_that_is_odd_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with_torch(monkeypatch, SimpleNamespace(is_initialized=lambda: True))
    assert MemoryGauge().read() is None
    assert MemoryGauge().reset() is None
    MemoryGauge().empty_cache()


def test_a_peak_is_over_what_there_was(cuda: Cuda) -> None:
    gauge = MemoryGauge()
    peaks = PeakTracker(gauge, lambda reading: reading.used)
    cuda.use(10 * GIB)
    cuda.use(-8 * GIB)  # loading takes more than what is loaded
    for needed in (3, 1, 2):
        request = peaks.open(asked=True)
        cuda.use(needed * GIB)
        cuda.use(-needed * GIB)
        assert peaks.request_bytes(request) == needed * GIB
        peaks.close(request)
    assert gpu.read_gpus()[0].peak == 10 * GIB  # the most ever, though torch was told to count anew


def test_a_gpu_opened_by_the_first_request_is_not_its_peak(cuda: Cuda) -> None:
    cuda.initialized = False
    peaks = PeakTracker(MemoryGauge(), lambda reading: reading.used)
    request = peaks.open(asked=True)
    cuda.initialized = True
    cuda.use(GIB)
    assert peaks.request_bytes(request) is None


def test_the_report_of_an_answer_tells_it(cuda: Cuda) -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=())
        cuda.use(2 * GIB)

        async def app(given: Any, receive: Any, send: Any) -> None:
            await asyncio.to_thread(work)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

        def work() -> None:
            cuda.use(GIB)  # the batch
            with MeasuredSection(agent.footprint.peaks):
                cuda.use(3 * GIB)
                cuda.use(-3 * GIB)
            cuda.use(-GIB)

        agent.ready()
        response = await ask(agent.wrap(app), endpoint_load_metrics_format="JSON")
        named = json.loads(response.headers["endpoint-load-metrics"].removeprefix("JSON "))["named_metrics"]
        assert named["memory_request_bytes"] == 3 * GIB
        assert named["memory_base_bytes"] == 2 * GIB + DEFAULT_CONTEXT_BYTES
        assert named["memory_held_bytes"] == 6 * GIB + DEFAULT_CONTEXT_BYTES  # 5 % of 80 GiB may be kept
        assert cuda.emptied == 0

    run(story())


@pytest.mark.parametrize(
    ("spare", "emptied"), [("5%", False), ("4%", True), ("3GiB", True), (5 * GIB, False), (0, True), (None, False)]
)
def test_what_torch_keeps_is_given_back_before_the_report(cuda: Cuda, spare: Any, emptied: bool) -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), max_cached_memory=spare)
        cuda.use(2 * GIB)

        async def app(given: Any, receive: Any, send: Any) -> None:
            cuda.use(4 * GIB)
            cuda.use(-4 * GIB)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

        agent.ready()
        response = await ask(agent.wrap(app), endpoint_load_metrics_format="JSON")
        named = json.loads(response.headers["endpoint-load-metrics"].removeprefix("JSON "))["named_metrics"]
        assert named["memory_held_bytes"] == (2 if emptied else 6) * GIB + DEFAULT_CONTEXT_BYTES
        assert named["memory_request_bytes"] == 4 * GIB
        assert bool(cuda.emptied) == emptied

    run(story())


def test_out_of_memory_gives_back_what_the_request_had(cuda: Cuda) -> None:
    """The exception holds the frames, and those the tensors: they must be gone before the cache is emptied."""

    class Tensor:
        def __init__(self) -> None:
            cuda.use(GIB)

        def __del__(self) -> None:
            cuda.use(-GIB)

    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), max_cached_memory=None)

        def work() -> None:
            batch = Tensor()
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB", batch.__class__)

        async def app(given: Any, receive: Any, send: Any) -> None:
            await asyncio.to_thread(work)

        agent.ready()
        response = await ask(agent.wrap(app), endpoint_load_metrics_format="JSON")
        assert response.status == 507
        assert (cuda.allocated, cuda.reserved, cuda.emptied) == ([0], [0], 1)

    run(story())

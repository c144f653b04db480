"""The memory of the GPUs of this process, from torch or NVML. Never loads torch, opens a GPU, or fails."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, NamedTuple


class GpuMemory(NamedTuple):
    """Bytes of all processes on this GPU."""

    name: str
    used: int
    total: int
    peak: int | None = None  # that torch allocated in this process


def read_gpus() -> tuple[GpuMemory, ...]:
    for look in (_torch, _nvml):
        try:
            found = look()
        except Exception:  # a driver that is gone, another version
            continue
        if found:
            return found
    return ()


def initialized_cuda() -> Any:
    """torch.cuda, if the app has used a GPU with torch."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _torch() -> tuple[GpuMemory, ...]:
    """Only opened devices: a question to another one opens it, which takes some hundred megabytes."""
    cuda = initialized_cuda()
    if cuda is None:
        return ()
    used = [number for number in range(cuda.device_count()) if cuda.memory_reserved(number) > 0]
    return tuple(_of_torch(cuda, number) for number in used or [cuda.current_device()])


def _of_torch(cuda: Any, number: int) -> GpuMemory:
    free, total = cuda.mem_get_info(number)
    peak = max(cuda.max_memory_allocated(number), torch_peaks.get(number, 0))
    return GpuMemory(f"cuda:{number}", total - free, total, peak)


torch_peaks: dict[int, int] = {}  # by GPU, before the last reset of torch


def remember_peak(number: int, peak: int) -> None:
    torch_peaks[number] = max(peak, torch_peaks.get(number, 0))


class NvmlLibrary:
    """NVML, opened when it is first asked for; a fork opens its own."""

    def __init__(self) -> None:
        self._process = 0  # that opened it
        self._opened: Any = None
        self._unavailable = False

    def get(self) -> Any:
        """None: not installed, or it did not work."""
        if self._unavailable:
            return None
        if self._process != os.getpid():
            self._unavailable = True  # until it has worked: tried once without a GPU
            self._opened = _open()
            self._process = os.getpid()
            self._unavailable = False
        return self._opened


nvml_library = NvmlLibrary()


def _nvml() -> tuple[GpuMemory, ...]:
    nvml = nvml_library.get()
    return () if nvml is None else tuple(_of_nvml(nvml, handle) for handle in _visible(nvml))


def process_gpu_bytes(cuda: Any = None, number: int = 0) -> tuple[str, int] | None:
    """The GPU that this process uses most, or `number` of `cuda`, and its bytes there by the driver. None: as in
    a container with its own process numbers."""
    try:
        nvml = nvml_library.get()
        if nvml is None:
            return None
        handles = _visible(nvml) if cuda is None else [_handle(nvml, cuda, number)]
        found = [(used, handle) for handle in handles if (used := _own_bytes(nvml, handle)) is not None]
        if not found:
            return None
        used, handle = max(found, key=lambda one: one[0])
        return f"nvml:{nvml.nvmlDeviceGetIndex(handle)}", used
    except Exception:
        return None


def _own_bytes(nvml: Any, handle: Any) -> int | None:
    process = os.getpid()
    for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if one.pid == process and one.usedGpuMemory:
            return int(one.usedGpuMemory)
    return None


def _handle(nvml: Any, cuda: Any, number: int) -> Any:
    """By UUID: torch and the driver may number GPUs differently."""
    uuid = getattr(cuda.get_device_properties(number), "uuid", None)
    if uuid is None:
        return _visible(nvml)[number]
    return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")


def _open() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an older package of that name warns
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]
    pynvml.nvmlInit()
    return pynvml


def _visible(nvml: Any) -> list[Any]:
    """Those of CUDA_VISIBLE_DEVICES, by number or UUID; without it, all."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    found = []
    for name in filter(None, map(str.strip, named.split(","))):
        if name.startswith(("GPU-", "MIG-")):
            found.append(nvml.nvmlDeviceGetHandleByUUID(name))
        elif name.isdigit():
            found.append(nvml.nvmlDeviceGetHandleByIndex(int(name)))
        else:
            break  # as CUDA does, at -1
    return found


def _of_nvml(nvml: Any, handle: Any) -> GpuMemory:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return GpuMemory(f"nvml:{nvml.nvmlDeviceGetIndex(handle)}", int(memory.used), int(memory.total))

"""The memory of the GPUs this process uses: from torch if the app has it, else from NVML if it is installed.

Nothing here loads torch or opens a GPU that the app has not opened, and nothing here may fail: it is only a look.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, NamedTuple


class GpuMemory(NamedTuple):
    """Bytes; used by all who use this GPU, not only by us."""

    name: str
    used: int
    total: int
    peak: int | None = None  # the most that torch has had allocated in this process


def read_gpus() -> tuple[GpuMemory, ...]:
    for look in (_torch, _nvml):
        try:
            found = look()
        except Exception:  # a driver that is gone, a version that is different: then it is not known
            continue
        if found:
            return found
    return ()


def _torch() -> tuple[GpuMemory, ...]:
    """Only what is opened already: to ask of another device would open it, which takes some hundred megabytes."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return ()
    used = [number for number in range(cuda.device_count()) if cuda.memory_reserved(number) > 0]
    return tuple(_of_torch(cuda, number) for number in used or [cuda.current_device()])


def _of_torch(cuda: Any, number: int) -> GpuMemory:
    free, total = cuda.mem_get_info(number)
    peak = max(cuda.max_memory_allocated(number), _peaks.get(number, 0))
    return GpuMemory(f"cuda:{number}", total - free, total, peak)


_peaks: dict[int, int] = {}  # by GPU: the most before torch was told to count anew


def remember_peak(number: int, peak: int) -> None:
    _peaks[number] = max(peak, _peaks.get(number, 0))


_opened: tuple[int, Any] | None = None  # by which process, and NVML: a fork must open its own
_unavailable = False


def _nvml() -> tuple[GpuMemory, ...]:
    nvml = _library()
    return () if nvml is None else tuple(_of_nvml(nvml, handle) for handle in _visible(nvml))


def process_gpu_bytes(cuda: Any = None, number: int = 0) -> tuple[str, int] | None:
    """The GPU and the bytes of it that the driver counts to this process, of the one it uses most.

    With torch, of that device of torch's. None: not told, as in a container with process numbers of its own.
    """
    try:
        nvml = _library()
        if nvml is None:
            return None
        handles = _visible(nvml) if cuda is None else [_handle(nvml, cuda, number)]
        found = [(used, handle) for handle in handles if (used := _own_bytes(nvml, handle)) is not None]
        if not found:
            return None
        used, handle = max(found, key=lambda one: one[0])
        return f"nvml:{nvml.nvmlDeviceGetIndex(handle)}", used
    except Exception:  # as above
        return None


def _own_bytes(nvml: Any, handle: Any) -> int | None:
    process = os.getpid()
    for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if one.pid == process and one.usedGpuMemory:
            return int(one.usedGpuMemory)
    return None


def _handle(nvml: Any, cuda: Any, number: int) -> Any:
    """By UUID: torch may number GPUs otherwise than the driver does."""
    uuid = getattr(cuda.get_device_properties(number), "uuid", None)
    if uuid is None:
        return _visible(nvml)[number]
    return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")


def _library() -> Any:
    """NVML, opened; None: not here."""
    global _opened, _unavailable
    if _unavailable:
        return None
    if _opened is None or _opened[0] != os.getpid():
        _unavailable = True  # until it has worked: who has no GPU is asked once
        _opened = (os.getpid(), _open())
        _unavailable = False
    return _opened[1]


def _open() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an older package of that name warns that it is old
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]
    pynvml.nvmlInit()
    return pynvml


def _visible(nvml: Any) -> list[Any]:
    """Those of CUDA_VISIBLE_DEVICES, by number or by UUID; without it all."""
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
            break  # as CUDA does: -1 and what follows it are not there
    return found


def _of_nvml(nvml: Any, handle: Any) -> GpuMemory:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return GpuMemory(f"nvml:{nvml.nvmlDeviceGetIndex(handle)}", int(memory.used), int(memory.total))

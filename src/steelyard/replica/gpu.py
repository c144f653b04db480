"""The memory of the GPUs this process uses, from whoever knows: torch if the app has it, else NVML if it is installed.

Nothing here loads torch or opens a GPU that the app has not opened, and nothing here may fail: it is only a look.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, NamedTuple


class Device(NamedTuple):
    """Bytes; used by all who use this GPU, not only by us."""

    name: str
    used: int
    total: int
    peak: int | None = None  # the most that torch has had allocated in this process


def devices() -> tuple[Device, ...]:
    for look in (_torch, _nvml):
        try:
            found = look()
        except Exception:  # a driver that is gone, a version that is different: then it is not known
            continue
        if found:
            return found
    return ()


def _torch() -> tuple[Device, ...]:
    """Only what is opened already: to ask of another device would open it, which takes some hundred megabytes."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return ()
    used = [number for number in range(cuda.device_count()) if cuda.memory_reserved(number) > 0]
    return tuple(_of_torch(cuda, number) for number in used or [cuda.current_device()])


def _of_torch(cuda: Any, number: int) -> Device:
    free, total = cuda.mem_get_info(number)
    return Device(f"cuda:{number}", total - free, total, cuda.max_memory_allocated(number))


_opened: tuple[int, Any] | None = None  # by which process, and NVML: a fork must open its own
_absent = False


def _nvml() -> tuple[Device, ...]:
    global _opened, _absent
    if _absent:
        return ()
    if _opened is None or _opened[0] != os.getpid():
        _absent = True  # until it has worked: who has no GPU is asked once
        _opened = (os.getpid(), _open())
        _absent = False
    return tuple(_of_nvml(_opened[1], handle) for handle in _visible(_opened[1]))


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


def _of_nvml(nvml: Any, handle: Any) -> Device:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Device(f"nvml:{nvml.nvmlDeviceGetIndex(handle)}", int(memory.used), int(memory.total))

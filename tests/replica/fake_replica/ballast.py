"""Real memory for the fake replica: as much as it is told, every page of it touched, and all of it given back."""

from __future__ import annotations

import mmap
import os
import resource
import threading

from steelyard.units import parse_size

PAGE = mmap.PAGESIZE
TOUCH_STEP_BYTES = 8 << 20  # touched before other threads have a turn
THREAD_STACK_BYTES = 512 << 10  # for each thread: the usual 8 MiB count against a limit, though nobody uses them
SEEN = ("VmData", "VmRSS")
OOM_KILLED_EXIT_CODE = 137  # the exit code of a process that the kernel's out-of-memory killer has ended


class Ballast:
    """What is taken is the kernel's own to give and to take back: no allocator keeps any of it."""

    def __init__(self, die: bool = False) -> None:
        self._die = die

    def take(self, amount: int) -> mmap.mmap | None:
        """Blocks while the pages are touched. MemoryError: the limit does not allow it (or the process ends here)."""
        if amount <= 0:
            return None
        try:
            memory = mmap.mmap(-1, amount, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, MemoryError):
            if self._die:
                os._exit(OOM_KILLED_EXIT_CODE)
            raise MemoryError(f"no room for {amount} bytes") from None
        for at in range(0, amount, TOUCH_STEP_BYTES):
            end = min(at + TOUCH_STEP_BYTES, amount)
            memory[at:end:PAGE] = b"\1" * -(-(end - at) // PAGE)
        return memory


def limit(most: int) -> None:
    """Bounds what this process has resident, as a cgroup would.

    RLIMIT_DATA counts private memory that can be written, used or not (RLIMIT_AS would count libraries and reserved
    addresses too), so what the process has not used of it by now is allowed on top.
    """
    threading.stack_size(THREAD_STACK_BYTES)
    os.environ["UV_THREADPOOL_SIZE"] = "1"  # of the loop: four stacks more, which nobody uses here
    with open("/proc/self/status", encoding="ascii") as file:
        kib = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in file) if name in SEEN}
    most += max(0, kib["VmData"] - kib["VmRSS"]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def sizes(given: str) -> dict[str, int]:
    """Of `a=256MiB,b=1GiB`. ValueError says what is wrong."""
    found: dict[str, int] = {}
    for part in given.split(","):
        name, sign, much = part.strip().partition("=")
        if not name or not sign:
            raise ValueError(f"{part!r} is no model with its size: write for example a=256MiB")
        found[name] = parse_size(much)
    return found

"""How much memory this worker may still take, and what it does when that is little.

The kernel limits a process (RLIMIT_AS, RLIMIT_DATA) and its cgroups; the least that is left counts. It is measured some
times a second, never for a request:

- A reserve is kept for what is not counted: heads, answers on their way, connections.
- Bodies may take half of the rest, because a body may be there twice while it is sent. While that is less than
  `limits.total_buffer_bytes` every body counts.
- Below half of the reserve, new connections and requests are refused: 503 `memory_low`.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...link import cgroup
from ...units import format_size
from ..http import local_replies
from ..proxy.proxy import Proxy, ResourceAlarm

RESERVE_BYTES: Final = 16 << 20
CHECK_SECONDS: Final = 0.5
TIGHT_CHECK_SECONDS: Final = 0.05  # while bodies may take less than configured
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
PROCESS_LIMITS: Final = ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5))  # and their field in /proc/self/statm


def allocate_blas_buffers() -> None:
    """OpenBLAS takes tens of MiB with the first product, or ends the process: better now than under traffic."""
    small = np.eye(2)
    np.linalg.solve(small @ small, small)


class MemoryMonitor:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._group = cgroup.process_cgroup()
        self._alarm = ResourceAlarm("memory_low")
        proxy.resource_alarms.append(self._alarm)
        allocate_blas_buffers()
        self.check()

    def check(self) -> None:
        proxy = self._proxy
        left = self.measure()
        buffers, wanted = proxy.buffers, int(proxy.limits.total_buffer_bytes)
        room = wanted if left is None else max(0, buffers.held_bytes + (left - RESERVE_BYTES) // 2)
        proxy.memory_tight = room < wanted
        proxy.memory_low = left is not None and left < RESERVE_BYTES // 2
        buffers.budget = min(wanted, room)
        buffers.full_reply = local_replies.MEMORY_LOW if proxy.memory_tight else local_replies.BUFFERS_FULL
        if left is not None and (proxy.memory_low or (proxy.memory_tight and buffers.refused)):
            self.trigger_alarm(left)
        buffers.refused = False
        proxy.loop.call_later(TIGHT_CHECK_SECONDS if proxy.memory_tight else CHECK_SECONDS, self.check)

    def trigger_alarm(self, left: int) -> None:
        what = f"{format_size(left)} of memory are left under its limit, so requests are refused"
        self._alarm.trigger(
            f"{what}: raise the limit, or lower limits.total_buffer_bytes and limits.connections", self._proxy.clock()
        )

    def measure(self) -> int | None:
        """Bytes; None: there is no limit."""
        found = []
        sizes: list[str] = []
        for kind, place in PROCESS_LIMITS:
            limit = resource.getrlimit(kind)[0]
            if limit != resource.RLIM_INFINITY:
                sizes = sizes or Path("/proc/self/statm").read_text().split()
                found.append(limit - int(sizes[place]) * PAGE_BYTES)
        if self._group is not None:
            folder, version = self._group
            try:
                found += [
                    limit - cgroup.memory_needed(level, version)
                    for level, limit in cgroup.memory_limits(folder, version)
                ]
            except (OSError, ValueError):  # it is being moved to another group
                self._group = cgroup.process_cgroup()
        return min(found, default=None)

    def handle_loop_exception(self, loop: Any, context: dict[str, Any]) -> None:
        """Without memory anything may raise: that is one alarm, no traceback."""
        if isinstance(context.get("exception"), MemoryError):
            self.trigger_alarm(max(0, self.measure() or 0))
        else:
            loop.default_exception_handler(context)

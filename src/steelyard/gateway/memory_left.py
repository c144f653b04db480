"""How much memory this worker may still take, and what it does when that is little.

The kernel limits a process (RLIMIT_AS, RLIMIT_DATA) and the groups it is in (cgroups); the least that is left counts.
It is looked at some times a second, never for a request:

- Some is kept in reserve for all that is not counted: heads, answers on their way, connections.
- Bodies may take half of the rest, because a body may be there twice while it is sent. While that is less than
  `limits.buffered` each body counts, also one that came in one piece.
- Below half of the reserve, new connections and new requests are refused: 503 `memory_low`.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..link import cgroup
from ..units import show_size
from . import answers
from .shortages import Shortage

if TYPE_CHECKING:
    from .carrier import Carrier

RESERVE: Final = 16 << 20  # bytes
LOOK_SECONDS: Final = 0.5
LOOK_SECONDS_TIGHT: Final = 0.05  # while bodies may take less than configured
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
PROCESS_LIMITS: Final = ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5))  # and their field in /proc/self/statm


def take_buffers_of_numpy() -> None:
    """OpenBLAS takes its buffers (tens of MiB of address space) with the first product, and ends the process if it
    cannot have them: better now than in the middle of the traffic."""
    small = np.eye(2)
    np.linalg.solve(small @ small, small)


class MemoryLeft:
    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._group = cgroup.own()
        self._shortage = Shortage("memory_low")
        carrier.shortages.append(self._shortage)
        take_buffers_of_numpy()
        self.look()

    def look(self) -> None:
        """Now, and again in a while."""
        carrier = self._carrier
        left = self.measure()
        buffers, wanted = carrier.buffers, int(carrier.limits.buffered)
        room = wanted if left is None else max(0, buffers.held + (left - RESERVE) // 2)
        carrier.tight = room < wanted
        carrier.low = left is not None and left < RESERVE // 2
        buffers.budget = min(wanted, room)
        buffers.full = answers.MEMORY_LOW if carrier.tight else answers.BUFFERS_FULL
        if left is not None and (carrier.low or (carrier.tight and buffers.refused)):
            self.felt(left)
        buffers.refused = False
        carrier.loop.call_later(LOOK_SECONDS_TIGHT if carrier.tight else LOOK_SECONDS, self.look)

    def felt(self, left: int) -> None:
        what = f"{show_size(left)} of memory are left under its limit, so requests are refused"
        self._shortage.felt(f"{what}: raise the limit, or lower limits.buffered and limits.connections", monotonic())

    def measure(self) -> int | None:
        """Bytes; None: there is no limit."""
        found = []
        sizes: list[str] = []
        for kind, place in PROCESS_LIMITS:
            limit = resource.getrlimit(kind)[0]
            if limit != resource.RLIM_INFINITY:
                sizes = sizes or Path("/proc/self/statm").read_text().split()
                found.append(limit - int(sizes[place]) * PAGE)
        if self._group is not None:
            folder, version = self._group
            try:
                found += [limit - cgroup.needed(level, version) for level, limit in cgroup.limits(folder, version)]
            except (OSError, ValueError):  # it is being moved to another group
                self._group = cgroup.own()
        return min(found, default=None)

    def problem(self, loop: Any, context: dict[str, Any]) -> None:
        """For the loop: what nobody caught. Without memory that may be anything, and is one alarm, no traceback."""
        if isinstance(context.get("exception"), MemoryError):
            self.felt(max(0, self.measure() or 0))
        else:
            loop.default_exception_handler(context)

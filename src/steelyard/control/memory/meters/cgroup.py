"""A device whose memory is that of a group of processes."""

from __future__ import annotations

from pathlib import Path

from ....link.cgroup import CGROUP_ROOT, find_cgroup, memory_limits, memory_used
from .base import MeterReading


class CgroupMeter:
    source = "cgroup"

    def __init__(self, path: str, mounted: Path = CGROUP_ROOT) -> None:
        self._path = path
        self._mounted = mounted

    def read(self) -> MeterReading:
        """A limit of any group around it holds for it too, and there others use some of it."""
        try:
            found = find_cgroup(self._path, self._mounted)
            if found is None:
                return MeterReading(
                    problem=f"the cgroup {self._path} cannot be measured: there is none that counts memory"
                )
            folder, version = found
            in_use = memory_used(folder, version)
            known = [(limit, limit - memory_used(level, version)) for level, limit in memory_limits(folder, version)]
        except (OSError, ValueError) as problem:
            return MeterReading(problem=f"the cgroup {self._path} cannot be measured: {problem}")
        if not known:
            what = f"the cgroup {self._path} has no limit of memory, so its size is not known"
            return MeterReading(used=in_use, problem=what)
        capacity = min(limit for limit, _ in known)
        free = min(free for _, free in known)
        return MeterReading(capacity, max(in_use, capacity - free))

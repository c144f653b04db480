"""A device whose memory is that of a group of processes."""

from __future__ import annotations

from pathlib import Path

from ...link.cgroup import MOUNTED, find, limits, used
from .look import Look


class CgroupMeter:
    source = "cgroup"

    def __init__(self, path: str, mounted: Path = MOUNTED) -> None:
        self._path = path
        self._mounted = mounted

    def look(self) -> Look:
        """A limit of any group around it holds for it too, and there others use some of it."""
        try:
            found = find(self._path, self._mounted)
            if found is None:
                return Look(problem=f"the cgroup {self._path} cannot be measured: there is none that counts memory")
            folder, version = found
            in_use = used(folder, version)
            known = [(limit, limit - used(level, version)) for level, limit in limits(folder, version)]
        except (OSError, ValueError) as problem:
            return Look(problem=f"the cgroup {self._path} cannot be measured: {problem}")
        if not known:
            what = f"the cgroup {self._path} has no limit of memory, so its size is not known"
            return Look(used=in_use, problem=what)
        capacity = min(limit for limit, _ in known)
        free = min(free for _, free in known)
        return Look(capacity, max(in_use, capacity - free))

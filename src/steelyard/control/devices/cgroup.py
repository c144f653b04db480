"""The limit and the use of a group of processes, as the kernel counts them (cgroups, version 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .look import Look

MOUNTED = Path("/sys/fs/cgroup")
UNLIMITED = 1 << 60  # bytes: how version 1 writes that there is no limit, or more
DEEPEST = 64


class Version(NamedTuple):
    """Its files. What was read from files and not used of late is given back before anybody is killed."""

    mounted: str  # under MOUNTED
    limit: str
    used: str
    reclaimable: str


VERSIONS = (
    Version("", "memory.max", "memory.current", "inactive_file"),
    Version("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    Version("unified", "memory.max", "memory.current", "inactive_file"),
)


class CgroupMeter:
    source = "cgroup"

    def __init__(self, path: str, mounted: Path = MOUNTED) -> None:
        self._path = path
        self._mounted = mounted

    def look(self) -> Look:
        """A limit of any group around it holds for it too, and there others use some of it."""
        try:
            found = self._find()
            if found is None:
                return Look(problem=f"the cgroup {self._path} cannot be measured: there is none that counts memory")
            folder, version = found
            used = _used(folder, version)
            limits = [(limit, limit - _used(level, version)) for level, limit in _limits(folder, version)]
        except (OSError, ValueError) as problem:
            return Look(problem=f"the cgroup {self._path} cannot be measured: {problem}")
        if not limits:
            return Look(used=used, problem=f"the cgroup {self._path} has no limit of memory, so its size is not known")
        capacity = min(limit for limit, _ in limits)
        free = min(free for _, free in limits)
        return Look(capacity, max(used, capacity - free))

    def _find(self) -> tuple[Path, Version] | None:
        """By its path in the file system, or as /proc/PID/cgroup has it."""
        for version in VERSIONS:
            inside = self._mounted / version.mounted / self._path.lstrip("/")
            for folder in (Path(self._path), inside):
                if (folder / version.used).is_file():
                    return folder, version
        return None


def _limits(folder: Path, version: Version) -> Iterator[tuple[Path, int]]:
    """Of the group and of all around it."""
    for level in [folder, *folder.parents][:DEEPEST]:
        if not (level / version.limit).is_file():
            return
        text = (level / version.limit).read_text().strip()
        if text != "max" and 0 < int(text) < UNLIMITED:
            yield level, int(text)


def _used(folder: Path, version: Version) -> int:
    used = int((folder / version.used).read_text())
    for line in (folder / "memory.stat").read_text().splitlines():
        name, _, amount = line.partition(" ")
        if name == version.reclaimable:
            return max(0, used - int(amount))
    return used

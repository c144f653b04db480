"""Memory limit and use of cgroups, version 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CGROUP_ROOT = Path("/sys/fs/cgroup")
UNLIMITED_BYTES = 1 << 60  # or more: how version 1 writes no limit
MAX_DEPTH = 64


class CgroupVersion(NamedTuple):
    mounted: str  # under CGROUP_ROOT
    limit: str
    used: str
    reclaimable: str  # field of memory.stat


VERSIONS = (
    CgroupVersion("", "memory.max", "memory.current", "inactive_file"),
    CgroupVersion("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    CgroupVersion("unified", "memory.max", "memory.current", "inactive_file"),
)


def find_cgroup(path: str, mounted: Path = CGROUP_ROOT) -> tuple[Path, CgroupVersion] | None:
    """A group that counts memory, by its path in the file system or in /proc/PID/cgroup."""
    for version in VERSIONS:
        inside = mounted / version.mounted / path.lstrip("/")
        for folder in (Path(path), inside):
            if (folder / version.used).is_file():
                return folder, version
    return None


def process_cgroup(process: str = "self", mounted: Path = CGROUP_ROOT) -> tuple[Path, CgroupVersion] | None:
    """In a container the path may lead nowhere: then the group is the mount point."""
    try:
        lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
    except OSError:
        return None
    parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    paths = [path for _, controllers, path in parts if not controllers or "memory" in controllers.split(",")]
    found = [found for path in paths if path != "/" and (found := find_cgroup(path, mounted)) is not None]
    return found[0] if found else find_cgroup("", mounted) if parts else None


def memory_limits(folder: Path, version: CgroupVersion) -> Iterator[tuple[Path, int]]:
    """Of the group and its ancestors."""
    for level in [folder, *folder.parents][:MAX_DEPTH]:
        if not (level / version.limit).is_file():
            return
        text = (level / version.limit).read_text().strip()
        if text != "max" and 0 < int(text) < UNLIMITED_BYTES:
            yield level, int(text)


def memory_used(folder: Path, version: CgroupVersion) -> int:
    """As Kubernetes counts: without inactive file pages."""
    return _without(folder, version, {version.reclaimable})


def memory_needed(folder: Path, version: CgroupVersion) -> int:
    """Without all that the kernel reclaims before it kills: also active file pages, such as weights."""
    active = version.reclaimable.replace("inactive", "active")
    return _without(folder, version, {version.reclaimable, active, "slab_reclaimable"})


def _without(folder: Path, version: CgroupVersion, names: set[str]) -> int:
    parts = [line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines()]
    spare = sum(int(amount) for name, amount in parts if name in names)
    return max(0, int((folder / version.used).read_text()) - spare)

"""The limit and the use of a group of processes, as the kernel counts them (cgroups, version 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CGROUP_ROOT = Path("/sys/fs/cgroup")
UNLIMITED_BYTES = 1 << 60  # bytes: how version 1 writes that there is no limit, or more
MAX_DEPTH = 64


class CgroupVersion(NamedTuple):
    """Its files. What was read from files and not used of late is given back before anybody is killed."""

    mounted: str  # under MOUNTED
    limit: str
    used: str
    reclaimable: str


VERSIONS = (
    CgroupVersion("", "memory.max", "memory.current", "inactive_file"),
    CgroupVersion("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    CgroupVersion("unified", "memory.max", "memory.current", "inactive_file"),
)


def find_cgroup(path: str, mounted: Path = CGROUP_ROOT) -> tuple[Path, CgroupVersion] | None:
    """The folder of a group that counts memory, by its path in the file system or as /proc/PID/cgroup has it."""
    for version in VERSIONS:
        inside = mounted / version.mounted / path.lstrip("/")
        for folder in (Path(path), inside):
            if (folder / version.used).is_file():
                return folder, version
    return None


def process_cgroup(process: str = "self", mounted: Path = CGROUP_ROOT) -> tuple[Path, CgroupVersion] | None:
    """That of a process. In a container its path may lead nowhere: then the group is where they are mounted."""
    try:
        lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
    except OSError:
        return None
    parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    paths = [path for _, controllers, path in parts if not controllers or "memory" in controllers.split(",")]
    found = [found for path in paths if path != "/" and (found := find_cgroup(path, mounted)) is not None]
    return found[0] if found else find_cgroup("", mounted) if parts else None


def memory_limits(folder: Path, version: CgroupVersion) -> Iterator[tuple[Path, int]]:
    """Of the group and of all around it."""
    for level in [folder, *folder.parents][:MAX_DEPTH]:
        if not (level / version.limit).is_file():
            return
        text = (level / version.limit).read_text().strip()
        if text != "max" and 0 < int(text) < UNLIMITED_BYTES:
            yield level, int(text)


def memory_used(folder: Path, version: CgroupVersion) -> int:
    """As Kubernetes counts it: without what was read from files and not used of late."""
    return _without(folder, version, {version.reclaimable})


def memory_needed(folder: Path, version: CgroupVersion) -> int:
    """Without all that the kernel gives up before it kills anybody: also files that are in use, such as weights."""
    active = version.reclaimable.replace("inactive", "active")
    return _without(folder, version, {version.reclaimable, active, "slab_reclaimable"})


def _without(folder: Path, version: CgroupVersion, names: set[str]) -> int:
    parts = [line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines()]
    spare = sum(int(amount) for name, amount in parts if name in names)
    return max(0, int((folder / version.used).read_text()) - spare)

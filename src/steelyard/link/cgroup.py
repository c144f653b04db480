"""The limit and the use of a group of processes, as the kernel counts them (cgroups, version 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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


def find(path: str, mounted: Path = MOUNTED) -> tuple[Path, Version] | None:
    """The folder of a group that counts memory, by its path in the file system or as /proc/PID/cgroup has it."""
    for version in VERSIONS:
        inside = mounted / version.mounted / path.lstrip("/")
        for folder in (Path(path), inside):
            if (folder / version.used).is_file():
                return folder, version
    return None


def own(process: str = "self", mounted: Path = MOUNTED) -> tuple[Path, Version] | None:
    """That of a process. In a container its path may lead nowhere: then the group is where they are mounted."""
    try:
        lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
    except OSError:
        return None
    parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    paths = [path for _, controllers, path in parts if not controllers or "memory" in controllers.split(",")]
    found = [found for path in paths if path != "/" and (found := find(path, mounted)) is not None]
    return found[0] if found else find("", mounted) if parts else None


def limits(folder: Path, version: Version) -> Iterator[tuple[Path, int]]:
    """Of the group and of all around it."""
    for level in [folder, *folder.parents][:DEEPEST]:
        if not (level / version.limit).is_file():
            return
        text = (level / version.limit).read_text().strip()
        if text != "max" and 0 < int(text) < UNLIMITED:
            yield level, int(text)


def used(folder: Path, version: Version) -> int:
    """As Kubernetes counts it: without what was read from files and not used of late."""
    return _without(folder, version, {version.reclaimable})


def needed(folder: Path, version: Version) -> int:
    """Without all that the kernel gives up before it kills anybody: also files that are in use, such as weights."""
    active = version.reclaimable.replace("inactive", "active")
    return _without(folder, version, {version.reclaimable, active, "slab_reclaimable"})


def _without(folder: Path, version: Version, names: set[str]) -> int:
    parts = [line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines()]
    spare = sum(int(amount) for name, amount in parts if name in names)
    return max(0, int((folder / version.used).read_text()) - spare)

"""Which device a replica is started on: where most room is left; of unknown size, where the fewest are. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from ...units import format_size


class NoDeviceMemoryError(Exception):
    """In words, with numbers."""


def choose_device(need: int, devices: Sequence[str], rooms: Mapping[str, int], ours: Mapping[str, int]) -> str:
    """`rooms`: bytes free, a device that is missing has room; `ours`: replicas there. NoRoomError: nowhere."""
    if not devices:
        return ""
    fit = [name for name in devices if not need or rooms.get(name, inf) >= need]
    if not fit:
        free = ", ".join(f"{name} has {format_size(max(0, rooms[name]))} free" for name in devices)
        raise NoDeviceMemoryError(f"it needs {format_size(need)}; {free}")
    if not need:  # it takes room that nobody counts
        return min(fit, key=lambda name: (ours.get(name, 0), -rooms.get(name, inf)))
    return min(fit, key=lambda name: (-rooms.get(name, inf), ours.get(name, 0)))

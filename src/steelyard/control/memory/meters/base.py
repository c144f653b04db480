"""One look at a device of this machine."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class MeterReading(NamedTuple):
    """Bytes. None: it could not be told."""

    capacity: int | None = None
    used: int | None = None  # by all
    problem: str = ""  # why it could not be told, in words; empty: it could
    processes: tuple[tuple[int, int], ...] = ()  # pid and bytes; in a container the driver may keep them to itself


class Meter(Protocol):
    """Looks, and never raises. It may take long: not for the loop's thread."""

    source: str

    def read(self) -> MeterReading: ...

"""What one request needs of a device's memory, and where it stands with that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ledger import Device

UNKNOWN_BYTES = -1  # of a request of unknown size: it runs alone on its device


class MemoryRequirement:
    """Made when a request is submitted, for a model whose memory is counted."""

    __slots__ = (
        "blocked",
        "bytes",
        "earmark",
        "earmarked_at",
        "estimated_bytes",
        "exclusive",
        "reserved_bytes",
        "version",
    )

    def __init__(self) -> None:
        self.bytes = 0  # or UNKNOWN_BYTES
        self.estimated_bytes = 0  # the estimate, also where `bytes` is unknown
        self.exclusive = False  # run it alone on its server, to measure it
        self.version = -1  # of the size model it comes from
        self.blocked = False  # it found no room when last looked at
        self.earmark: Device | None = None  # the device where room is saved up for it, …
        self.earmarked_at = -1.0  # … and since when; -1.0: never was
        self.reserved_bytes = 0  # reserved for the attempt that is about to be sent

"""A card that is only pretended, to try everything where there is none: the memory is this machine's.

Each server notes its process in a folder. What all of them have resident is what is used; who would make it more than
there is runs out of memory, as on a card.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from .models import Ran, Shape
from .plan import GIB, need

SCALE_DOWN = 128  # times less than on a card
CAPACITY_BYTES = 5 * GIB // 4
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


class FakeDevice:
    name, driver, torch = "pretended", "none", "none"
    total = CAPACITY_BYTES

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def join(self, pid: int) -> None:
        (self.folder / f"{pid}.pid").touch()

    def used(self) -> int:
        return sum(resident(int(path.stem)) for path in self.folder.glob("*.pid"))


class FakeModel:
    def __init__(self, name: str, card: FakeDevice) -> None:
        self.name = name
        self.card = card
        self.weights = bytearray(b"\1") * (16 << 20)

    def run(self, shape: Shape) -> Ran:
        size = round(need(self.name, shape) / SCALE_DOWN)
        if self.card.used() + size > self.card.total:
            raise MemoryError(f"CUDA out of memory (pretended). Tried to allocate {size} bytes.")
        room = bytearray(size)
        for at in range(0, size, PAGE_BYTES):
            room[at] = 1
        time.sleep(0.02 + size / (2 * GIB))
        return Ran(float(room[0]), size)

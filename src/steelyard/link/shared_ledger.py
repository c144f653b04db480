"""The memory ledger in shared memory: what the supervisor and the processes that decide reserve of each device.

Each process has a row for the reservations of its requests, so each cell has one writer; the supervisor writes what
models hold. Reserving takes the kernel lock of the device, which dies with its holder; releasing needs none. No process
blocks on a lock: one that finds it taken retries a moment later.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from time import monotonic
from typing import Any, Literal

MAX_ROWS = 1024  # processes; the row of a dead one is used again
MAX_DEVICES = 1024
_HEADER = struct.Struct("=8sIII")
_MAGIC = b"steelym1"
_PAGE_BYTES = 4096
_DEVICE_COLUMNS = 3  # external, earmarked by, until when
SUPERVISOR_ROW = 0  # also has what dead workers had, until it is surely over


class SharedLedger:
    """`LedgerCells` of core/memory/ledger.py, as the process with this row sees them."""

    shared = True

    def __init__(self, fd: int, row: int) -> None:
        self.fd = fd
        self.row = row
        self._map = mmap.mmap(fd, 0)
        magic, self.rows, self.columns, self.devices = _HEADER.unpack_from(self._map)
        if magic != _MAGIC:
            raise ValueError("this is not a shared ledger of this version")
        self._view = view = memoryview(self._map)
        at = _PAGE_BYTES

        def part(cells: int, form: Literal["q", "d"]) -> Any:
            nonlocal at
            begin, at = at, at + 8 * cells
            return view[begin:at].cast(form)

        self._used = view[64:72].cast("q")  # rows that were ever in use
        self.external = part(self.devices, "q")
        self._earmark_row = part(self.devices, "q")  # row + 1; 0: no process
        self._earmarked_until = part(self.devices, "d")
        self.base = part(self.columns, "q")
        self.held = part(self.columns, "q")
        self.idle = part(self.columns, "q")
        self.running_bytes = [part(self.columns, "q") for _ in range(self.rows)]
        self._total = [part(self.devices, "q") for _ in range(self.rows)]
        self._count = [part(self.devices, "q") for _ in range(self.rows)]
        self._expected_until = [part(self.columns, "d") for _ in range(self.rows)]
        self.use(row)

    @classmethod
    def create(cls, columns: int, rows: int = MAX_ROWS, devices: int = MAX_DEVICES) -> SharedLedger:
        """The supervisor's. Untouched pages take no memory."""
        fd = os.memfd_create("steelyard-memory", os.MFD_CLOEXEC)
        cells = _DEVICE_COLUMNS * devices + 3 * columns + rows * (2 * columns + 2 * devices)
        os.ftruncate(fd, _PAGE_BYTES + 8 * cells)
        os.pwrite(fd, _HEADER.pack(_MAGIC, rows, columns, devices), 0)
        return cls(fd, SUPERVISOR_ROW)

    def use(self, row: int) -> None:
        """Counts this row. For the supervisor, before it starts a worker: two at once could hide each other."""
        if row >= self._used[0]:
            self._used[0] = row + 1

    # ------------------------------------------------------------------ the lock

    def lock(self, device: int) -> bool:
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, device)
        except OSError:
            return False
        return True

    def unlock(self, device: int) -> None:
        fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, device)

    # ------------------------------------------------------------------ reading

    def running(self, column: int) -> int:
        running = self.running_bytes
        used: int = self._used[0]
        if used <= 2:
            return int(running[0][column] + running[1][column])
        return sum([running[row][column] for row in range(used)])

    def total(self, device: int) -> int:
        total = self._total
        return sum([total[row][device] for row in range(self._used[0])])

    def count(self, device: int) -> int:
        count = self._count
        return sum([count[row][device] for row in range(self._used[0])])

    def earmarked_by_another(self, device: int, now: float) -> bool:
        earmarked_by = self._earmark_row[device]
        return bool(earmarked_by) and earmarked_by != self.row + 1 and now < self._earmarked_until[device]

    # ------------------------------------------------------------------ writing

    def add(self, column: int, device: int, amount: int) -> None:
        self.running_bytes[self.row][column] += amount
        self._total[self.row][device] += amount
        self._count[self.row][device] += 1

    def subtract(self, column: int, device: int, amount: int) -> None:
        self.running_bytes[self.row][column] -= amount
        self._total[self.row][device] -= amount
        self._count[self.row][device] -= 1

    def earmark(self, device: int, until: float) -> None:
        if until:
            if not self.earmarked_by_another(device, monotonic()):
                self._earmark_row[device] = self.row + 1
                self._earmarked_until[device] = until
        elif self._earmark_row[device] == self.row + 1:
            self._earmark_row[device] = 0
            self._earmarked_until[device] = 0.0

    def set_lease(self, column: int, until: float) -> None:
        """If this worker dies, what it has there counts until then."""
        if until > self._expected_until[self.row][column]:
            self._expected_until[self.row][column] = until

    # ------------------------------------------------------------------ dead processes

    def retire(self, row: int, device_of: dict[int, int]) -> list[tuple[int, int, int, int, float]]:
        """The process of this row is dead; its servers may still work. The supervisor takes over what it had, until
        `release`: column (-1: not known), device, bytes, requests, expected end. `device_of`: by column."""
        left: list[tuple[int, int, int, int, float]] = []
        rests = [int(total) for total in self._total[row]]
        for column, device in device_of.items():
            amount, until = int(self.running_bytes[row][column]), float(self._expected_until[row][column])
            if amount:
                self.running_bytes[self.row][column] += amount  # first here, then there: it always counts
                self.running_bytes[row][column] = 0
                left.append((column, device, amount, 0, until))
                rests[device] -= amount
            self._expected_until[row][column] = 0.0
        for device in range(self.devices):
            requests = int(self._count[row][device])
            self._total[self.row][device] += self._total[row][device]
            self._count[self.row][device] += requests
            self._total[row][device] = self._count[row][device] = 0
            if requests or rests[device]:
                left.append((-1, device, rests[device], requests, 0.0))
        return left

    def release(self, column: int, device: int, amount: int, requests: int) -> None:
        """Of what was taken over."""
        if column >= 0:
            self.running_bytes[self.row][column] -= amount
        self._total[self.row][device] -= amount
        self._count[self.row][device] -= requests

    def close(self) -> None:
        for view in (
            self._used,
            self.external,
            self._earmark_row,
            self._earmarked_until,
            self.base,
            self.held,
            self.idle,
        ):
            view.release()
        for rows in (self.running_bytes, self._total, self._count, self._expected_until):
            for view in rows:
                view.release()
        self._view.release()
        self._map.close()
        os.close(self.fd)

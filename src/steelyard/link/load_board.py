"""The load board: shared memory in which each worker writes how many requests it has on each replica.

A worker's part has a count for each replica (its *column*), the queue of each model (in the column of one of its
replicas), and a ring of the columns changed last, so that readers need not scan all. Each cell is aligned and has one
writer, so it is read whole without locks; a reader that is a moment early sees the change the next time.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator

RING_CHANGES = 4096  # a reader further behind scans every column
_HEADER = struct.Struct("=8sII")
_MAGIC = b"steelyd1"
_PAGE_BYTES = 4096


class LoadBoard:
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, 0)
        magic, self.workers, self.columns = _HEADER.unpack_from(self._map)
        if magic != _MAGIC:
            raise ValueError("this is not a load board of this version")
        self._view = view = memoryview(self._map)
        self._heads: list[memoryview] = []  # [0]: number of changes
        self._rings: list[memoryview] = []
        self._rows: list[memoryview] = []
        self._queues: list[memoryview] = []
        size = _worker_bytes(self.columns)
        for worker in range(self.workers):
            at = _PAGE_BYTES + worker * size
            self._heads.append(view[at : at + 8].cast("Q"))
            self._rings.append(view[at + 64 : at + 64 + 4 * RING_CHANGES].cast("I"))
            at += 64 + 4 * RING_CHANGES
            self._rows.append(view[at : at + 4 * self.columns].cast("i"))
            self._queues.append(view[at + 4 * self.columns : at + 8 * self.columns].cast("i"))

    @classmethod
    def create(cls, workers: int, columns: int) -> LoadBoard:
        fd = os.memfd_create("steelyard-board", os.MFD_CLOEXEC)
        os.ftruncate(fd, _PAGE_BYTES + workers * _worker_bytes(columns))
        os.pwrite(fd, _HEADER.pack(_MAGIC, workers, columns), 0)
        return cls(fd)

    def put_count(self, worker: int, column: int, count: int) -> None:
        head = self._heads[worker]
        number = head[0]
        self._rings[worker][number % RING_CHANGES] = column  # first: raises for an invalid column
        self._rows[worker][column] = count
        head[0] = number + 1  # last: its readers find the column in the ring

    def change_count(self, worker: int) -> int:
        return self._heads[worker][0]

    def changed_columns(self, worker: int, since: int, now: int) -> Iterator[int]:
        """Between these two counts; every column, if that is too long ago."""
        if now - since >= RING_CHANGES:
            yield from range(self.columns)
            return
        ring = self._rings[worker]
        for number in range(since, now):
            yield ring[number % RING_CHANGES]

    def count(self, worker: int, column: int) -> int:
        return self._rows[worker][column]

    def load(self, worker: int, columns: Iterable[int]) -> int:
        """Requests of this worker there, running and waiting."""
        row, line = self._rows[worker], self._queues[worker]
        return sum(row[column] + line[column] for column in columns)

    def others_count(self, worker: int, column: int) -> int:
        rows = self._rows
        return sum(rows[other][column] for other in range(self.workers) if other != worker)

    def put_queue(self, worker: int, column: int, waiting: int) -> None:
        self._queues[worker][column] = waiting

    def longest_queue(self, worker: int, column: int) -> int:
        """Of the other workers."""
        return max((line[column] for other, line in enumerate(self._queues) if other != worker), default=0)

    def clear(self, worker: int) -> None:
        row, line = self._rows[worker], self._queues[worker]
        for column in range(self.columns):
            line[column] = 0
            if row[column]:
                self.put_count(worker, column, 0)

    def close(self) -> None:
        for view in (*self._heads, *self._rings, *self._rows, *self._queues):
            view.release()
        self._view.release()
        self._map.close()
        os.close(self.fd)


def _worker_bytes(columns: int) -> int:
    """In whole pages: two workers never write to the same one."""
    size = 64 + 4 * (RING_CHANGES + 2 * columns)
    return -(-size // _PAGE_BYTES) * _PAGE_BYTES

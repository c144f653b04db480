"""The history of a gateway: slices in a SQLite file, written by a thread.

`add` takes what was counted *since the last add* and never waits. The file adds it to what it has of that minute, so
restarts within a minute, or two gateways with one file, add up. A killed gateway loses only what was not added yet.

Minutes become hours after three days and hours become days after sixty; after `keep` seconds they are dropped. Errors
of the file are logged once, and the gateway goes on.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, time
from typing import Final, TypeVar

from .database import (
    HistoryError,
    add_slice,
    is_corrupt,
    is_transient,
    open_readonly,
    open_writable,
    read_slices,
    write_transaction,
)
from .retention import apply_retention, move_damaged_file
from .slices import Slice, SliceKey, merge_slices

MAX_PENDING_SLICES: Final = 20_000  # more are dropped
MAX_BATCH_SLICES: Final = 500  # in a transaction
RETRY_DELAY_SECONDS: Final = 5.0
RETENTION_INTERVAL_SECONDS: Final = 600.0
CLOSE_TIMEOUT_SECONDS: Final = 5.0

T = TypeVar("T")

log = logging.getLogger("steelyard.history")


class HistoryStore:
    """Never raises: `problem` says why nothing is kept, `behind` why nothing can be written just now."""

    def __init__(self, path: Path | str, keep: float) -> None:
        self.path = Path(path)
        self.keep = keep
        self.problem = ""
        self.behind = ""
        self._waiting: dict[SliceKey, Slice] = {}
        self._lock = threading.Condition()
        self._busy = True  # until the file is open, and while something is being written
        self._over = False
        self._replaced = False
        self._next_retention = 0.0
        self._began = time() - monotonic()
        self.thread = threading.Thread(target=self._run, name="history", daemon=True)
        self.thread.start()

    def add(self, slices: Iterable[Slice]) -> None:
        """Takes counts since the last call, and each minute a slice of the tenant "" for each model, even without
        requests: otherwise the report shows that the gateway did not run."""
        with self._lock:
            if self.problem or self._over:
                return
            for part in slices:
                if part.key in self._waiting or len(self._waiting) < MAX_PENDING_SLICES:
                    self._enqueue(part)
                else:
                    self._fall_behind(
                        f"history {self.path}: the disk does not keep up; what is counted meanwhile is lost"
                    )
            self._lock.notify_all()

    def minutes(self, since: float) -> list[Slice]:
        return self.read(since, list)

    def read(self, since: float, made: Callable[[Iterator[Slice]], list[T]]) -> list[T]:
        """What is `made` of all slices that begin at `since` or later, oldest first; empty if they cannot be read.
        Waits for what was added before, and for the disk: not for an event loop."""
        self.flush()
        if self.problem:
            return []
        try:
            database = open_readonly(self.path)
        except HistoryError as problem:
            log.warning("%s", problem)
            return []
        try:
            return made(read_slices(database, since))
        except sqlite3.Error as problem:
            log.warning("history %s: %s", self.path, problem)
            return []
        finally:
            database.close()

    def flush(self, timeout: float = CLOSE_TIMEOUT_SECONDS) -> bool:
        """Waits until all that was added is in the file; False: it is not."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._waiting and not self._busy, timeout) and not self.problem

    def close(self, timeout: float = CLOSE_TIMEOUT_SECONDS) -> None:
        """Writes what waits, for at most `timeout` seconds."""
        with self._lock:
            self._over = True
            self._lock.notify_all()
        self.thread.join(timeout)

    def _enqueue(self, part: Slice) -> None:
        known = self._waiting.get(part.key)
        self._waiting[part.key] = merge_slices(known, part) if known else part

    def _fall_behind(self, problem: str) -> None:
        if not self.behind:
            self.behind = problem
            log.error("%s", problem)

    def _run(self) -> None:
        try:
            while self._serve():
                pass
        except HistoryError as problem:
            self._give_up(str(problem))
        except Exception as problem:
            self._give_up(f"history {self.path}: {problem}")

    def _serve(self) -> bool:
        """Writes until it is over; True: begin anew, as the file was damaged, or cannot be opened yet."""
        database: sqlite3.Connection | None = None
        try:
            database = open_writable(self.path)
            while self._turn(database):
                pass
            return False
        except HistoryError as problem:
            if not is_transient(problem):
                raise
            return self._try_later(str(problem))
        except sqlite3.DatabaseError as problem:
            if self._replaced or not is_corrupt(problem):
                raise
            self._replaced = True
        finally:
            if database is not None:
                database.close()
        move_damaged_file(self.path)
        return True

    def _turn(self, database: sqlite3.Connection) -> bool:
        """Writes what waits, or applies the retention; False: it is over."""
        with self._lock:
            self._busy = False
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._waiting or self._over, max(0.0, self._next_retention - monotonic()))
            batch = list(self._waiting.values())
            if not batch and self._over:
                return False
            self._busy = True
        if batch:
            return self._write(database, batch[:MAX_BATCH_SLICES])
        if monotonic() >= self._next_retention:
            self._next_retention = monotonic() + RETENTION_INTERVAL_SECONDS
            with suppress(sqlite3.OperationalError):  # locked or full: the next time
                # A clock that is set ahead while we run must not make everything old.
                now = min(time(), self._began + monotonic())
                apply_retention(database, now, self.keep, lambda: bool(self._waiting or self._over))
        return True

    def _write(self, database: sqlite3.Connection, batch: Sequence[Slice]) -> bool:
        with self._lock:
            taken = [self._waiting.pop(part.key) for part in batch]
        try:
            with write_transaction(database):
                for part in taken:
                    add_slice(database, part)
        except sqlite3.OperationalError as problem:
            self._put_back(taken)
            return self._try_later(f"history {self.path}: {problem}")
        except BaseException:
            self._put_back(taken)
            raise
        self.behind = ""
        return True

    def _put_back(self, taken: Sequence[Slice]) -> None:
        with self._lock:
            for part in taken:
                self._enqueue(part)

    def _try_later(self, problem: str) -> bool:
        """Waits: the disk is full, or another program holds the file. False: it is over."""
        self._fall_behind(f"{problem}; trying again")
        with self._lock:
            return not self._lock.wait_for(lambda: self._over, RETRY_DELAY_SECONDS)

    def _give_up(self, problem: str) -> None:
        log.error("%s; no history is kept", problem)
        with self._lock:
            self.problem = problem
            self._waiting.clear()
            self._busy = False
            self._lock.notify_all()

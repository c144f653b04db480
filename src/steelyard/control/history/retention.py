"""Compacts and expires a history, and moves a damaged one aside."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from .database import HistoryError, add_slice, slice_from_row, write_transaction
from .slices import DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS, roll_up

# From, to, and the age at which: seconds.
ROLLUPS: Final = ((MINUTE_SECONDS, HOUR_SECONDS, 3 * DAY_SECONDS), (HOUR_SECONDS, DAY_SECONDS, 60 * DAY_SECONDS))
MAX_DELETED_SLICES: Final = 5000  # in a transaction

log = logging.getLogger("steelyard.history")


def apply_retention(database: sqlite3.Connection, now: float, keep: float, hurried: Callable[[], bool]) -> None:
    """Compacts what is old and drops what is older than `keep`, in small transactions, until `hurried`."""
    while not hurried() and _delete_expired(database, now - keep):
        pass
    for fine, wide, age in ROLLUPS:
        while not hurried() and compact(database, fine, wide, now - age):
            pass


def compact(database: sqlite3.Connection, fine: int, wide: int, before: float) -> bool:
    """Compacts the oldest hour (day) that was over `before`; False: there is none."""
    with write_transaction(database):
        (oldest,) = database.execute("SELECT min(start) FROM slices WHERE step = ?", (fine,)).fetchone()
        if oldest is None or oldest // wide * wide + wide > before:
            return False
        bounds = (fine, oldest // wide * wide, oldest // wide * wide + wide)
        where = "step = ? AND start >= ? AND start < ?"
        rows = database.execute(f"SELECT * FROM slices WHERE {where}", bounds).fetchall()
        database.execute(f"DELETE FROM slices WHERE {where}", bounds)
        for part in roll_up(map(slice_from_row, rows), wide):
            add_slice(database, part)
    return True


def _delete_expired(database: sqlite3.Connection, before: float) -> bool:
    with write_transaction(database):
        key = "step, start, model, tenant, slo"
        chosen = f"SELECT {key} FROM slices WHERE start + step <= ? LIMIT {MAX_DELETED_SLICES}"
        cursor = database.execute(f"DELETE FROM slices WHERE ({key}) IN ({chosen})", (before,))
        return cursor.rowcount >= MAX_DELETED_SLICES


def move_damaged_file(path: Path) -> Path:
    """To a name with the time."""
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{when}")
    try:
        os.replace(path, aside)
        for end in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.replace(f"{path}{end}", f"{aside}{end}")
    except OSError as problem:
        raise HistoryError(f"history {path}: it is damaged and cannot be moved aside: {problem.strerror}") from problem
    log.error("history %s: it is damaged; moved to %s, starting a new one", path, aside.name)
    return aside

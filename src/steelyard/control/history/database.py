"""The SQLite file of a history.

Every change is a transaction that begins with the write lock, so two gateways may share a file and add up.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import msgspec

from ...core.errors import SteelyardError
from ...system import state_directory
from .slices import STEP_SECONDS, Slice, StoredSloTarget, merge_slices

APPLICATION_ID: Final = 0x53594152  # "SYAR"
LOCK_TIMEOUT_SECONDS: Final = 5.0
LOCK_RETRY_SECONDS: Final = 0.02
# From version n to n + 1. Never change one that was released: append.
MIGRATIONS: Final = (
    """CREATE TABLE slices (
        start INTEGER NOT NULL,
        step INTEGER NOT NULL,
        model TEXT NOT NULL,
        tenant TEXT NOT NULL,
        promised TEXT NOT NULL,
        ran INTEGER NOT NULL,
        counts TEXT NOT NULL,
        latency TEXT NOT NULL,
        PRIMARY KEY (step, start, model, tenant, promised)
    ) WITHOUT ROWID, STRICT""",
    "ALTER TABLE slices RENAME COLUMN promised TO slo",
)
SCHEMA_VERSION: Final = len(MIGRATIONS)
KEY_CLAUSE: Final = "start = ? AND step = ? AND model = ? AND tenant = ? AND slo = ?"
CORRUPTION_ERRORS: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
TRANSIENT_ERRORS: Final = ("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_LOCKED")
DISK_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)

_counts = msgspec.json.Decoder(dict[str, int])
_latency = msgspec.json.Decoder(dict[int, int])
_slo = msgspec.json.Decoder(StoredSloTarget)
_encoder = msgspec.json.Encoder()


class HistoryError(SteelyardError):
    """A history cannot be kept or read."""

    reason = "history_unavailable"


def file_name(gateway: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", gateway).lstrip(".")
    return f"{safe[:100] or 'gateway'}.sqlite"


def default_path(gateway: str) -> Path:
    return state_directory() / file_name(gateway)


def open_writable(path: Path) -> sqlite3.Connection:
    """Creates it if it is missing, for its owner alone. Raises HistoryError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise HistoryError(f"history {path}: no folder {path.parent}: {problem.strerror or problem}") from problem
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        if not path.is_file():
            raise HistoryError(f"history {path}: it is not a file")
        database = sqlite3.connect(path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as problem:
        raise HistoryError(f"history {path}: {getattr(problem, 'strerror', None) or problem}") from problem
    try:
        _prepare(database, path)
    except BaseException:
        database.close()
        raise
    return database


def open_readonly(path: Path) -> sqlite3.Connection:
    """Also while a gateway writes. Raises HistoryError."""
    if not path.is_file():
        raise HistoryError(f"there is no history {path}")
    where = path.absolute().as_uri()
    # In a folder where we may not write, SQLite must be told that no other process does.
    resting = not Path(f"{path}-wal").exists() and not os.access(path.parent, os.W_OK)
    try:
        database = sqlite3.connect(
            f"{where}?{'immutable=1' if resting else 'mode=ro'}",
            uri=True,
            timeout=LOCK_TIMEOUT_SECONDS,
            isolation_level=None,
        )
        _check(database, path)
    except sqlite3.Error as problem:
        raise HistoryError(_describe(path, problem)) from problem
    return database


@contextmanager
def write_transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def add_slice(database: sqlite3.Connection, part: Slice) -> None:
    """Adds to the row of its key, inside a write_transaction()."""
    key = (part.start, part.step, _utf8(part.model), _utf8(part.tenant), _encoder.encode(part.slo).decode())
    row = database.execute(f"SELECT * FROM slices WHERE {KEY_CLAUSE}", key).fetchone()
    whole = merge_slices(slice_from_row(row), part) if row else part
    database.execute(
        "INSERT OR REPLACE INTO slices VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*key, whole.ran, _encoder.encode(whole.counts).decode(), _encoder.encode(whole.latency).decode()),
    )


def slice_from_row(row: tuple[Any, ...]) -> Slice:
    """Columns by place: their names differ between versions."""
    start, step, model, tenant, slo, ran, counts, latency = row
    decoded = _counts.decode(counts.replace('"left/', '"abandoned/'))  # as earlier versions wrote it
    return Slice(start, model, tenant, decoded, _latency.decode(latency), _slo.decode(slo), step, ran)


def _utf8(name: str) -> str:
    """A client's tenant name may hold what SQLite cannot."""
    return name.encode(errors="replace").decode()


def is_transient(problem: HistoryError) -> bool:
    """The disk is full, or another program holds the file."""
    cause = problem.__cause__
    return (
        getattr(cause, "sqlite_errorname", "").startswith(TRANSIENT_ERRORS)
        or getattr(cause, "errno", 0) in DISK_FULL_ERRNOS
    )


def is_corrupt(problem: sqlite3.Error) -> bool:
    return getattr(problem, "sqlite_errorname", "").startswith(CORRUPTION_ERRORS)


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    try:
        if not _check(database, path) or _version(database) < SCHEMA_VERSION:
            with write_transaction(database):
                for migration in MIGRATIONS[_version(database) :]:  # read again: another process may be quicker
                    database.execute(migration)
                database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        _enable_wal(database)
        database.execute("PRAGMA synchronous = NORMAL")
        with write_transaction(database):  # fails now if it is not writable
            pass
    except sqlite3.Error as problem:
        if is_corrupt(problem) and _has_our_header(path):
            raise
        raise HistoryError(_describe(path, problem)) from problem


def _enable_wal(database: sqlite3.Connection) -> None:
    """SQLite does not wait for another process that does the same."""
    until = monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if monotonic() > until:
                raise
            sleep(LOCK_RETRY_SECONDS)


def _check(database: sqlite3.Connection, path: Path) -> bool:
    """False: it is empty. Raises HistoryError if it is not ours."""
    database.execute("BEGIN")  # one snapshot: another process may be creating it
    try:
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (mark,) = database.execute("PRAGMA application_id").fetchone()
    finally:
        database.execute("ROLLBACK")
    if not mark and not tables:
        return False
    if mark != APPLICATION_ID:
        raise HistoryError(f"history {path}: it is a database of another program; name another file, or move it away")
    if _version(database) > SCHEMA_VERSION:
        raise HistoryError(f"history {path}: it was written by a newer steelyard; use that one, or name another file")
    return True


def _version(database: sqlite3.Connection) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    return version


def _has_our_header(path: Path) -> bool:
    """Whether a damaged file was ours."""
    with path.open("rb") as file:
        head = file.read(72)
    return head[:15] == b"SQLite format 3" and head[68:72] == APPLICATION_ID.to_bytes(4, "big")


def _describe(path: Path, problem: sqlite3.Error) -> str:
    match getattr(problem, "sqlite_errorname", "").split("_")[1:2]:
        case ["NOTADB"]:
            return f"history {path}: it is not a history; name another file, or move it away"
        case ["CORRUPT"]:
            return f"history {path}: it is damaged; move it away, or try `sqlite3 {path} .recover`"
        case ["READONLY"] | ["CANTOPEN"] | ["PERM"]:
            return f"history {path}: no permission to use it"
        case ["BUSY"]:
            return f"history {path}: another program has kept it locked for {LOCK_TIMEOUT_SECONDS:.0f} seconds"
    return f"history {path}: {problem}"


def read_slices(database: sqlite3.Connection, since: float, until: float = inf) -> Iterator[Slice]:
    """Those that begin in that time, oldest first."""
    where = f"step IN {STEP_SECONDS} AND start >= ? AND start < ?"
    rows = database.execute(f"SELECT * FROM slices WHERE {where} ORDER BY start, model, tenant, step", (since, until))
    return map(slice_from_row, rows)

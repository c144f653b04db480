"""Logs of replicas: a bounded file each, and its last lines."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Collection
from contextlib import suppress
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from urllib.parse import quote

from ...system import state_directory

MAX_ENDED_LOGS = 5  # of ended replicas of a model
ROTATED_SUFFIX = ".1"
_MAX_NAME_CHARS = 120
_MAX_LINE_CHARS = 500
_TAIL_BYTES = 64 << 10  # read for the last lines
_COPY_CHUNK_BYTES = 1 << 20
_MIN_FREE_BYTES = 64 << 10
# Colours, cursor movements and window titles; then every other control character but the tab.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def log_file(folder: str, gateway: str, model: str, id: str) -> Path:
    within = Path(folder).absolute() if folder else state_directory()
    return within / _file_name(gateway) / _file_name(model) / f"{_file_name(id)}.log"


def _file_name(name: str) -> str:
    """Unique for each name, never hidden, never a path."""
    octets = name.encode(errors="surrogatepass")
    text = re.sub(r"^\.", "%2E", quote(octets, safe=" @+=,:")) or "%"
    if len(text) <= _MAX_NAME_CHARS:
        return text
    return f"{text[:_MAX_NAME_CHARS]}-{sha256(octets).hexdigest()[:12]}"


def open_log(path: Path) -> int:
    """A file descriptor. All writers append, so that the file can be cut meanwhile. All that inherit it hold a lock
    until the last of them ends: see `is_in_use`."""
    for folder in reversed([path.parent, *path.parent.parents]):
        if not os.path.isdir(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # not every file system has locks
        fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return log


def is_in_use(path: Path) -> bool:
    try:
        log = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(log)
    return False


def unused_path(path: Path) -> Path:
    """Another gateway of our name may have a replica of the same name."""
    others = (path.with_name(f"{path.stem}#{number}.log") for number in count(2))
    return next(log for log in chain((path,), others) if not is_in_use(log))


def log_error(path: Path, problem: OSError) -> str:
    where = problem.filename or path
    what = "is no folder" if isinstance(problem, FileExistsError | NotADirectoryError) else problem.strerror
    return f"the log {path} cannot be written: {where}: {what} (`log_directory` of the runtime names another folder)"


def is_full(path: str | Path) -> bool:
    try:
        disk = os.statvfs(path)
    except OSError:
        return False
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail  # some is reserved for root
    return free * disk.f_frsize < _MIN_FREE_BYTES


def size_of(path: str | Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def needs_rotation(path: str, size: int) -> bool:
    return size_of(path) > size // 2


def rotate(path: str, size: int) -> None:
    """Moves its last half to another file and truncates it: together they stay near `size`. What the replica prints
    just then may be lost."""
    with suppress(OSError), open(path, "r+b", buffering=0) as log:
        whole = os.fstat(log.fileno()).st_size
        log.seek(max(whole - size // 2, 0))
        with open(f"{path}{ROTATED_SUFFIX}", "wb", opener=_private_opener) as before:
            left = min(size // 2, whole)
            while left > 0 and (piece := log.read(min(left, _COPY_CHUNK_BYTES))):
                before.write(piece)
                left -= len(piece)
        log.truncate(0)


def _private_opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def remove_old_logs(folder: Path, in_use: Collection[str]) -> None:
    """Of ended replicas, but for the last few."""
    with suppress(OSError):
        logs = [log for log in folder.glob("*.log") if str(log) not in in_use]
        logs.sort(key=lambda log: log.stat().st_mtime)
        for log in logs[: max(len(logs) - MAX_ENDED_LOGS, 0)]:
            for path in () if is_in_use(log) else (log, Path(f"{log}{ROTATED_SUFFIX}")):
                path.unlink(missing_ok=True)


def last_lines(path: str, begin: int, lines: int) -> tuple[str, ...]:
    end = _tail(path, begin)
    if end is None:
        return ()
    if len(end) < _TAIL_BYTES and begin == 0:  # it may have been cut just now
        end = ((_tail(f"{path}{ROTATED_SUFFIX}", 0) or b"") + end)[-_TAIL_BYTES:]
    found = [_readable(line) for line in end.decode(errors="replace").split("\n")]
    return tuple([line for line in found if line][-lines:]) if lines > 0 else ()


def _tail(path: str, begin: int) -> bytes | None:
    try:
        with open(path, "rb") as log:
            size = os.fstat(log.fileno()).st_size
            log.seek(max(begin if begin <= size else 0, size - _TAIL_BYTES))
            return log.read(_TAIL_BYTES)
    except OSError:
        return None


def _readable(line: str) -> str:
    line = _ESCAPES.sub("", line).rstrip("\r")
    line = _CONTROLS.sub("", line.rpartition("\r")[2]).rstrip()  # a progress bar writes over itself
    return line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]}…"

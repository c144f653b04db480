"""A Unix listener for all workers."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from .tcp import LISTEN_BACKLOG

OWNER_ONLY_MODE = 0o600


class UnixListener:
    def __init__(
        self,
        path: str,
        *,
        take_over: bool = False,
        made: socket.socket | None = None,
        kind: int = socket.SOCK_STREAM,
    ) -> None:
        """`take_over`: replace one that is in use. `made`: it listens already."""
        self.path = path
        if made is not None:
            self.socket = made
            self._inode = os.stat(path).st_ino if os.path.exists(path) else 0
            return
        _remove_stale(Path(path), take_over, kind)
        self.socket = socket.socket(socket.AF_UNIX, kind)
        try:
            self.socket.bind(path)
            os.chmod(path, OWNER_ONLY_MODE)  # before listen: until then no client can connect
            self._inode = os.stat(path).st_ino
            self.socket.listen(LISTEN_BACKLOG)
            self.socket.setblocking(False)
        except BaseException:
            self.socket.close()
            raise

    def close(self, *, keep_file: bool = False) -> None:
        """`keep_file`: another process listens there, too."""
        self.socket.close()
        with suppress(OSError):
            if not keep_file and os.stat(self.path).st_ino == self._inode:  # not one that replaced it since
                os.unlink(self.path)


def _remove_stale(path: Path, take_over: bool, kind: int) -> None:
    """Removes only a socket that no process listens on."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "")
    with socket.socket(socket.AF_UNIX, kind) as probe:
        probe.setblocking(False)
        answer = probe.connect_ex(str(path))
    alive = answer in (0, errno.EAGAIN)  # the latter: its queue is full
    if answer == errno.ECONNREFUSED or (alive and take_over):
        path.unlink(missing_ok=True)
    elif answer != errno.ENOENT:
        raise OSError(errno.EADDRINUSE if alive else answer, os.strerror(answer))

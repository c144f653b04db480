"""The lock on a gateway's name: of two supervisors on a machine, only one adopts replicas."""

from __future__ import annotations

import errno
import os
import socket
from hashlib import sha256

from . import procfs


class NameLock:
    """An abstract socket: the kernel frees the name when its holder ends, however it ends."""

    def __init__(self, gateway: str) -> None:
        self._name = f"steelyard/{os.getuid()}/{sha256(gateway.encode()).hexdigest()[:32]}"
        self._held: socket.socket | None = None

    def acquire_or_holder(self) -> str:
        """Another process that holds it; empty: this one does now."""
        if self._held is not None:
            return ""
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0{self._name}")
        except OSError as problem:
            held.close()
            return self._holder() if problem.errno == errno.EADDRINUSE else ""
        self._held = held
        return ""

    def release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _holder(self) -> str:
        pid = procfs.listener(path=f"@{self._name}")
        if pid == os.getpid():
            return ""
        return f"pid {pid}" if pid else "somebody"

"""Listening sockets from a running gateway, from orphaned workers, or from systemd (`LISTEN_FDS`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from .tcp import BindAddress


class InheritedSockets:
    """Each socket is claimed once; unclaimed ones are closed at the end."""

    def __init__(self, sockets: Iterable[socket.socket] = ()) -> None:
        self._left: list[socket.socket] = []
        self.add(sockets)

    def add(self, sockets: Iterable[socket.socket]) -> None:
        """Keeps a socket once that two workers hold."""
        known = {os.fstat(one.fileno()).st_ino for one in self._left}
        for one in sockets:
            inode = os.fstat(one.fileno()).st_ino
            if inode in known or not _is_listening(one):
                one.close()
                continue
            known.add(inode)
            one.setblocking(False)
            self._left.append(one)

    def claim(self, place: BindAddress) -> list[socket.socket]:
        return self._take(lambda name: place.port and name[:2] == (place.host, place.port), place.family)

    def claim_path(self, path: str) -> socket.socket | None:
        found = self._take(lambda name: name == path, socket.AF_UNIX)
        return found[0] if found else None

    def _take(self, is_wanted: Callable[[Any], Any], family: int) -> list[socket.socket]:
        found = [one for one in self._left if one.family == family and is_wanted(one.getsockname())]
        self._left = [one for one in self._left if one not in found]
        return found

    def close_unclaimed(self) -> list[str]:
        """Returns their addresses."""
        names = [str(one.getsockname()) for one in self._left]
        for one in self._left:
            one.close()
        self._left.clear()
        return names


def has_reuse_port(one: socket.socket) -> bool:
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))


def _is_listening(one: socket.socket) -> bool:
    with suppress(OSError):
        return one.type == socket.SOCK_STREAM and bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False

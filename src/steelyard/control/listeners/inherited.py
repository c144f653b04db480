"""Listening sockets that were open before this process: of a running gateway, of workers whose supervisor was killed,
or of systemd (socket activation, `LISTEN_FDS`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from .tcp import BindAddress


class InheritedSockets:
    """Each socket is taken once, by whoever wants to listen there; what nobody wants is closed at the end."""

    def __init__(self, sockets: Iterable[socket.socket] = ()) -> None:
        self._left: list[socket.socket] = []
        self.add(sockets)

    def add(self, sockets: Iterable[socket.socket]) -> None:
        """Two workers may hold the same one: it is kept once."""
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
        """All that listen there; a port of 0 is nowhere."""
        return self._take(lambda name: place.port and name[:2] == (place.host, place.port), place.family)

    def claim_path(self, path: str) -> socket.socket | None:
        found = self._take(lambda name: name == path, socket.AF_UNIX)
        return found[0] if found else None

    def _take(self, is_wanted: Callable[[Any], Any], family: int) -> list[socket.socket]:
        found = [one for one in self._left if one.family == family and is_wanted(one.getsockname())]
        self._left = [one for one in self._left if one not in found]
        return found

    def close_unclaimed(self) -> list[str]:
        """The rest. Where it listened."""
        names = [str(one.getsockname()) for one in self._left]
        for one in self._left:
            one.close()
        self._left.clear()
        return names


def has_reuse_port(one: socket.socket) -> bool:
    """May other sockets listen at the same address?"""
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))


def _is_listening(one: socket.socket) -> bool:
    with suppress(OSError):
        return one.type == socket.SOCK_STREAM and bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False

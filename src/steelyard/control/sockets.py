"""The listening sockets. The supervisor opens them and keeps them open, so that a worker's death closes none:
connections in its queue wait for its replacement."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

import msgspec

from ..addresses import Address
from . import tcp_socket
from .errors import ABSENT, ListenError, cannot_listen
from .tcp_socket import Place
from .unix_socket import PRIVATE, UnixSocket


class Listening:
    """For each worker a TCP socket of its own on each address; a Unix socket is one for all workers."""

    def __init__(self, addresses: Iterable[Address], *, mode: int = PRIVATE, shared: frozenset[Address] = frozenset()):
        """Opens the first worker's. `shared` addresses may be in use already, by workers that are about to leave."""
        self._places: list[tuple[Address, Place]] = []
        self._own: dict[int, list[socket.socket]] = {0: []}
        self._inherited: set[int] = set()  # workers whose own sockets were given to others too
        self._common: list[UnixSocket] = []
        try:
            self.addresses = tuple(self._add(address, mode, address in shared) for address in addresses)
        except BaseException:
            self.close_all()
            raise

    def open(self, worker: int, workers: int = 0) -> tuple[int, ...]:
        """The file descriptors for this one of so many workers; its own sockets are opened if they are not.

        Where there were more workers before, all have the sockets of those that leave: if one was closed, the kernel
        would reset who waits there, and whose handshake is only half done.
        """
        if worker not in self._own:
            sockets = self._own[worker] = []
            for address, place in self._places:
                try:
                    sockets.append(tcp_socket.listen(place))
                except OSError as problem:
                    self.close(worker)
                    raise cannot_listen(address, problem) from None
        spare = {index for index in self._own if index >= workers and index != worker} if workers else set()
        self._inherited |= spare
        mine = [one for index in (worker, *sorted(spare)) for one in self._own[index]]
        return tuple(one.fileno() for one in (*mine, *(common.socket for common in self._common)))

    def inherited(self, worker: int) -> bool:
        """Have others this worker's own sockets too?"""
        return worker in self._inherited

    def close(self, worker: int) -> None:
        """This worker's own: new connections go to the others. Who waits there is reset."""
        self._inherited.discard(worker)
        for own in self._own.pop(worker, ()):
            own.close()

    def close_all(self) -> None:
        for worker in list(self._own):
            self.close(worker)
        while self._common:
            self._common.pop().close()

    def _add(self, address: Address, mode: int, shared: bool) -> Address:
        """With the real port."""
        try:
            if not address.path:
                return self._add_tcp(address, shared)
            self._common.append(UnixSocket(address.path, mode, take_over=shared))
        except socket.gaierror as problem:
            what = f"{address.host!r} is no host that is known here"
            raise ListenError(f"cannot listen on {address}: {what}: {problem.strerror}") from None
        except OSError as problem:
            raise cannot_listen(address, problem) from None
        return address

    def _add_tcp(self, address: Address, shared: bool) -> Address:
        port, absent = address.port, OSError(errno.EADDRNOTAVAIL, "")
        opened = 0
        for place in tcp_socket.places(address):
            place.port = port  # a port that the kernel chose for one is the port for all
            try:
                if port and not shared and tcp_socket.in_use(place):
                    raise OSError(errno.EADDRINUSE, "")
                made = tcp_socket.listen(place)
            except OSError as problem:
                if problem.errno not in ABSENT:
                    raise
                absent = problem
                continue
            port = place.port = made.getsockname()[1]
            self._own[0].append(made)
            self._places.append((address, place))
            opened += 1
        if not opened:
            raise absent
        return msgspec.structs.replace(address, port=port)

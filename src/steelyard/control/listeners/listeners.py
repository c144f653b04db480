"""The listening sockets. The supervisor keeps them open: connections to a dead worker wait for its replacement."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

import msgspec

from ...addresses import Address
from ..errors import ADDRESS_ABSENT_ERRNOS, ListenError, listen_error
from . import tcp
from .inherited import InheritedSockets, has_reuse_port
from .tcp import BindAddress
from .unix import UnixListener


class ListenerSockets:
    """A TCP socket for each worker and address. A Unix socket, or one without SO_REUSEPORT (systemd's), is for all."""

    def __init__(
        self,
        addresses: Iterable[Address],
        *,
        shared: frozenset[Address] = frozenset(),
        inherited: InheritedSockets | None = None,
    ):
        """Opens the first worker's. `shared`: addresses that orphaned workers still use. `inherited`: open sockets,
        used where they fit."""
        self._places: list[tuple[Address, BindAddress]] = []
        self._own: dict[int, dict[int, socket.socket]] = {0: {}}  # worker → which place → its socket
        self._inherited: set[int] = set()  # workers whose sockets others have, too
        self._common: list[UnixListener] = []
        self._fixed: list[socket.socket] = []  # TCP sockets for all workers
        self._inherited_sockets = inherited or InheritedSockets()
        try:
            self.addresses = tuple(self._add(address, address in shared) for address in addresses)
        except BaseException:
            self.close_all()
            raise

    def open(self, worker: int, workers: int = 0) -> tuple[int, ...]:
        """File descriptors for one of the workers; opens its own sockets.

        All workers get the sockets of surplus ones: closing a socket would reset the connections in its queue.
        """
        own = self._own.setdefault(worker, {})
        for number, (address, place) in enumerate(self._places):
            if number not in own:
                try:
                    own[number] = tcp.open_listener(place)
                except OSError as problem:
                    self.close(worker)
                    raise listen_error(address, problem) from None
        spare = {index for index in self._own if index >= workers and index != worker} if workers else set()
        self._inherited |= spare
        mine = [one for index in (worker, *sorted(spare)) for one in self._own[index].values()]
        return tuple(one.fileno() for one in (*mine, *self._fixed, *(common.socket for common in self._common)))

    def is_shared(self, worker: int) -> bool:
        """Whether other workers have its sockets, too."""
        return worker in self._inherited

    def sockets(self) -> list[socket.socket]:
        """For a successor; those of one worker together."""
        own = [one for worker in sorted(self._own) for one in self._own[worker].values()]
        return [*own, *self._fixed, *(common.socket for common in self._common)]

    def close(self, worker: int) -> None:
        """Closes a worker's own: new connections go to the others, waiting ones are reset."""
        self._inherited.discard(worker)
        for own in self._own.pop(worker, {}).values():
            own.close()

    def close_all(self, *, handed_over: bool = False) -> None:
        """`handed_over`: others listen on, and own the files of Unix sockets."""
        for worker in list(self._own):
            self.close(worker)
        while self._fixed:
            self._fixed.pop().close()
        while self._common:
            self._common.pop().close(keep_file=handed_over)

    def _add(self, address: Address, shared: bool) -> Address:
        """Returns it with the real port."""
        try:
            if not address.path:
                return self._add_tcp(address, shared)
            open_already = self._inherited_sockets.claim_path(address.path)
            self._common.append(UnixListener(address.path, take_over=shared, made=open_already))
        except socket.gaierror as problem:
            what = f"{address.host!r} is no host that is known here"
            raise ListenError(f"cannot listen on {address}: {what}: {problem.strerror}") from None
        except OSError as problem:
            raise listen_error(address, problem) from None
        return address

    def _add_tcp(self, address: Address, shared: bool) -> Address:
        port, absent = address.port, OSError(errno.EADDRNOTAVAIL, "")
        opened = 0
        for place in tcp.resolve(address):
            place.port = port  # a port that the kernel chose for one is the port for all
            try:
                made = self._listen(address, place, shared)
            except OSError as problem:
                if problem.errno not in ADDRESS_ABSENT_ERRNOS:
                    raise
                absent = problem
                continue
            port = made.getsockname()[1]
            opened += 1
        if not opened:
            raise absent
        return msgspec.structs.replace(address, port=port)

    def _listen(self, address: Address, place: BindAddress, shared: bool) -> socket.socket:
        """On inherited sockets, one for each worker, or on a new one."""
        found = self._inherited_sockets.claim(place)
        if found and not all(map(has_reuse_port, found)):
            self._fixed += found
            return found[0]
        if not found:
            if place.port and not shared and tcp.is_in_use(place):
                raise OSError(errno.EADDRINUSE, "")
            found = [tcp.open_listener(place)]
        place.port = found[0].getsockname()[1]
        self._places.append((address, place))
        for worker, one in enumerate(found):
            self._own.setdefault(worker, {})[len(self._places) - 1] = one
        return found[0]

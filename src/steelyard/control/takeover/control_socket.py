"""Where a running gateway can be taken over: a Unix socket in the state directory, for its user alone."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...link.handover import (
    PACKET_TIMEOUT_SECONDS,
    PROTOCOL_VERSION,
    HandoverError,
    HandoverMessage,
    OrphanedWorker,
    OrphanReleased,
    PredecessorDraining,
    SuccessorReady,
    TakeOverGranted,
    TakeOverRefused,
    TakeOverRequest,
    check_folder,
    check_peer,
    receive,
    send,
)
from ...system import state_directory
from ..listeners.unix import UnixListener

if TYPE_CHECKING:
    from .takeover import Takeover

MAX_SOCKET_PATH_BYTES = 107  # the kernel's limit

log = logging.getLogger("steelyard.control")


def control_socket_path(gateway: str) -> Path:
    return state_directory() / "control" / f"{sha256(gateway.encode()).hexdigest()[:12]}.sock"


class ControlSocket:
    """Serves between `open` and `close`: one successor at a time, and any number of orphaned workers."""

    def __init__(self, path: Path, takeover: Takeover) -> None:
        self.path = path
        self.orphans: dict[int, socket.socket] = {}  # by pid
        self._takeover = takeover
        self._given: list[socket.socket] = []  # sockets of orphans, not taken yet
        self._delivered = asyncio.Event()
        self._socket: UnixListener | None = None
        self._successor: socket.socket | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """If it cannot, the gateway serves all the same."""
        if self._socket is not None:
            return
        try:
            if len(os.fsencode(self.path)) > MAX_SOCKET_PATH_BYTES:
                raise HandoverError(f"{self.path} is too long for a Unix socket")
            check_folder(self.path.parent)
            self._socket = UnixListener(str(self.path), kind=socket.SOCK_SEQPACKET)
        except (OSError, RuntimeError, HandoverError) as problem:
            log.warning("this gateway cannot be taken over (serve --take-over): %s", problem)
            return
        self._loop.add_reader(self._socket.socket, self._accept)

    def close(self) -> None:
        """Accepts no more. A successor that is ready waits for `finish`."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.socket)
            self._socket.close()
            self._socket = None
        for link in self.orphans.values():
            self._forget(link)
        self.orphans.clear()

    def finish(self) -> None:
        """Tells the successor that nothing of us is left."""
        self.close()
        if self._successor is not None:
            self._forget(self._successor)
            self._successor = None

    # ------------------------------------------------------------------ orphans

    async def collect_orphan_sockets(self, pids: set[int], seconds: float) -> list[socket.socket]:
        """The sockets that these workers deliver in time."""
        until = self._loop.time() + seconds
        while pids - self.orphans.keys() and (left := until - self._loop.time()) > 0.0:
            self._delivered.clear()
            try:
                await asyncio.wait_for(self._delivered.wait(), left)
            except TimeoutError:
                break
        given, self._given = self._given, []
        return given

    def drain_orphans(self) -> set[int]:
        """Our workers serve. Returns the pids released."""
        released = set()
        for pid, link in self.orphans.items():
            try:
                send(link, OrphanReleased())
                released.add(pid)
            except HandoverError:
                continue
        return released

    # ------------------------------------------------------------------ connections

    def _accept(self) -> None:
        assert self._socket is not None
        try:
            link, _ = self._socket.socket.accept()
        except OSError:
            return
        try:
            check_peer(link)
        except (OSError, HandoverError) as problem:
            log.warning("rejected a connection at %s: %s", self.path, problem)
            link.close()
            return
        link.settimeout(PACKET_TIMEOUT_SECONDS)
        self._loop.add_reader(link, self._hear, link)

    def _hear(self, link: socket.socket) -> None:
        try:
            message, sockets = receive(link)
            self._take(link, message, sockets)
        except HandoverError:
            self._lost(link)

    def _take(self, link: socket.socket, message: HandoverMessage, sockets: list[socket.socket]) -> None:
        match message:
            case TakeOverRequest() if message.protocol != PROTOCOL_VERSION or self._successor is not None:
                other = message.protocol != PROTOCOL_VERSION
                reason = "the versions are too far apart" if other else "another one is taking over already"
                send(link, TakeOverRefused(reason))
                self._lost(link)
            case TakeOverRequest():
                self._successor = link
                log.info("pid %d (steelyard %s) takes over: handing over the sockets", message.pid, message.version)
                self._run(self._give(link))
            case SuccessorReady() if link is self._successor:
                self._loop.remove_reader(link)
                self.close()
                send(link, PredecessorDraining(self._takeover.succeeded_by(check_peer(link))))
            case OrphanedWorker() if message.protocol == PROTOCOL_VERSION:
                self.orphans[message.pid] = link
                self._given += sockets
                self._delivered.set()
            case _:
                raise HandoverError(f"unexpected message: {type(message).__name__}")

    async def _give(self, link: socket.socket) -> None:
        state, handed = await self._takeover.supervisor.hand_over()
        try:
            send(link, TakeOverGranted(os.getpid(), __version__, state), handed)
        except HandoverError:
            self._lost(link)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _lost(self, link: socket.socket) -> None:
        self._forget(link)
        self.orphans = {pid: other for pid, other in self.orphans.items() if other is not link}
        if link is self._successor:
            self._successor = None
            log.error("the successor did not start; this one keeps serving")
            self._run(self._takeover.supervisor.take_back())

    def _forget(self, link: socket.socket) -> None:
        self._loop.remove_reader(link)
        link.close()

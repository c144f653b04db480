"""The running gateway, as its successor sees it (`steelyard serve --take-over`)."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path

from ... import __version__
from ...link.handover import (
    HandoverError,
    HandoverMessage,
    PredecessorDraining,
    SuccessorReady,
    TakeOverGranted,
    TakeOverRefused,
    TakeOverRequest,
    connect,
    receive,
    send,
)
from ..errors import TakeOverError

log = logging.getLogger("steelyard.control")


class Predecessor:
    """`find`, then `start_drain` when our workers serve; `exited`: its workers ended. `close` instead: it goes on."""

    def __init__(self, link: socket.socket, given: TakeOverGranted, sockets: list[socket.socket]) -> None:
        self.pid = given.pid
        self.state = given.state
        self.sockets = sockets
        self.exited = asyncio.Event()
        self._link = link

    @classmethod
    async def find(cls, path: Path) -> Predecessor | None:
        """None: no gateway of this name runs. TakeOverError: one does, and does not give its sockets."""
        try:
            found = await asyncio.to_thread(_request_handover, path)
        except HandoverError as problem:
            raise TakeOverError(f"the running gateway cannot be taken over: {problem}") from None
        return None if found is None else cls(*found)

    async def start_drain(self) -> None:
        """Our workers serve: its workers drain."""
        try:
            answer = await asyncio.to_thread(self._say_ready)
        except HandoverError as problem:  # it died just now: its sockets are ours all the same
            log.warning("the previous gateway (pid %d) ended before its drain: %s", self.pid, problem)
            self.close()
            return
        seconds = answer.seconds if isinstance(answer, PredecessorDraining) else 0.0
        log.info("the previous gateway (pid %d) drains for at most %g s", self.pid, seconds)
        self._link.setblocking(False)
        asyncio.get_running_loop().add_reader(self._link, self.close)

    def _say_ready(self) -> HandoverMessage:
        send(self._link, SuccessorReady())
        return receive(self._link)[0]

    def close(self) -> None:
        if self._link.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._link)
            self._link.close()
        self.exited.set()


def _request_handover(path: Path) -> tuple[socket.socket, TakeOverGranted, list[socket.socket]] | None:
    link = connect(path)
    if link is None:
        return None
    try:
        send(link, TakeOverRequest(os.getpid(), __version__))
        answer, sockets = receive(link)
    except BaseException:
        link.close()
        raise
    if isinstance(answer, TakeOverGranted):
        return link, answer, sockets
    link.close()
    raise HandoverError(
        answer.problem if isinstance(answer, TakeOverRefused) else f"unexpected answer: {type(answer).__name__}"
    )

"""The channel to the supervisor, as a worker sees it: there, silent or gone."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from ...link.handover import OrphanedWorker, OrphanReleased, connect, receive, send
from ...link.messages import FrameDecoder, FromWorker, ToWorker, encode_frame

SUPERVISOR_TIMEOUT_SECONDS: Final = 2.0  # it speaks twice a second
MAX_UNSENT_BYTES: Final = 64 << 10  # then it stands still


class SupervisorChannel:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.connected = True  # False: it is gone for good
        self.heard_at = monotonic()

    @classmethod
    async def open(cls, channel: socket.socket) -> SupervisorChannel:
        return cls(*await asyncio.open_unix_connection(sock=channel))

    async def messages(self) -> AsyncIterator[ToWorker]:
        """Until the supervisor is gone."""
        frames = FrameDecoder(ToWorker)
        while data := await self._read():
            self.heard_at = monotonic()
            for message in frames.feed(data):
                yield message
        self.connected = False

    async def _read(self) -> bytes:
        """Empty: it is gone. Killed before it read all we said, its connection is reset, not closed."""
        try:
            return await self._reader.read(1 << 16)
        except ConnectionError:
            return b""

    def send(self, message: FromWorker) -> None:
        if self.connected:
            self._writer.write(encode_frame(message))

    def is_keeping_up(self) -> bool:
        return self.connected and not self._unsent_bytes()

    def is_silent(self, now: float) -> bool:
        """Is the supervisor dead, frozen, or deaf?"""
        late = now - self.heard_at > SUPERVISOR_TIMEOUT_SECONDS
        return late or not self.connected or self._unsent_bytes() >= MAX_UNSENT_BYTES

    def _unsent_bytes(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    def close(self) -> None:
        self._writer.close()


def log(line: str) -> None:
    """To the supervisor, which reads our standard error. The first word is the level."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


async def offer_listeners(control_socket: Path, listeners: Sequence[socket.socket]) -> bool:
    """To the next supervisor. True: its workers accept there now. False: there is none, or it ended too."""
    link = connect(control_socket)
    if link is None:
        return False
    with link:
        send(link, OrphanedWorker(os.getpid()), listeners)
        answered = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(link, answered.set)
        try:
            await answered.wait()
        finally:
            loop.remove_reader(link)
        return isinstance(receive(link)[0], OrphanReleased)

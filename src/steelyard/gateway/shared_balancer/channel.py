"""One end of the connection between a worker and the balancer process: frames in, messages of one turn out together."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from .messages import MAX_FRAME_BYTES, decoder, encode_messages

MAX_DELAY_SECONDS = 0.001  # of a message that is not urgent
# A peer with more unread is frozen: its connection is closed, and it starts over when it is back. Beyond what is said
# first: all that a worker has.
MAX_UNSENT_BYTES = 16 << 20
MAX_MESSAGES_PER_FRAME = 4096
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def peer_user(connection: socket.socket) -> int:
    """The user id of the process at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(credentials)[1])


class MessageChannel:
    """An asyncio protocol."""

    def __init__(
        self,
        kind: Any,
        on_messages: Callable[[MessageChannel, list[Any]], None],
        on_lost: Callable[[MessageChannel], None],
    ) -> None:
        """`kind`: of the messages it receives."""
        self._decode = decoder(kind).decode
        self._on_messages = on_messages
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._partial = b""
        self._unsent: list[Any] = []
        self._max_unsent_bytes = 0  # until something was said
        self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def send(self, message: Any) -> None:
        """With the others of this turn of the event loop."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self.flush)
        self._unsent.append(message)

    def send_later(self, message: Any) -> None:
        """With the next one that is urgent, or soon: each frame wakes the other process."""
        if not self._unsent and self._timer is None:
            self._timer = self._loop.call_later(MAX_DELAY_SECONDS, self._on_timer)
        self._unsent.append(message)

    def _on_timer(self) -> None:
        self._timer = None
        self.flush()

    def flush(self) -> None:
        self._flush_is_due = False
        unsent, self._unsent = self._unsent, []
        transport = self._transport
        if transport is None or not unsent:
            return
        if len(unsent) <= MAX_MESSAGES_PER_FRAME:
            data = encode_messages(unsent)
        else:
            starts = range(0, len(unsent), MAX_MESSAGES_PER_FRAME)
            data = b"".join([encode_messages(unsent[at : at + MAX_MESSAGES_PER_FRAME]) for at in starts])
        if not self._max_unsent_bytes:
            self._max_unsent_bytes = MAX_UNSENT_BYTES + len(data)
        transport.write(data)
        if transport.get_write_buffer_size() > self._max_unsent_bytes:
            transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, problem: Exception | None) -> None:
        self._transport = None
        self._unsent.clear()
        self._on_lost(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """What is unsent is bounded in `flush`."""

    def resume_writing(self) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        if self._partial:
            data = self._partial + data
        at, end = 0, len(data)
        while end - at >= 4:
            after = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if after > end:
                if after - at > MAX_FRAME_BYTES:
                    self.close()  # not one of ours
                break
            try:
                messages = self._decode(memoryview(data)[at + 4 : after])
            except msgspec.DecodeError:
                self.close()
                return
            self._on_messages(self, messages)
            at = after
        self._partial = data[at:]

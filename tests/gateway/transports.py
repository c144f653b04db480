"""A transport that goes nowhere, as strict as uvloop's: what raises there raises here.

The other end is the test. It reads at once, unless told to be slow; what it says while reading is paused waits, as it
would in the kernel.
"""

from __future__ import annotations

import os
import socket
from asyncio import AbstractEventLoop
from collections.abc import Iterable
from typing import Any


class FakeSocket:
    """What the gateway asks of the socket itself: is there something to read, and to break off with a reset."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK)
        self.resets = False

    def fileno(self) -> int:
        return self._event

    def arrived(self) -> None:
        os.eventfd_write(self._event, 1)

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER)
        self.resets = True

    def close(self) -> None:
        os.close(self._event)


class FakeTransport:
    def __init__(
        self, loop: AbstractEventLoop, protocol: Any, peer: Any = ("127.0.0.1", 4242), tls: bool = False
    ) -> None:
        self.loop = loop
        self.protocol = protocol
        self.peer = peer
        self.tls = tls
        self.heard = bytearray()  # what reached the other end
        self.eof_heard = False
        self.slow = False  # the other end does not read
        self.paused = False
        self.lost = False  # connection_lost was called
        self.aborted = False
        self.socket = FakeSocket()
        self.high = 64 << 10
        self._buffer = bytearray()  # written, and not taken yet by the other end
        self._writing_paused = False
        self._closing = False
        self._wrote_eof = False
        self.peer_ended = False
        self._arrived: list[bytes | None] = []  # said by the other end while reading was paused; None: its end
        self._scheduled = False

    # ------------------------------------------------------------------ for the gateway

    def write(self, data: bytes) -> None:
        self._must_live()
        if self._wrote_eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing and (self.aborted or not self._buffer):
            return  # it would go nowhere
        if not self.slow and not self._buffer:
            self.heard += data
            return
        self._buffer += data
        if len(self._buffer) > self.high and not self._writing_paused:
            self._writing_paused = True
            self.protocol.pause_writing()

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.write(b"".join(pieces))

    def write_eof(self) -> None:
        self._must_live()
        if self._wrote_eof or self._closing:
            return
        self._wrote_eof = True
        self.eof_heard = not self._buffer

    def can_write_eof(self) -> bool:
        return not self.tls

    def set_read_buffer_limits(self, high: int) -> None:
        assert self.tls, "only there is a buffer of what was read"

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        if self._arrived and not self._closing:
            self.loop.call_soon(self._deliver)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._buffer:
                self._lose(None)

    def abort(self) -> None:
        self._closing = self.aborted = True
        self._buffer.clear()
        self._lose(None)

    def set_write_buffer_limits(self, high: int) -> None:
        self._must_live()
        self.high = high

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def get_extra_info(self, name: str) -> Any:
        known = {"peername": self.peer, "ssl_object": object() if self.tls else None, "socket": self.socket}
        return known.get(name)

    def _must_live(self) -> None:
        if self.lost:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    # ------------------------------------------------------------------ for the other end

    def say(self, data: bytes) -> None:
        """Bytes from the other end."""
        assert not self.peer_ended, "the other end has closed"
        self._arrived.append(data)
        self._deliver()

    def whisper(self, data: bytes) -> None:
        """Bytes that have arrived, and that the loop has not read yet."""
        self._arrived.append(data)
        self.socket.arrived()

    def end(self) -> None:
        """The other end says no more."""
        if not self.peer_ended:
            self.peer_ended = True
            self._arrived.append(None)
            self._deliver()

    def reset(self) -> None:
        """The connection breaks."""
        self.peer_ended = True
        self._closing = self.aborted = True
        self._buffer.clear()
        self._lose(ConnectionResetError("the other end has gone"))

    def read_on(self) -> None:
        """The slow end takes all there is."""
        self.slow = False
        self.heard += self._buffer
        self._buffer.clear()
        if self._wrote_eof:
            self.eof_heard = True
        if self._writing_paused:
            self._writing_paused = False
            if not self._closing:
                self.protocol.resume_writing()
        if self._closing:
            self._lose(None)

    @property
    def waiting_to_be_read(self) -> int:
        return len(self._buffer)

    def _deliver(self) -> None:
        while self._arrived and not self.paused and not self._closing:
            data = self._arrived.pop(0)
            if data is None:
                if not self.protocol.eof_received():
                    self.close()
            else:
                self.protocol.data_received(data)

    def _lose(self, problem: Exception | None) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._lost, problem)

    def _lost(self, problem: Exception | None) -> None:
        self.protocol.connection_lost(problem)
        self.lost = True
        self.socket.close()

"""The access log: one line a request, JSON or text. Noting costs an append; lines are made in small batches between
requests, and written by a thread."""

from __future__ import annotations

import os
import queue
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic, time
from typing import Any, Final

import msgspec

from ..config import AccessLog as Settings
from .exchange import Exchange

BATCH: Final = 32  # lines made at once: some tens of microseconds
WAITING: Final = 256  # batches of bytes that may wait for the disk; more are dropped and counted
FLUSH_BYTES: Final = 64 << 10
LAST_ROOM: Final = 0.5  # seconds, at the end, for the last lines to find a place in the queue
LAST_LINES: Final = 5.0  # seconds for the disk at the end


class Line(msgspec.Struct, omit_defaults=True):
    """What a line says. Never headers, bodies or query strings: they carry secrets."""

    time: str
    id: str
    client: str
    method: str
    path: str
    status: int
    verdict: str
    ms: float
    model: str = ""
    tenant: str = ""
    replica: str = ""
    attempts: int = 0
    queue_ms: float = 0.0
    first_byte_ms: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    reason: str = ""
    dropped: int = 0  # lines before this one that were lost because the disk did not keep up


class AccessLog:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._text = settings.format == "text"
        self._encoder = msgspec.json.Encoder()
        self._notes: list[tuple[Any, ...]] = []
        self._buffer = bytearray()
        self._dropped = 0
        self._told = 0  # lost lines that the lines in the buffer tell of
        self._over = False
        self._fd = (
            os.dup(sys.stdout.fileno())
            if settings.path == "-"
            else os.open(settings.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        )
        self._queue: queue.Queue[tuple[bytes, int] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._write, name="access-log", daemon=True)
        self._thread.start()

    def note(self, exchange: Exchange, verdict: str, reason: str, now: float) -> None:
        self._notes.append(
            (
                now,
                exchange.began,
                exchange.dispatched,
                exchange.first_byte,
                exchange.request_id,
                exchange.client.forwarding.client,
                exchange.route,
                exchange.status,
                verdict,
                exchange.model,
                exchange.tenant,
                exchange.replica_id,
                exchange.attempts,
                exchange.body_size,
                exchange.bytes_out,
                reason,
            )
        )
        if len(self._notes) >= BATCH:
            self._make_lines()
            if len(self._buffer) >= FLUSH_BYTES:
                self._hand_over()

    def _make_lines(self) -> None:
        notes, self._notes = self._notes, []
        offset = time() - monotonic()  # the only wall clock in the gateway: a log is for people
        for now, began, sent, first, id, client, route, status, verdict, *rest in notes:
            model, tenant, replica, attempts, size_in, size_out, reason = rest
            line = Line(
                time=datetime.fromtimestamp(now + offset, UTC).isoformat(timespec="milliseconds"),
                id=id.decode("latin-1"),
                client=client.decode("latin-1"),
                method=route.method.decode("latin-1"),
                path=route.path,
                status=status,
                verdict=verdict,
                ms=round((now - began) * 1e3, 3),
                model=model,
                tenant=tenant,
                replica=replica,
                attempts=attempts,
                queue_ms=round((sent - began) * 1e3, 3) if sent else 0.0,
                first_byte_ms=round((first - began) * 1e3, 3) if first else 0.0,
                bytes_in=size_in,
                bytes_out=size_out,
                reason=reason,
                dropped=self._dropped,
            )
            self._told += self._dropped
            self._dropped = 0
            self._buffer += (_text(line) if self._text else self._encoder.encode(line)) + b"\n"

    def flush(self) -> None:
        """Called a few times a second: what was noted reaches the file soon even when little happens."""
        if self._notes:
            self._make_lines()
        self._hand_over()

    def _hand_over(self, room: float = 0.0) -> None:
        """To the thread; waits at most `room` seconds for a place."""
        if not self._buffer:
            return
        batch = (bytes(self._buffer), self._told)
        self._buffer, self._told = bytearray(), 0
        try:
            self._queue.put(batch, block=room > 0.0, timeout=room)
        except queue.Full:
            self._lost(*batch)

    def _lost(self, data: bytes, told: int) -> None:
        """Lines did not reach the file, and with them what they told of lines lost before."""
        self._dropped += data.count(b"\n") + told

    def _write(self) -> None:
        while True:
            try:
                batch = self._queue.get(timeout=1.0)
            except queue.Empty:
                if self._over:
                    break
                continue
            if batch is None:
                break
            data, told = batch
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                self._lost(data, told)  # a full disk must not stop the gateway
        os.close(self._fd)  # here, because a disk that hangs may keep us longer than `close` waits

    def close(self, patience: float = LAST_LINES) -> None:
        """Write what is noted; waits at most `patience` seconds for the disk. The thread ends when it is done."""
        room = min(LAST_ROOM, patience)
        if self._notes:
            self._make_lines()
        self._hand_over(room)
        self._over = True
        with suppress(queue.Full):
            self._queue.put(None, block=room > 0.0, timeout=room)
        if patience:
            self._thread.join(patience)


def _text(line: Line) -> bytes:
    words = [line.time, line.client, line.method, _word(line.path), str(line.status), line.verdict, f"{line.ms:.1f}ms"]
    rest = msgspec.structs.asdict(line)
    words += [
        f"{name}={_word(rest[name])}"
        for name in ("model", "tenant", "replica", "attempts", "queue_ms", "bytes_in", "bytes_out", "reason", "dropped")
        if rest[name]
    ]
    words.append(f"id={_word(line.id)}")
    return " ".join(words).encode()


def _word(value: object) -> str:
    """One word, whatever a client wrote: a line stays a line."""
    return "".join(c if c.isprintable() and not c.isspace() else "?" for c in str(value))

"""One worker as the supervisor sees it: a process, a channel to it, and what it last said."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Container, Mapping, Sequence
from contextlib import ExitStack
from math import inf
from typing import TYPE_CHECKING, cast

import msgspec

from ...link.messages import FrameDecoder, FromWorker, ReportRequest, Started, ToWorker, WorkerReport, encode_frame
from .stderr_tail import StderrTail

if TYPE_CHECKING:
    from .slot import WorkerSlot

EXIT_POLL_SECONDS = 0.1  # where the kernel does not tell
# A worker has one busy thread. numpy's threads for each core would cost start-up time and memory for nothing.
WORKER_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class WorkerProcess(asyncio.Protocol):
    """A child in its own process group: Ctrl-C in the terminal reaches the supervisor alone, which drains."""

    def __init__(self, slot: WorkerSlot) -> None:
        self.index = slot.index
        self.pid = 0
        self.exit_code: int | None = None  # once it ended; negative: the signal
        self.serving = False  # it has reported `Started`
        self.report: WorkerReport | None = None  # the latest
        self._slot = slot
        self._loop = asyncio.get_running_loop()
        self.started_at = self.last_heard_at = self._loop.time()
        self._frames = FrameDecoder(FromWorker)
        self._channel: asyncio.WriteTransport | None = None
        self._report_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.exited: asyncio.Future[int] = self._loop.create_future()  # after its slot was notified

    async def start(self, listen: Sequence[int], options: Mapping[str, object]) -> None:
        """`listen`: file descriptors of its sockets."""
        supervisor = self._slot.pool.supervisor
        ledger = supervisor.ledger.fd
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)
            arguments = {
                "--channel": theirs.fileno(),
                "--listen": ",".join(map(str, listen)),
                "--ledger": ledger,
                **options,
            }
            self._process = subprocess.Popen(
                [*supervisor.command, *(str(word) for pair in arguments.items() for word in pair)],
                pass_fds=(theirs.fileno(), ledger, *listen),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=WORKER_ENVIRONMENT | os.environ,
                process_group=0,
            )
            undo.pop_all()
        self.pid = self._process.pid
        assert self._process.stderr is not None
        self._stderr_tail = StderrTail(self._process.stderr, self._slot.stderr_line)
        self._await_end()
        try:
            await self._loop.create_unix_connection(lambda: self, sock=ours)
        except OSError:
            ours.close()
            self.kill()

    @property
    def last_stderr_line(self) -> str:
        return self._stderr_tail.lines[-1] if self._stderr_tail.lines else ""

    def send(self, message: ToWorker) -> None:
        if self._channel is not None and not self._channel.is_closing():
            self._channel.write(encode_frame(message))

    def request_report(self, number: int) -> asyncio.Future[None]:
        """Done when the report has come, or never will."""
        asked: asyncio.Future[None] = self._loop.create_future()
        if self.exit_code is not None or not self.serving:
            asked.set_result(None)
            return asked
        self._report_waiters.append((number, asked))
        self.send(ReportRequest(number))
        return asked

    def _resolve_waiters(self, number: float) -> None:
        for asked in [asked for wanted, asked in self._report_waiters if wanted <= number and not asked.done()]:
            asked.set_result(None)
        self._report_waiters = [(wanted, asked) for wanted, asked in self._report_waiters if not asked.done()]

    def kill(self) -> None:
        if self.exit_code is None:
            self._process.kill()

    # ------------------------------------------------------------------ the channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._channel = cast(asyncio.WriteTransport, transport)  # uvloop's are such, but do not say so

    def connection_lost(self, problem: Exception | None) -> None:
        self._channel = None
        if self.exit_code is not None:
            self._finish()

    def data_received(self, data: bytes) -> None:
        self.last_heard_at = self._loop.time()
        try:
            for message in self._frames.feed(data):
                self._take(message)
        except ValueError as problem:  # msgspec's errors are such
            self._slot.stderr_line(f"error invalid message, killing it: {problem}")
            self.kill()

    def prune(self, configured: Container[str]) -> None:
        """Drops what it reported of other models."""
        if self.report is not None and any(model.model not in configured for model in self.report.models):
            models = tuple(model for model in self.report.models if model.model in configured)
            self.report = msgspec.structs.replace(self.report, models=models)

    def _take(self, message: FromWorker) -> None:
        if isinstance(message, WorkerReport):
            self.report = message
            self._resolve_waiters(message.request_number)
        elif isinstance(message, Started):
            self.serving = True
        self._slot.received(self, message)

    # ------------------------------------------------------------------ the end

    def _await_end(self) -> None:
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:  # a kernel without them, or no file descriptor left: ask now and then
            self._loop.call_later(EXIT_POLL_SECONDS, self._look)
            return
        self._loop.add_reader(handle, self._ended, handle)

    def _look(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(EXIT_POLL_SECONDS, self._look)
        else:
            self._ended(None)

    def _ended(self, handle: int | None) -> None:
        if handle is not None:
            self._loop.remove_reader(handle)
            os.close(handle)
        self.exit_code = self._process.wait()
        self.serving = False
        self._stderr_tail.close()
        if self._channel is None:
            self._finish()
        else:  # its last report may still be in the channel
            self._loop.call_later(EXIT_POLL_SECONDS, self._finish)

    def _finish(self) -> None:
        if self.exited.done():
            return
        if self._channel is not None:
            self._channel.abort()
        assert self.exit_code is not None
        self._resolve_waiters(inf)
        self.exited.set_result(self.exit_code)
        self._slot.ended(self, self.exit_code)

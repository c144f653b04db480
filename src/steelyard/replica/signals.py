"""The signals that end a server, held back until the replica has drained."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class DrainSignals:
    """Precedes the server's own handlers: the first signal begins the drain, and they get it afterwards. A second one
    passes on both at once."""

    def __init__(self, drain: Callable[[], object]) -> None:
        self._drain = drain  # in a thread; the signal is passed on when it returns
        self._process = 0
        self._before: dict[int, Any] = {}
        self._held: int | None = None
        self._over = False

    def install(self) -> bool:
        """False: not the main thread, or no server that handles signals."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if not callable(signal.getsignal(signal.SIGTERM)):
            return False  # a test or a script: its Ctrl-C stays
        self._process = os.getpid()
        for number in TERMINATION_SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return True

    def restore(self) -> None:
        """Unless others have changed it since."""
        if threading.current_thread() is threading.main_thread():
            for number, before in self._before.items():
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Takes no lock: the main thread, which it interrupts, might hold it."""
        if self._over or os.getpid() != self._process:
            self._pass_on(number, frame)
        elif self._held is None:
            self._held = number
            _thread.start_new_thread(self._hold, (number,))  # threading's would wait for it to run
        else:
            self._over = True
            self._pass_on(self._held, frame)
            self._pass_on(number, frame)

    def _hold(self, number: int) -> None:
        try:
            self._drain()
        finally:
            if not self._over:
                self._over = True
                _signal_main_thread(self._process, number)  # comes back to `_handle`

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            die_by_signal(number)


def _signal_main_thread(process: int, number: int) -> None:
    if os.name == "nt":
        signal.raise_signal(number)  # on Windows os.kill ends the process
    else:
        os.kill(process, number)


def die_by_signal(number: int) -> None:
    """As without a handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

"""Ctrl-C and its like: the first ends the demo in order, the second at once."""

from __future__ import annotations

import asyncio
import os
import signal

from rich.console import Console

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count


class Interrupt:
    """While the demo starts, its task is cancelled; after `started`, the event `given` is all that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.given = asyncio.Event()
        self._starting = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signal)

    def started(self) -> None:
        self._starting = None

    async def wait(self, seconds: float | None) -> bool:
        """Until it is given, or so many seconds. Was it?"""
        try:
            await asyncio.wait_for(self.given.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _signal(self) -> None:
        if self.given.is_set():
            self._console.show_cursor()
            os._exit(EXIT_INTERRUPTED)  # all our processes end with us
        self.given.set()
        if self._starting is not None:
            self._starting.cancel()
        else:
            self._console.print("waiting for the last answers; Ctrl-C again ends without them")

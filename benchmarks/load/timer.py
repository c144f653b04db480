"""Call-backs at a time of CLOCK_MONOTONIC, to within about 0.1 ms: event loops' own timers go by whole milliseconds."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from time import monotonic

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)
_Itimerspec = ctypes.c_long * 4  # struct itimerspec: interval (s, ns), value (s, ns)


class Timer:
    """One timerfd (timerfd_create(2)) and a heap."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._fd: int = _libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        loop.add_reader(self._fd, self._due)

    def at(self, when: float, call: Callable[[], None]) -> None:
        """A time that has passed is due at the next turn of the loop."""
        entry = (when, next(self._order), call)
        heappush(self._heap, entry)
        if self._heap[0] is entry:
            self._set(when)

    def forget_all(self) -> None:
        self._heap.clear()

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _set(self, when: float) -> None:
        nanoseconds = max(1, round(when * 1e9))  # 0 would disarm it
        times = _Itimerspec(0, 0, nanoseconds // 10**9, nanoseconds % 10**9)
        _libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(times), None)

    def _due(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set anew meanwhile
        while self._heap and self._heap[0][0] <= monotonic():
            heappop(self._heap)[2]()
        if self._heap:
            self._set(self._heap[0][0])

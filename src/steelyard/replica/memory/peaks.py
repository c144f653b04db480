"""The peak memory of a request, where it can be told apart from what else ran."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .decorator import measure_calls
from .gauge import PROCESS_SOURCE, GaugeReading, MemoryGauge

if TYPE_CHECKING:
    from typing import Self

MAX_MEASUREMENTS_PER_SECOND = 100  # each takes some 50 µs


class MemorySpan:
    __slots__ = ("alone", "bytes", "depth", "floor", "sections", "source", "unknown", "wanted")

    def __init__(self, asked: bool) -> None:
        self.wanted = asked
        self.alone = True  # nothing else has run meanwhile
        self.floor: int | None = None  # bytes in use when it began; None: not measured
        self.source = ""
        self.depth = 1  # of a section: itself, and open ones within
        self.bytes: int | None = None  # of a request: the most of its sections
        self.sections = 0  # of a request
        self.unknown = False  # of a request: one section could not be measured


current_request: ContextVar[MemorySpan | None] = ContextVar("steelyard_request", default=None)
# It may have ended since.
_current_section: ContextVar[MemorySpan | None] = ContextVar("steelyard_section", default=None)


class PeakTracker:
    """Measures requests that run alone in the process, and sections that no other overlaps. From any thread."""

    def __init__(
        self, gauge: MemoryGauge, floor: Callable[[GaugeReading], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gauge = gauge
        self._floor = floor  # what there is with nothing running
        self._clock = clock
        self._lock = threading.Lock()
        self._requests: set[MemorySpan] = set()
        self._sections: dict[MemorySpan, MemorySpan | None] = {}  # each with its request
        self._second = 0  # in which `_measured` were begun
        self._measured = 0

    @property
    def is_idle(self) -> bool:
        return not self._requests and not self._sections

    def open(self, asked: bool) -> MemorySpan:
        request = MemorySpan(asked)
        with self._lock:
            if self._requests or self._sections:
                request.alone = False
                for other in self._requests:
                    other.alone = False
            self._requests.add(request)
            self._begin(request, self._floor)
        return request

    def close(self, request: MemorySpan) -> None:
        with self._lock:
            self._requests.discard(request)

    def open_section(self, request: MemorySpan | None, within: MemorySpan | None = None) -> MemorySpan:
        """Returns an open section of the same request that this one is within."""
        section = MemorySpan(request is not None and request.wanted)
        with self._lock:
            if within is not None and within in self._sections and self._sections[within] is request:
                within.depth += 1
                return within
            for other in self._requests:
                other.alone = other.alone and other is request
            if self._sections:
                section.alone = False
                for other in self._sections:
                    other.alone = False
            self._sections[section] = request
            if request is not None:
                request.sections += 1
            self._begin(section, lambda reading: reading.used)
        return section

    def close_section(self, section: MemorySpan) -> None:
        """Ends with the last one within it: a task may outlive what began it."""
        with self._lock:
            section.depth -= 1
            if section.depth:
                return
            request = self._sections.pop(section, None)
            if request is not None:
                needed = self._needed(section)
                request.unknown = request.unknown or needed is None
                request.bytes = max(request.bytes or 0, needed or 0)

    def request_bytes(self, request: MemorySpan) -> int | None:
        if not request.wanted:
            return None
        with self._lock:
            if not request.sections:
                return self._if_seen(self._needed(request))
            open_now = [self._needed(one) for one, its in self._sections.items() if its is request]
            if request.unknown or None in open_now:
                return None
            return self._if_seen(max([request.bytes or 0, *(one or 0 for one in open_now)]))

    def _if_seen(self, needed: int | None) -> int | None:
        """torch counts every byte. Resident memory that has not grown only shows that malloc reused some."""
        if needed == 0:
            reading = self._gauge.read()
            return None if reading is None or reading.source == PROCESS_SOURCE else 0
        return needed

    def _begin(self, stretch: MemorySpan, floor: Callable[[GaugeReading], int]) -> None:
        if not (stretch.wanted and stretch.alone and self._allowed()):
            return
        reading = self._gauge.reset()
        if reading is not None:
            stretch.floor, stretch.source = floor(reading), reading.source

    def _needed(self, stretch: MemorySpan) -> int | None:
        if stretch.floor is None or not stretch.alone:
            return None
        reading = self._gauge.read()
        if reading is None or reading.peak is None or reading.source != stretch.source:
            return None
        return max(0, reading.peak - stretch.floor)

    def _allowed(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._measured = second, 0
        self._measured += 1
        return self._measured <= MAX_MEASUREMENTS_PER_SECOND


class MeasuredSection:
    """`with agent.measuring():`, or `@agent.measuring()` on a function, coroutine or generator function."""

    def __init__(self, peaks: PeakTracker) -> None:
        self._peaks = peaks
        self._open: list[MemorySpan] = []  # not in the context: a generator may end in another

    def __enter__(self) -> Self:
        section = self._peaks.open_section(current_request.get(), _current_section.get())
        self._open.append(section)
        _current_section.set(section)
        return self

    def __exit__(self, *_: object) -> None:
        self._peaks.close_section(self._open.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return measure_calls(lambda: MeasuredSection(self._peaks), function)

    def discard(self) -> None:
        self._open[-1].alone = False

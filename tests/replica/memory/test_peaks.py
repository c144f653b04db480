"""Whose memory it was: requests and sections that are alone are measured, and no others. The gauge is a stand-in."""

from __future__ import annotations

import threading
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.replica.memory.baseline import (
    WINDOW_SECONDS,
    CacheAllowance,
    HeldMemory,
    MemoryBaseline,
    WindowedMinimum,
)
from steelyard.replica.memory.gauge import GaugeReading, MemoryGauge
from steelyard.replica.memory.out_of_memory import is_out_of_memory
from steelyard.replica.memory.peaks import (
    MAX_MEASUREMENTS_PER_SECOND,
    MeasuredSection,
    MemorySpan,
    PeakTracker,
    current_request,
)
from steelyard.replica.options import max_cached_memory


class Scale(MemoryGauge):
    """Memory that a test moves up and down."""

    def __init__(self, source: str = "process") -> None:
        super().__init__()
        self.source = source
        self.now = self.most = 100
        self.resets = 0
        self.works = True

    def use(self, amount: int) -> None:
        self.now += amount
        self.most = max(self.most, self.now)

    def burst(self, amount: int) -> None:
        self.use(amount)
        self.use(-amount)

    def read(self) -> GaugeReading | None:
        return GaugeReading(self.source, self.now, self.most) if self.works else None

    def reset(self) -> GaugeReading | None:
        self.resets += 1
        self.most = self.now
        return self.read()


def made() -> tuple[Scale, PeakTracker]:
    scale = Scale()
    return scale, PeakTracker(scale, lambda reading: reading.used, lambda: 1.0)


def test_a_request_that_is_alone_is_measured_over_what_there_was() -> None:
    scale, peaks = made()
    for amount in (50, 7):
        request = peaks.open(asked=True)
        scale.burst(amount)
        assert peaks.request_bytes(request) == amount
        peaks.close(request)
    assert peaks.is_idle


def test_who_was_not_asked_is_not_measured() -> None:
    scale, peaks = made()
    request = peaks.open(asked=False)
    scale.burst(50)
    assert (peaks.request_bytes(request), scale.resets) == (None, 0)


def test_whoever_overlaps_spoils_it_for_both() -> None:
    scale, peaks = made()
    first = peaks.open(asked=True)
    second = peaks.open(asked=False)
    peaks.close(second)
    assert peaks.request_bytes(first) is None
    third = peaks.open(asked=True)
    assert peaks.request_bytes(third) is None
    peaks.close(first)
    assert peaks.request_bytes(third) is None  # it was not alone from the start
    peaks.close(third)
    fourth = peaks.open(asked=True)
    scale.burst(3)
    assert peaks.request_bytes(fourth) == 3


def test_sections_are_measured_though_requests_overlap() -> None:
    scale, peaks = made()
    first, second = peaks.open(asked=True), peaks.open(asked=True)
    for request, amount in ((first, 10), (second, 30), (first, 20)):
        section = peaks.open_section(request)
        scale.burst(amount)
        peaks.close_section(section)
    assert (peaks.request_bytes(first), peaks.request_bytes(second)) == (20, 30)


def test_sections_that_overlap_tell_nothing() -> None:
    scale, peaks = made()
    first, second = peaks.open(asked=True), peaks.open(asked=True)
    good = peaks.open_section(first)
    scale.burst(10)
    peaks.close_section(good)
    one, two = peaks.open_section(first), peaks.open_section(second)
    peaks.close_section(one)
    peaks.close_section(two)
    assert (peaks.request_bytes(first), peaks.request_bytes(second)) == (None, None)


def test_a_section_that_is_open_counts_as_far_as_it_is() -> None:
    scale, peaks = made()
    request = peaks.open(asked=True)
    peaks.open_section(request)
    scale.burst(9)
    assert peaks.request_bytes(request) == 9


def test_work_outside_of_requests_spoils_what_it_overlaps() -> None:
    scale, peaks = made()
    request = peaks.open(asked=True)
    with MeasuredSection(peaks):
        scale.burst(9)
    assert peaks.request_bytes(request) is None


def test_a_section_within_a_section_is_a_part_of_it() -> None:
    scale, peaks = made()
    request = peaks.open(asked=True)
    measured = MeasuredSection(peaks)(scale.burst)

    def work() -> None:
        current_request.set(request)
        with MeasuredSection(peaks):
            measured(5)
            scale.burst(8)

    copy_context().run(work)
    assert (peaks.request_bytes(request), request.sections) == (8, 1)
    assert peaks.is_idle is False
    peaks.close(request)
    assert peaks.is_idle


def test_a_section_of_a_generator_ends_wherever_it_ends() -> None:
    """Starlette takes each step of a generator in a copy of the context, and maybe in another thread."""
    scale, peaks = made()
    request = peaks.open(asked=True)

    def parts() -> Any:
        with MeasuredSection(peaks):
            scale.burst(5)
            yield
            scale.burst(8)

    def begin() -> Any:
        current_request.set(request)
        steps = parts()
        next(steps)
        return steps

    steps = copy_context().run(begin)
    assert peaks.request_bytes(request) == 5
    thread = threading.Thread(target=lambda: list(steps))
    thread.start()
    thread.join()
    assert peaks.request_bytes(request) == 8
    with MeasuredSection(peaks):
        pass
    peaks.close(request)
    assert peaks.is_idle


def test_not_more_than_so_many_a_second() -> None:
    scale, peaks = made()
    for _ in range(MAX_MEASUREMENTS_PER_SECOND + 20):
        peaks.close(peaks.open(asked=True))
    assert scale.resets == MAX_MEASUREMENTS_PER_SECOND


@pytest.mark.parametrize("spoil", [{"works": False}, {"source": "cuda:0"}])
def test_a_gauge_that_stops_or_changes_tells_nothing(spoil: dict[str, Any]) -> None:
    scale, peaks = made()
    request = peaks.open(asked=True)
    vars(scale).update(spoil)
    assert peaks.request_bytes(request) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40))
def test_for_any_history_what_is_told_is_what_was_needed(steps: list[tuple[int, bool]]) -> None:
    """Six requests that open and close at random: who is told something was alone, and is told the truth."""
    scale, peaks = made()
    here: dict[int, tuple[MemorySpan, int]] = {}
    alone: dict[int, bool] = {}
    for number, asked in steps:
        if number in here:
            request, amount = here.pop(number)
            expected = amount if alone.pop(number) and request.wanted else None
            assert peaks.request_bytes(request) == expected
            peaks.close(request)
        else:
            alone = dict.fromkeys(alone, False)
            alone[number] = not here
            here[number] = peaks.open(asked), number + 1
            scale.burst(number + 1)
    assert peaks.is_idle is not bool(here)


def test_from_many_threads_all_sections_under_a_lock_are_told() -> None:
    scale, peaks = made()
    lock = threading.Lock()
    wrong: list[Any] = []

    def work(amount: int) -> None:
        for _ in range(10):
            request = peaks.open(asked=True)
            section_request = current_request.set(request)
            with lock, MeasuredSection(peaks):
                scale.burst(amount)
            current_request.reset(section_request)
            if peaks.request_bytes(request) not in (amount, None):
                wrong.append((amount, peaks.request_bytes(request)))
            peaks.close(request)

    threads = [threading.Thread(target=work, args=(amount,)) for amount in (3, 50, 7, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []


# ---------------------------------------------------------------------- base and held


def test_the_least_of_lately_counts() -> None:
    lowest = WindowedMinimum()
    assert lowest.value is None
    for now, value in ((0.0, 50), (1.0, 40), (2.0, 60)):
        lowest.see(value, now)
    assert lowest.value == 40
    lowest.see(70, WINDOW_SECONDS + 1)
    assert lowest.value == 40  # it may be that of a moment ago
    lowest.see(80, 2 * WINDOW_SECONDS + 2)
    assert lowest.value == 70
    lowest.see(90, 10 * WINDOW_SECONDS)
    assert lowest.value == 90


def test_the_base_is_learned_with_nothing_running() -> None:
    scale = Scale()
    holding = MemoryBaseline(scale)
    assert holding.read(False, 1.0) == HeldMemory(100, None)
    assert holding.read(True, 2.0) == HeldMemory(100, 100)
    scale.use(50)
    assert holding.read(False, 3.0) == HeldMemory(150, 100)
    holding.forget()
    assert holding.read(True, 4.0) == HeldMemory(150, 150)
    scale.source = "cuda:0"
    assert holding.read(False, 5.0) == HeldMemory(150, None)
    scale.works = False
    assert holding.read(True, 6.0) == HeldMemory()


def test_what_malloc_keeps_is_not_forgotten() -> None:
    scale = Scale()
    holding = MemoryBaseline(scale)
    holding.read(True, 1.0)
    scale.use(40)
    assert holding.floor(GaugeReading("process", scale.now, None), 2.0) == 100
    assert MemoryBaseline(scale).floor(GaugeReading("process", scale.now, None), 2.0) == 140


@pytest.mark.parametrize(
    ("given", "total", "expected"),
    [("5%", 1000, 50.0), ("2GiB", None, 2 << 30), (0, None, 0), (10, 5, 10), ("5%", None, float("inf"))],
)
def test_spare(given: Any, total: int | None, expected: float) -> None:
    found = max_cached_memory(given)
    assert found is not None
    assert found.of(total) == expected


def test_no_spare_and_wrong_ones() -> None:
    assert max_cached_memory(None) is None
    assert max_cached_memory("0") == CacheAllowance(0)
    for wrong in ("much", "200%", -1, True, 1.5):
        with pytest.raises(OptionError, match="max_cached_memory"):
            max_cached_memory(wrong)  # type: ignore[arg-type]


def test_the_kernel_tells_resident_memory_and_its_peak(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("Name:\tx\nVmPeak:\t9 kB\nVmHWM:\t 30 kB\nVmRSS:\t 20 kB\n")
    gauge = MemoryGauge(proc=tmp_path)
    assert gauge.read() == GaugeReading("process", 20 << 10, 30 << 10)
    assert gauge.reset() == GaugeReading("process", 20 << 10, 30 << 10)
    assert (tmp_path / "self/clear_refs").read_text() == "5"
    (tmp_path / "self/clear_refs").unlink()
    (tmp_path / "self/clear_refs").mkdir()  # nobody may write there
    assert gauge.reset() is None
    assert gauge.read() == GaugeReading("process", 20 << 10, None)
    assert MemoryGauge(proc=tmp_path / "nowhere").read() is None


# ---------------------------------------------------------------------- out of memory


class OutOfMemoryError(RuntimeError):
    """By the name of torch's."""


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError


def caused(by: Exception, *, hidden: bool = False) -> Exception:
    try:
        try:
            raise by
        except Exception:
            if hidden:
                raise ValueError("the app knows better") from None
            raise ValueError("while that was handled")  # noqa: B904
    except ValueError as problem:
        return problem


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (MemoryError(), True),
        (OutOfMemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("out of range"), False),
        (Speechless(), False),
        (None, False),
        (caused(MemoryError()), True),
        (caused(MemoryError(), hidden=True), False),
        (ExceptionGroup("", [ValueError(), MemoryError()]), True),
        (ExceptionGroup("", [ValueError(), ValueError()]), False),
    ],
)
def test_what_means_out_of_memory(problem: Any, expected: bool) -> None:
    assert is_out_of_memory(problem) is expected


def test_a_ring_of_exceptions_has_an_end() -> None:
    one, two = ValueError(), ValueError()
    one.__context__, two.__context__ = two, one
    assert is_out_of_memory(one) is False

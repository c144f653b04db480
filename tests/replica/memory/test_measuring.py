"""`agent.measuring()` on functions of every kind, and sections that outlive their caller. The gauge is a stand-in."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import Context, copy_context
from functools import partial
from typing import Any

import pytest

from steelyard.replica.memory.peaks import MeasuredSection, MemorySpan, PeakTracker, current_request

from ..talking import run
from .test_peaks import Scale, made


def within(request: MemorySpan, work: Callable[[], Any]) -> Any:
    """Do it in the context of the request, as the agent does."""

    def begin() -> Any:
        current_request.set(request)
        return work()

    return copy_context().run(begin)


def works(scale: Scale) -> dict[str, Callable[[int], Any]]:
    """Functions that need so much, one of each kind."""

    async def coroutine(amount: int) -> None:
        await asyncio.sleep(0)
        scale.burst(amount)

    def generator(amount: int) -> Iterator[int]:
        yield 1
        scale.burst(amount)
        yield 2

    async def async_generator(amount: int) -> AsyncIterator[int]:
        yield 1
        scale.burst(amount)
        yield 2

    return {"plain": scale.burst, "coroutine": coroutine, "generator": generator, "async generator": async_generator}


async def finish(result: Any) -> None:
    if inspect.isawaitable(result):
        await result
    elif inspect.isasyncgen(result):
        assert [part async for part in result] == [1, 2]
    elif result is not None:
        assert list(result) == [1, 2]


@pytest.mark.parametrize("bind", [False, True], ids=["function", "partial"])
@pytest.mark.parametrize("kind", ["plain", "coroutine", "generator", "async generator"])
def test_a_function_of_any_kind_is_measured_while_it_runs(kind: str, bind: bool) -> None:
    async def story() -> None:
        scale, peaks = made()
        function = works(scale)[kind]
        measured = MeasuredSection(peaks)(partial(function, 1000) if bind else function)
        request = peaks.open(asked=True)
        current_request.set(request)
        await finish(measured() if bind else measured(1000))
        assert (peaks.request_bytes(request), request.sections) == (1000, 1)
        peaks.close(request)
        assert peaks.is_idle

    run(story())


@pytest.mark.parametrize("kind", ["plain", "coroutine", "generator", "async generator"])
def test_what_returns_before_its_work_is_done_tells_nothing(kind: str) -> None:
    """The kind cannot be seen from outside, so only a part of it was measured."""

    async def story() -> None:
        scale, peaks = made()
        function = works(scale)[kind]
        measured = MeasuredSection(peaks)(lambda amount: function(amount))
        request = peaks.open(asked=True)
        current_request.set(request)
        scale.use(1)
        await finish(measured(1000))
        assert peaks.request_bytes(request) == (1000 if kind == "plain" else None)

    run(story())


def test_a_measured_function_is_of_the_kind_it_was() -> None:
    scale, peaks = made()
    kinds = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
    for function in works(scale).values():
        measured = MeasuredSection(peaks)(function)
        assert [kind(measured) for kind in kinds] == [kind(function) for kind in kinds]
        assert measured.__name__ == function.__name__


def test_what_is_sent_and_thrown_into_a_generator_reaches_it() -> None:
    async def story() -> None:
        _, peaks = made()
        heard: list[Any] = []

        @MeasuredSection(peaks)
        async def parts() -> AsyncIterator[int]:
            try:
                heard.append((yield 1))
                try:
                    yield 2
                except ValueError:
                    heard.append("thrown")
                yield 3
            finally:
                heard.append("closed")

        steps: Any = parts()
        assert await anext(steps) == 1
        assert await steps.asend("sent") == 2
        assert await steps.athrow(ValueError()) == 3
        assert peaks.is_idle is False
        await steps.aclose()
        assert heard == ["sent", "thrown", "closed"]
        assert peaks.is_idle

    run(story())


def test_a_generator_that_is_left_or_fails_ends_its_section() -> None:
    async def story() -> None:
        scale, peaks = made()
        measured = {kind: MeasuredSection(peaks)(function) for kind, function in works(scale).items()}
        steps = measured["generator"](1)
        next(steps)
        steps.close()
        assert peaks.is_idle
        later = measured["async generator"](1)
        await anext(later)
        with pytest.raises(LookupError):
            await later.athrow(LookupError())
        assert peaks.is_idle

    run(story())


# ---------------------------------------------------------------------- sections and tasks


class Late:
    """A task that was begun within a section, and has a section of its own when it is let go."""

    def __init__(self, scale: Scale, peaks: PeakTracker) -> None:
        self._scale, self._peaks = scale, peaks
        self.go, self.inside, self.end = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.task = asyncio.ensure_future(self._work())

    async def _work(self) -> None:
        await self.go.wait()
        with MeasuredSection(self._peaks):
            self._scale.use(5000)
            self.inside.set()
            await self.end.wait()
            self._scale.use(-5000)


@pytest.mark.parametrize("when", ["after", "meanwhile"])
def test_a_section_of_a_task_is_seen_when_the_one_it_was_begun_in_is_over(when: str) -> None:
    """A neighbour must not be told its bytes."""

    async def story() -> None:
        scale, peaks = made()
        first = peaks.open(asked=True)
        current_request.set(first)
        with MeasuredSection(peaks):
            late = Late(scale, peaks)
            if when == "meanwhile":
                late.go.set()
                await late.inside.wait()
        late.go.set()

        async def neighbour() -> None:
            second = peaks.open(asked=True)
            current_request.set(second)
            with MeasuredSection(peaks):
                await late.inside.wait()
                late.end.set()
                await late.task
            assert peaks.request_bytes(second) is None
            peaks.close(second)

        await asyncio.get_running_loop().create_task(neighbour(), context=Context())
        peaks.close(first)
        assert peaks.is_idle

    run(story())


def test_a_task_within_a_section_is_a_part_of_it_to_its_end() -> None:
    async def story() -> None:
        scale, peaks = made()
        request = peaks.open(asked=True)
        current_request.set(request)
        with MeasuredSection(peaks):
            late = Late(scale, peaks)
            late.go.set()
            await late.inside.wait()
        scale.burst(10)
        late.end.set()
        await late.task
        assert (peaks.request_bytes(request), request.sections) == (5010, 1)

    run(story())


def test_a_section_of_another_request_is_no_part_of_one_that_is_open_here() -> None:
    """One thread that takes steps of several requests in turn."""
    scale, peaks = made()
    first, second = peaks.open(asked=True), peaks.open(asked=True)

    def work() -> None:
        current_request.set(first)
        with MeasuredSection(peaks):
            current_request.set(second)
            with MeasuredSection(peaks):
                scale.burst(5)

    copy_context().run(work)
    assert (peaks.request_bytes(first), peaks.request_bytes(second)) == (None, None)
    assert (first.sections, second.sections) == (1, 1)


# ---------------------------------------------------------------------- nothing, or nothing that was seen


@pytest.mark.parametrize("in_section", [False, True])
@pytest.mark.parametrize(("source", "expected"), [("process", None), ("cuda:0", 0)])
def test_0_is_told_only_where_every_byte_is_counted(source: str, expected: int | None, in_section: bool) -> None:
    """Resident memory does not grow if the request lives in what malloc has kept of earlier ones."""
    scale = Scale(source)
    peaks = PeakTracker(scale, lambda reading: reading.used, lambda: 1.0)
    request = peaks.open(asked=True)
    if in_section:
        within(request, lambda: MeasuredSection(peaks)(scale.burst)(0))
    assert peaks.request_bytes(request) == expected


def test_a_section_in_which_nothing_was_seen_does_not_spoil_the_others() -> None:
    scale, peaks = made()
    request = peaks.open(asked=True)
    for amount in (0, 30, 0):
        within(request, partial(MeasuredSection(peaks)(scale.burst), amount))
    assert peaks.request_bytes(request) == 30

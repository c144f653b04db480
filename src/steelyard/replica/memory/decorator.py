"""A measured section around a function, or around a generator for as long as it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .peaks import MeasuredSection

Function = Callable[..., Any]
SectionFactory = Callable[[], "MeasuredSection"]
DEFERRED_RESULTS = (Iterator, AsyncIterator, Awaitable)  # returned before the work is done


def measure_calls(begin: SectionFactory, function: Function) -> Function:
    """Of the same kind as the function, for frameworks that check it."""
    if iscoroutinefunction(function):
        return wraps(function)(_coroutine(begin, function))
    if isgeneratorfunction(function):
        return wraps(function)(_generator(begin, function))
    if isasyncgenfunction(function):
        return wraps(function)(_async_generator(begin, function))
    return wraps(function)(_plain(begin, function))


def _plain(begin: SectionFactory, function: Function) -> Function:
    def measured(*args: Any, **kwargs: Any) -> Any:
        with begin() as section:
            result = function(*args, **kwargs)
            if isinstance(result, DEFERRED_RESULTS):
                section.discard()
            return result

    return measured


def _coroutine(begin: SectionFactory, function: Function) -> Function:
    async def measured(*args: Any, **kwargs: Any) -> Any:
        with begin() as section:
            result = await function(*args, **kwargs)
            if isinstance(result, DEFERRED_RESULTS):
                section.discard()
            return result

    return measured


def _generator(begin: SectionFactory, function: Function) -> Function:
    def measured(*args: Any, **kwargs: Any) -> Any:
        with begin():
            return (yield from function(*args, **kwargs))

    return measured


def _async_generator(begin: SectionFactory, function: Function) -> Function:
    """`yield from`, which async generators lack: passes on what is sent or thrown in."""

    async def measured(*args: Any, **kwargs: Any) -> Any:
        with begin():
            steps = function(*args, **kwargs)
            try:
                step = steps.asend(None)
                while True:
                    try:
                        part = await step
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield part
                    except GeneratorExit:
                        raise  # and closing `steps` passes it on
                    except BaseException as problem:
                        step = steps.athrow(problem)
                    else:
                        step = steps.asend(sent)
            finally:
                await steps.aclose()  # contextlib.aclosing needs Python 3.10

    return measured

"""`lb.call(fn)`: runs `fn(replica)`, and again elsewhere where the core allows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar

from ..core.errors import MisuseError
from ..core.outcome import Outcome
from .failures import FailureClassifier
from .routed_request import RoutedRequest, Target

T = TypeVar("T")


def call(routed: RoutedRequest, fn: Callable[[Target], T], judge: FailureClassifier) -> T:
    target = routed.start()
    while True:
        try:
            result = run(fn, target)
        except BaseException as error:
            again = routed.retry(judge(error))
            if again is None:
                raise
            target = again
        else:
            routed.end(Outcome.OK)
            return result


async def acall(routed: RoutedRequest, fn: Callable[[Target], Awaitable[T]], judge: FailureClassifier) -> T:
    target = await routed.astart()
    while True:
        try:
            result = await arun(fn, target)
        except BaseException as error:
            again = await routed.aretry(judge(error))
            if again is None:
                raise
            target = again
        else:
            routed.end(Outcome.OK)
            return result


def run(fn: Callable[[Target], T], target: Target) -> T:
    result = fn(target)
    if isawaitable(result):
        close: Any = getattr(result, "close", None)
        if close is not None:
            close()
        raise MisuseError("fn returned an awaitable: use `await lb.acall(fn)`")
    return result


async def arun(fn: Callable[[Target], Awaitable[T]], target: Target) -> T:
    result = fn(target)
    if not isawaitable(result):
        raise MisuseError("fn returned no awaitable: use `lb.call(fn)`")
    return await result

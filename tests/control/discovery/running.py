"""Coroutines in tests, and patience."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

WAIT_TIMEOUT_SECONDS = 30.0  # until a test gives up waiting


def run(work: Coroutine[Any, Any, None]) -> None:
    """On the loop that `steelyard serve` uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work, 4 * WAIT_TIMEOUT_SECONDS))


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        while not true():
            await asyncio.sleep(0.01)

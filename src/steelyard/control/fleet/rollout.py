"""A new configuration on its way to the workers: in force when all have it, refused when one refuses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from ...link.messages import Applied, Apply

MAX_WORKER_DEATHS = 2  # of one worker while it applies: once may be chance, twice is the configuration's fault


class Rollout:
    def __init__(self, message: Apply, workers: Iterable[int]) -> None:
        self.message = message
        self._waiting = set(workers)
        self._deaths: Counter[int] = Counter()
        self._done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._settle()

    async def wait(self) -> str:
        """Why it is refused; empty: it is in force."""
        return await self._done

    def acknowledged(self, worker: int, answer: Applied) -> bool:
        """False: it answers another message."""
        if answer.number != self.message.number:
            return False
        self._waiting.discard(worker)
        self._settle(f"worker {worker}: {answer.problem}" if answer.problem else "")
        return True

    def worker_died(self, worker: int, how: str) -> None:
        """Its replacement gets the message too."""
        self._deaths[worker] += 1
        if worker in self._waiting and self._deaths[worker] >= MAX_WORKER_DEATHS:
            self._settle(f"worker {worker} ended with {how} when it got it, and so did its replacement")

    def _settle(self, problem: str = "") -> None:
        if not self._done.done() and (problem or not self._waiting):
            self._done.set_result(problem)

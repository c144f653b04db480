"""One replica, a process of its own: `python -m benchmarks.gpu.server MODEL PORT THREADS LOG [CARD]`.

A model of torch behind Starlette and the agent. What each request was measured to need is written to LOG, not by way of
the agent. CARD is the folder of a pretended card.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from steelyard.replica import ReplicaAgent

from .fake_device import FakeDevice, FakeModel
from .models import MODELS, Model, Shape
from .request_log import RequestRecord

DEVICE = "gpu0"
MAX_CACHED_BYTES = (
    0  # bytes that torch may keep for later: six processes share the card, and to empty its cache takes 1 to 40 ms
)
WARM_UP_SHAPES: dict[str, Shape] = {"text": (1, 256), "image": (1, 3, 256, 256), "rows": (256, 8192)}


class ExclusiveRuns:
    """Detects requests that ran alone in this process: only their memory is known."""

    def __init__(self, threads: int) -> None:
        self._turns = threading.Semaphore(threads)
        self._lock = threading.Lock()
        self._running = 0
        self._begun = 0

    def __enter__(self) -> int:
        """A ticket; -1: others run."""
        self._turns.acquire()
        with self._lock:
            self._begun += 1
            self._running += 1
            return self._begun if self._running == 1 else -1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
        self._turns.release()

    def was(self, ticket: int) -> bool:
        with self._lock:
            return ticket == self._begun


class Server:
    def __init__(self, name: str, threads: int, log: TextIO, card: FakeDevice | None) -> None:
        self.name = name
        self.log = log
        self.card = card
        self.agent = ReplicaAgent(
            name, device=DEVICE, max_cached_memory=MAX_CACHED_BYTES, deregistration_delay=0.0, drain_idle=0.0
        )
        self.exclusive = ExclusiveRuns(threads)
        self.model: Model

    def load(self) -> None:
        if self.card is not None:
            self.card.join(os.getpid())
            self.model = FakeModel(self.name, self.card)
        else:
            self.model = MODELS[self.name]()
        self.model.run(WARM_UP_SHAPES[self.name])  # kernels are loaded when they are first used
        self.agent.ready()

    def infer(self, shape: Shape) -> float:
        with self.exclusive as ticket, self.agent.measuring():
            began = time.monotonic()
            try:
                ran = self.model.run(shape)
            except (RuntimeError, MemoryError) as problem:
                self.note(RequestRecord(self.name, shape, began, time.monotonic(), None, str(problem)[:400]))
                raise
            measured = ran.bytes if self.exclusive.was(ticket) else None
            self.note(RequestRecord(self.name, shape, began, time.monotonic(), measured))
            return ran.value

    def note(self, note: RequestRecord) -> None:
        print(note.line(), file=self.log, flush=True)

    async def answer(self, request: Request) -> JSONResponse:
        said = await request.json()
        shape = tuple(int(size) for size in said["inputs"][0]["shape"])
        value = await run_in_threadpool(self.infer, shape)
        output = {"name": "output", "datatype": "FP32", "shape": [1], "data": [value]}
        return JSONResponse({"model_name": self.name, "outputs": [output]})

    def app(self) -> Any:
        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            loading = asyncio.create_task(asyncio.to_thread(self.load))
            yield
            await loading

        path = f"/v2/models/{self.name}/infer"
        return self.agent.wrap(Starlette(routes=[Route(path, self.answer, methods=["POST"])], lifespan=lifespan))


def main() -> None:
    name, port, threads, log, *card = sys.argv[1:]
    with Path(log).open("a", encoding="utf-8") as notes:
        server = Server(name, int(threads), notes, FakeDevice(Path(card[0])) if card else None)
        uvicorn.run(server.app(), host="127.0.0.1", port=int(port), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()

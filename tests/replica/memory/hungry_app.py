"""A server whose requests really take memory: `FRAMEWORK` fastapi or starlette, `HOW` the agent is put around it.

`/take?bytes=` in a thread, `/measured?bytes=` in a section of the agent, `/stream?bytes=` before its first part,
`/fail?how=` with an exception, or with an answer of its own.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from steelyard.replica import ReplicaAgent

agent = ReplicaAgent("hungry", gateway=(), drain_idle=0.0, deregistration_delay=0.0)
lock = threading.Lock()
gate = threading.Event()


class OutOfMemoryError(RuntimeError):
    """By the name of torch's, which is not installed here."""


def take(amount: int, seconds: float = 0.0) -> None:
    memory = mmap.mmap(-1, amount, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:: mmap.PAGESIZE] = b"\1" * -(-amount // mmap.PAGESIZE)
    time.sleep(seconds)
    memory.close()


def measured(amount: int) -> None:
    with lock, agent.measuring():
        take(amount)


@agent.measuring()
async def measured_there(amount: int) -> None:
    await asyncio.to_thread(take, amount)


@agent.measuring()
async def measured_parts(amount: int) -> AsyncIterator[bytes]:
    await asyncio.to_thread(take, amount)
    yield b"one "
    yield b"two"


@agent.measuring()
def measured_steps(amount: int) -> Iterator[bytes]:
    """Which Starlette takes in threads, each in a copy of the context."""
    take(amount)
    yield b"one "
    yield b"two"


def given(request: Request) -> int:
    return int(request.query_params["bytes"])


async def taking(request: Request) -> Response:
    await run_in_threadpool(take, given(request), float(request.query_params.get("seconds", "0")))
    return JSONResponse({"took": given(request)})


async def measuring(request: Request) -> Response:
    """In a thread of Starlette's, or of asyncio's, while another request may run."""
    how = request.query_params.get("how", "")
    if how in ("async generator", "generator"):
        parts = measured_parts if how == "async generator" else measured_steps
        return StreamingResponse(parts(given(request)))
    if how == "async":
        await measured_there(given(request))
    else:
        await (asyncio.to_thread if how == "to_thread" else run_in_threadpool)(measured, given(request))
    return JSONResponse({"took": given(request)})


async def waiting(request: Request) -> Response:
    gate.clear()
    await run_in_threadpool(gate.wait, 30)
    return JSONResponse({})


async def opening(request: Request) -> Response:
    gate.set()
    return JSONResponse({})


async def streaming(request: Request) -> Response:
    amount = given(request)

    async def parts() -> AsyncIterator[bytes]:
        await run_in_threadpool(take, amount)
        yield b"one "
        await run_in_threadpool(take, 4 * amount)
        yield b"two"

    return StreamingResponse(parts())


async def failing(request: Request) -> Response:
    how = request.query_params["how"]
    if how == "background":
        gate.clear()
        return PlainTextResponse("its own", 500, background=BackgroundTask(run_in_threadpool, gate.wait, 30))
    if how == "answer":
        return PlainTextResponse("its own", 500)
    if how == "long":
        return StreamingResponse((b"x" * 50_000 for _ in range(4)), 500)
    if how == "begun":

        async def parts() -> AsyncIterator[bytes]:
            yield b"begun"
            raise MemoryError

        return StreamingResponse(parts())
    raise {"torch": OutOfMemoryError("no"), "python": MemoryError(), "other": ValueError("CUDA is fine")}[how]


def application() -> Any:
    app: Any = FastAPI() if os.environ.get("FRAMEWORK") == "fastapi" else Starlette()
    routes = {
        "/take": taking,
        "/measured": measuring,
        "/wait": waiting,
        "/open": opening,
        "/stream": streaming,
        "/fail": failing,
    }
    for path, endpoint in routes.items():
        app.add_route(path, endpoint)
    if os.environ.get("HOW") == "wrap":
        return agent.wrap(app)
    app.add_middleware(agent.middleware)
    return app


app = application()
agent.ready()

"""Starlette with the agent, one request at a time: `python -m uvicorn starlette_app:app --port 8002`.

All that differs between two replicas is in the environment: STEELYARD_GATEWAY, STEELYARD_URL, STEELYARD_TOKEN, and
LOAD_SECONDS, which is only waited for, as if there were weights to load. The model is a small but real one: words are
hashed to fixed random vectors, and two texts are as similar as the sums of theirs.
"""

import asyncio
import os
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from steelyard.replica import ReplicaAgent

agent = ReplicaAgent(model="similarity", concurrency=1)  # a second request waits in the agent, reported as waiting
table = np.zeros((0, 64))


async def load() -> None:
    global table
    await asyncio.sleep(float(os.environ.get("LOAD_SECONDS", "5")))
    table = np.random.default_rng(7).standard_normal((4096, 64))
    agent.ready()


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    loading = asyncio.create_task(load())  # not awaited: the port opens while it loads, so that it can be asked
    yield
    loading.cancel()


def embed(text: str) -> np.ndarray:
    total = table[[zlib.crc32(word.encode()) % len(table) for word in text.lower().split() or [""]]].sum(axis=0)
    return total / np.linalg.norm(total)


async def similar(request: Request) -> JSONResponse:
    given = await request.json()
    await asyncio.sleep(float(given.get("seconds", 0)))  # as if the model were larger
    first, second = [await run_in_threadpool(embed, given[key]) for key in ("a", "b")]
    return JSONResponse({"similarity": round(float(first @ second), 4)})


app = Starlette(routes=[Route("/similar", similar, methods=["POST"])], lifespan=lifespan)
app.add_middleware(agent.middleware)

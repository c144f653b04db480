"""`python -m steelyard.demo.replica`: a replica, started by demo or gateway.

Its first line is its port, as soon as it listens, or why it cannot.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys

import uvicorn
import uvloop

from .endpoints import Endpoints
from .model import Embedder

KEEP_ALIVE_SECONDS = 3600  # clients close their connections, not the replica


async def _serve(port: int, slowdown: float, loading: float) -> None:
    endpoints = Endpoints(slowdown=slowdown)
    if not loading:
        endpoints.model = await asyncio.to_thread(_loaded)
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(
        endpoints,
        lifespan="off",
        log_level="critical",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    serving = asyncio.create_task(uvicorn.Server(config).serve(sockets=[listener]))
    print(listener.getsockname()[1], flush=True)
    if loading:
        await asyncio.sleep(loading)
        endpoints.model = await asyncio.to_thread(_loaded)
    await serving


def _loaded() -> Embedder:
    model = Embedder()
    model.embed([model.tokenize("the first computation is slower than those that follow")])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(prog="steelyard.demo.replica", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--slowdown", type=float, default=1.0, help="2: answers take twice as long as their computing")
    parser.add_argument("--load-seconds", type=float, default=0.0, help="seconds to wait before the model is loaded")
    arguments = parser.parse_args()
    try:
        uvloop.run(_serve(arguments.port, arguments.slowdown, arguments.load_seconds))
    except Exception as problem:
        print(f"{type(problem).__name__}: {problem}".replace("\n", " "), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

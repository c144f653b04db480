"""`python -m steelyard.demo.replica`: one replica, started by the demo. Says its port when it is ready."""

from __future__ import annotations

import argparse
import asyncio

import uvloop

from .endpoints import Endpoints
from .model import TopicModel
from .server import Server


async def _serve(port: int, passes: int) -> None:
    model = TopicModel()
    model.embed(["the first computation is slower than those that follow"])
    server = Server(Endpoints(model, passes))
    print(await server.listen(port), flush=True)
    await asyncio.Event().wait()  # until it is killed: there is nothing to lose


def main() -> None:
    parser = argparse.ArgumentParser(prog="steelyard.demo.replica", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--passes", type=int, default=1, help="how often all work is done: 2 is half as fast")
    arguments = parser.parse_args()
    uvloop.run(_serve(arguments.port, arguments.passes))


if __name__ == "__main__":
    main()

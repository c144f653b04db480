"""Several models in one server, loaded on demand: `python several_app.py --port 8004 [--gateway http://127.0.0.1:9080]`.

Each model is a matrix that a batch of random rows is multiplied with: real memory for the model, and real memory for
each request, in proportion to its rows. `--load-seconds` only waits, as if the weights came from far away.
"""

import argparse
import threading
import time

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from steelyard.replica import ReplicaAgent

WIDTHS = {"small": 512, "large": 4096}  # of 2 MiB and of 128 MiB


class Shelf:
    """The models that are loaded."""

    def __init__(self, agent: ReplicaAgent, load_seconds: float) -> None:
        self.agent = agent
        self.load_seconds = load_seconds
        self.weights: dict[str, np.ndarray] = {}
        self.one_at_a_time = threading.Lock()

    def offer(self, model: str) -> None:
        self.agent.add_model(
            model, load=lambda: self.load(model), unload=lambda: self.weights.pop(model), paths=[f"/models/{model}"]
        )

    def load(self, model: str) -> None:
        time.sleep(self.load_seconds)
        self.weights[model] = np.random.default_rng(7).standard_normal((WIDTHS[model], WIDTHS[model]))

    def infer(self, model: str, rows: int) -> float:
        with self.one_at_a_time, self.agent.measuring():  # what this needs is told with the answer
            batch = np.random.default_rng(rows).standard_normal((rows, WIDTHS[model]))
            return float((batch @ self.weights[model][:, :8]).mean())  # of a few columns: it is about memory here


def application(agent: ReplicaAgent, load_seconds: float) -> Starlette:
    shelf = Shelf(agent, load_seconds)
    for model in WIDTHS:
        shelf.offer(model)

    async def infer(request: Request) -> JSONResponse:
        given = await request.json()
        mean = await run_in_threadpool(shelf.infer, request.path_params["model"], int(given["rows"]))
        return JSONResponse({"mean": round(mean, 4)})

    app = Starlette(routes=[Route("/models/{model}", infer, methods=["POST"])])
    app.add_middleware(agent.middleware)
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8004)
    parser.add_argument("--gateway", help="admin address of Steelyard")
    parser.add_argument("--load-seconds", type=float, default=5.0)
    given = parser.parse_args()
    agent = ReplicaAgent(model="*", gateway=given.gateway, url=f"http://127.0.0.1:{given.port}")
    uvicorn.run(application(agent, given.load_seconds), host="127.0.0.1", port=given.port)

"""What the fake replica does with its requests and its models: nothing but take time, and memory if it is told to."""

from __future__ import annotations

import asyncio
import json
import math
import mmap
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from steelyard.replica import ReplicaAgent
from steelyard.units import parse_size

from .ballast import Ballast

MAX_WORK_SECONDS = 3600.0  # seconds of pretended work


class Work(NamedTuple):
    seconds: float
    bytes: int


class Shelf:
    """The models that are loaded, each with its memory."""

    def __init__(self, ballast: Ballast, seconds: float, say: Callable[..., None]) -> None:
        self._ballast = ballast
        self._seconds = seconds
        self._say = say
        self._weights: dict[str, mmap.mmap | None] = {}

    def offer(self, agent: ReplicaAgent, models: dict[str, int]) -> None:
        for model, weights in models.items():
            agent.add_model(model, load=partial(self._load, model, weights), unload=partial(self._unload, model))

    def load(self, model: str, weights: int) -> None:
        """Memory first, then the rest of the time: as a model that reads its weights into place."""
        self._weights[model] = self._ballast.take(weights)
        time.sleep(self._seconds)

    def unload(self, model: str) -> None:
        weights = self._weights.pop(model)
        if weights is not None:
            weights.close()

    def _load(self, model: str, weights: int) -> None:
        self.load(model, weights)
        self._say(event="loaded", model=model)

    def _unload(self, model: str) -> None:
        self.unload(model)
        self._say(event="unloaded", model=model)


def application(agent: ReplicaAgent, usual: float, ballast: Ballast, allocate: bool, per_element: int) -> Starlette:
    """`POST /work` and the `infer` of the Open Inference Protocol: both only take their time."""

    async def work(request: Request) -> Response:
        try:
            wanted = wanted_by(request.query_params, await request.body(), usual, per_element)
        except ValueError as problem:
            return JSONResponse({"error": str(problem)}, 422)
        memory = await asyncio.to_thread(ballast.take, wanted.bytes) if allocate else None
        try:
            await asyncio.sleep(wanted.seconds)
        finally:
            if memory is not None:
                memory.close()
        outputs = [{"name": "seconds", "datatype": "FP64", "shape": [1], "data": [wanted.seconds]}]
        model = request.path_params.get("model", agent.options.model) if agent.models else agent.options.model
        return JSONResponse({"model_name": model, "instance": agent.instance, "outputs": outputs})

    paths = ("/work", "/v2/models/{model}/infer")
    return Starlette(routes=[Route(path, work, methods=["POST"]) for path in paths])


def wanted_by(query: Any, body: bytes, usual: float, per_element: int) -> Work:
    """`?seconds=` and `?bytes=`, or those in the body or among its parameters. ValueError says what is wrong."""
    try:
        fields = json.loads(body or b"{}")
        said = fields.get("parameters", fields)
        seconds = query.get("seconds", said.get("seconds", usual))
        amount = query.get("bytes", said.get("bytes", 0))
        elements = sum(math.prod(tensor["shape"]) for tensor in fields.get("inputs", ()))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError("the body is no JSON object, or has inputs without shapes") from None
    return Work(_seconds(seconds), parse_size(amount) + per_element * int(elements))


def _seconds(given: Any) -> float:
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds <= MAX_WORK_SECONDS:
        raise ValueError(f"seconds: give a number from 0 to {MAX_WORK_SECONDS:g}")
    return seconds

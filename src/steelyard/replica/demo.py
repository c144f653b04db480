"""`python -m steelyard.replica.demo --port 8001`: a replica that pretends to load a model and to work.

It says what it saw: every request it gets is a line of JSON with the state in which it came, so that a test can prove
that none came too early.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from typing import Any, TextIO

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .asgi import App, Message, Receive, Scope, Send, header
from .kit import Kit

LONGEST = 3600.0  # seconds of pretended work


class Witness:
    """Around the kit, to see what the kit refuses too: a line when a request comes, and one when it has ended."""

    def __init__(self, app: App, kit: Kit, log: TextIO) -> None:
        self._app = app
        self._kit = kit
        self._log = log

    def say(self, **what: Any) -> None:
        line = {"at": round(time.monotonic(), 4), "state": self._kit.state, **what}
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/steelyard/"):
            await self._app(scope, receive, send)
            return
        request = header(scope, b"x-request-id").decode("latin-1")
        status, whole = 0, False

        async def told(message: Message) -> None:
            nonlocal status, whole
            status = message.get("status", status)
            await send(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        self.say(event="came", id=request, path=scope["path"])
        try:
            await self._app(scope, receive, told)
        finally:
            self.say(event="ended", id=request, path=scope["path"], status=status, whole=whole)


def application(kit: Kit, usual: float) -> App:
    """`POST /work` and the `infer` of the Open Inference Protocol: both only take their time."""

    async def work(request: Request) -> Response:
        seconds = await _seconds(request, usual)
        if seconds is None:
            return JSONResponse({"error": f"seconds: give a number from 0 to {LONGEST:g}"}, 422)
        await asyncio.sleep(seconds)
        outputs = [{"name": "seconds", "datatype": "FP64", "shape": [1], "data": [seconds]}]
        return JSONResponse({"model_name": kit.options.model, "instance": kit.instance, "outputs": outputs})

    paths = ("/work", "/v2/models/{model}/infer")
    return kit.wrap(Starlette(routes=[Route(path, work, methods=["POST"]) for path in paths]))


async def _seconds(request: Request, usual: float) -> float | None:
    """`?seconds=`, or `seconds` in the body or among its parameters; None: there, and no such number."""
    given: Any = request.query_params.get("seconds")
    if given is None:
        try:
            told = json.loads(await request.body() or b"{}")
            told = told.get("parameters", told)
            given = told.get("seconds", usual)
        except (ValueError, AttributeError):
            return None
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds <= LONGEST else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m steelyard.replica.demo", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--load-seconds", type=float, default=5.0, help="how long to pretend that weights are loaded")
    parser.add_argument("--seconds", type=float, default=0.05, help="work of a request that does not say")
    parser.add_argument("--gateway", action="append", help="admin address of Steelyard; without it: no registration")
    parser.add_argument("--id", default="", help="its name there; without it: host and port")
    parser.add_argument("--concurrency", type=int, help="requests at once; the rest wait here")
    parser.add_argument("--lease", type=float, default=15.0)
    parser.add_argument("--grace", type=float, default=30.0)
    parser.add_argument("--quiet", type=float, default=1.0)
    parser.add_argument("--settle", type=float, default=5.0)
    parser.add_argument("--log", default="-", help="file to append to; `-` is standard output")
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    kit = Kit(
        given.model,
        gateway=given.gateway,
        url=f"http://{given.host}:{given.port}",
        id=given.id,
        concurrency=given.concurrency,
        lease=given.lease,
        grace=given.grace,
        quiet=given.quiet,
        settle=given.settle,
    )
    log = sys.stdout if given.log == "-" else open(given.log, "a", encoding="utf-8")  # noqa: SIM115
    witness = Witness(application(kit, given.seconds), kit, log)

    def load() -> None:
        time.sleep(given.load_seconds)
        kit.ready()
        witness.say(event="loaded")

    kit.loading(f"pretends to load for {given.load_seconds:g} s")
    witness.say(event="started")
    threading.Thread(target=load, daemon=True).start()
    uvicorn.run(witness, host=given.host, port=given.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()

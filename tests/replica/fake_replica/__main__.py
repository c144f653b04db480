"""`python -m tests.replica.fake_replica --port 8001`: a replica that pretends to load a model and to work.

It says what it saw: every request it gets is a line of JSON with the state in which it came, so that a test can prove
that none came too early. With `--allocate` and `--models` the memory it uses is real.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from typing import Any, TextIO

import uvicorn

from steelyard.replica import ReplicaAgent
from steelyard.replica.http.asgi import App, Message, Receive, Scope, Send, header
from steelyard.replica.options import ANY_MODEL
from steelyard.units import parse_size

from .ballast import Ballast, limit, sizes
from .work import Shelf, application


class Witness:
    """Around the agent, to see what the agent refuses too: a line when a request comes, and one when it has ended."""

    def __init__(self, app: App, agent: ReplicaAgent, log: TextIO) -> None:
        self._app = app
        self._agent = agent
        self._log = log

    def say(self, **what: Any) -> None:
        line = {"at": round(time.monotonic(), 4), "state": self._agent.state, **what}
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/steelyard/"):
            await self._app(scope, receive, send)
            return
        request = header(scope, b"x-request-id").decode("latin-1")
        status, whole = 0, False

        async def send_wrapper(message: Message) -> None:
            nonlocal status, whole
            status = message.get("status", status)
            await send(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        self.say(event="came", id=request, path=scope["path"])
        try:
            await self._app(scope, receive, send_wrapper)
        finally:
            self.say(event="ended", id=request, path=scope["path"], status=status, whole=whole)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.replica.fake_replica", description=__doc__)
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, required=True)
    add("--model", default="demo")
    add("--load-seconds", type=float, default=5.0, help="how long to pretend that weights are loaded")
    add("--seconds", type=float, default=0.05, help="work of a request that does not say")
    add("--allocate", action="store_true", help="requests hold the memory that they name in `bytes`")
    add("--bytes-per-element", type=_size, default=0, help="and so much for each element of the tensors they bring")
    add("--weights", type=_size, default=0, metavar="SIZE", help="memory that the model holds, once it is loaded")
    add("--models", type=_sizes, metavar="A=SIZE,B=SIZE", help="models to load on demand, in place of --model")
    add("--limit", type=_size, metavar="SIZE", help="most memory that this process may have (RLIMIT_DATA)")
    add("--die", action="store_true", help="end with code 137 when memory runs out, in place of an answer of 507")
    add("--gateway", action="append", help="admin address of Steelyard; without it: no registration")
    add("--id", default="", help="its name there; without it: host and port")
    add("--device", default="", help="what it runs on there")
    add("--concurrency", type=int, help="requests at once; the rest wait here")
    add("--lease", type=float, default=15.0)
    add("--grace", type=float, default=30.0)
    add("--quiet", type=float, default=1.0)
    add("--settle", type=float, default=5.0)
    add("--log", default="-", help="file to append to; `-` is standard output")
    return parser.parse_args()


def _size(given: str) -> int:
    try:
        return parse_size(given)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _sizes(given: str) -> dict[str, int]:
    try:
        return sizes(given)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def main() -> None:
    given = _arguments()
    if given.limit is not None:
        limit(given.limit)
    agent = ReplicaAgent(
        ANY_MODEL if given.models else given.model,
        gateway=given.gateway,
        url=f"http://{given.host}:{given.port}",
        id=given.id,
        device=given.device,
        concurrency=given.concurrency,
        lease=given.lease,
        drain_timeout=given.grace,
        drain_idle=given.quiet,
        deregistration_delay=given.settle,
    )
    ballast = Ballast(given.die)
    log = sys.stdout if given.log == "-" else open(given.log, "a", encoding="utf-8")  # noqa: SIM115
    app = application(agent, given.seconds, ballast, given.allocate, given.bytes_per_element)
    witness = Witness(agent.wrap(app), agent, log)
    shelf = Shelf(ballast, given.load_seconds, witness.say)

    def load() -> None:
        shelf.load(given.model, given.weights)
        agent.ready()
        witness.say(event="loaded")

    witness.say(event="started")
    if given.models:
        shelf.offer(agent, given.models)
    else:
        agent.loading(f"pretends to load for {given.load_seconds:g} s")
        threading.Thread(target=load, daemon=True).start()
    uvicorn.run(witness, host=given.host, port=given.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()

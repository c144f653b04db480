"""Three lines in an app of FastAPI or Starlette, with the frameworks' own test clients; and what an import costs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from signal import SIG_DFL, SIGINT, SIGTERM, default_int_handler, getsignal, signal
from typing import Any

import pytest
from fastapi import BackgroundTasks, FastAPI, WebSocket
from fastapi.testclient import TestClient as FastClient
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from steelyard.replica import ReplicaAgent

from ..harness.waiting import wait_until


def test_fastapi() -> None:
    app = FastAPI()
    agent = ReplicaAgent(model="sentiment", gateway=())
    app.add_middleware(agent.middleware)
    after = threading.Event()

    @app.get("/work")
    def work(tasks: BackgroundTasks) -> dict[str, int]:
        tasks.add_task(after.wait, 20)
        return {"running": agent.running}

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("no weights")

    @app.websocket("/chat")
    async def chat(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())
        await socket.close()

    with FastClient(app, raise_server_exceptions=False) as client:
        assert client.get("/work").json()["error"]["code"] == "loading"
        agent.ready()
        after.set()
        assert client.get("/work").json() == {"running": 1}
        assert client.get("/broken").status_code == 500
        assert client.get("/nowhere").status_code == 404
        with client.websocket_connect("/chat") as socket:
            socket.send_text("hello")
            assert socket.receive_text() == "hello"
        wait_until(lambda: agent.limiter.present == 0, "all to be counted off")
        assert client.get("/steelyard/load").json()["served"] == 3
    assert agent.state == "draining"
    with FastClient(app) as client:  # a test suite starts an app many times
        assert client.get("/steelyard/ready").status_code == 200


def test_background_work_is_counted_until_it_is_done() -> None:
    app = FastAPI()
    agent = ReplicaAgent(model="m", gateway=())
    app.add_middleware(agent.middleware)
    agent.ready()
    counted: list[int] = []

    @app.get("/work")
    def work(tasks: BackgroundTasks) -> None:
        tasks.add_task(lambda: counted.append(agent.running))

    with FastClient(app) as client:
        client.get("/work")
        wait_until(lambda: counted == [1], "the work after the answer")
        wait_until(lambda: agent.running == 0, "it to be counted off")


def test_starlette_with_a_list_of_middlewares_and_a_stream() -> None:
    agent = ReplicaAgent(model="m", gateway=(), concurrency=1)

    def pieces() -> Iterator[str]:
        yield from ("a", "b", str(agent.running))

    async def stream(request: Request) -> StreamingResponse:
        return StreamingResponse(pieces())

    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    routes = [Route("/stream", stream), Route("/health", health)]
    app = Starlette(routes=routes, middleware=[Middleware(agent.middleware)])
    agent.ready()
    with TestClient(app) as client:
        assert client.get("/stream", headers={"endpoint-load-metrics-format": "TEXT"}).text == "ab1"
        assert agent.running == 0


def test_ready_when_in_a_lifespan() -> None:
    agent = ReplicaAgent(model="m", gateway=(), ready_path="/health")

    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    app = agent.wrap(Starlette(routes=[Route("/health", health)]))
    with TestClient(app) as client:
        wait_until(lambda: client.get("/steelyard/ready").status_code == 200, "the app to say so")


def test_a_program_that_only_calls_the_app_keeps_its_signals() -> None:
    kept = {number: signal(number, plain) for number, plain in ((SIGTERM, SIG_DFL), (SIGINT, default_int_handler))}
    try:
        ReplicaAgent(model="m", gateway=()).begin()
        assert (getsignal(SIGTERM), getsignal(SIGINT)) == (SIG_DFL, default_int_handler)
    finally:  # an earlier test of this process may have left one that is a server's
        for number, handler in kept.items():
            signal(number, handler)


IMPORTED = """
import sys
package = type(sys)("steelyard")
package.__path__ = [{path!r}]
sys.modules["steelyard"] = package  # without what `import steelyard` brings
before = set(sys.modules)
import steelyard.replica
new = {{name.partition(".")[0] for name in set(sys.modules) - before}} - {{"steelyard"}}
print(sorted(new - set(sys.stdlib_module_names)), "http" in new, "ssl" in new)
"""


def test_only_the_standard_library_is_imported() -> None:
    import steelyard

    code = IMPORTED.format(path=str(steelyard.__path__[0]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0].startswith("[] False"), done.stdout


def test_an_app_is_wrapped_without_side_effects() -> None:
    threads = set(threading.enumerate())
    agent = ReplicaAgent(model="m", gateway="http://127.0.0.1:9", url="http://127.0.0.1:8001")
    agent.wrap(FastAPI())
    assert set(threading.enumerate()) <= threads  # those of other tests may end
    assert agent.instance == ""


@pytest.mark.parametrize("how", ["middleware", "wrap"])
def test_both_ways_are_the_same(how: str) -> None:
    agent = ReplicaAgent(model="m", gateway=())
    app = getattr(agent, how)(Starlette())
    with TestClient(app) as client:
        assert client.get("/steelyard/live").status_code == 200


@pytest.mark.parametrize("how", ["middleware", "wrap"])
@pytest.mark.parametrize("more", [False, True], ids=["", "another middleware"])
@pytest.mark.parametrize("kind", [FastAPI, Starlette])
def test_an_endpoint_that_runs_out_of_memory_is_answered_507(kind: Any, more: bool, how: str) -> None:
    agent = ReplicaAgent(model="m", gateway=())
    app = kind()

    async def on_the_loop(request: Request) -> None:
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")

    def in_a_thread(request: Request) -> None:
        raise MemoryError

    async def other(request: Request) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    async def passes(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    for endpoint in (on_the_loop, in_a_thread, other):
        app.add_route(f"/{endpoint.__name__}", endpoint)
    if more:
        app.add_middleware(BaseHTTPMiddleware, dispatch=passes)
    if how == "middleware":
        app.add_middleware(agent.middleware)
    agent.ready()
    client = TestClient(app if how == "middleware" else agent.wrap(app), raise_server_exceptions=False)
    for path in ("/on_the_loop", "/in_a_thread"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "out_of_memory")
    answer = client.get("/other")
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert (agent.footprint.out_of_memory_count, agent.running) == (2, 0)

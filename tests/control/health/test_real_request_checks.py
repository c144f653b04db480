"""Warm-ups and inferences over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from steelyard.config import InferenceProbe, WarmUpRequest
from tests.control.driving import run, until

from .servers import Asked, serving, target, watching

LIVE, LOADED, LOST = "live", "loaded", "lost"


def test_no_loaded_before_the_warm_up_is_answered() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        seen: list[str] = []

        async def warm(asked: Asked) -> int:
            seen.append(watcher.last)
            await gate.wait()
            return 200

        warm_up = (
            WarmUpRequest(path="/one", body={"a": 1}, times=2),
            WarmUpRequest(path="/two", headers={"x-own": "1"}),
        )
        async with serving(health=200, one=warm, two=200) as server:
            aim = target(server.url, warm_up=warm_up, headers={"x-all": "1"})
            async with watching(aim) as watcher:
                await until(lambda: "/one" in server.paths())
                await asyncio.sleep(0.1)
                assert LOADED not in watcher.events()
                view = watcher.prober.view(("m", f"127.0.0.1:{server.port}"))
                assert view is not None
                assert view.result == "loading"
                assert view.loading_for is not None
                gate.set()
                await until(lambda: watcher.last == LOADED)
                asked = [a for a in server.asked if a.path != "/health"]
                assert [a.path for a in asked] == ["/one", "/one", "/two"]
                assert (asked[0].method, asked[0].body, asked[0].headers["x-all"]) == ("POST", b'{"a":1}', "1")
                assert (asked[2].method, asked[2].headers["x-own"]) == ("GET", "1")
                assert seen == [LIVE, LIVE]
                # Not again, as long as it is the same process.
                server.answers["/health"] = 503
                await until(lambda: watcher.last == LIVE)
                server.answers["/health"] = 200
                await until(lambda: watcher.last == LOADED)
                assert len([a for a in server.asked if a.path != "/health"]) == 3
                await server.stop()
                await until(lambda: watcher.last == LOST)
                await server.start()
                await until(lambda: watcher.last == LOADED)
                assert len([a for a in server.asked if a.path != "/health"]) == 6

    run(scenario())


def test_a_warm_up_that_fails_is_tried_again_where_it_failed() -> None:
    async def scenario() -> None:
        warm_up = (WarmUpRequest(path="/one"), WarmUpRequest(path="/two"))
        async with (
            serving(health=200, one=200, two=500) as server,
            watching(target(server.url, warm_up=warm_up)) as watcher,
        ):
            await until(lambda: server.paths().count("/two") > 1)
            view = watcher.prober.view(("m", f"127.0.0.1:{server.port}"))
            assert view is not None
            assert view.result == "loading"
            server.answers["/two"] = 200
            await until(lambda: watcher.last == LOADED)
            assert server.paths().count("/one") == 1

    run(scenario())


@pytest.mark.parametrize(("status", "ready"), [(400, True), (404, True), (302, True), (429, False), (503, False)])
def test_a_warm_up_that_is_wrong_in_itself_is_told_and_does_not_keep_it_out(status: int, ready: bool) -> None:
    async def scenario() -> None:
        async with (
            serving(health=200, warm=status) as server,
            watching(target(server.url, warm_up=(WarmUpRequest(path="/warm"),))) as watcher,
        ):
            if ready:
                await until(lambda: watcher.last == LOADED)
                assert watcher.reason == f"warm-up 1 of 1, GET /warm: answers {status}: check health.warm_up"
            else:
                await until(lambda: server.paths().count("/warm") > 1)
                assert LOADED not in watcher.events()

    run(scenario())


def test_a_warm_up_that_hangs() -> None:
    async def scenario() -> None:
        async with serving(health=200, warm=200) as server:

            def freeze(asked: Asked) -> int:
                server.frozen = len(server.asked) < 10
                return 200

            server.answers["/health"] = freeze
            warm_up = (WarmUpRequest(path="/warm", timeout=0.1),)
            async with watching(target(server.url, warm_up=warm_up, timeout=0.3)) as watcher:
                await until(lambda: "/warm" in server.paths())
                await until(lambda: watcher.events() == [LIVE, LOST] or len(server.asked) > 2)
                server.frozen = False
                server.answers["/health"] = 200
                await until(lambda: watcher.last == LOADED)

    run(scenario())


def test_an_inference_has_to_be_right() -> None:
    async def scenario() -> None:
        async with serving(health=200) as server:
            infer = InferenceProbe(path="/infer", body="2+2", contains="4", interval=0.0)
            server.answers["/infer"] = server.reply(200, b"it is 5")
            async with watching(target(server.url, inference=infer)) as watcher:
                await until(lambda: server.paths().count("/infer") > 1)
                assert watcher.events() == [LIVE]
                server.answers["/infer"] = server.reply(200, b"it is 4")
                await until(lambda: watcher.last == LOADED)
                infers = server.paths().count("/infer")
                await until(lambda: server.paths().count("/infer") > infers + 2)
                assert watcher.last == LOADED
                server.answers["/infer"] = 500
                await until(lambda: watcher.last == LIVE)
                assert watcher.reason == "POST /infer: answers 500, not 200"
                asked = next(a for a in server.asked if a.path == "/infer")
                assert asked.body == b"2+2"

    run(scenario())


def test_an_inference_that_hangs_does_not_keep_looks_from_seeing_a_loss() -> None:
    async def scenario() -> None:
        async with serving(health=200, infer=200) as server:
            infer = InferenceProbe(path="/infer", interval=0.0, timeout=60)
            async with watching(target(server.url, inference=infer)) as watcher:
                await until(lambda: watcher.last == LOADED)
                never = asyncio.Event()

                async def hang(asked: Asked) -> int:
                    await never.wait()
                    return 200

                infers = server.paths().count("/infer")
                server.answers["/infer"] = hang
                await until(lambda: server.paths().count("/infer") > infers)
                server.answers["/health"] = 503
                await until(lambda: watcher.last == LIVE)
                never.set()

    run(scenario())

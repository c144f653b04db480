"""The prober over real sockets: replicas that start, freeze, restart, flap and come in hundreds."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from steelyard.control.health import prober
from steelyard.protocols.dialects.http import PlainHttp
from tests.control.driving import run, until

from .servers import Asked, Server, serving, target, watching

LIVE, LOADED, LOST = "live", "loaded", "lost"


def test_a_slow_start() -> None:
    async def scenario() -> None:
        server = await Server(health=503).start()
        await server.stop()
        async with watching(target(server.url)) as watcher:
            await until(lambda: watcher.events() == [LOST])
            assert watcher.reason == "refuses connections"
            await server.start()
            await until(lambda: watcher.last == LIVE)
            asked = len(server.asked)
            await until(lambda: len(server.asked) > asked + 3)
            assert watcher.events() == [LOST, LIVE]
            server.answers["/health"] = 200
            await until(lambda: watcher.last == LOADED)
            asked = len(server.asked)
            await until(lambda: len(server.asked) > asked + 3)
            assert watcher.events() == [LOST, LIVE, LOADED]
        await server.stop()

    run(scenario())


@pytest.mark.parametrize("configured", [True, False])
def test_one_probe_goes_through_few_files(configured: bool) -> None:
    """A newcomer reads five: when it is due, the prober, the requests, the HTTP client, and what the result means."""
    room = Path(prober.__file__).parent
    found: set[str] = set()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent == room:
            found.add(path.name)

    async def scenario() -> None:
        settings = {} if configured else {"dialect": "http"}
        async with serving(health=200) as server, watching(target(server.url, **settings)) as watcher:
            await until(lambda: watcher.last == LOADED)
            asked = len(server.asked)
            sys.setprofile(profile)
            try:
                await until(lambda: len(server.asked) > asked + 3)
            finally:
                sys.setprofile(None)

    run(scenario())
    assert found == {"schedule.py", "prober.py", "http_probe.py", "http_client.py", "tracker.py"}


def test_a_frozen_one_is_lost_and_comes_back() -> None:
    async def scenario() -> None:
        async with serving(health=200) as server, watching(target(server.url, timeout=0.3)) as watcher:
            await until(lambda: watcher.last == LOADED)
            server.frozen = True
            await until(lambda: watcher.last == LOST)
            assert "no answer in time" in watcher.reason
            server.frozen = False
            await until(lambda: watcher.last == LOADED)

    run(scenario())


def test_a_silent_one_where_requests_make_progress_stays() -> None:
    async def scenario() -> None:
        progress = True
        async with (
            serving(health=200) as server,
            watching(target(server.url, timeout=0.3), busy=lambda key: progress) as watcher,
        ):
            await until(lambda: watcher.last == LOADED)
            server.frozen = True
            asked = len(server.asked)
            await until(lambda: len(server.asked) > asked + 3)
            view = watcher.prober.view(("m", f"127.0.0.1:{server.port}"))
            assert watcher.last == LOADED
            assert view is not None
            assert view.consecutive_failures == 0
            progress = False
            await until(lambda: watcher.last == LOST)

    run(scenario())


def test_whoever_cannot_say_whether_there_is_progress_does_not_say_yes() -> None:
    async def scenario() -> None:
        def fail(key: Any) -> bool:
            raise RuntimeError("no workers")

        async with serving(health=200) as server, watching(target(server.url, timeout=0.3), busy=fail) as watcher:
            await until(lambda: watcher.last == LOADED)
            server.frozen = True
            await until(lambda: watcher.last == LOST)

    run(scenario())


def test_one_that_hangs_up_or_talks_nonsense() -> None:
    async def scenario() -> None:
        async with serving(health=200) as server, watching(target(server.url)) as watcher:
            await until(lambda: watcher.last == LOADED)
            for nonsense in (b"", b"220 mail.example ESMTP\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (2 << 20)):
                server.answers["/health"] = nonsense
                await until(lambda: watcher.last == LOST)
                server.answers["/health"] = 200
                await until(lambda: watcher.last == LOADED)

    run(scenario())


def test_a_restart_with_a_new_name() -> None:
    async def scenario() -> None:
        async with serving(health=200) as server:
            server.instance = "first"
            async with watching(target(server.url)) as watcher:
                await until(lambda: watcher.last == LOADED)
                server.instance = "second"
                await until(lambda: len(watcher.changes) == 3)
                assert watcher.events() == [LOADED, LIVE, LOADED]
                view = watcher.prober.view(("m", f"127.0.0.1:{server.port}"))
                assert view is not None
                assert (view.instance, view.restarts) == ("second", 1)

    run(scenario())


def test_a_flapping_one_is_out_most_of_the_time() -> None:
    async def scenario() -> None:
        turn = 0

        def flap(asked: Asked) -> int:
            nonlocal turn
            turn += 1
            return 200 if turn % 6 < 3 else 503

        async with serving(health=flap) as server, watching(target(server.url, loading_interval=0.01)) as watcher:
            await until(lambda: turn > 100)
            view = watcher.prober.view(("m", f"127.0.0.1:{server.port}"))
            assert view is not None
            assert view.required_successes > 3
            assert len(watcher.events()) < 10

    run(scenario())


# ------------------------------------------------------------------ what others want


def test_somebody_had_trouble() -> None:
    async def scenario() -> None:
        async with serving(health=200) as server, watching(target(server.url, interval=3600)) as watcher:
            await until(lambda: watcher.last == LOADED)
            asked = len(server.asked)
            server.answers["/health"] = 503
            for _ in range(1000):
                watcher.prober.probe_now(("m", f"127.0.0.1:{server.port}"))
            watcher.prober.probe_now(("m", "nobody"))
            await until(lambda: watcher.last == LIVE)
            assert len(server.asked) < asked + 5

    run(scenario())


def test_seen_anew() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        key = ("m", "a")

        async def slowly(asked: Asked) -> int:
            await gate.wait()
            return 200

        async with serving(health=200) as server, watching(target(server.url, interval=3600, id="a")) as watcher:
            await until(lambda: watcher.last == LOADED)
            watcher.prober.reprobe(key)
            await until(lambda: watcher.events() == [LOADED, LOADED])
            server.answers["/health"] = slowly
            watcher.prober.probe_now(key)
            await until(lambda: len(server.asked) == 3)
            server.answers["/health"] = 503
            watcher.prober.reprobe(key)  # the look under way began before
            gate.set()
            await until(lambda: watcher.last == LIVE)
            assert watcher.events() == [LOADED, LOADED, LIVE]
            watcher.prober.reprobe(("m", "nobody"))

    run(scenario())


def test_others_from_now_on() -> None:
    async def scenario() -> None:
        async with (
            serving(health=200) as one,
            serving(health=200) as two,
            watching(target(one.url, id="a")) as watcher,
        ):
            await until(lambda: watcher.events(("m", "a")) == [LOADED])
            watcher.follow(target(one.url, id="a"), target(two.url, id="b"))
            await until(lambda: watcher.events(("m", "b")) == [LOADED])
            assert watcher.events(("m", "a")) == [LOADED]
            watcher.follow(target(two.url, id="b"))
            assert watcher.prober.view(("m", "a")) is None
            asked = len(one.asked)
            twos = len(two.asked)
            await until(lambda: len(two.asked) > twos + 5)
            assert len(one.asked) <= asked + 1
            watcher.follow(target(one.url, id="b"))  # another server under the same name
            await until(lambda: watcher.events(("m", "b")) == [LOADED, LOADED])
            watcher.follow(target(one.url, id="b", rise=2))  # other settings: told again
            await until(lambda: watcher.events(("m", "b")) == [LOADED, LOADED, LOADED])
            watcher.follow(target(one.url, id="b", rise=2, enabled=False))
            assert watcher.prober.view(("m", "b")) is None

    run(scenario())


def test_looks_are_counted_by_what_they_saw() -> None:
    async def scenario() -> None:
        async with serving(health=503) as server, watching(target(server.url)) as watcher:
            model = target(server.url).key[0]
            await until(lambda: watcher.prober.result_counts[model, "loading"] >= 2)
            server.answers["/health"] = 200
            await until(lambda: watcher.prober.result_counts[model, "ready"] >= 2)
            await server.stop()
            await until(lambda: watcher.prober.result_counts[model, "connection_refused"] >= 1)
            watcher.follow()
            assert not watcher.prober.result_counts  # of models that are gone

    run(scenario())


def test_nothing_is_told_after_the_end() -> None:
    async def scenario() -> None:
        async with serving(health=200) as server:
            async with watching(target(server.url)) as watcher:
                pass
            changes_before = len(watcher.changes)
            watcher.follow(target(server.url))
            await asyncio.sleep(0.1)
            assert len(watcher.changes) == changes_before

    run(scenario())


class Moody(PlainHttp):
    """A dialect of the user's own, which raises."""

    name = "moody"

    def readiness(self, *arguments: Any) -> Any:
        raise ZeroDivisionError("of my own")


def test_an_exception_in_one_probe_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(health=200) as server:
            own = f"{Moody.__module__}:Moody"
            aims = (target(server.url, id="a", dialect=own), target(server.url, id="b"))
            async with watching(*aims) as watcher:
                await until(lambda: watcher.events(("m", "b")) == [LOADED])
                asked = len(server.asked)
                await until(lambda: len(server.asked) > asked + 10)
                view = watcher.prober.view(("m", "a"))
                assert view is not None
                assert (view.result, view.message) == (
                    "unknown",
                    "the probe itself failed: ZeroDivisionError: of my own",
                )
                assert watcher.events(("m", "a")) == []

    caplog.set_level(logging.ERROR)
    run(scenario())
    assert len(caplog.records) == 1  # not one for each look


def test_a_listener_that_raises_does_not_end_anything(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(health=200) as server, watching(target(server.url)) as watcher:
            watcher.prober.on_change = lambda *change: 1 / 0
            asked = len(server.asked)
            await until(lambda: len(server.asked) > asked + 3)

    run(scenario())


# ------------------------------------------------------------------ many


def test_three_hundred_at_once() -> None:
    async def scenario() -> None:
        servers = [await Server(health=200).start() for _ in range(30)]
        dead = await Server().start()
        await dead.stop()
        aims = [target(servers[n % 30].url, id=f"r{n}", interval=0.5) for n in range(300)]
        lost = [target(dead.url, id=f"dead{n}", interval=0.5) for n in range(50)]
        async with watching(*aims, *lost) as watcher:
            await until(lambda: len(watcher.changes) == 350)
            for server in servers[:10]:
                server.answers["/health"] = 503
            await until(lambda: len(watcher.changes) == 450)
            out = {key for key, event, _ in watcher.changes if event.value == LIVE}
            assert out == {("m", f"r{n}") for n in range(300) if n % 30 < 10}
            before = [len(server.asked) for server in servers]
            await until(lambda: all(len(s.asked) > b + 20 for s, b in zip(servers, before, strict=True)))
            assert len(watcher.changes) == 450
        for server in servers:
            await server.stop()

    run(scenario())


def test_frozen_ones_do_not_delay_those_that_are_ready() -> None:
    async def scenario() -> None:
        async with serving(health=200) as good, serving(health=200) as frozen:
            frozen.frozen = True
            aims = [target(frozen.url, id=f"f{n}", timeout=30) for n in range(400)]
            async with watching(target(good.url, id="good")) as watcher:
                await until(lambda: watcher.last == LOADED)
                watcher.follow(target(good.url, id="good"), *aims)
                await until(lambda: len(frozen.asked) >= 100)
                asked = len(good.asked)
                await until(lambda: len(good.asked) > asked + 5)
                good.answers["/health"] = 503
                await until(lambda: watcher.last == LIVE)

    run(scenario())

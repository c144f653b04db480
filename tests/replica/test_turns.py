"""Each request is counted once and given back once, whatever becomes of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.replica import ReplicaAgent

from .talking import Model, Talk, run, scope, soon

ENDS = ("finish", "fail", "cancel", "leave")


class Expected:
    """What the counts must be, by the plainest of models."""

    def __init__(self, limit: int | None, queue: int) -> None:
        self.limit = limit
        self.queue = queue
        self.running: list[str] = []
        self.waiting: list[str] = []

    def comes(self, name: str) -> bool:
        if self.limit is None or len(self.running) < self.limit:
            self.running.append(name)
        elif len(self.waiting) < self.queue:
            self.waiting.append(name)
        else:
            return False
        return True

    def ends(self, name: str) -> None:
        if name in self.waiting:
            self.waiting.remove(name)
            return
        self.running.remove(name)
        if self.waiting:
            self.running.append(self.waiting.pop(0))


@settings(max_examples=150, deadline=None)
@given(
    limit=st.one_of(st.none(), st.integers(1, 3)),
    queue=st.integers(0, 4),
    steps=st.lists(st.tuples(st.sampled_from(("come", *ENDS)), st.integers(0, 11)), max_size=40),
)
def test_counts_are_exact_under_random_ends(limit: int | None, queue: int, steps: list[tuple[str, int]]) -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), concurrency=limit, max_queue=queue)
        agent.ready()
        model, expected = Model(), Expected(limit, queue)
        app = agent.wrap(model)
        open_: dict[str, Talk] = {}
        for number, (step, which) in enumerate(steps):
            if step == "come":
                name = str(number)
                talk = model.request(app, name)
                await soon()
                if expected.comes(name):
                    open_[name] = talk
                else:
                    assert (await talk.end()).status == 503
            elif open_:
                name = sorted(open_, key=int)[which % len(open_)]
                if ended(model, expected, open_[name], name, step):
                    expected.ends(name)
                    del open_[name]
                await soon()
            assert (agent.running, agent.waiting) == (len(expected.running), len(expected.waiting))
            assert set(expected.running) <= set(model.begun)
            assert not set(expected.waiting) & set(model.begun)
        for name in list(open_):
            open_[name].task.cancel()
        await soon()
        assert (agent.running, agent.waiting) == (0, 0)

    run(story())


def ended(model: Model, expected: Expected, talk: Talk, name: str, step: str) -> bool:
    """Do it. False: it ends nothing."""
    if step == "cancel":
        talk.task.cancel()
    elif step == "leave":
        talk.leave()
        return name in expected.waiting  # an app that does not listen is not stopped by it
    elif name in expected.waiting:
        return False
    elif step == "finish":
        model.doing[name].set_result(None)
    else:
        model.doing[name].set_exception(RuntimeError("the model failed"))
        talk.task.add_done_callback(lambda task: task.exception())
    return True


def test_first_come_first_served() -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), concurrency=2)
        agent.ready()
        model = Model()
        app = agent.wrap(model)
        talks = [model.request(app, name) for name in "abcde"]
        await soon()
        assert model.begun == ["a", "b"]
        for name in ("b", "a", "c", "d", "e"):
            model.doing[name].set_result(None)
            await soon()
        assert model.begun == list("abcde")
        assert [talk.status for talk in talks] == [200] * 5
        assert (agent.running, agent.waiting) == (0, 0)

    run(story())


def test_a_client_that_leaves_while_it_waits_costs_nothing() -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), concurrency=1)
        agent.ready()
        model = Model()
        app = agent.wrap(model)
        first, second, third = (model.request(app, name) for name in "abc")
        await soon()
        assert agent.waiting == 2
        await second.leave().end()
        assert agent.waiting == 1
        assert second.got == []
        model.doing["a"].set_result(None)
        await first.end()
        await soon()
        assert model.begun == ["a", "c"]
        model.doing["c"].set_result(None)
        await third.end()
        assert agent.limiter.abandoned == 1

    run(story())


def test_a_turn_that_comes_as_the_client_leaves_is_not_lost() -> None:
    """Both in the same step of the loop, in either order."""

    async def story(order: str) -> None:
        agent = ReplicaAgent("m", gateway=(), concurrency=1)
        agent.ready()
        model = Model()
        app = agent.wrap(model)
        talks = [model.request(app, name) for name in "abc"]
        await soon()
        for step in order:
            if step == "t":
                model.doing["a"].set_result(None)
            elif step == "l":
                talks[1].leave()
            else:
                talks[1].task.cancel()
        await soon()
        for name in "abc":
            if name in model.doing and not model.doing[name].done():
                model.doing[name].set_result(None)
                await soon()
        assert model.begun[-1] == "c"
        assert (agent.running, agent.waiting) == (0, 0)
        for talk in talks:
            with suppress(asyncio.CancelledError):
                await talk.end()

    for order in ("tl", "lt", "tc", "ct", "lc", "lct", "tlc"):
        run(story(order))


def test_a_full_line_refuses_at_once() -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), concurrency=1, max_queue=1)
        agent.ready()
        model = Model()
        app = agent.wrap(model)
        talks = [model.request(app, name) for name in "ab"]
        await soon()
        refused = await model.request(app, "c").end()
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert b'"code":"queue_full"' in refused.body
        assert agent.refused == {"queue_full": 1}
        for talk in talks:
            talk.task.cancel()
        await soon()
        assert (agent.running, agent.waiting) == (0, 0)

    run(story())


@pytest.mark.parametrize("pieces", [1, 3, 200])
def test_what_came_of_a_body_while_it_waited_reaches_the_app_in_order(pieces: int) -> None:
    """Also if it is more than is kept: the rest is read when it is its turn."""

    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), concurrency=1)
        agent.ready()
        bodies: dict[str, bytes] = {}
        first = asyncio.Event()

        async def app(given, receive, send) -> None:  # type: ignore[no-untyped-def]
            if given["path"] == "/first":
                await first.wait()
            body, more = b"", True
            while more:
                message = await receive()
                body, more = body + message["body"], message["more_body"]
            bodies[given["path"]] = body
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body"})
            assert (await receive())["type"] == "http.disconnect"

        wrapped = agent.wrap(app)
        holds = Talk(wrapped, scope("/first")).say().leave()
        waits = Talk(wrapped, scope("/second"))
        await soon()
        for number in range(pieces):
            waits.say(b"%6d" % number * 100, more=number + 1 < pieces)
            await soon()
        first.set()
        await holds.end()
        await soon()
        waits.leave()
        await waits.end()
        assert bodies["/second"] == b"".join(b"%6d" % number * 100 for number in range(pieces))

    run(story())

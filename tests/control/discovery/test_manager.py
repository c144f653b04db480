"""Sources of all models, followed side by side: scripted ones, and a real file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from steelyard.config import DiscoverySection, ReplicaConfig
from steelyard.control.discovery import DiscoveryError, DiscoveryResult, Source, source_poller
from steelyard.control.discovery import file as file_module
from steelyard.control.discovery.file import FileDiscovery
from steelyard.control.discovery.manager import DiscoveryManager
from steelyard.control.observability.views import DiscoveryView
from steelyard.documents import Seconds

from .naming import ids, replica, replicas
from .running import run, until


class Scripted(Source):
    """Says what the test put in `says`: names, a DiscoveryResult, an exception to raise, or None to hang."""

    says: dict[str, Any] = {}  # noqa: RUF012
    made: list[Scripted] = []  # noqa: RUF012

    def __init__(self, name: str) -> None:
        self.name = name
        self.polls = 0
        self.awake = asyncio.Event()
        self.made.append(self)

    async def poll(self) -> DiscoveryResult:
        self.polls += 1
        said = self.says[self.name]
        if isinstance(said, BaseException):
            raise said
        if said is None:
            await asyncio.Event().wait()
        return DiscoveryResult(replicas(said)) if isinstance(said, str) else said  # type: ignore[no-any-return]

    async def wait_for_change(self) -> None:
        await self.awake.wait()
        self.awake.clear()
        if (problem := self.says.get("news")) is not None:
            raise problem


class ScriptedDiscovery(DiscoverySection, frozen=True):
    name: str

    def describe(self) -> str:
        return f"scripted {self.name}"

    def open(self) -> Scripted:
        if (problem := Scripted.says.get("open")) is not None:
            raise problem
        return Scripted(self.name)


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(Scripted, "says", {})
    monkeypatch.setattr(Scripted, "made", [])
    monkeypatch.setattr(source_poller, "MIN_DELAY_SECONDS", 0.001)
    return Scripted.says


def at(name: str, interval: float = 0.05, hold_down: float = 60) -> ScriptedDiscovery:
    return ScriptedDiscovery(name=name, interval=Seconds(interval), hold_down=Seconds(hold_down))


class Seen(dict[str, str]):
    """The latest list of each model, and how often it changed."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: list[tuple[str, str]] = []
        self.replicas: dict[str, tuple[ReplicaConfig, ...]] = {}
        self.fails = 0

    def changed(self, model: str, found: tuple[ReplicaConfig, ...]) -> None:
        if self.fails:
            self.fails -= 1
            raise RuntimeError("not now")
        self[model] = ids(found)
        self.replicas[model] = found
        self.lists.append((model, ids(found)))


@asynccontextmanager
async def discovering(**models: Any) -> AsyncIterator[tuple[DiscoveryManager, Seen]]:
    seen = Seen()
    before = asyncio.all_tasks()
    discoverer = DiscoveryManager(seen.changed)
    discoverer.set_sources(models)
    try:
        yield discoverer, seen
    finally:
        await discoverer.close()
        assert asyncio.all_tasks() == before  # nothing is left behind


def view(discoverer: DiscoveryManager, place: int = 0) -> DiscoveryView:
    return discoverer.views()[place]


# ---------------------------------------------------------------------- looking


def test_what_is_found_is_told_once(says: dict[str, Any]) -> None:
    async def work() -> None:
        says.update(x="a b", y="c")
        async with discovering(m=(at("x"),), n=(at("y"),)) as (discoverer, seen):
            assert view(discoverer).age is None
            await until(lambda: len(seen) == 2)
            before = list(seen.lists)
            says["x"] = DiscoveryResult(replicas("a b"), ttl=5.0)
            sources = Scripted.made
            await until(lambda: all(source.polls > 3 for source in sources))
            assert seen.lists == before
            assert sorted(before) == [("m", "a b"), ("n", "c")]
            first = view(discoverer)
            assert (first.model, first.source, first.replicas, first.problem) == ("m", "scripted x", 2, "")
            assert first.age is not None

    run(work())


def made() -> list[str]:
    return [source.name for source in Scripted.made]


def test_the_sources_of_a_model_are_one_list_and_the_first_wins(says: dict[str, Any]) -> None:
    async def work() -> None:
        says.update(x="a b", y=DiscoveryResult((replica("b", weight=9.0), replica("c"))))
        async with discovering(m=(at("x"), at("y"))) as (discoverer, seen):
            await until(lambda: seen.get("m") == "a b c")
            assert [one.weight for one in seen.replicas["m"]] == [1, 1, 1]
            assert view(discoverer).problem == ""
            second = view(discoverer, 1)
            assert "an earlier source names these too" in second.problem
            assert second.problem.endswith(": b")
            assert second.replicas == 1

    run(work())


@pytest.mark.parametrize(
    "fault",
    [
        DiscoveryError("no answer"),
        ZeroDivisionError("whatever"),
        OSError(5, "disk"),
        TimeoutError(),
        RecursionError("deep"),
        ExceptionGroup("many", [ValueError("one")]),
        7,  # no Found at all
        DiscoveryResult((ReplicaConfig(url="nonsense"),)),
        DiscoveryResult(()),
    ],
    ids=repr,
)
def test_no_fault_of_a_source_ends_looking_or_empties_the_list(says: dict[str, Any], fault: Any) -> None:
    async def work() -> None:
        says.update(x="a b")
        async with discovering(m=(at("x"),)) as (discoverer, seen):
            await until(lambda: seen.get("m") == "a b")
            says["x"] = fault
            await until(lambda: view(discoverer).problem)
            assert "the 2 known from before are kept" in view(discoverer).problem
            assert view(discoverer).replicas == 2
            says["x"] = "a b c"
            await until(lambda: seen["m"] == "a b c")
            assert view(discoverer).problem == ""
            assert [names for _, names in seen.lists] == ["a b", "a b c"]

    run(work())


def test_a_first_look_that_fails_says_so_and_is_tried_again(says: dict[str, Any]) -> None:
    async def work() -> None:
        says["x"] = DiscoveryError("no answer")
        async with discovering(m=(at("x"),)) as (discoverer, seen):
            await until(lambda: view(discoverer).problem)
            assert view(discoverer).problem == "no answer; none are known from before"
            assert (seen, view(discoverer).age) == ({}, None)
            says["x"] = "a"
            await until(lambda: seen.get("m") == "a")

    run(work())


def test_a_source_that_never_answers_does_not_hold_up_the_others(says: dict[str, Any]) -> None:
    async def work() -> None:
        says.update(x=None, y="b", z="c")
        async with discovering(m=(at("x"), at("y")), n=(at("z"),)) as (_, seen):
            await until(lambda: seen == {"m": "b", "n": "c"})

    run(work())


def test_too_many_are_not_taken(says: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(source_poller, "MAX_REPLICAS_PER_SOURCE", 2)
        says["x"] = "a b c"
        async with discovering(m=(at("x"),)) as (discoverer, seen):
            await until(lambda: "it names 3 replicas" in view(discoverer).problem)
            assert seen == {}

    run(work())


def test_a_sudden_loss_is_held_back_shown_and_believed_in_the_end(says: dict[str, Any]) -> None:
    async def work() -> None:
        says["x"] = "a b c"
        async with discovering(m=(at("x", hold_down=3600),)) as (discoverer, seen):
            await until(lambda: seen.get("m") == "a b c")
            says["x"] = "a"
            await until(lambda: view(discoverer).held_back)
            assert view(discoverer).held_back == ("b", "c")
            assert "it no longer names 2 of 3" in view(discoverer).problem
            assert view(discoverer).replicas == 3
            assert seen["m"] == "a b c"
            discoverer.set_sources({"m": (at("x", hold_down=0.1),)})
            await until(lambda: seen["m"] == "a")
            assert (view(discoverer).held_back, view(discoverer).problem) == ((), "")

    run(work())


def test_the_end_of_holding_back_does_not_wait_for_the_interval(says: dict[str, Any]) -> None:
    async def work() -> None:
        says["x"] = "a b c"
        settings = at("x", interval=3600, hold_down=0.2)
        async with discovering(m=(settings,)) as (_, seen):
            await until(lambda: seen.get("m") == "a b c")
            says["x"] = "a"
            Scripted.made[0].awake.set()
            await until(lambda: seen["m"] == "a")

    run(work())


def test_news_are_looked_at_at_once(says: dict[str, Any]) -> None:
    async def work() -> None:
        says["x"] = "a"
        async with discovering(m=(at("x", interval=3600),)) as (_, seen):
            await until(lambda: seen.get("m") == "a")
            says["x"] = "a b"
            Scripted.made[0].awake.set()
            await until(lambda: seen["m"] == "a b")

    run(work())


def test_waiting_for_news_that_goes_wrong(says: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        says.update(x="a", news=OSError("watch broken"))
        async with discovering(m=(at("x"),)) as (_, seen):
            await until(lambda: seen.get("m") == "a")
            Scripted.made[0].awake.set()
            await until(lambda: "watch broken" in caplog.text)
            says["x"] = "a b"
            await until(lambda: seen["m"] == "a b")

    run(work())


def test_a_problem_is_logged_once_and_so_is_its_end(says: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        caplog.set_level(logging.INFO, "steelyard.control")
        says["x"] = DiscoveryError("no answer")
        async with discovering(m=(at("x"),)) as (_, seen):
            await until(made)
            source = Scripted.made[0]
            await until(lambda: source.polls > 3)
            says["x"] = "a"
            await until(lambda: seen)
        said = [record.getMessage() for record in caplog.records if record.name == "steelyard.control"]
        assert said == [
            "replicas of m: scripted x: no answer; none are known from before",
            "replicas of m: scripted x: recovered",
        ]

    run(work())


def test_who_cannot_take_the_list_is_told_again(says: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        says["x"] = "a"
        async with discovering(m=(at("x"),)) as (_, seen):
            seen.fails = 2
            await until(lambda: seen.get("m") == "a")
            assert caplog.text.count("RuntimeError: not now") == 2

    run(work())


# ---------------------------------------------------------------------- another configuration


def test_what_is_known_of_a_source_that_stays_stays(says: dict[str, Any]) -> None:
    async def work() -> None:
        says.update(x="a b", y="c")
        async with discovering(m=(at("x"),)) as (discoverer, seen):
            await until(lambda: seen.get("m") == "a b")
            says["x"] = DiscoveryError("gone")
            discoverer.set_sources({"m": (at("y"), at("x", interval=0.06, hold_down=1))})  # other times, another place
            await until(lambda: seen["m"] == "a b c")
            assert made() == ["x", "y"]
            assert [ids([one]) for one in seen.replicas["m"]] == ["c", "a", "b"]
            await until(lambda: view(discoverer, 1).problem)
            assert seen["m"] == "a b c"

    run(work())


def test_other_times_hold_at_once(says: dict[str, Any]) -> None:
    async def work() -> None:
        says["x"] = "a"
        async with discovering(m=(at("x", interval=3600),)) as (discoverer, seen):
            await until(lambda: seen.get("m") == "a")
            says["x"] = "a b"
            discoverer.set_sources({"m": (at("x", interval=0.05),)})
            await until(lambda: seen["m"] == "a b")
            says["x"] = "a b c"
            await until(lambda: seen["m"] == "a b c")
            assert made() == ["x"]

    run(work())


def test_a_source_that_is_taken_away_takes_its_replicas_with_it(says: dict[str, Any]) -> None:
    async def work() -> None:
        says.update(x="a", y="b", z=None)
        async with discovering(m=(at("x"), at("y"), at("z"))) as (discoverer, seen):
            await until(lambda: seen.get("m") == "a b")
            discoverer.set_sources({"m": (at("x"), at("z"))})
            assert seen["m"] == "a"
            discoverer.set_sources({"m": ()})
            assert seen["m"] == ""
            assert discoverer.views() == ()

    run(work())


def test_a_model_that_goes(says: dict[str, Any]) -> None:
    async def work() -> None:
        says.update(x="a", y="b")
        async with discovering(m=(at("x"),), n=(at("y"),)) as (discoverer, seen):
            await until(lambda: len(seen) == 2)
            discoverer.set_sources({"n": (at("y"),)})
            assert seen == {"m": "", "n": "b"}
            assert len(discoverer.views()) == 1

    run(work())


def test_what_a_replaced_source_named_is_kept_until_the_new_one_has_answered(says: dict[str, Any]) -> None:
    async def work() -> None:
        says.update(x="a b", y=DiscoveryError("not yet"))
        async with discovering(m=(at("x"),)) as (discoverer, seen):
            await until(lambda: seen.get("m") == "a b")
            discoverer.set_sources({"m": (at("y"),)})
            await until(lambda: view(discoverer).problem)
            assert seen["m"] == "a b"
            left = view(discoverer, 1)
            assert (left.source, left.held_back) == ("sources that are no longer configured", ("a", "b"))
            assert left.problem == "kept until these sources have an answer: scripted y"
            says["y"] = "b c"
            await until(lambda: seen["m"] == "b c")
            assert len(discoverer.views()) == 1
            assert "" not in [names for _, names in seen.lists]

    run(work())


def test_replaced_twice_and_then_taken_away(says: dict[str, Any]) -> None:
    async def work() -> None:
        says.update(x="a", y=None, z=None)
        async with discovering(m=(at("x"),)) as (discoverer, seen):
            await until(lambda: seen.get("m") == "a")
            discoverer.set_sources({"m": (at("y"),)})
            discoverer.set_sources({"m": (at("z"),)})
            assert seen["m"] == "a"
            discoverer.set_sources({"m": (at("z"),)})
            assert seen["m"] == "a"
            discoverer.set_sources({})
            assert seen["m"] == ""

    run(work())


def test_a_source_that_cannot_be_opened_changes_nothing_and_is_tried_again(
    says: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        says["x"] = "a"
        async with discovering(m=(at("x"),)) as (discoverer, seen):
            await until(lambda: seen.get("m") == "a")
            says["open"] = RuntimeError("no such library")
            discoverer.set_sources({"n": (), "m": (at("y"),)})
            await until(lambda: view(discoverer).problem)
            assert view(discoverer).problem == "RuntimeError: no such library; none are known from before"
            assert seen == {"m": "a"}
            del says["open"]
            says["y"] = "b"
            await until(lambda: seen["m"] == "b")

    run(work())


def test_closed_twice(says: dict[str, Any]) -> None:
    async def work() -> None:
        says["x"] = None
        async with discovering(m=(at("x"),)) as (discoverer, _):
            await discoverer.close()
            assert discoverer.views() == ()

    run(work())


# ---------------------------------------------------------------------- a real file


def test_the_life_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(file_module, "POLL_INTERVAL_SECONDS", 0.02)
        path = tmp_path / "replicas.yaml"
        path.write_text("[http://a:80, http://b:80, http://c:80]")
        settings = FileDiscovery(path=str(path), interval=Seconds(0.2), hold_down=Seconds(3600))
        async with discovering(m=(settings,)) as (discoverer, seen):
            await until(lambda: seen.get("m") == "a:80 b:80 c:80")
            for bad in (b"", b"[]", b"\xff", b"[http://a:80", b"{replicas: 7}"):
                path.write_bytes(bad)
                await until(lambda: "the 3 known from before are kept" in view(discoverer).problem)
                path.write_text("[http://a:80, http://b:80, http://c:80]")
                await until(lambda: view(discoverer).problem == "")
            path.unlink()
            await until(lambda: "No such file" in view(discoverer).problem)
            path.write_text("[http://a:80, http://d:80]")
            await until(lambda: seen["m"] == "a:80 b:80 c:80 d:80")
            assert view(discoverer).held_back == ("b:80", "c:80")
            assert [names for _, names in seen.lists] == ["a:80 b:80 c:80", "a:80 b:80 c:80 d:80"]

    run(work())

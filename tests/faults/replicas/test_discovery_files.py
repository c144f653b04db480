"""Replicas found in a watched file: whatever becomes of the file, a working fleet is never emptied."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.harness import Ledger, Serving, new_id, request, scripts, wait_until
from tests.harness.admin import AdminClient
from tests.harness.replicas.probed import ProbedReplica, watched
from tests.harness.traffic import traffic

pytestmark = pytest.mark.xdist_group("discovery files")

SPOILT = {  # None: deleted
    "deleted": None,
    "emptied": "",
    "an empty list": "[]\n",
    "no YAML": "replicas: [{url: 'http://127\n\t- {",
    "another document": "hello: there\n",
    "half of it": "- {id: a, url: 'http://127.0.0.1:1'}\n- {id: b, ur",
    "no urls": "- {id: a}\n- {id: b}\n",
    "binary": "\x00\x01\x02",
}
QUICK = ("deleted", "half of it")


class Found(NamedTuple):
    """A gateway whose replicas are all in a file; it is shared by the tests here."""

    gateway: Serving
    admin: AdminClient
    file: Path
    stubs: list[ProbedReplica]


@pytest.fixture(scope="module")
def stubs() -> Iterator[list[ProbedReplica]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ProbedReplica(name)) for name in "abcd"]


@pytest.fixture(scope="module")
def shared(stubs: list[ProbedReplica], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    file = tmp_path_factory.mktemp("discovery") / "replicas.yaml"
    write(file, stubs)
    with watched(models={"*": found_in(file)}) as (gateway, admin):
        yield Found(gateway, admin, file, stubs)


@pytest.fixture
def found(shared: Found) -> Found:
    """All in the file, and all ready."""
    for stub in shared.stubs:
        stub.ready()
    write(shared.file, shared.stubs)
    shared.admin.wait_ready(*"abcd")
    return shared


def found_in(file: Path, **rest: Any) -> dict[str, Any]:
    return {"discovery": [{"kind": "file", "path": str(file), "interval": "1s", **rest}], "idempotent": False}


def write(file: Path, stubs: list[ProbedReplica]) -> None:
    """At once, as those do who know that it is read."""
    replace(file, yaml.safe_dump([stub.config for stub in stubs]))


def replace(file: Path, text: str) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(file)


class TestSpoilt:
    @pytest.mark.parametrize(
        "what", [what if what in QUICK else pytest.param(what, marks=pytest.mark.slow) for what in SPOILT]
    )
    def test_the_fleet_stays_and_the_alarm_is_shown(self, found: Found, what: str) -> None:
        gateway, admin, file, stubs = found
        ledger, text = Ledger(*stubs), SPOILT[what]
        with traffic(gateway, ledger):
            if text is None:
                file.unlink()
            else:
                replace(file, text)
            wait_until(lambda: admin.discovery().problem, "nothing is said of it")
            assert admin.alarms()
            assert admin.states() == dict.fromkeys("abcd", "ready")
            assert admin.discovery().replicas == 4
            assert admin.ready().status_code == 200
            write(file, stubs)
            wait_until(lambda: not admin.discovery().problem, "it does not recover")
            wait_until(lambda: not admin.alarms(), "the alarm stays")
        ledger.check()
        assert set(ledger.count()) == {"ok"}


class TestLoss:
    def test_of_more_than_half_that_is_mended_in_time_was_none(self, found: Found) -> None:
        gateway, admin, file, stubs = found
        ledger = Ledger(*stubs)
        with traffic(gateway, ledger, clients=4):
            write(file, stubs[:1])
            held = wait_until(lambda: admin.discovery().held_back, "three of four are gone, and nothing is held back")
            assert set(held) == {"b", "c", "d"}
            assert admin.alarms()
            marks = [stub.mark for stub in stubs]
            for stub, mark in zip(stubs, marks, strict=True):
                stub.wait_real(3, mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}
        write(file, stubs)
        wait_until(lambda: not admin.discovery().held_back, "still held back")
        wait_until(lambda: not admin.alarms(), "the alarm stays")
        assert admin.states() == dict.fromkeys("abcd", "ready")

    def test_of_one_is_believed_and_what_runs_there_is_finished(self, found: Found) -> None:
        gateway, admin, file, stubs = found
        d, gate, id = stubs[3], new_id("gate"), new_id()
        with contextlib.ExitStack() as stack:
            running = []
            for number in range(4):
                running.append(stack.enter_context(gateway.connect()))
                running[-1].send(request("POST", id=f"{id}-{number}", script=scripts.held(gate)))
            d.wait("waiting", gate=gate)
            write(file, stubs[:3])
            wait_until(lambda: admin.states().get("d") in (None, "draining"), "it is still there")

            def passed_over() -> bool:
                mark = d.mark
                assert {gateway.ask("POST").status for _ in range(20)} == {200}
                d.sync()
                return d.real(mark) == []

            wait_until(passed_over, "it still gets requests")
            for stub in stubs:
                stub.open(gate)
            assert [connection.response().status for connection in running] == [200] * 4
        admin.wait_gone("d")

    def test_of_more_than_half_is_believed_in_the_end(self, stubs: list[ProbedReplica], tmp_path: Path) -> None:
        ledger, file = Ledger(*stubs), tmp_path / "replicas.yaml"
        write(file, stubs)
        with watched(models={"*": found_in(file, hold_down="1s")}) as (gateway, admin):
            admin.wait_ready(*"abcd")
            with traffic(gateway, ledger, clients=4):
                write(file, stubs[:1])
                # Half as long as it would take without `hold`.
                wait_until(lambda: set(admin.states()) == {"a"}, "they stay", timeout=30)
                assert admin.discovery().held_back == ()
                assert admin.states() == {"a": "ready"}
        ledger.check()
        assert set(ledger.count()) == {"ok"}


class TestNew:
    def test_it_gets_nothing_before_it_is_ready(self, found: Found) -> None:
        gateway, admin, file, stubs = found
        ledger, (a, _, _, d) = Ledger(*stubs), stubs
        write(file, stubs[:3])
        admin.wait_gone("d")
        d.loading()
        mark = d.mark
        with traffic(gateway, ledger):
            write(file, stubs)
            admin.wait_state("d", "loading")
            before = len(a.real())
            a.wait_real(before + 20)
            d.untouched(mark)
            d.ready()
            d.wait_real(3, mark)
        ledger.check()
        assert set(ledger.count()) == {"ok"}

    @pytest.mark.slow
    def test_a_file_that_is_empty_at_first_and_one_of_prometheus(
        self, stubs: list[ProbedReplica], tmp_path: Path
    ) -> None:
        """It serves what it knows, says what it misses, and finds the others when they come."""
        a, b, c, d = stubs
        later, targets = tmp_path / "later.yaml", tmp_path / "targets.json"
        later.write_text("")
        names = [f"127.0.0.1:{stub.port}" for stub in (c, d)]
        replace(targets, json.dumps([{"targets": names[:1], "labels": {"zone": "ward-a"}}]))
        models = {"later": {"replicas": [a.config], **found_in(later)}, "prometheus": found_in(targets)}
        with watched(models=models) as (gateway, admin):
            admin.wait_ready("a")
            admin.wait_ready(names[0], model="prometheus")
            assert admin.discovery().problem
            for name in models:
                assert gateway.ask("POST", headers={"steelyard-model": name}).status == 200
            write(later, [b])
            replace(targets, json.dumps([{"targets": names, "labels": {"zone": "ward-a"}}]))
            admin.wait_ready("b")
            admin.wait_ready(*names, model="prometheus")
            assert admin.replica("b").source == "discovery"
            assert admin.discovery().problem == ""
            assert set(admin.states()) == {"a", "b"}

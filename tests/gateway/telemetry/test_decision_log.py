"""The decision log: what its lines say, of whom there are lines, and what becomes of the file."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from numpy import float32

from steelyard.config import DecisionLogConfig as Settings
from steelyard.core.options import PoolOptions, RetryOptions
from steelyard.core.outliers.ejection_reason import EjectionReason, EjectionRule
from steelyard.core.policies.base import Policy
from steelyard.core.policies.least_connections import LeastConnections
from steelyard.core.replica import Event
from steelyard.documents import Share, Size
from steelyard.gateway.telemetry.choices import MAX_CHOICES
from steelyard.gateway.telemetry.decision_log import DecisionLog
from steelyard.gateway.telemetry.log_file import LogFile
from steelyard.link.decision_log.explain import explain_line
from steelyard.link.decision_log.lines import DecisionLine, FleetLine

from ..reading import answer, request
from ..stage import Stage

MODELS = """
tenant_header: x-tenant
models: {m: {replicas: [{url: 'http://a:1'}, {url: 'http://b:1'}], slo: {latency: 1s}}}
"""


class Log:
    """A decision log on a stage, and its lines once it is closed."""

    def __init__(self, stage: Stage, path: Path, **settings: Any) -> None:
        self.stage = stage
        self.path = path
        config = Settings(**{"path": str(path), "sample_rate": Share(1.0), **settings})
        self.log = stage.proxy.recorder.decisions = DecisionLog(
            config, stage.balancer, stage.config, clock=stage.loop.time
        )
        self.log.attach()

    def lines(self) -> list[DecisionLine | FleetLine]:
        self.stage.proxy.recorder.decisions = None
        self.log.flush()
        self.log.close()
        return read(self.path)

    def requests(self) -> list[DecisionLine]:
        return [line for line in self.lines() if isinstance(line, DecisionLine)]


def read(path: Path) -> list[DecisionLine | FleetLine]:
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    return [msgspec.json.decode(line, type=DecisionLine | FleetLine) for line in lines]


@pytest.fixture
def stage(staged: Callable[..., Stage]) -> Stage:
    return staged(MODELS)


def test_what_a_line_says(stage: Stage, tmp_path: Path) -> None:
    log = Log(stage, tmp_path / "log")
    client = stage.client()
    client.says(request("POST /v1/chat/completions", "x-request-id: 7", "x-tenant: t", "x-secret: s", body=b"secret"))
    first = stage.replica()
    stage.pass_time(0.25)
    first.says(answer(b"", status="503 Busy"))
    second = stage.replica()
    stage.pass_time(0.5)
    second.says(answer())
    (line,) = log.requests()
    assert (line.id, line.model, line.tenant, line.policy, line.status) == ("7", "m", "t", "least_work", 200)
    assert (line.verdict, line.fault, line.reason) == ("met", "", "")
    assert (line.seconds, line.first_byte, line.waited) == (0.75, 0.75, 0.0)
    one, two = line.attempts
    assert (one.outcome, one.after, one.seconds) == ("overloaded", 0.0, 0.25)
    assert (two.outcome, two.after, two.seconds) == ("", 0.25, 0.5)
    look, again = line.choices
    assert (look.candidate_count, look.chosen, again.candidate_count, again.chosen) == (2, one.replica, 1, two.replica)
    assert {c.id for c in look.candidates} == {one.replica, two.replica}
    for candidate in look.candidates:
        assert candidate.score is not None
        assert candidate.expected == pytest.approx(line.estimate * candidate.slowness, rel=1e-3)
    text = log.path.read_text()
    assert "secret" not in text
    assert log.path.stat().st_mode & 0o007 == 0


def test_every_end_is_told(stage: Stage, tmp_path: Path) -> None:
    log = Log(stage, tmp_path / "log")
    client = stage.client()
    client.says(request("GET /a", "x-request-id: no"))
    stage.replica().says(answer(b"", status="404 No"))
    client.says(request("POST /a", "x-request-id: broken", body=b"x"))
    stage.replica().breaks()
    client.says(request("GET /a", "x-request-id: refused", "steelyard-timeout-ms: 0"))
    client.says(request("GET /a", "x-request-id: late", "steelyard-timeout-ms: 200"))
    stage.replica()
    stage.pass_time(0.5)
    other = stage.client()
    other.says(request("POST /a", "x-request-id: cut", body=b""))
    stage.replica().says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
    stage.replica().breaks()
    third = stage.client()
    third.says(request("GET /a", "x-request-id: left"))
    stage.replica()
    third.breaks()
    ends = {
        line.id: (line.verdict, line.fault, [a.outcome for a in line.attempts], line.reason) for line in log.requests()
    }
    assert ends.pop("refused") == ("refused", "overload", [], "deadline")
    assert ends["no"][2] == ["client_error"]
    assert ends["broken"][0::2] == ("failed", ["connection_lost"])
    assert ends["late"][2:] == (["deadline_exceeded"], "deadline")
    assert ends["cut"][2:] == (["truncated"], "truncated")
    assert ends["left"][0] == "abandoned"
    assert ends["left"][2:] == (["cancelled"], "client_disconnected")


def test_a_request_that_waits_tells_how_long_and_that_looks_are_bounded(
    staged: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = staged("models: {m: {concurrency: 1, replicas: [{url: 'http://a:1'}]}}")
    log = Log(stage, tmp_path / "log")
    one, two = stage.client(), stage.client()
    one.says(request("GET /a", "x-request-id: one"))
    two.says(request("GET /a", "x-request-id: two"))
    stage.pass_time(0.5)
    stage.replica().says(answer())
    stage.pass_time(0.25)
    stage.replica().says(answer())
    first, second = log.requests()
    assert (first.id, first.waited, second.id, second.waited) == ("one", 0.0, "two", 0.5)
    assert second.choices[-1].after == 0.5
    assert len(second.choices) <= MAX_CHOICES


def test_the_lines_tell_of_the_chosen_and_the_best_when_there_are_many(
    staged: Callable[..., Stage], tmp_path: Path
) -> None:
    replicas = ", ".join(f"{{url: 'http://r{n}:1'}}" for n in range(9))
    stage = staged(f"models: {{m: {{policy: least_connections, replicas: [{replicas}]}}}}")
    log = Log(stage, tmp_path / "log", max_candidates=3)
    for _ in range(5):
        stage.client().says(request("GET /a"))
    for dial in list(stage.dialling):
        stage.accept(dial).says(answer())
    for line in log.requests():
        (look,) = line.choices
        assert look.candidate_count == 9
        assert len(look.candidates) == 3
        assert look.chosen in {c.id for c in look.candidates}
        assert {c.score for c in look.candidates} == {0.0}, "idle ones, which there always are"


def test_the_id_decides_who_is_sampled(stage: Stage, tmp_path: Path) -> None:
    ids = [f"id-{number}" for number in range(400)]
    seen = []
    for name in ("one", "two"):
        log = Log(stage, tmp_path / name, sample_rate=Share(0.25))
        client = stage.client()
        for id in ids:
            client.says(request("GET /a", f"x-request-id: {id}"))
            stage.replica().says(answer())
        seen.append([line.id for line in log.requests()])
    assert seen[0] == seen[1], "whoever sees it decides alike"
    assert 60 <= len(seen[0]) <= 140


def test_the_fleet_is_told_first_and_when_it_changes(stage: Stage, tmp_path: Path) -> None:
    log = Log(stage, tmp_path / "log")
    stage.pass_time(1.0)
    pool = stage.balancer.pool("m")
    stage.balancer.set_weight(next(iter(pool.replicas)), 2.0, "m", now=stage.loop.now)
    stage.pass_time(1.0)
    stage.balancer.set_policy("m", "round_robin", now=stage.loop.now)
    first, heavier, other = log.lines()
    assert isinstance(first, FleetLine)
    assert isinstance(heavier, FleetLine)
    assert isinstance(other, FleetLine)
    assert [member.state for member in first.replicas] == ["ready", "ready"]
    assert [member.weight for member in heavier.replicas] == [2.0, 1.0]
    assert (first.policy, other.policy, first.sample_rate) == ("least_work", "round_robin", 1.0)


def test_options_that_are_not_the_defaults_are_told(stage: Stage, tmp_path: Path) -> None:
    log = Log(stage, tmp_path / "log")
    stage.pass_time(1.0)
    options = PoolOptions(max_queue=7, slow_start=2.0, restart_grace=5.0, retry=RetryOptions(max_attempts=1))
    stage.balancer.set_options("m", options, now=stage.loop.now)
    first, changed = log.lines()
    assert isinstance(first, FleetLine)
    assert isinstance(changed, FleetLine)
    options_after = {**first.options, "slow_start": 2.0, "retry": asdict(options.retry)}
    assert (changed.max_queue, changed.options) == (7, options_after)


def test_a_policy_whose_score_raises_still_decides(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Policy, *_: object) -> float:
        raise ValueError("mine")

    monkeypatch.setattr("steelyard.core.policies.least_work.LeastWork.score", broken)
    log = Log(stage, tmp_path / "log")
    client = stage.client()
    client.says(request())
    stage.replica().says(answer())
    (line,) = log.requests()
    assert line.status == 200
    assert {c.score for c in line.choices[0].candidates} == {None}


class OwnPolicy(LeastConnections):
    score_meaning = "requests that I see there"


def test_the_line_says_what_the_score_of_an_own_policy_means(stage: Stage, tmp_path: Path) -> None:
    log = Log(stage, tmp_path / "log")
    client = stage.client()
    client.says(request())
    stage.replica().says(answer())
    stage.balancer.set_policy("m", f"{__name__}:OwnPolicy", now=stage.loop.now)
    client.says(request())
    stage.replica().says(answer())
    first, own = log.requests()
    assert (first.score_meaning, own.score_meaning) == ("", "requests that I see there")
    assert "(requests that I see there)" in dict(explain_line(own))["choice"]


def test_a_score_may_be_any_kind_of_number(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.core.policies.least_work.LeastWork.score", lambda self, *_: float32(0.5))
    log = Log(stage, tmp_path / "log")
    client = stage.client()
    client.says(request())
    stage.replica().says(answer())
    (line,) = log.requests()
    assert {c.score for c in line.choices[0].candidates} == {0.5}


def test_nothing_is_witnessed_once_it_is_closed(stage: Stage, tmp_path: Path) -> None:
    log = Log(stage, tmp_path / "log")
    client = stage.client()
    client.says(request())
    log.lines()
    assert stage.balancer.on_choice is None
    stage.replica().says(answer())
    stage.check_idle()


# ---------------------------------------------------------------------- the file


class Lines(LogFile):
    def say(self, line: bytes) -> None:
        self._note((line,))

    def _lines(self, notes: list[tuple[Any, ...]]) -> None:
        for (line,) in notes:
            self._append(line)


def test_a_file_that_is_full_is_moved_and_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = Lines(str(path), "test", 1000)
    file.preface = b"preface\n"
    for number in range(40):
        file.say(b"%03d" % number + b"x" * 46)
        file.flush()
    file.close()
    new, old = path.read_bytes(), Path(f"{path}.1").read_bytes()
    assert new.startswith(b"preface\n")
    assert len(old) <= 1000
    assert len(new) <= 1000
    assert new.splitlines()[-1].startswith(b"039")
    assert os.stat(path).st_mode & 0o007 == 0


def test_several_that_append_rename_a_full_file_once_and_lose_nothing(tmp_path: Path) -> None:
    """Each in turn finds the file full: the first renames it, the others find that done."""
    path = tmp_path / "log"
    files = [Lines(str(path), "test", 10_000) for _ in range(4)]
    ready = threading.Barrier(4)

    def speak(number: int) -> None:
        ready.wait()
        for line in range(30):
            files[number].say(b"%d-%03d" % (number, line) + b"x" * 100)
            files[number].flush()
        files[number].close()

    threads = [threading.Thread(target=speak, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [line[:5] for name in (f"{path}.1", str(path)) for line in Path(name).read_bytes().splitlines()]
    assert sorted(lines) == sorted(b"%d-%03d" % (n, line) for n in range(4) for line in range(30))


def test_who_cannot_rename_a_full_file_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    one, other = (Lines(str(path), "test", 100) for _ in range(2))
    one.say(b"x" * 90)
    one.flush()
    with monkeypatch.context() as patch:
        tried = threading.Event()

        def refuse(*_: object) -> None:
            tried.set()
            raise PermissionError

        patch.setattr("steelyard.gateway.telemetry.log_file.os.rename", refuse)
        one.say(b"y" * 90)
        one.flush()
        assert tried.wait(20)
    other.say(b"z" * 90)
    other.close(20.0)
    assert not other.thread.is_alive()
    assert path.read_bytes() == b"z" * 90 + b"\n"
    one.close()


def test_settings_of_size_reach_the_file(stage: Stage, tmp_path: Path) -> None:
    log = Log(stage, tmp_path / "log", max_size=Size(2000))
    client = stage.client()
    for _ in range(20):
        client.says(request())
        stage.replica().says(answer())
        stage.pass_time(0.5)
    last = log.lines()
    assert isinstance(last[0], FleetLine), "each file begins with how the fleet stands"
    old = read(Path(f"{log.path}.1"))
    assert isinstance(old[0], FleetLine)
    assert json.loads(log.path.read_text().splitlines()[-1])["kind"] == "request"


def test_who_was_excluded_and_why(staged: Callable[..., Stage], tmp_path: Path) -> None:
    replicas = ", ".join(f"{{id: {id}, url: 'http://{id}:1'}}" for id in "abcd")
    stage = staged(f"models: {{m: {{concurrency: 1, replicas: [{replicas}]}}}}")
    log = Log(stage, tmp_path / "log")
    now = stage.loop.now
    stage.proxy.dispatcher.execute(stage.balancer.report("b", Event.LOST, "m", now=now), now)
    stage.proxy.dispatcher.execute(stage.balancer.report("c", Event.DRAIN, "m", now=now), now)
    for id in ("one", "two", "three"):
        stage.client().says(request("GET /x", f"x-request-id: {id}"))
    stage.replica("a:1").says(answer())
    stage.replica("d:1").says(answer())
    stage.replica().says(answer())
    lines = {line.id: line for line in log.requests()}
    first, second, third = (lines[id].choices[0] for id in ("one", "two", "three"))
    out = {("b", "unreachable", ""), ("c", "draining", "")}
    assert {(e.id, e.reason, e.message) for e in first.excluded} == out
    (full,) = {(e.id, e.reason, e.message) for e in second.excluded} - out
    assert full[1:] == ("full", "1 of 1")
    assert (third.candidate_count, third.excluded_count) == (0, 4)  # it waited, and the log says for what
    said = dict(explain_line(lines["three"]))
    assert said["choice"].startswith("1 replica could take it")  # later
    early = msgspec.structs.replace(lines["three"], choices=(third,))
    explanation = dict(explain_line(early))
    assert explanation["choice"] == "No replica could take it."
    assert "4 replicas could not take it: " in explanation["excluded"]
    assert "b (unreachable)" in explanation["excluded"]
    assert "(full: 1 of 1)" in explanation["excluded"]


def test_a_deadline_that_cannot_be_met_is_no_lack_of_memory(staged: Callable[..., Stage], tmp_path: Path) -> None:
    stage = staged("models: {m: {replicas: [{id: a, url: 'http://a:1'}]}}")
    for _ in range(20):
        client = stage.client()
        client.says(request())
        replica = stage.replica()
        stage.pass_time(5.0)
        replica.says(answer())
    log = Log(stage, tmp_path / "log")
    stage.client().says(request("GET /x", "x-request-id: hasty", "steelyard-timeout-ms: 1000"))
    (line,) = log.requests()
    assert (line.reason, line.binding_deadline) == ("deadline", "total")
    explanation = dict(explain_line(line))
    assert explanation["excluded"] == "1 replica could not take it: a (would miss the deadline)."


def test_an_ejected_replica_is_excluded_with_the_reason_of_its_ejection(
    staged: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = staged("models: {m: {replicas: [{id: a, url: 'http://a:1'}, {id: b, url: 'http://b:1'}]}}")
    log = Log(stage, tmp_path / "log")
    reason = EjectionReason(EjectionRule.CONSECUTIVE_FAILURES, 5, last_failure="answered 500", all_same=True)
    stage.balancer.eject("b", 30.0, "m", now=stage.loop.now, reason=reason)
    stage.client().says(request("GET /x", "x-request-id: one"))
    stage.replica("a:1").says(answer())
    (line,) = log.requests()
    explanation = dict(explain_line(line))
    assert explanation["excluded"] == "1 replica could not take it: b (ejected: 5 in a row answered 500; 30 s more)."


def test_a_replica_on_probation_is_not_said_to_lack_memory(staged: Callable[..., Stage], tmp_path: Path) -> None:
    stage = staged("models: {m: {replicas: [{id: a, url: 'http://a:1'}, {id: b, url: 'http://b:1'}]}}")
    log = Log(stage, tmp_path / "log")
    pool = stage.balancer.pool("m")
    pool.find("b").suspended = True
    pool.update_open(pool.find("b"))
    stage.client().says(request("GET /x", "x-request-id: one"))
    stage.replica("a:1").says(answer())
    (line,) = log.requests()
    told = dict(explain_line(line))
    assert told["excluded"] == "1 replica could not take it: b (on probation: one request at a time)."


def test_the_tie_rule_is_told(stage: Stage, tmp_path: Path) -> None:
    log = Log(stage, tmp_path / "log")
    stage.client().says(request("GET /x", "x-request-id: one"))
    stage.replica().says(answer())
    (line,) = log.requests()
    assert "tied with another: scores within a tenth of the least count as equal" in dict(explain_line(line))["choice"]

"""What the supervisor says of replicas, and what a worker makes of it; and what it tells the supervisor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from steelyard.config import ReplicaConfig
from steelyard.control.fleet.worker_sync import seconds_without_progress
from steelyard.core.replica import Event, Replica, State
from steelyard.gateway.worker.fleet_updates import apply_load_readings, apply_replica_events
from steelyard.gateway.worker.worker_report import worker_report
from steelyard.link.messages import LoadReading, MemberUpdate, ReplicaEvent

from ..reading import answer, read_answer, request
from ..stage import Stage

TWO = "models: {m: {replicas: [{id: a, url: 'http://a:1'}, {id: b, url: 'http://b:1'}]}}"
INFER = "POST /v2/models/m/infer"


def tell(stage: Stage, *changes: tuple[str, str], seconds: float = 0.0) -> None:
    apply_replica_events(
        stage.proxy.dispatcher, [ReplicaEvent("m", id, event, seconds) for id, event in changes], stage.loop.now
    )
    stage.loop.settle()


def found(stage: Stage, id: str) -> Replica:
    return stage.balancer.pool("m").find(id)


def states(stage: Stage) -> dict[str, State]:
    return {id: replica.state for id, replica in stage.balancer.pool("m").replicas.items()}


# ---------------------------------------------------------------------- changes


def test_nothing_is_sent_before_a_probe_has_seen_a_replica_ready(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO.replace("m: {", "m: {restart_grace: 0s, "))
    stage.fleet.update_members(
        MemberUpdate("m", ("a", "b"), (ReplicaConfig(url="http://c:1", id="c"),), {}), stage.loop.now
    )
    client = stage.client()
    client.says(request())
    assert read_answer(client.hears()).status == 503
    assert stage.dialling == []
    tell(stage, ("c", "live"))
    assert states(stage) == {"c": State.LOADING}
    tell(stage, ("c", "loaded"))
    client.says(request())
    assert stage.dialling == ["c:1"]


def test_a_model_whose_health_is_not_asked_is_served_at_once(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {health: {enabled: false}, replicas: [{id: a, url: 'http://a:1'}]}}")
    stage.fleet.update_members(MemberUpdate("m", (), (ReplicaConfig(url="http://c:1", id="c"),), {}), stage.loop.now)
    assert states(stage) == {"a": State.READY, "c": State.READY}


def test_a_draining_replica_finishes_and_gets_nothing_new(staged: Callable[..., Stage]) -> None:
    stage = staged(
        "models: {m: {policy: round_robin, replicas: [{id: a, url: 'http://a:1'}, {id: b, url: 'http://b:1'}]}}"
    )
    client, other = stage.client(), stage.client()
    client.says(request())
    first = stage.replica()
    tell(stage, (first.place[0], "drain"))
    other.says(request())
    second = next(w for w in (stage.accept() for _ in stage.dialling))
    assert second.place != first.place
    first.says(answer(b"done"))
    assert read_answer(client.hears()).body == b"done"
    tell(stage, (first.place[0], "undrain"))
    assert states(stage)[first.place[0]] is State.LOADING
    tell(stage, (first.place[0], "loaded"))
    assert states(stage)[first.place[0]] is State.READY


def test_whom_another_worker_ejected_is_ejected_here(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    tell(stage, ("a", "eject"), seconds=5.0)
    assert states(stage) == {"a": State.EJECTED, "b": State.READY}
    (a, _) = worker_report(stage.proxy, stage.loop.now, decides=True).replicas
    assert (a.state, a.ejection_left) == ("ejected", pytest.approx(5.0, abs=0.01))


def test_changes_of_replicas_that_are_gone_or_cannot_be_so_are_passed_over(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    apply_replica_events(stage.proxy.dispatcher, [ReplicaEvent("x", "a", "lost")], stage.loop.now)
    tell(stage, ("z", "lost"), ("a", "undrain"), ("b", "lost"))
    assert states(stage) == {"a": State.READY, "b": State.UNREACHABLE}


# ---------------------------------------------------------------------- frozen replicas


def test_what_waits_for_a_frozen_replica_goes_elsewhere(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request(INFER, body=b"{}"))
    frozen = stage.replica()
    tell(stage, (frozen.place[0], "lost"))
    other = stage.replica()
    assert other.place != frozen.place
    other.says(answer(b"from the other"))
    assert read_answer(client.hears()).body == b"from the other"
    assert frozen.transport.is_closing()


def test_what_may_not_run_twice_waits_for_it(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request("POST /once", body=b"{}"))
    frozen = stage.replica()
    tell(stage, (frozen.place[0], "lost"))
    assert stage.dialling == []
    frozen.says(answer(b"after all"))
    assert read_answer(client.hears()).body == b"after all"


def test_an_answer_that_has_begun_goes_on(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request(INFER, body=b"{}"))
    slow = stage.replica()
    slow.says(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha")
    tell(stage, (slow.place[0], "lost"))
    slow.says(b"lf")
    assert read_answer(client.hears()).body == b"half"


def stalled(stage: Stage) -> bool:
    """As the supervisor concludes from the report of the only replica."""
    report = worker_report(stage.proxy, stage.loop.now, decides=True)
    return seconds_without_progress(list(report.replicas)) > 0.0


def test_a_worker_says_which_replica_is_overdue(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {replicas: [{id: a, url: 'http://a:1'}]}}")
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    stage.pass_time(0.5)
    assert stalled(stage) is False
    stage.pass_time(5.0)
    assert stalled(stage) is True
    replica.says(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha")
    assert stalled(stage) is False
    stage.pass_time(0.9)
    replica.says(b"l")
    stage.pass_time(0.9)
    assert stalled(stage) is False
    stage.pass_time(5.0)
    assert stalled(stage) is True


# ---------------------------------------------------------------------- trouble


def heard(stage: Stage) -> list[tuple[str, bool]]:
    failures: list[tuple[str, bool]] = []
    stage.proxy.dispatcher.on_replica_failure = lambda replica, refused, now: failures.append((replica.id, refused))
    return failures


def test_trouble_is_told(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    failures = heard(stage)
    client = stage.client()
    client.says(request("POST /once", body=b"{}"))
    stage.replica().breaks()
    assert read_answer(client.hears()).status == 502
    client.says(request("GET /"))
    broken = stage.replica()
    broken.says(answer(b"", status="500 No"))
    assert [refused for _, refused in failures] == [False, False]


def test_a_refused_connection_is_told_as_such(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    failures = heard(stage)
    stage.client().says(request())
    dial = stage.dial()
    dial.fail()
    assert failures[-1] == (dial.place[0], True)


# ---------------------------------------------------------------------- members


def test_members_come_go_and_change(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    a, b = found(stage, "a"), found(stage, "b")
    added = (
        ReplicaConfig(url="http://b:1", id="b", weight=3.0, zone="z"),
        ReplicaConfig(url="http://c:1", id="c"),
    )
    stage.fleet.update_members(MemberUpdate("m", ("a",), added, {}), stage.loop.now)
    assert states(stage) == {"b": State.READY, "c": State.STARTING}
    assert a.state is State.GONE
    assert found(stage, "b") is b
    assert (b.weight, b.zone) == (3.0, "z")


def test_a_member_at_another_address_is_another(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    before = found(stage, "a")
    stage.fleet.update_members(MemberUpdate("m", (), (ReplicaConfig(url="http://x:1", id="a"),), {}), stage.loop.now)
    assert found(stage, "a") is not before
    assert states(stage) == {"a": State.STARTING, "b": State.READY}


def test_what_runs_on_a_removed_member_is_finished(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    stage.fleet.update_members(MemberUpdate("m", ("a", "b"), (), {}), stage.loop.now)
    replica.says(answer(b"done"))
    assert read_answer(client.hears()).body == b"done"
    assert not stage.proxy.connection_pools


def test_members_of_a_model_that_is_gone_are_passed_over(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    stage.fleet.update_members(MemberUpdate("x", (), (ReplicaConfig(url="http://x:1"),), {}), stage.loop.now)
    assert states(stage) == {"a": State.READY, "b": State.READY}


# ---------------------------------------------------------------------- what replicas say of their load

ORCA = "models: {m: {load_metrics: {orca: true}, replicas: [{id: a, url: 'http://a:1'}]}}"
TOLD = b'endpoint-load-metrics: JSON {"application_utilization": 0.4, "named_metrics": {"num_requests_running": 6}}'


def test_readings_count(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    for _ in range(3):
        apply_load_readings(
            stage.proxy.dispatcher,
            [LoadReading("m", "a", 4.0, 10.0, 448_000.0), LoadReading("m", "gone", 4.0, 10.0, 1.0)],
            stage.loop.now,
        )
    assert (found(stage, "a").external_load, found(stage, "b").external_load) == (4, 0)
    assert (found(stage, "a").kv_tokens, found(stage, "b").kv_tokens) == (448_000.0, 0.0)


def test_load_reports_are_asked_for_read_and_kept_from_clients(staged: Callable[..., Stage]) -> None:
    stage = staged(ORCA)
    client = stage.client()
    for _ in range(3):
        client.says(request("GET /", "endpoint-load-metrics-format: TEXT"))
        replica = stage.replica()
        asked = [line for line in replica.hears().split(b"\r\n") if line.startswith(b"endpoint-load")]
        assert asked == [b"endpoint-load-metrics-format: JSON"]
        stage.pass_time(0.2)
        replica.says(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + TOLD + b"\r\n\r\n")
        assert "endpoint-load-metrics" not in read_answer(client.hears())
    assert found(stage, "a").external_load == 5  # of six, one was ours
    (reported,) = worker_report(stage.proxy, stage.loop.now, decides=True).replicas
    assert reported.utilization == 0.4


@pytest.mark.parametrize("value", ["", "JSON", "JSON {", "TEXT", "BIN aGFsbG8=", "JSON " + '{"a":' * 20, "\xff"])
def test_load_reports_that_are_nonsense_are_passed_over(staged: Callable[..., Stage], value: str) -> None:
    stage = staged(ORCA)
    client = stage.client()
    client.says(request())
    report = b"endpoint-load-metrics: " + value.encode("latin-1")
    stage.replica().says(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + report + b"\r\n\r\n")
    assert read_answer(client.hears()).status == 200
    assert found(stage, "a").external_load == 0


def test_without_being_told_to_nothing_is_asked(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    stage.client().says(request("GET /", "endpoint-load-metrics-format: JSON"))
    assert b"endpoint-load-metrics" not in stage.replica().hears()


def test_events_are_the_core_s() -> None:
    """The names that travel are those of the lifecycle."""
    assert {event.value for event in Event} >= {"live", "loaded", "lost", "drain", "undrain", "eject"}

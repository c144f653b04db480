"""What reports say of ejections: when one began and ended, and what a balancer that starts anew is told."""

from __future__ import annotations

from steelyard.control.fleet.ejections import UNKNOWN_REASON, Ejections
from steelyard.core.outliers.ejection_reason import EjectionReason, EjectionRule
from steelyard.link.messages import ReplicaEvent, ReplicaReport, WorkerReport

KEY = ("m", "a")
REASON = EjectionReason(EjectionRule.CONSECUTIVE_FAILURES, 5)


def reports(left: float = 0.0, since: float = 0.0, reason: EjectionReason | None = REASON) -> list[WorkerReport]:
    seen = ReplicaReport(
        *KEY, "ejected" if left else "ready", ejection_left=left, ejected_since=since, ejection_reason=reason
    )
    traffic = ReplicaReport(*KEY, in_flight=3)  # of a worker that does not decide
    return [WorkerReport(0, (), (traffic,)), WorkerReport(0, (), (seen,))]


def test_one_begins_and_ends_once() -> None:
    ejections = Ejections()
    began, ended = ejections.update(reports(left=28.0, since=2.0), 102.0)
    assert (began[KEY].since, began[KEY].seconds, began[KEY].reason) == (100.0, 30.0, REASON)
    assert not ended
    assert ejections.update(reports(left=27.0, since=3.0), 103.1) == ({}, {})
    assert [*ejections.update(reports(), 104.0)[1]] == [KEY]
    assert ejections.update(reports(), 105.0) == ({}, {})


def test_a_balancer_that_starts_anew_hears_who_is_out_and_for_how_long_still() -> None:
    ejections = Ejections()
    ejections.update(reports(left=28.0, since=2.0), 102.0)
    assert ejections.active(112.0) == [ReplicaEvent(*KEY, "eject", 18.0, REASON)]
    assert ejections.active(130.0) == []


def test_one_without_a_reason_has_one() -> None:
    ejections = Ejections()
    began, _ = ejections.update(reports(left=28.0, reason=None), 102.0)
    assert began[KEY].reason == UNKNOWN_REASON


def test_a_late_report_is_not_about_the_next_replica_of_the_name() -> None:
    ejections = Ejections()
    ejections.update(reports(left=28.0), 100.0)
    ejections.forget(KEY, 100.5)
    assert ejections.update(reports(left=27.0, since=1.0), 101.0) == ({}, {})
    assert ejections.active(101.0) == []
    began, _ = ejections.update(reports(left=30.0), 110.0)
    assert [*began] == [KEY]

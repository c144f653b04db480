"""What several workers know of failures, put together."""

from __future__ import annotations

import msgspec
import pytest

from steelyard.config import ModelConfig, parse_config
from steelyard.control.fleet.ejections import Ejections
from steelyard.core.outliers.ejection_reason import EjectionReason, EjectionRule
from steelyard.link.messages import ReplicaEvent, ReplicaReport, WorkerReport

CALM = "calm: {outlier_detection: {enabled: false}}"
MODELS = parse_config(
    f"models: {{m: {{outlier_detection: {{consecutive_failures: 5, base_ejection_time: 30}}}}, {CALM}}}"
).models


def seen(id: str = "a", failed: int = 0, out: float = 0.0, state: str = "", model: str = "m") -> ReplicaReport:
    state = state or ("ejected" if out else "ready")
    return ReplicaReport(model, id, state, 0, 0, 0, 0.0, 1.0, consecutive_failures=failed, ejection_left=out)


def reports(*workers: ReplicaReport | tuple[ReplicaReport, ...]) -> list[WorkerReport]:
    """What each worker says."""
    return [WorkerReport(0, (), views if isinstance(views, tuple) else (views,)) for views in workers]


def test_where_nothing_fails_nothing_is_said() -> None:
    assert Ejections().propagate(reports(seen(), seen()), MODELS, 0.0) == []
    assert Ejections().propagate([], MODELS, 0.0) == []


def test_whom_one_ejects_all_eject_for_as_long() -> None:
    ejections = Ejections()
    assert ejections.propagate(reports(seen(out=60.0), seen()), MODELS, 100.0) == [
        ReplicaEvent("m", "a", "eject", 60.0)
    ]


def test_it_is_said_once() -> None:
    ejections = Ejections()
    ejections.propagate(reports(seen(out=30.0), seen()), MODELS, 100.0)
    for second in range(1, 30):
        left = 30.0 - second
        assert ejections.propagate(reports(seen(out=left), seen(out=left - 0.01)), MODELS, 100.0 + second) == []


def test_a_report_that_is_a_little_late_is_no_other_ejection() -> None:
    """Reports come about once a second: when another worker reports, this one's may be older than that."""
    ejections = Ejections()
    ejections.propagate(reports(seen(out=30.0), seen()), MODELS, 100.0)
    assert ejections.propagate(reports(seen(out=30.0), seen(out=28.9)), MODELS, 101.1) == []


def test_the_next_ejection_is_said_again() -> None:
    ejections = Ejections()
    ejections.propagate(reports(seen(out=30.0), seen()), MODELS, 100.0)
    assert ejections.propagate(reports(seen(), seen()), MODELS, 131.0) == []
    assert ejections.propagate(reports(seen(), seen(out=60.0)), MODELS, 140.0) == [
        ReplicaEvent("m", "a", "eject", 60.0)
    ]


def test_of_two_sentences_the_longer_counts() -> None:
    found = Ejections().propagate(reports(seen(out=30.0), seen(out=90.0), seen(out=60.0)), MODELS, 0.0)
    assert found == [ReplicaEvent("m", "a", "eject", 90.0)]


def test_failures_in_a_row_that_each_worker_sees_a_part_of_add_up() -> None:
    ejections = Ejections()
    assert ejections.propagate(reports(seen(failed=2), seen(failed=2)), MODELS, 100.0) == []
    assert ejections.propagate(reports(seen(failed=2), seen(failed=3)), MODELS, 101.0) == [
        ReplicaEvent("m", "a", "eject", 30.0)
    ]
    assert ejections.propagate(reports(seen(failed=2), seen(failed=3)), MODELS, 101.5) == []


def test_only_those_who_use_it_count() -> None:
    views = reports(seen(failed=3), seen(failed=9, state="loading"), seen(failed=9, state="unreachable"))
    assert Ejections().propagate(views, MODELS, 100.0) == []


def test_each_replica_by_itself() -> None:
    views = reports((seen("a", failed=3), seen("b", failed=3)), (seen("a", failed=3), seen("b", failed=1)))
    assert Ejections().propagate(views, MODELS, 100.0) == [ReplicaEvent("m", "a", "eject", 30.0)]


@pytest.mark.parametrize("model", ["calm", "removed"])
def test_where_nobody_is_to_be_ejected_nobody_is(model: str) -> None:
    views = reports(seen(failed=9, model=model), seen(out=30.0, model=model))
    assert Ejections().propagate(views, MODELS, 100.0) == []


def test_a_new_worker_hears_who_is_out_and_for_how_long_still() -> None:
    ejections = Ejections()
    ejections.propagate(reports((seen("a", out=30.0), seen("b", out=5.0)), seen()), MODELS, 100.0)
    assert ejections.active(110.0) == [ReplicaEvent("m", "a", "eject", 20.0)]
    assert ejections.active(131.0) == []


def test_what_is_over_is_forgotten() -> None:
    """Replicas come and go for months."""
    ejections = Ejections()
    for day in range(100):
        ejections.propagate(reports(seen(f"pod-{day}", out=30.0), seen(f"pod-{day}")), MODELS, 86400.0 * day)
    assert len(ejections.until) < 10


def test_the_configuration_says_how_many_and_how_long() -> None:
    ejection = msgspec.structs.replace(MODELS["m"].outlier_detection, consecutive_failures=2, base_ejection_time=7.0)
    models = {"m": ModelConfig(outlier_detection=ejection)}
    assert Ejections().propagate(reports(seen(failed=1), seen(failed=1)), models, 100.0) == [
        ReplicaEvent("m", "a", "eject", 7.0)
    ]


WHY = EjectionReason(EjectionRule.PROBATION_FAILED, 3, last_failure="timed out", all_same=True)


def test_all_are_told_why() -> None:
    out = msgspec.structs.replace(seen(out=30.0), ejection_reason=WHY)
    by_peer = msgspec.structs.replace(seen(out=30.0), ejection_reason=EjectionReason(EjectionRule.REPORTED_BY_PEER))
    assert Ejections().propagate(reports(by_peer, out), MODELS, 100.0) == [ReplicaEvent("m", "a", "eject", 30.0, WHY)]
    together = [msgspec.structs.replace(seen(failed=3), last_error="HTTP 500")] * 2
    (change,) = Ejections().propagate(reports(*together), MODELS, 100.0)
    assert str(change.reason) == "6 in a row failed; the last ones with HTTP 500"


def test_one_that_a_worker_found_to_serve_again_is_tried_by_all() -> None:
    """After a panic a worker that had a good answer uses it again; the others have no reason to wait for longer."""
    ejections = Ejections()
    ejections.propagate(reports(seen(out=30.0), seen()), MODELS, 100.0)
    assert ejections.propagate(reports(seen(out=29.0), seen(out=29.0)), MODELS, 101.0) == []
    assert ejections.propagate(reports(seen(), seen(out=28.0)), MODELS, 102.0) == [ReplicaEvent("m", "a", "restore")]
    assert ejections.propagate(reports(seen(), seen(out=27.0)), MODELS, 103.0) == [], (
        "the other has not heard of it yet"
    )
    assert ejections.active(103.0) == []


def test_one_whose_time_is_over_is_not_restored_once_more() -> None:
    ejections = Ejections()
    ejections.propagate(reports(seen(out=30.0), seen()), MODELS, 100.0)
    ejections.propagate(reports(seen(out=29.0), seen(out=29.0)), MODELS, 101.0)
    assert ejections.propagate(reports(seen(), seen(out=0.5)), MODELS, 129.5) == []

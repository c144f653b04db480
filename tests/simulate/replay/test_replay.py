"""Recordings whose truth is known, explained and replayed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from steelyard.core.errors import OptionError
from steelyard.core.replica import Event
from steelyard.link.decision_log.lines import DecisionLine, FleetLine, FleetMember
from steelyard.simulate.engine.simulation import Simulation
from steelyard.simulate.replay.calibration import calibrate
from steelyard.simulate.replay.compare import Comparison, compare, observed_figures
from steelyard.simulate.replay.findings import sentences
from steelyard.simulate.replay.recording import Recording, read_recording
from steelyard.simulate.replay.run import replay
from steelyard.simulate.replay.server_models import BatchModel, ServerModel, SlotModel

from ..recorder import CLOCK_START_SECONDS, fleet_line, jobs, record, write

SPEEDS = (1.0, 1.0, 1.5, 2.0)
POLICIES = ("least_work", "round_robin", "least_connections")
KINDS = {"serial": (SlotModel(1), 70.0), "slots": (SlotModel(4), 250.0), "batched": (BatchModel(0.3), 100.0)}


def fleet(kind: ServerModel) -> list[object]:
    return [kind.build(f"r{place}", speed) for place, speed in enumerate(SPEEDS)]


def recorded(
    folder: Path, kind: str = "serial", policy: str = "least_work", seconds: float = 30.0, plan: object = None,
    **options: object,
) -> Recording:  # fmt: skip
    servers, rate = KINDS[kind]
    todo = jobs(int(rate * seconds), rate, 0.04, 3)
    lines = record(fleet(servers), todo, policy, plan=plan, **options)  # type: ignore[arg-type]
    return read_recording(write(folder / f"{kind}-{policy}", lines))


@pytest.mark.parametrize("policy", ["least_work", *(pytest.param(p, marks=pytest.mark.slow) for p in POLICIES[1:])])
@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_that_ran_is_predicted(tmp_path: Path, kind: str, policy: str) -> None:
    comparison = compare(recorded(tmp_path, kind, policy), [])
    assert comparison.calibration.server_model == KINDS[kind][0]
    assert abs(comparison.replay_error) <= 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_speeds_and_work_are_found(tmp_path: Path, kind: str) -> None:
    recording = recorded(tmp_path, kind)
    explanation = calibrate(recording)
    speeds = np.array([explanation.speeds[f"r{place}"][0].speed for place in range(len(SPEEDS))])
    assert speeds / speeds[0] == pytest.approx(SPEEDS, rel=0.1)
    assert all(len(one) == 1 for one in explanation.speeds.values())
    _, rate = KINDS[kind]
    truth = np.array([job.work for job in jobs(len(recording.requests), rate, 0.04, 3)])
    off = np.log(explanation.work / truth)
    assert np.abs(off - np.median(off)).max() < 0.2


def test_another_policy_is_foreseen(tmp_path: Path) -> None:
    recording = recorded(tmp_path, policy="round_robin")
    comparison = compare(recording, ["least_work", "round_robin"])
    (other,) = comparison.alternatives
    truth = observed_figures(recorded(tmp_path, policy="least_work"))
    assert other.figures.p99 == pytest.approx(truth.p99, rel=0.15)
    assert any(text.startswith("with least_work p99 would have been") for text in sentences(comparison))


def slow(simulation: Simulation) -> None:
    server = simulation.servers["r3"]
    simulation.call_at(10.0, lambda now: server.slow_down(4.0, now, simulation.schedule))
    simulation.call_at(20.0, lambda now: server.restore_speed(4.0, now, simulation.schedule))


def test_a_replica_that_was_slow_for_a_while_is_slow_then(tmp_path: Path) -> None:
    explanation = calibrate(recorded(tmp_path, policy="round_robin", plan=slow))
    before, slowed, after = explanation.speeds["r3"]
    assert (slowed.begin, after.begin) == pytest.approx((10.0, 20.0), abs=1.0)
    assert before.speed / slowed.speed == pytest.approx(4.0, rel=0.2)
    assert after.speed == pytest.approx(before.speed, rel=0.15)


def test_a_replica_that_failed_fails_again(tmp_path: Path) -> None:
    def plan(simulation: Simulation) -> None:
        server = simulation.servers["r0"]
        simulation.call_at(5.0, lambda now: setattr(server, "failing", 1))
        simulation.call_at(15.0, lambda now: setattr(server, "failing", 0))

    recording = recorded(tmp_path, policy="round_robin", plan=plan)
    explanation = calibrate(recording)
    begin = explanation.failure_windows["r0"][0].begin
    assert begin == pytest.approx(5.0, abs=1.0)
    assert all(5.0 <= one.begin <= one.end <= 15.1 for one in explanation.failure_windows["r0"])
    assert not explanation.failure_windows["r1"]


def test_waiting_in_the_gateway(tmp_path: Path) -> None:
    comparison = compare(recorded(tmp_path, concurrency=1), ["least_work@2"])
    assert abs(comparison.replay_error) <= 0.1
    assert not comparison.calibration.saw_concurrency
    assert any("ever had two requests at once" in text for text in sentences(comparison))


def test_refused_requests_come_again(tmp_path: Path) -> None:
    recording = recorded(tmp_path, policy="round_robin", concurrency=1, max_queue=2)
    refused = sum(one.verdict == "refused" for one in recording.requests)
    assert refused
    again = replay(recording, calibrate(recording), "round_robin")
    assert sum(again.result.refused.values()) == pytest.approx(refused, rel=0.5)
    assert again.result.requests == len(recording.requests)


def test_the_same_twice(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    first, second = (replay(recording, calibrate(recording), "least_work") for _ in range(2))
    assert (first.seconds == second.seconds).all()


# ---------------------------------------------------------------------- what happened meanwhile


def changed(recording: Recording, at: float, *members: FleetMember, **more: object) -> Recording:
    first = recording.fleet[0]
    line = msgspec.structs.replace(first, at=CLOCK_START_SECONDS + at, replicas=members or first.replicas, **more)
    recording.fleet.append(line)
    return recording


def members(**states: str) -> list[FleetMember]:
    return [FleetMember(f"r{place}", states.get(f"r{place}", "ready")) for place in range(len(SPEEDS))]


def sent(recording: Recording, policy: str = "round_robin") -> dict[str, int]:
    return replay(recording, calibrate(recording), policy).result.served


@pytest.mark.parametrize("state", ["unreachable", "draining", "loading", "unloaded", "starting"])
def test_a_replica_out_of_rotation_gets_nothing_until_it_is_back(tmp_path: Path, state: str) -> None:
    usual = sent(recorded(tmp_path, policy="round_robin"))
    recording = changed(recorded(tmp_path, policy="round_robin"), 5.0, *members(r0=state))
    away = sent(recording)
    back = sent(changed(recording, 15.0, *members()))
    assert away["r0"] < 0.3 * usual["r0"] < back["r0"] < 0.9 * usual["r0"]


def test_a_replica_that_is_removed_and_one_that_joins(tmp_path: Path) -> None:
    usual = sent(recorded(tmp_path, policy="round_robin"))
    some = [one for one in members() if one.id != "r0"]
    recording = changed(recorded(tmp_path, policy="round_robin"), 5.0, *some)
    assert sent(recording)["r0"] < 0.3 * usual["r0"]
    assert 0.3 * usual["r0"] < sent(changed(recording, 15.0, *members()))["r0"]


def test_an_ejected_replica_is_the_replays_own_decision(tmp_path: Path) -> None:
    recording = changed(recorded(tmp_path, policy="round_robin"), 5.0, *members(r0="ejected"))
    assert sent(recording) == sent(recorded(tmp_path, policy="round_robin"))


def test_a_policy_that_was_changed_changes_again(tmp_path: Path) -> None:
    recording = changed(recorded(tmp_path, policy="round_robin"), 5.0, policy="least_connections", concurrency=2)
    assert sent(recording) != sent(recorded(tmp_path, policy="round_robin"))


def test_who_left_leaves_again(tmp_path: Path) -> None:

    recording = recorded(tmp_path, policy="round_robin")
    recording.requests = [
        msgspec.structs.replace(one, verdict="abandoned", seconds=1e-4, attempts=()) if n % 2 else one
        for n, one in enumerate(recording.requests)
    ]
    again = replay(recording, calibrate(recording), "round_robin")
    assert len(again.seconds) < 0.55 * len(recording.requests)


# ---------------------------------------------------------------------- what is said


def test_reservations_are_told(tmp_path: Path) -> None:
    servers, rate = KINDS["serial"]
    lines = record(fleet(servers), jobs(600, rate, 0.04, 3), "least_work")  # type: ignore[arg-type]
    kept = [line for n, line in enumerate(lines) if isinstance(line, FleetLine) or n % 3]
    first = next(n for n, line in enumerate(kept) if isinstance(line, DecisionLine))
    kept[first] = msgspec.structs.replace(kept[first], dropped=200)
    path = write(tmp_path / "log", kept)
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    findings = "\n".join(sentences(compare(read_recording(path), [], seeds=1)))
    assert "200 lines were lost when it was recorded" in findings
    assert "that the log does not tell of" in findings
    assert "1 lines could not be read" in findings


def test_the_error_is_stated(tmp_path: Path) -> None:
    comparison: Comparison = compare(recorded(tmp_path), [], seeds=2)
    findings = sentences(comparison)
    assert findings[0].startswith("the replicas behave as if they served one at a time, first come first served")
    assert findings[1].startswith("own error: p99 of least_work predicted ")
    assert "within the error" in findings[1]


@pytest.mark.parametrize("policy", ["nonsense", "ideal", "least_work@x", "least_work+placement"])
def test_policies_that_cannot_be_replayed(tmp_path: Path, policy: str) -> None:
    with pytest.raises(OptionError):
        compare(recorded(tmp_path, seconds=2.0), [policy])


def test_a_log_in_which_nothing_was_served(tmp_path: Path) -> None:
    recording = recorded(tmp_path, seconds=2.0)
    recording.requests = [msgspec.structs.replace(one, status=500) for one in recording.requests]
    with pytest.raises(OptionError, match="nothing to replay"):
        calibrate(recording)


def test_events_are_those_of_the_lifecycle() -> None:
    from steelyard.core.replica import TRANSITIONS, Replica, State
    from steelyard.simulate.replay.fleet import events_to

    for state in State:
        for wanted in State:
            if State.GONE in (state, wanted):
                continue
            now = state
            for event in events_to(Replica("r", state=state), wanted.value):
                assert isinstance(event, Event)
                now = TRANSITIONS[now][event]
            out_of_rotation = wanted not in (State.READY, State.EJECTED)
            assert out_of_rotation == (now not in (State.READY, State.EJECTED)), f"{state} to {wanted}: {now}"


def test_fleet_lines_have_all_that_is_needed() -> None:
    assert fleet_line(["a"], "least_work").replicas == (FleetMember("a", "ready"),)

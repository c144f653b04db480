"""When a model is said to have no place."""

from __future__ import annotations

from steelyard.control.placement.views import ALARM_DELAY_SECONDS, UnplaceableModels
from steelyard.core.placement.planner import LoadDecision, ModelCopy, ModelDemand, ServerState

MIB = 1 << 20
WANTED = {"m": ModelDemand("m", 100 * MIB, 1.0, 1, 1.0, 1.0, 0.1)}
BUSY = ModelCopy("n", 60 * MIB, "resident", 0.0, 2)
FULL = ServerState("s", "gpu", (BUSY,), frozenset("mn"))


def seen(
    *looks: tuple[float, ServerState, dict[str, ModelDemand], list[LoadDecision]], at: float = ALARM_DELAY_SECONDS
) -> list[str]:
    shortages = UnplaceableModels()
    for now, server, demands, loads in looks:
        shortages.update([server], {"gpu": 5 * MIB}, {"gpu": 80 * MIB}, demands, loads, now)
    return [alarm.message for alarm in shortages.alarms(at)]


def test_it_is_said_with_numbers_after_a_while() -> None:
    assert seen((0.0, FULL, WANTED, []), at=ALARM_DELAY_SECONDS - 0.1) == []
    assert seen((0.0, FULL, WANTED, []), (ALARM_DELAY_SECONDS, FULL, WANTED, [])) == [
        "m has no place: it needs 100 MiB; gpu may give out 80 MiB, 5 MiB of it free, busy: n 60 MiB"
    ]


def test_nobody_waits_any_more() -> None:
    assert seen((0.0, FULL, WANTED, []), (ALARM_DELAY_SECONDS, FULL, {}, [])) == []


def test_it_is_on_its_way() -> None:
    assert seen((0.0, FULL, WANTED, []), (ALARM_DELAY_SECONDS, FULL, WANTED, [LoadDecision("m", "s")])) == []
    comes = FULL._replace(copies=(ModelCopy("m", 1, "loading", 0.0, 0),))
    assert seen((0.0, FULL, WANTED, []), (ALARM_DELAY_SECONDS, comes, WANTED, [])) == []


def test_something_else_is_under_way_or_has_failed_there() -> None:
    for server in (FULL._replace(busy=True), FULL._replace(loadable_models=frozenset("n"))):
        assert seen((0.0, server, WANTED, []), (ALARM_DELAY_SECONDS, server, WANTED, [])) == []


def test_pinned_is_wanted_without_a_request() -> None:
    pinned = {"m": WANTED["m"]._replace(waiting=0, pinned=True)}
    assert len(seen((0.0, FULL, pinned, []), (ALARM_DELAY_SECONDS, FULL, pinned, []))) == 1


def test_of_many_models_some_are_named() -> None:
    crowd = FULL._replace(copies=tuple(BUSY._replace(model=f"n{number}") for number in range(5)))
    (what,) = seen((0.0, crowd, WANTED, []))
    assert what.endswith("busy: n0 60 MiB and n1 60 MiB and n2 60 MiB and 2 more")

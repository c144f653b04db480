"""What looks add up to, told as conversations with a scripted replica."""

from __future__ import annotations

import pytest

from steelyard.control.health.probe import CheckResult, ProbeStatus

from .conversations import (
    BROKEN,
    ERROR,
    LIVE,
    LOADED,
    LOST,
    NO_RESPONSE,
    NONSENSE,
    NOT_FOUND,
    NOT_NOW,
    READY,
    REFUSED,
    UNKNOWN,
    WARM_UP,
    Conversation,
    by,
    health,
)


def test_ready_at_the_first_look() -> None:
    talk = Conversation()
    assert talk.sees(READY) == [LOADED]
    assert talk.sees(READY, READY, READY) == []


def test_a_slow_start() -> None:
    talk = Conversation()
    assert talk.sees(REFUSED, REFUSED, NOT_NOW, NOT_NOW, NOT_NOW, READY) == [LOST, LIVE, LOADED]
    assert talk.tracker.restarts.count == 0  # it had not lived before


def test_loading_is_timed() -> None:
    talk = Conversation()
    talk.sees(NOT_NOW)
    since = talk.now
    talk.sees(NOT_NOW, NOT_NOW)
    assert talk.tracker.loading_since == since
    talk.sees(READY)
    assert talk.tracker.loading_since is None


def test_rise_counts_good_looks_in_a_row() -> None:
    talk = Conversation(rise=3)
    assert talk.sees(READY, READY) == [LIVE]
    assert talk.sees(ERROR, READY, READY) == []
    assert talk.sees(READY) == [LOADED]


# ------------------------------------------------------------------ taken out


@pytest.mark.parametrize(("sight", "event"), [(REFUSED, LOST), (NOT_NOW, LIVE), (BROKEN, LOST)])
def test_what_is_certain_takes_it_out_at_once(sight: object, event: str) -> None:
    talk = Conversation(fall=5)
    talk.sees(READY)
    assert talk.sees(sight) == [event]  # type: ignore[arg-type]
    assert not talk.tracker.ready


@pytest.mark.parametrize(("sight", "event"), [(NO_RESPONSE, LOST), (ERROR, LIVE), (NOT_FOUND, LIVE), (NONSENSE, LOST)])
def test_what_is_ambiguous_has_to_be_seen_fall_times_in_a_row(sight: object, event: str) -> None:
    talk = Conversation(fall=3)
    talk.sees(READY)
    assert talk.sees(sight, sight, READY, sight, sight) == []  # type: ignore[arg-type]
    assert talk.sees(sight) == [event]  # type: ignore[arg-type]


def test_different_kinds_of_bad_add_up_and_the_last_says_what_it_is() -> None:
    talk = Conversation(fall=3)
    talk.sees(READY)
    assert talk.sees(ERROR, NONSENSE) == []
    assert talk.sees(NO_RESPONSE) == [LOST]


def test_silence_while_requests_make_progress_is_no_failure() -> None:
    talk = Conversation()
    talk.sees(READY)
    assert talk.sees(*[NO_RESPONSE] * 20, busy=True) == []
    assert talk.tracker.ready
    assert "busy" in talk.tracker.last_result.message
    assert talk.sees(NO_RESPONSE) == [LOST]  # no progress any more


def test_silence_that_was_excused_counts_when_nothing_moves_any_more() -> None:
    talk = Conversation()
    talk.sees(READY)
    assert talk.sees(NO_RESPONSE, busy=True) == []
    assert talk.sees(NO_RESPONSE) == [LOST]
    talk = Conversation()
    talk.sees(READY)
    talk.sees(NO_RESPONSE, busy=True)
    talk.sees(READY)
    assert talk.sees(NO_RESPONSE) == []


def test_progress_excuses_nothing_but_silence() -> None:
    talk = Conversation()
    talk.sees(READY)
    assert talk.sees(ERROR, ERROR, busy=True) == [LIVE]


def test_one_that_is_not_ready_cannot_be_busy() -> None:
    talk = Conversation()
    talk.sees(NOT_NOW)
    assert talk.sees(NO_RESPONSE, NO_RESPONSE, busy=True) == [LOST]


def test_a_look_that_could_not_be_made_changes_nothing() -> None:
    talk = Conversation(fall=1)
    assert talk.sees(UNKNOWN) == []
    talk.sees(READY)
    assert talk.sees(*[UNKNOWN] * 10) == []
    assert talk.tracker.ready
    assert talk.tracker.failures == 0


def test_one_silence_of_a_loading_server_is_not_told_as_a_loss() -> None:
    talk = Conversation()
    assert talk.sees(*[NOT_NOW] * 5, NO_RESPONSE, NOT_NOW, NO_RESPONSE, NOT_NOW) == [
        LIVE
    ]  # it reads its weights and says nothing
    assert talk.sees(NO_RESPONSE, NO_RESPONSE) == [LOST]


def test_the_first_look_is_told_whatever_it_is() -> None:
    assert [Conversation().sees(sight) for sight in (NO_RESPONSE, REFUSED, NONSENSE, BROKEN)] == [[LOST]] * 4
    assert [Conversation().sees(sight) for sight in (ERROR, NOT_FOUND, NOT_NOW)] == [[LIVE]] * 3


# ------------------------------------------------------------------ who it is


def test_another_process_is_a_restart() -> None:
    talk = Conversation()
    talk.sees(by("a"))
    assert talk.sees(by("a"), by("b")) == [LIVE]  # within a minute of being ready: damped
    assert talk.sees(by("b")) == [LOADED]
    assert talk.tracker.restarts.count == 1
    assert talk.tracker.restarts.instance == "b"


def test_another_process_after_a_long_time_is_told_and_ready_in_the_same_look() -> None:
    talk = Conversation()
    talk.sees(by("a"), *[by("a")] * 20)
    assert talk.sees(by("b")) == [LIVE, LOADED]


def test_another_process_that_loads() -> None:
    talk = Conversation()
    talk.sees(by("a"))
    assert talk.sees(by("b", ERROR)) == [LIVE]  # out at once, though an error alone would have been ambiguous
    assert talk.tracker.restarts.count == 1


def test_refused_and_back_is_a_restart_unless_it_says_that_it_is_the_same() -> None:
    talk = Conversation()
    talk.sees(READY, REFUSED, NOT_NOW)
    assert talk.tracker.restarts.count == 1
    talk = Conversation()
    talk.sees(by("a"), REFUSED, by("a"))
    assert talk.tracker.restarts.count == 0


def test_processes_that_take_turns_are_no_restarts_for_ever() -> None:
    talk = Conversation()
    talk.sees(*[by(name) for name in "abcd" * 50])
    assert talk.tracker.restarts.count <= 4
    assert talk.tracker.ready
    assert talk.sees(*[by(name) for name in "abcd" * 50]) == []


# ------------------------------------------------------------------ seen anew, other settings


def test_seen_anew_it_is_told_again() -> None:
    talk = Conversation()
    talk.sees(READY)
    talk.tracker.reprobe(talk.now)
    assert talk.tracker.next_probe_at == talk.now
    assert talk.sees(READY) == [LOADED]


def test_seen_anew_it_is_warmed_up_again_unless_it_is_the_same() -> None:
    for instance, again in (("", True), ("a", False)):
        talk = Conversation(warm_up=WARM_UP)
        talk.sees(by(instance))
        assert talk.tries() == [LOADED]
        talk.tracker.reprobe(talk.now)
        talk.sees(by(instance))
        assert (talk.tracker.check_wanted is not None) is again


def test_other_settings_do_not_disturb_one_that_is_ready() -> None:
    talk = Conversation()
    talk.sees(READY)
    talk.tracker.change(health(), talk.now)
    assert talk.sees(NO_RESPONSE) == []  # `fall` still holds
    assert talk.sees(READY) == [LOADED]  # told again
    assert talk.sees(READY) == []


# ------------------------------------------------------------------ when to look next


def test_a_ready_one_is_looked_at_every_interval() -> None:
    talk = Conversation()
    talk.sees(READY._replace(seconds=0.3))
    assert 1.0 <= talk.pause + 0.3 <= 5.0  # the first time anywhere in it: those who started together part ways
    for _ in range(50):
        talk.sees(READY._replace(seconds=0.3))
        assert 4.5 <= talk.pause + 0.3 <= 5.5


def test_after_a_bad_look_the_next_comes_soon() -> None:
    talk = Conversation(fall=3)
    talk.sees(READY)
    talk.sees(ERROR)
    assert 0.45 <= talk.pause <= 0.55
    talk.sees(NO_RESPONSE)
    assert talk.pause == 0.0  # silence took longer than that already


def test_detection_of_silence_takes_an_interval_and_two_timeouts() -> None:
    for seed in range(50):
        talk = Conversation(seed)
        talk.sees(READY)
        last_good = talk.now
        assert talk.sees(NO_RESPONSE, NO_RESPONSE) == [LOST]
        assert talk.now - last_good <= 1.1 * 5.0 + 2 * 2.0


def test_detection_takes_no_longer_because_it_seemed_busy_at_first() -> None:
    for seed in range(50):
        talk = Conversation(seed)
        talk.sees(READY)
        last_good = talk.now
        assert talk.sees(NO_RESPONSE, busy=True) == []
        assert talk.sees(NO_RESPONSE) == [LOST]
        assert talk.now - last_good <= 2 * 5.0


def test_while_it_loads_looks_come_faster() -> None:
    talk = Conversation()
    for sight in [NOT_NOW] * 300:
        talk.sees(sight)
        assert 0.45 <= talk.pause <= 0.55


def test_one_that_is_gone_for_long_is_looked_for_less_often() -> None:
    talk = Conversation()
    pauses = []
    began = talk.now
    while talk.now < began + 300:
        talk.sees(REFUSED)
        pauses.append((talk.now - began, talk.pause))
    assert all(pause <= 0.55 for at, pause in pauses if at < 60)
    assert all(4.5 <= pause <= 5.5 for at, pause in pauses if at > 130)
    talk.sees(NOT_NOW)
    assert talk.pause <= 0.55


# ------------------------------------------------------------------ damping


def flap(seconds: float, *, up: float, down: float, **settings: float) -> tuple[float, float]:
    """The share of the time for which a flapping replica is in, over the first and the last half."""
    talk = Conversation(**settings)
    began, since, shares = talk.now, None, [0.0, 0.0]
    while talk.now < began + seconds:
        at = max(talk.now, talk.tracker.next_probe_at)
        if talk.tracker.ready:
            shares[at > began + seconds / 2] += at - (since or at)
        since = at
        talk.sees(READY if (at - began) % (up + down) < up else NOT_NOW)
    return shares[0] / seconds * 2, shares[1] / seconds * 2


@pytest.mark.parametrize(("up", "down"), [(0.5, 0.5), (1, 1), (3, 3), (10, 10), (2, 1)])
def test_a_flapping_replica_settles_out(up: float, down: float) -> None:
    _, late = flap(1200, up=up, down=down)
    assert late < 0.1


def test_a_stable_one_is_forgiven() -> None:
    talk = Conversation()
    for _ in range(3):
        talk.sees(*[READY] * talk.tracker.required_successes, NOT_NOW)
    assert talk.tracker.required_successes == 8
    began = talk.now
    while talk.now < began + 70:
        talk.sees(READY)
    assert talk.tracker.required_successes == 4
    while talk.now < began + 300:
        talk.sees(READY)
    assert talk.tracker.required_successes == 1


def test_no_more_than_32_are_asked_for() -> None:
    talk = Conversation()
    for _ in range(20):
        talk.sees(*[READY] * talk.tracker.required_successes, NOT_NOW)
    assert talk.tracker.required_successes == 32
    assert talk.sees(*[READY] * 31) == []
    assert talk.sees(READY) == [LOADED]


def test_a_fall_after_a_stable_minute_costs_nothing() -> None:
    talk = Conversation()
    for _ in range(5):
        talk.sees(*[READY] * 20, NOT_NOW)
        assert talk.tracker.required_successes == 1


def test_a_crash_found_by_others_is_damped_too() -> None:
    talk = Conversation()
    talk.sees(READY)
    talk.tracker.reprobe(talk.now)  # a worker met a refused connection
    talk.sees(REFUSED)
    assert talk.tracker.required_successes == 2
    talk.tracker.reprobe(talk.now)
    talk.sees(REFUSED)
    assert talk.tracker.required_successes == 2  # it was not ready in between


def test_an_undrain_is_not_a_fall() -> None:
    talk = Conversation()
    talk.sees(READY)
    talk.tracker.reprobe(talk.now)
    assert talk.sees(READY) == [LOADED]
    assert talk.tracker.required_successes == 1


def test_verdicts_are_those_of_the_view() -> None:
    assert {kind.value for kind in ProbeStatus} == {
        "ready",
        "loading",
        "not_found",
        "broken",
        "connection_refused",
        "no_response",
        "unknown",
    }


def test_an_outcome_that_nobody_waits_for() -> None:
    talk = Conversation()
    talk.sees(READY)
    assert talk.tries(CheckResult("late")) == []
    assert talk.tracker.ready

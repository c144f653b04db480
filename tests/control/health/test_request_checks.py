"""Warm-ups and inferences, as the tracker wants them."""

from __future__ import annotations

from steelyard.control.health.probe import CheckResult, ProbeStatus
from steelyard.control.health.tracker import RequestCheck
from steelyard.core.request import INFINITY

from .conversations import (
    ERROR,
    INFERENCE,
    LIVE,
    LOADED,
    LOST,
    NO_RESPONSE,
    NOT_NOW,
    READY,
    REFUSED,
    WARM_UP,
    Conversation,
    by,
)


def warm(**settings: object) -> Conversation:
    """One that has been ready for a while."""
    talk = Conversation(warm_up=WARM_UP, **settings)
    talk.sees(READY)
    talk.tries()
    if talk.tracker.check_wanted:
        talk.tries()
    talk.sees(*[READY] * 15)
    return talk


def test_no_loaded_before_the_warm_up() -> None:
    talk = Conversation(warm_up=WARM_UP)
    assert talk.sees(NOT_NOW, READY) == [LIVE]
    assert talk.tracker.check_wanted is RequestCheck.WARM_UP
    assert talk.tracker.next_probe_at == INFINITY
    assert talk.tracker.last_result.status is ProbeStatus.LOADING
    assert talk.tries() == [LOADED]
    assert talk.tracker.check_wanted is None
    assert 1.0 <= talk.pause <= 5.0


def test_a_failed_warm_up_is_tried_again_after_another_look() -> None:
    talk = Conversation(warm_up=WARM_UP)
    talk.sees(READY)
    assert talk.tries(CheckResult("answers 500")) == []
    assert talk.tracker.last_result.message == "answers 500"
    assert 0.45 <= talk.pause <= 0.55
    assert talk.sees(NOT_NOW) == []
    assert talk.tracker.check_wanted is None
    talk.sees(READY)
    assert talk.tracker.check_wanted is RequestCheck.WARM_UP
    assert talk.tries() == [LOADED]


def test_failed_trials_come_slower_and_slower() -> None:
    talk = Conversation(warm_up=WARM_UP)
    pauses = []
    for _ in range(10):
        talk.sees(READY)
        talk.tries(CheckResult("answers 500"))
        pauses.append(talk.pause)
    assert pauses[0] < 0.6 < pauses[1] < 1.2 < pauses[2]
    assert all(4.5 <= pause <= 5.5 for pause in pauses[5:])


def test_a_replica_that_merely_said_no_is_still_warm() -> None:
    talk = warm()
    assert talk.sees(NOT_NOW, READY) == [LIVE, LOADED]


def test_warmed_up_again_after_a_restart_and_after_a_loss() -> None:
    talk = warm()
    assert talk.sees(REFUSED, NOT_NOW, READY) == [LOST, LIVE]
    assert talk.tracker.check_wanted is RequestCheck.WARM_UP
    talk = warm()
    assert talk.sees(NO_RESPONSE, NO_RESPONSE, READY) == [LOST, LIVE]
    assert talk.tracker.check_wanted is RequestCheck.WARM_UP
    assert talk.tracker.restarts.count == 0


def test_not_after_a_loss_if_it_says_that_it_is_the_same() -> None:
    talk = warm()
    talk.sees(by("a"))
    assert talk.sees(NO_RESPONSE, NO_RESPONSE, by("a")) == [LOST, LOADED]


def test_it_restarts_while_it_is_warmed_up() -> None:
    talk = Conversation(warm_up=WARM_UP)
    talk.sees(by("a"))
    assert talk.tries(CheckResult(instance="b")) == []
    assert talk.tracker.restarts.count == 1
    talk.sees(by("b"))
    assert talk.tracker.check_wanted is RequestCheck.WARM_UP
    assert talk.tries(CheckResult(instance="b")) == [LOADED]


def test_what_was_wrong_with_a_warm_up_is_told_though_it_is_ready() -> None:
    talk = Conversation(warm_up=WARM_UP)
    talk.sees(READY)
    talk.now += 1
    (change,) = talk.tracker.check_finished(CheckResult(note="answers 400: check health.warm_up"), talk.now)
    assert "check health.warm_up" in change.reason


def test_the_warm_up_comes_before_the_inference() -> None:
    talk = Conversation(warm_up=WARM_UP, inference=INFERENCE)
    assert talk.sees(READY) == [LIVE]
    assert talk.tracker.check_wanted is RequestCheck.WARM_UP
    assert talk.tries() == []
    assert talk.tracker.check_wanted is RequestCheck.INFERENCE
    assert talk.tracker.next_probe_at == INFINITY
    assert talk.tries() == [LOADED]


def test_an_inference_that_fails_keeps_it_loading() -> None:
    talk = Conversation(inference=INFERENCE)
    assert talk.sees(READY) == [LIVE]
    assert talk.tries(CheckResult("answers 500, not 200")) == []
    assert talk.tracker.last_result.status is ProbeStatus.LOADING
    assert not talk.tracker.ready
    talk.sees(READY)
    assert (
        talk.tries(CheckResult("late", ambiguous=True), busy=True) == []
    )  # not ready: nothing can make progress there
    talk.sees(READY)
    assert talk.tries() == [LOADED]


def proven(**settings: object) -> Conversation:
    talk = Conversation(inference=INFERENCE, **settings)
    talk.sees(READY)
    talk.tries()
    return talk


def until_inference(talk: Conversation) -> list[str]:
    events = []
    while talk.tracker.check_wanted is None:
        events += talk.sees(READY)
    return events


def test_again_every_now_and_then_beside_the_looks() -> None:
    talk = proven()
    began = talk.now
    assert until_inference(talk) == []
    assert 30 <= talk.now - began <= 36
    assert talk.tracker.ready
    assert talk.pause <= 5.5  # looks go on
    assert talk.sees(READY) == []
    assert talk.tries() == []
    assert talk.tracker.failures == 0


def test_with_every_look() -> None:
    talk = Conversation(inference=INFERENCE.__class__(path="/infer", interval=0.0))
    talk.sees(READY)
    talk.tries()
    for _ in range(5):
        talk.sees(READY)
        assert talk.tracker.check_wanted is RequestCheck.INFERENCE
        talk.tries()


def test_a_failing_inference_counts_as_a_bad_look_and_is_repeated_soon() -> None:
    talk = proven()
    until_inference(talk)
    assert talk.tries(CheckResult("answers 500, not 200")) == []
    assert talk.tracker.failures == 1
    assert talk.pause <= 0.55
    assert talk.sees(READY) == []  # a good look does not make up for it
    assert talk.tracker.failures == 1
    assert talk.tracker.check_wanted is RequestCheck.INFERENCE
    assert talk.tries(CheckResult("answers 500, not 200")) == [LIVE]
    assert not talk.tracker.ready
    talk.sees(READY)
    assert talk.tracker.check_wanted is None  # within a minute of being ready: damped, two good looks are needed
    talk.sees(READY)
    assert talk.tracker.check_wanted is RequestCheck.INFERENCE
    assert talk.tries() == [LOADED]


def test_one_that_recovers() -> None:
    talk = proven()
    until_inference(talk)
    talk.tries(CheckResult("answers 500, not 200"))
    talk.sees(READY)
    assert talk.tries() == []
    assert talk.tracker.failures == 0
    assert talk.tracker.ready


def test_an_inference_that_is_late_or_declined_is_no_failure_where_requests_make_progress() -> None:
    talk = proven()
    for _ in range(10):
        until_inference(talk)
        assert talk.tries(CheckResult("no answer in time", ambiguous=True), busy=True) == []
    assert talk.tracker.failures == 0
    until_inference(talk)
    talk.tries(CheckResult("no answer in time", ambiguous=True))
    assert talk.tracker.failures == 1


def test_an_inference_that_could_not_be_sent_says_nothing() -> None:
    talk = proven(fall=1)
    until_inference(talk)
    assert talk.tries(CheckResult("this machine cannot ask", inconclusive=True)) == []
    assert talk.tracker.ready


def test_when_it_falls_meanwhile_the_outcome_is_not_wanted_any_more() -> None:
    talk = proven()
    until_inference(talk)
    assert talk.sees(ERROR, ERROR) == [LIVE]
    assert talk.tracker.check_wanted is None
    assert talk.tries() == []
    talk.sees(READY, READY)
    assert talk.tracker.check_wanted is RequestCheck.INFERENCE  # it has to prove itself again

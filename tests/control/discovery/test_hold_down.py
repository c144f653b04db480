"""What is believed of a source, at given times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import ReplicaConfig
from steelyard.control.discovery.hold_down import HoldDown

from .naming import ids, replica, replicas

HOLD_SECONDS = 60.0


class Driven(HoldDown):
    def sees(self, names: str, now: float) -> str:
        self.poll_succeeded(replicas(names), now, HOLD_SECONDS)
        return ids(self.replicas)


def test_before_the_first_look() -> None:
    hold_down = HoldDown()
    assert (hold_down.replicas, hold_down.problem, hold_down.last_success_at, hold_down.held_back) == ((), "", None, ())


def test_a_first_look_that_fails_says_so() -> None:
    hold_down = HoldDown()
    hold_down.poll_failed("x.yaml: cannot be read")
    assert hold_down.replicas == ()
    assert hold_down.problem == "x.yaml: cannot be read; none are known from before"
    assert hold_down.last_success_at is None


def test_good_news_are_believed_at_once() -> None:
    hold_down = Driven()
    assert hold_down.sees("a", 0) == "a"
    assert hold_down.sees("a b c d e f", 1) == "a b c d e f"
    assert (hold_down.problem, hold_down.last_success_at) == ("", 1)


def test_failing_keeps_the_last_good_and_tells() -> None:
    hold_down = Driven()
    hold_down.sees("a b", 0)
    hold_down.poll_failed("the server said SERVFAIL")
    assert ids(hold_down.replicas) == "a b"
    assert hold_down.problem == "the server said SERVFAIL; the 2 known from before are kept"
    assert hold_down.last_success_at == 0
    assert hold_down.sees("a b", 5) == "a b"
    assert hold_down.problem == ""


def test_nothing_is_never_believed() -> None:
    hold_down = Driven()
    hold_down.sees("a", 0)
    assert hold_down.poll_succeeded((), 1, HOLD_SECONDS) is False
    assert hold_down.poll_succeeded((), 1e9, HOLD_SECONDS, note="10 left out") is False
    assert ids(hold_down.replicas) == "a"
    assert hold_down.problem == "it names no replicas; 10 left out; the 1 known from before are kept"


def test_a_small_loss_is_believed_at_once() -> None:
    hold_down = Driven()
    hold_down.sees("a b c d", 0)
    assert hold_down.sees("a b", 1) == "a b"  # half, not more
    assert hold_down.sees("b", 2) == "b"
    assert (hold_down.held_back, hold_down.problem) == ((), "")


def test_one_of_one_may_be_replaced() -> None:
    hold_down = Driven()
    hold_down.sees("a", 0)
    assert hold_down.sees("b", 1) == "b"


def test_the_sudden_loss_of_more_than_half_is_held_back_and_shown() -> None:
    hold_down = Driven()
    hold_down.sees("a b c", 0)
    assert hold_down.sees("a", 10) == "a b c"
    assert hold_down.held_back == ("b", "c")
    assert hold_down.next_removal_at(HOLD_SECONDS) == 70
    assert "it no longer names 2 of 3 replicas" in hold_down.problem
    assert hold_down.sees("a", 69.9) == "a b c"
    assert hold_down.sees("a", 70) == "a"
    assert (hold_down.held_back, hold_down.problem, hold_down.next_removal_at(HOLD_SECONDS)) == ((), "", None)


def test_if_the_list_recovers_nothing_happened() -> None:
    hold_down = Driven()
    hold_down.sees("a b c", 0)
    hold_down.sees("a", 10)
    assert hold_down.sees("a b c", 30) == "a b c"
    assert (hold_down.held_back, hold_down.problem) == ((), "")
    hold_down.sees("a", 50)
    assert hold_down.sees("a", 100) == "a b c"  # its time began anew


def test_what_recovers_in_part_is_held_back_in_part() -> None:
    hold_down = Driven()
    hold_down.sees("a b c d", 0)
    hold_down.sees("a", 10)
    assert hold_down.sees("a b", 20) == "a b c d"
    assert hold_down.held_back == ("c", "d")
    assert hold_down.sees("a b", 70) == "a b"


def test_new_ones_are_added_at_once_even_then() -> None:
    hold_down = Driven()
    hold_down.sees("a b c", 0)
    assert hold_down.sees("x y", 10) == "a b c x y"
    assert hold_down.held_back == ("a", "b", "c")
    assert hold_down.sees("x y", 70) == "x y"


def test_a_failed_look_interrupts() -> None:
    hold_down = Driven()
    hold_down.sees("a b c", 0)
    hold_down.sees("a", 10)
    hold_down.poll_failed("no answer")
    assert hold_down.held_back == ("b", "c")
    assert hold_down.sees("a", 75) == "a b c"
    assert hold_down.sees("a", 134) == "a b c"
    assert hold_down.sees("a", 135) == "a"


def test_lists_that_name_others_each_time_make_one_of_all_that_were_seen_lately() -> None:
    """As some name servers do that give eight of a hundred."""
    hold_down = Driven()
    hold_down.sees("a b", 0)
    hold_down.sees("c d", 20)
    hold_down.sees("e f", 40)
    assert hold_down.sees("a b", 60) == "a b c d e f"
    assert hold_down.sees("e f", 80) == "a b c d e f"  # c and d were last seen at 20 and first missed at 40
    assert hold_down.sees("e f", 100) == "a b e f"


def test_another_name_for_the_same_url_is_no_loss() -> None:
    hold_down = HoldDown()
    hold_down.poll_succeeded([ReplicaConfig(url="http://h:1"), ReplicaConfig(url="http://h:2")], 0, HOLD_SECONDS)
    hold_down.poll_succeeded(
        [ReplicaConfig(url="http://h:1", id="one"), ReplicaConfig(url="http://h:2", id="two")], 1, HOLD_SECONDS
    )
    assert ids(hold_down.replicas) == "one two"


def test_what_is_said_of_a_replica_is_the_latest() -> None:
    hold_down = HoldDown()
    hold_down.poll_succeeded([replica("a")], 0, HOLD_SECONDS)
    hold_down.poll_succeeded([replica("a", weight=3.0)], 1, HOLD_SECONDS)
    assert hold_down.replicas[0].weight == 3.0


def test_without_holding_back() -> None:
    hold_down = HoldDown()
    hold_down.poll_succeeded(replicas("a b c"), 0, 0.0)
    hold_down.poll_succeeded(replicas("a"), 1, 0.0)
    assert ids(hold_down.replicas) == "a"


def test_a_note_is_a_problem_but_no_failure() -> None:
    hold_down = HoldDown()
    assert hold_down.poll_succeeded(replicas("a"), 0, HOLD_SECONDS, "169.254.1.1 is not taken")
    assert (hold_down.problem, hold_down.last_success_at) == ("169.254.1.1 is not taken", 0)


# ---------------------------------------------------------------------- whatever happens

LOOKS = st.lists(
    st.tuples(st.floats(0, 50), st.none() | st.frozensets(st.sampled_from("abcdefgh"))), min_size=1, max_size=40
)


@given(LOOKS, st.floats(0, 100))
def test_whatever_a_source_says(looks: list[tuple[float, frozenset[str] | None]], hold: float) -> None:
    hold_down = HoldDown()
    now = 0.0
    absent_since: dict[str, float] = {}  # by good looks without a failure between
    for wait, names in looks:
        now += wait
        before = {one.name for one in hold_down.replicas}
        if not names:
            hold_down.poll_failed("no") if names is None else hold_down.poll_succeeded((), now, hold)
            assert {one.name for one in hold_down.replicas} == before
            assert hold_down.problem
            absent_since.clear()
            continue
        hold_down.poll_succeeded(replicas(sorted(names)), now, hold)
        after = {one.name for one in hold_down.replicas}
        absent_since = {name: absent_since.get(name, now) for name in before - names}
        assert names <= after <= names | before
        assert after - names == set(hold_down.held_back)
        assert bool(hold_down.problem) == bool(hold_down.held_back)
        lost = before - after
        if len(before) >= 2 and 2 * len(before - names) > len(before):
            assert all(now - absent_since[name] >= hold for name in lost)
        assert all(now - absent_since[name] < hold for name in hold_down.held_back)


@given(LOOKS, st.frozensets(st.sampled_from("abcdefgh"), min_size=1))
def test_a_source_that_keeps_saying_the_same_is_believed_in_the_end(
    looks: list[tuple[float, frozenset[str] | None]], last: frozenset[str]
) -> None:
    hold_down = HoldDown()
    now = 0.0
    for wait, names in looks:
        now += wait
        hold_down.poll_succeeded(
            replicas(sorted(names)), now, HOLD_SECONDS
        ) if names is not None else hold_down.poll_failed("no")
    for seconds in (0.0, HOLD_SECONDS / 2, HOLD_SECONDS + 1):
        hold_down.poll_succeeded(replicas(sorted(last)), now + seconds, HOLD_SECONDS)
    assert {one.name for one in hold_down.replicas} == last
    assert hold_down.problem == ""

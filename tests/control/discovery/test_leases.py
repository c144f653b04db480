"""Leases, at given times."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from steelyard.control.discovery.leases import LeaseChange, ReplicaLeases, TooManyLeasesError
from steelyard.core.errors import OptionError

from .naming import replica

A, B = replica("a"), replica("b")
KEY = ("m", "a")


def test_new_then_renewed() -> None:
    leases = ReplicaLeases()
    assert leases.announce("m", A, 30, "i1", now=0) is LeaseChange.NEW
    assert leases.seconds_left(KEY, 10) == 20
    assert leases.announce("m", A, 30, "i1", now=20) is LeaseChange.RENEWED
    assert leases.next_expiry() == 50
    assert leases.expired(49) == []
    assert [lease.replica for lease in leases.replicas("m")] == [A]
    assert leases.replicas("other") == ()


def test_a_lease_that_is_not_renewed_lapses_and_is_told_once() -> None:
    leases = ReplicaLeases()
    leases.announce("m", A, 30, "i1", now=0)
    leases.announce("m", B, 60, "i2", now=0)
    assert leases.expired(30) == [KEY]
    assert leases.expired(30) == []
    assert [(lease.key[1], lease.lapsed) for lease in leases.replicas("m")] == [("a", True), ("b", False)]
    assert leases.seconds_left(KEY, 30) == 0
    assert leases.next_expiry() == 60
    leases.forget(KEY)
    assert [lease.replica for lease in leases.replicas("m")] == [B]
    assert leases.seconds_left(KEY, 31) is None
    leases.forget(KEY)
    assert len(leases) == 1


def test_renewed_before_it_is_forgotten_it_is_back() -> None:
    leases = ReplicaLeases()
    leases.announce("m", A, 30, "i1", now=0)
    leases.expired(31)
    assert leases.announce("m", A, 30, "i1", now=32) is LeaseChange.RETURNED
    assert not leases.replicas("m")[0].lapsed
    assert leases.expired(62) == [KEY]


def test_renewed_late_but_before_anybody_looked() -> None:
    leases = ReplicaLeases()
    leases.announce("m", A, 30, "i1", now=0)
    assert leases.announce("m", A, 30, "i1", now=40) is LeaseChange.RENEWED
    assert leases.expired(50) == []


def test_another_instance_is_a_restart() -> None:
    leases = ReplicaLeases()
    leases.announce("m", A, 30, "i1", now=0)
    assert leases.announce("m", A, 30, "i2", now=1) is LeaseChange.RESTARTED
    leases.expired(100)
    assert leases.announce("m", replica("a", weight=2.0), 30, "i3", now=101) is LeaseChange.RESTARTED
    assert len(leases) == 1


def test_another_weight_is_a_change() -> None:
    leases = ReplicaLeases()
    leases.announce("m", A, 30, "i1", now=0)
    assert leases.announce("m", replica("a", weight=2.0), 30, "i1", now=1) is LeaseChange.CHANGED
    assert leases.replicas("m")[0].replica.weight == 2.0


def test_who_leaves_is_drained_and_not_told_as_expired() -> None:
    leases = ReplicaLeases()
    leases.announce("m", A, 30, "i1", now=0)
    assert leases.withdraw("m", "a", "i1")
    assert leases.replicas("m")[0].lapsed
    assert leases.next_expiry() is None
    assert leases.expired(100) == []
    assert leases.announce("m", A, 30, "i1", now=101) is LeaseChange.RETURNED


def test_the_old_instance_does_not_take_the_new_one_with_it() -> None:
    leases = ReplicaLeases()
    leases.announce("m", A, 30, "old", now=0)
    leases.announce("m", A, 30, "new", now=1)
    assert not leases.withdraw("m", "a", "old")
    assert not leases.replicas("m")[0].lapsed
    assert leases.withdraw("m", "a", "")  # whichever it is
    assert not leases.withdraw("m", "b", "new")
    assert not leases.withdraw("n", "a", "new")


def test_the_same_id_in_two_models_is_two() -> None:
    leases = ReplicaLeases()
    leases.announce("m", A, 30, "i", now=0)
    leases.announce("n", A, 20, "i", now=0)
    assert {lease.model for lease in leases} == {"m", "n"}
    assert leases.expired(25) == [("n", "a")]
    leases.forget(("n", "a"))
    assert {lease.model for lease in leases} == {"m"}


def test_no_more_than_so_many() -> None:
    leases = ReplicaLeases(most=2)
    leases.announce("m", A, 30, "i", now=0)
    leases.announce("m", B, 30, "i", now=0)
    with pytest.raises(TooManyLeasesError, match="2 registered replicas already"):
        leases.announce("m", replica("c"), 30, "i", now=0)
    assert leases.announce("m", B, 30, "i", now=1) is LeaseChange.RENEWED
    leases.forget(KEY)
    assert leases.announce("m", replica("c"), 30, "i", now=2) is LeaseChange.NEW


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_impossible_times(seconds: float) -> None:
    leases = ReplicaLeases()
    with pytest.raises(OptionError, match="more than 0 seconds"):
        leases.announce("m", A, seconds, "i", now=0)
    assert len(leases) == 0


def test_renewing_for_ever_fills_no_memory() -> None:
    leases = ReplicaLeases()
    for now in range(10_000):
        leases.announce("m", A, 30, "i", now=now)
    assert len(leases.expirations) <= 102


class Against(RuleBasedStateMachine):
    """The heap against a plain search."""

    names = st.sampled_from("abc")
    models = st.sampled_from("mn")

    def __init__(self) -> None:
        super().__init__()
        self.leases = ReplicaLeases()
        self.now = 0.0
        self.lapsed: set[tuple[str, str]] = set()

    @rule(model=models, name=names, seconds=st.floats(1, 100), instance=st.sampled_from("12"))
    def announce(self, model: str, name: str, seconds: float, instance: str) -> None:
        before = self.leases.lease((model, name))
        news = self.leases.announce(model, replica(name), seconds, instance, self.now)
        assert (news is LeaseChange.NEW) == (before is None)
        assert (news is LeaseChange.RESTARTED) == (before is not None and before.instance != instance)
        self.lapsed.discard((model, name))

    @rule(model=models, name=names, instance=st.sampled_from(["", "1", "2"]))
    def withdraw(self, model: str, name: str, instance: str) -> None:
        if self.leases.withdraw(model, name, instance):
            self.lapsed.add((model, name))

    @rule(model=models, name=names)
    def forget(self, model: str, name: str) -> None:
        self.leases.forget((model, name))

    @rule(seconds=st.floats(0, 50))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        due = {lease.key for lease in self.leases if lease.until <= self.now and not lease.lapsed}
        expired = self.leases.expired(self.now)
        assert set(expired) == due
        assert len(expired) == len(due)
        self.lapsed |= due

    @invariant()
    def counts(self) -> None:
        everything = list(self.leases)
        assert len(everything) == len(self.leases)
        assert {lease.key for lease in everything if lease.lapsed} <= self.lapsed
        ends = [lease.until for lease in everything if not lease.lapsed]
        assert self.leases.next_expiry() == (min(ends) if ends else None)


TestAgainst = Against.TestCase

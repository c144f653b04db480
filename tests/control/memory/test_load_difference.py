"""What a model holds, by what more is in use since it came."""

from __future__ import annotations

from steelyard.control.memory.footprint import MAX_COMPARISON_SECONDS, LoadDifference


def test_a_load() -> None:
    difference = LoadDifference()
    assert difference.sample(100, True, 1.0) is None
    difference.loading()
    assert difference.sample(130, True, 2.0) is None
    difference.loaded(3.0)
    assert difference.sample(140, True, 2.9) is None, "it began before it was ready"
    assert difference.sample(150, True, 3.1) == 50
    assert difference.sample(180, True, 4.0) is None, "once for each load"


def test_the_least_before_unless_it_was_announced() -> None:
    silently, announced = LoadDifference(), LoadDifference()
    for used in (100, 140):
        silently.sample(used, True, 1.0)
        announced.sample(used, True, 1.0, announced=True)
    silently.loaded(2.0)
    announced.loaded(2.0)
    assert silently.sample(150, True, 3.0) == 50
    assert announced.sample(150, True, 3.0) == 10


def test_nothing_is_known_of_before() -> None:
    difference = LoadDifference()
    difference.sample(100, False, 1.0)
    difference.loaded(2.0)
    assert difference.sample(150, True, 3.0) is None


def test_a_neighbour_came_meanwhile() -> None:
    difference = LoadDifference()
    difference.sample(100, True, 1.0)
    difference.loading()
    difference.other_replicas_changed(1)
    difference.loaded(2.0)
    assert difference.sample(150, True, 3.0) is None


def test_requests_came_at_once() -> None:
    difference = LoadDifference()
    difference.sample(100, True, 1.0)
    difference.loaded(2.0)
    assert difference.sample(190, False, 3.0) is None
    assert difference.sample(170, True, 4.0) == 70
    assert not difference.clean


def test_it_is_never_idle() -> None:
    difference = LoadDifference()
    difference.sample(100, True, 1.0)
    difference.loaded(2.0)
    assert difference.sample(190, False, 3.0 + MAX_COMPARISON_SECONDS) is None
    assert difference.sample(170, True, 4.0 + MAX_COMPARISON_SECONDS) is None


def test_it_goes_and_comes_again() -> None:
    difference = LoadDifference()
    for _ in range(2):
        difference.unloaded()
        difference.sample(100, True, 1.0)
        difference.loaded(2.0)
        assert difference.sample(150, True, 3.0) == 50

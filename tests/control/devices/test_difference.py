"""What a model holds, by what more is in use since it came."""

from __future__ import annotations

from steelyard.control.devices.difference import PATIENCE, Difference


def test_a_load() -> None:
    difference = Difference()
    assert difference.look(100, True, 1.0) is None
    difference.coming()
    assert difference.look(130, True, 2.0) is None
    difference.here(3.0)
    assert difference.look(140, True, 2.9) is None, "it began before it was ready"
    assert difference.look(150, True, 3.1) == 50
    assert difference.look(180, True, 4.0) is None, "once for each load"


def test_the_least_before_unless_it_was_announced() -> None:
    silently, announced = Difference(), Difference()
    for used in (100, 140):
        silently.look(used, True, 1.0)
        announced.look(used, True, 1.0, announced=True)
    silently.here(2.0)
    announced.here(2.0)
    assert silently.look(150, True, 3.0) == 50
    assert announced.look(150, True, 3.0) == 10


def test_nothing_is_known_of_before() -> None:
    difference = Difference()
    difference.look(100, False, 1.0)
    difference.here(2.0)
    assert difference.look(150, True, 3.0) is None


def test_a_neighbour_came_meanwhile() -> None:
    difference = Difference()
    difference.look(100, True, 1.0)
    difference.coming()
    difference.beside(1)
    difference.here(2.0)
    assert difference.look(150, True, 3.0) is None


def test_requests_came_at_once() -> None:
    difference = Difference()
    difference.look(100, True, 1.0)
    difference.here(2.0)
    assert difference.look(190, False, 3.0) is None
    assert difference.look(170, True, 4.0) == 70
    assert not difference.clean


def test_it_is_never_idle() -> None:
    difference = Difference()
    difference.look(100, True, 1.0)
    difference.here(2.0)
    assert difference.look(190, False, 3.0 + PATIENCE) is None
    assert difference.look(170, True, 4.0 + PATIENCE) is None


def test_it_goes_and_comes_again() -> None:
    difference = Difference()
    for _ in range(2):
        difference.away()
        difference.look(100, True, 1.0)
        difference.here(2.0)
        assert difference.look(150, True, 3.0) == 50

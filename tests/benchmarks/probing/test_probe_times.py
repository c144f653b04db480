"""How probes are spread over time and replicas."""

from __future__ import annotations

import pytest
from benchmarks.scores.probe_spread import spread


def test_of_evenly_spread_probes_nothing_stands_out() -> None:
    probes = [(n * 0.25 + 0.01, f"r{n % 4}") for n in range(40)]
    found = spread(probes, 0.0, 10.0)
    assert found.rate == 4.0
    assert found.replicas == 4
    assert [found.shortest, found.usual, found.longest] == pytest.approx([1.0] * 3)
    assert found.busiest == 1


def test_bursts_and_long_silences_show() -> None:
    probes = [(5.0, "a"), (5.01, "b"), (5.02, "c"), (6.0, "a"), (9.0, "a")]
    found = spread(probes[::-1], 4.0, 10.0)
    assert found.busiest == 3
    assert (found.shortest, found.longest) == (1.0, 3.0)


def test_what_lies_outside_does_not_count() -> None:
    found = spread([(1.0, "a"), (5.0, "b"), (10.0, "c")], 4.0, 10.0)
    assert found.replicas == 1
    assert spread([], 0.0, 1.0).rate == 0.0

"""A balancer with the engine behind it, for what a user cannot see: waiters left behind, a core that raises."""

from __future__ import annotations

from typing import Any

import pytest

from steelyard import LoadBalancer
from steelyard.library.engine import Engine


def with_engine(*args: Any, **more: Any) -> tuple[LoadBalancer, Engine]:
    made: list[Engine] = []

    def make(*args: Any, **more: Any) -> Engine:
        made.append(Engine(*args, **more))
        return made[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("steelyard.library.balancer.Engine", make)
        lb = LoadBalancer(*args, **more)
    return lb, made[0]

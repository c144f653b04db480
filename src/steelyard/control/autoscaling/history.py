"""The latest changes of a model's number of replicas, with reasons."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ..observability.views import ScalingStepView

MAX_STEPS = 200


@dataclass(frozen=True, slots=True)
class ScalingStep:
    when: float
    before: int
    after: int
    why: str
    offered: float = 0.0
    lately: float = 0.0
    forecast: float = 0.0
    p99: float = 0.0
    carried_out: bool = True


class ScalingHistory:
    def __init__(self) -> None:
        self._steps: deque[ScalingStep] = deque(maxlen=MAX_STEPS)

    def add(self, step: ScalingStep) -> None:
        self._steps.append(step)

    def views(self, now: float) -> tuple[ScalingStepView, ...]:
        """Oldest first."""
        return tuple(
            ScalingStepView(
                age=max(0.0, now - step.when),
                before=step.before,
                after=step.after,
                why=step.why,
                offered_load=step.offered,
                recent_load=step.lately,
                forecast_load=step.forecast,
                p99=step.p99,
                carried_out=step.carried_out,
            )
            for step in self._steps
        )

"""How long each model takes to load: what the configuration says, until it was measured."""

from __future__ import annotations

RISE_WEIGHT, FALL_WEIGHT = (
    0.7,
    0.2,
)  # of a difference is believed at once: to hope for too much is worse than to fear too much


class LoadTimes:
    def __init__(self) -> None:
        self._measured: dict[str, float] = {}

    def seconds(self, model: str, configured: float) -> float:
        return self._measured.get(model, configured)

    def is_measured(self, model: str) -> bool:
        return model in self._measured

    def learn(self, model: str, seconds: float) -> None:
        before = self._measured.get(model, seconds)
        self._measured[model] = before + (RISE_WEIGHT if seconds > before else FALL_WEIGHT) * (seconds - before)

    def keep(self, models: set[str]) -> None:
        """Forget all others."""
        self._measured = {model: seconds for model, seconds in self._measured.items() if model in models}

"""What all models share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...config import Autoscale, Config
from ...runtimes import Runtime
from ..placing.load_times import LoadTimes
from .errands import Errands
from .hands import StartingHands
from .ids import Ids

NO_AUTOSCALE = Autoscale()


@dataclass(slots=True)
class Tools:
    config: Config
    hands: StartingHands
    runtimes: Mapping[str, Runtime]
    clock: Callable[[], float]
    errands: Errands
    rooms: Callable[[], Mapping[str, int]]  # bytes free on devices, without those that are promised already
    ours: Callable[[], Mapping[str, int]]  # started replicas on devices
    times: LoadTimes
    ids: Ids
    resting: bool = False  # nothing is started any more
    ending: bool = False  # nor is anybody told who is there
    sparing: bool = False  # what was adopted is left alone: workers of the last supervisor still send requests there

    def listed(self, model: str) -> set[str]:
        """Names of the replicas that the configuration has itself."""
        return (
            {replica.name for replica in self.config.models[model].replicas} if model in self.config.models else set()
        )

    def declared(self, model: str) -> int:
        """Bytes that a replica holds, as configured."""
        return self.config.models[model].memory.footprint if model in self.config.models else 0

    def gpu(self, device: str) -> str:
        return self.config.devices[device].gpu if device in self.config.devices else ""

    def price(self, model: str, device: str) -> float:
        """Of an hour."""
        place = self.config.devices.get(device)
        return place.cost if place is not None and place.cost else self._autoscale(model).cost

    def cold_start(self, model: str) -> tuple[float, bool]:
        """Seconds, and whether that was measured."""
        configured = float(self._autoscale(model).cold_start)
        return self.times.of(model, configured), self.times.is_measured(model)

    def _autoscale(self, model: str) -> Autoscale:
        config = self.config.models.get(model)
        return config.autoscale if config is not None and config.autoscale is not None else NO_AUTOSCALE

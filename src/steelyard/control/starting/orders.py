"""What a new replica of a model is to be: its name, its device, its number."""

from __future__ import annotations

from collections.abc import Mapping

from ...config import Runtime
from ...runtimes import Instance, Order, Phase, fingerprint
from .ids import smallest_free
from .rooms import device_for
from .started import Started
from .tools import Tools

SEEN = 1.0  # seconds until a replica that serves already is seen ready again


class Orders:
    def __init__(self, model: str, tools: Tools) -> None:
        self._model = model
        self._tools = tools
        self._size = 0  # bytes, as the accounts said

    def new(self, settings: Runtime, others: Mapping[str, Started], now: float) -> tuple[Started, Order]:
        """NoRoomError: there is no device for it."""
        tools, model = self._tools, self._model
        device = device_for(self.footprint(), settings.devices, tools.rooms(), tools.ours())
        id = tools.ids.next(model, {*tools.listed(model), *tools.hands.worths(model), *others})
        instance = Instance(model, id, "", device, fingerprint(settings), Phase.STARTING, 0.0)
        replica = Started(instance, tools.runtimes[settings.kind], _free_number(others), now)
        replica.expected = now + tools.cold_start(model)[0]
        return replica, Order(model, id, settings, device, tools.gpu(device), replica.number)

    def found(self, instance: Instance, kind: str, others: Mapping[str, Started], now: float) -> Started:
        """It runs already."""
        replica = Started(instance, self._tools.runtimes[kind], _free_number(others), now, adopted=True)
        replica.expected = now + SEEN
        self._tools.ids.used(self._model, instance.id)
        return replica

    def misplaced(self, settings: Runtime, device: str) -> bool:
        """Could none be started where it is any more?"""
        gone = device != "" and device not in self._tools.config.devices
        return gone or (bool(settings.devices) and device not in settings.devices)

    def footprint(self) -> int:
        """Bytes. The accounts forget what they learned of a model that has no replica."""
        self._size = self._tools.hands.room.footprint(self._model) or self._size
        return self._size or self._tools.declared(self._model)


def _free_number(others: Mapping[str, Started]) -> int:
    return smallest_free(replica.number for replica in others.values())

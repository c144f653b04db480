"""Accounts with a shared ledger of their own, and what they tell and note."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from steelyard.config import Config, parse_config
from steelyard.control.fleet.active_config import LedgerColumns
from steelyard.control.memory import MemoryAccounting
from steelyard.control.memory.meters.poller import MeterPoller
from steelyard.core.replica import State
from steelyard.link.messages import Apply, OutOfMemory, WorkerReport
from steelyard.link.shared_ledger import SharedLedger

from ..fake_fleet import FakeFleet

MIB = 1 << 20
GIB = 1 << 30
ON_DEMAND = "placement: {load_api: agent}"
LOADING, READY, UNREACHABLE, UNLOADED = State.LOADING, State.READY, State.UNREACHABLE, State.UNLOADED


class Made:
    """`devices` and `models` are YAML in flow style."""

    def __init__(self, devices: str, models: str, meters: MeterPoller | None = None) -> None:
        self.shared_ledger = SharedLedger.create(64, rows=8, devices=8)
        self.fleet = FakeFleet(lambda: 0.0)
        self.sent, self.notes = self.fleet.sent, self.fleet.notes
        self.accounts = MemoryAccounting(self.fleet, self.shared_ledger, meters=meters or MeterPoller(start=at_once))
        self._columns = LedgerColumns(64)
        self.numbers: dict[str, int] = {}
        self.follow(devices, models)

    def follow(self, devices: str, models: str, now: float = 0.0) -> None:
        self.config: Config = parse_config(f"devices: {devices}\nmodels: {models}")
        named = {name: [r.name for r in model.replicas] for name, model in self.config.models.items()}
        self._columns = self._columns.assign(named)
        free = iter(number for number in range(8) if number not in self.numbers.values())
        self.numbers = {
            name: self.numbers[name] if name in self.numbers else next(free) for name in self.config.devices
        }
        self.accounts.members_changed(Apply(1, self.config, self._columns.table, self.numbers), now)

    def column(self, model: str, id: str = "a") -> int:
        return self._columns.table[model][id]

    def base(self, model: str, id: str = "a") -> int:
        return self.shared_ledger.base[self.column(model, id)]

    def heard(self, kind: type[Any]) -> list[Any]:
        """What workers were told of this kind since this was last asked."""
        found = [message for message in self.sent if isinstance(message, kind)]
        self.sent[:] = [message for message in self.sent if not isinstance(message, kind)]
        return found

    def codes(self, now: float) -> dict[str, str]:
        return {alarm.code: alarm.message for alarm in self.accounts.alarms(now)}

    def device(self, now: float = 0.0, name: str = "d") -> Any:
        devices, _ = self.accounts.views(now)
        return next(view for view in devices if view.device == name)

    def sizes(self, model: str) -> Any:
        _, sizes = self.accounts.views(0.0)
        return next(view for view in sizes if view.model == model)


@contextmanager
def made(devices: str, models: str, meters: MeterPoller | None = None) -> Iterator[Made]:
    making = Made(devices, models, meters)
    try:
        yield making
    finally:
        making.shared_ledger.close()


def at_once(work: Callable[[], None]) -> None:
    """Instead of a thread."""
    work()


def model(port: int = 1, device: str = "d", more: str = "", id: str = "a") -> str:
    return f"{{replicas: [{{id: {id}, url: 'http://h:{port}', device: {device}}}]{', ' + more if more else ''}}}"


def report(**parts: Any) -> WorkerReport:
    return WorkerReport(0, (), **{"replicas": (), **parts})


def ran_out(model: str = "m", bytes: int = 100, available: int = 200, size: float = 10.0) -> OutOfMemory:
    return OutOfMemory(model, "a", "infer", (size, 0.0, 0.0), bytes, available, "reported")

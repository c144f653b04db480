"""Views and alarms of devices and of what models need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...core.memory.ledger import LedgerCells, MemoryLedger
from ...core.request import INFINITY
from ...link.messages import Quarantine
from ...units import format_seconds, format_size
from ..fleet.registry import ReplicaKey
from ..observability.views import Alarm, DeviceView, ModelMemoryView, QuarantineView, ResidentModelView, ServerView
from .device_replicas import DeviceReplica, DeviceReplicas, held_bytes, idle_bytes, reserved_bytes
from .model_sizing import ModelSizing
from .monitored_device import REPORT_TTL_SECONDS, MonitoredDevice

OUT_OF_MEMORY_ALARM_SECONDS = 600.0  # after the last
AlarmKey = tuple[str, str]  # its stable code and its subject


class ActiveAlarms:
    """Those in force, and since when."""

    def __init__(self) -> None:
        self._known: dict[AlarmKey, tuple[float, str]] = {}

    def update(self, found: Mapping[AlarmKey, str], now: float) -> None:
        self._known = {key: (self._known.get(key, (now,))[0], what) for key, what in found.items()}

    def in_force(self, now: float) -> list[Alarm]:
        return [
            Alarm(code=code, message=what, age=max(0.0, now - since), subject=subject)
            for (code, subject), (since, what) in self._known.items()
        ]


def find_alarms(
    devices: Iterable[MonitoredDevice],
    ledger: MemoryLedger,
    holders: DeviceReplicas,
    sizings: Mapping[str, ModelSizing],
    now: float,
) -> dict[AlarmKey, str]:
    found: dict[AlarmKey, str] = {}
    for watched in devices:
        found.update(_device_alarms(watched, ledger, now))
        found.update(_unmeasured_alarms(watched, holders, sizings))
    return found


def _device_alarms(watched: MonitoredDevice, ledger: MemoryLedger, now: float) -> Iterator[tuple[AlarmKey, str]]:
    name = watched.name
    if watched.problem:
        yield ("memory_meter_failed", name), f"{name}: {watched.problem}"
    if not watched.capacity:
        what = "how much memory it has is not known, so nothing is counted and requests are let through; "
        yield ("memory_unknown", name), f"{name}: {what}set devices.{name}.memory if it cannot be measured"
    elif (over := _overcommitted_bytes(watched, ledger)) > 0:
        yield ("memory_over_budget", name), _describe_overcommit(watched, over)
    if watched.settings.memory and watched.measured and watched.measured < watched.settings.memory:
        has, said = format_size(watched.measured), format_size(watched.settings.memory)
        yield ("memory_capacity_mismatch", name), f"{name}: it has {has}, not {said} as devices.{name}.memory says"
    if now - watched.last_ran_out <= OUT_OF_MEMORY_ALARM_SECONDS:
        ago = format_seconds(now - watched.last_ran_out)
        what = f"{name}: requests ran out of memory, {watched.ran_out} in all, the last {ago} ago"
        yield ("out_of_memory", name), what


def is_over(watched: MonitoredDevice, ledger: MemoryLedger, now: float) -> bool:
    """Is more in use than may be given out? As measured just now, else by the ledger."""
    if not watched.capacity:
        return False
    if watched.used is not None and now - watched.looked <= REPORT_TTL_SECONDS:
        return watched.used - watched.unconfigured_bytes > watched.device.budget
    return _overcommitted_bytes(watched, ledger) > 0


def _overcommitted_bytes(watched: MonitoredDevice, ledger: MemoryLedger) -> int:
    device, cells = watched.device, ledger.cells
    models = sum(idle_bytes(server, cells) for server in device.servers.values())
    return models + cells.external[device.index] - device.budget


def _describe_overcommit(watched: MonitoredDevice, over: int) -> str:
    device, other = watched.device, watched.external_usage
    models = f"its models hold {format_size(device.budget + over - other)}"
    others = f" and others use {format_size(other)}" if other else ""
    less = f"{format_size(device.capacity)} less {device.headroom:.0%}"
    budget = f"{format_size(device.budget)} may be given out ({less})"
    return f"{watched.name}: {models}{others}, but only {budget}: no request has room there"


def _unmeasured_alarms(
    watched: MonitoredDevice, holders: DeviceReplicas, sizings: Mapping[str, ModelSizing]
) -> Iterator[tuple[AlarmKey, str]]:
    """A model alone on its device harms no other."""
    models = {holder.model for holder in holders.on(watched.device)}
    for model in sorted(models) if len(models) > 1 else ():
        if sizings[model].unmeasured:
            yield (
                ("memory_unmeasured", f"{model} on {watched.name}"),
                f"{model}: its answers do not say what a request needs of {watched.name}, so its requests count as "
                f"nothing there: use steelyard.replica in its server, or set models.{model}.memory.per_request",
            )


def device_view(
    watched: MonitoredDevice,
    ledger: MemoryLedger,
    holders: DeviceReplicas,
    in_flight: Mapping[ReplicaKey, int],
    quarantines: Iterable[Quarantine],
    now: float,
) -> DeviceView:
    device, cells = watched.device, ledger.cells
    servers = (
        ServerView(
            server=server.name,
            reserved=reserved_bytes(server, cells),
            measured=held_bytes(server, cells) or None,
            models=tuple(_resident(holder, cells, in_flight) for holder in holders.at(server)),
        )
        for server in device.servers.values()
    )
    return DeviceView(
        device=device.name,
        capacity=watched.capacity or None,
        source=watched.source,
        headroom=device.headroom,
        budget=device.budget,
        reserved=ledger.reserved(device),
        committed=ledger.used(device),
        external_usage=cells.external[device.index],
        measured=watched.used,
        age=None if watched.used is None else max(0.0, now - watched.looked),
        requests=cells.count(device.index),
        concurrency=None if device.concurrency == INFINITY else int(device.concurrency),
        out_of_memory_errors=watched.ran_out,
        servers=tuple(servers),
        quarantines=tuple(
            QuarantineView(model=q.model, bytes=q.bytes, seconds=q.seconds)
            for q in quarantines
            if q.device == device.name
        ),
    )


def _resident(holder: DeviceReplica, cells: LedgerCells, in_flight: Mapping[ReplicaKey, int]) -> ResidentModelView:
    column = holder.place.column
    return ResidentModelView(
        model=holder.model,
        replica=holder.key[1],
        state=holder.state.value,
        base=cells.base[column],
        running=cells.running(column),
        in_flight=in_flight.get(holder.key, 0),
        pinned=holder.place.permanent,
    )


def sizes_view(sizing: ModelSizing) -> ModelMemoryView:
    smallest, largest = sizing.range()
    return ModelMemoryView(
        model=sizing.model,
        footprint=sizing.footprint.value,
        footprint_source=sizing.footprint.source,
        requests_source=sizing.source,
        samples=sizing.requests.samples,
        smallest=smallest,
        largest=largest,
    )

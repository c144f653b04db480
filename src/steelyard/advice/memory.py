"""Warnings about devices, and about models that share them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..addresses import replica_address
from ..config import Config, DeviceConfig, MemoryConfig, ModelConfig
from ..documents import Key
from ..protocols import find_dialect
from ..units import format_size
from .models import Findings

MIN_HEADROOM = 0.02  # for contexts and fragments
PREALLOCATING_DIALECTS = ("vllm", "sglang", "tgi")  # a request takes nothing more


def never_fits(config: Config) -> Findings:
    """a model that does not fit on its device with one request, even alone"""
    do = "Put it on a larger device, leave less headroom, or correct its memory."
    for device, room, there in _sized_devices(config):
        for tenant in there:
            if tenant.minimum_bytes > room:
                yield (*tenant.key, "device"), _too_large(tenant.model, tenant.minimum_bytes, device, room), do
    for name, model in config.models.items():
        for place, device in enumerate(model.runtime.devices if model.runtime is not None else ()):
            gives = usable_memory(config.devices[device])
            if gives is not None and _minimum_bytes(model) > gives:
                what = _too_large(name, _minimum_bytes(model), device, gives)
                yield ("models", name, "runtime", "devices", place), what, do


def _too_large(model: str, needs: int, device: str, has: int) -> str:
    return f"{model} needs {format_size(needs)}, and {device} has {format_size(has)} to give."


def device_overcommitted(config: Config) -> Findings:
    """permanently loaded models that do not fit on their device together"""
    for device, room, there in _sized_devices(config):
        staying = [tenant for tenant in there if tenant.permanent and tenant.minimum_bytes <= room]
        held = sum(tenant.footprint for tenant in staying)
        if held > room:
            what = f"{join_names(staying)} hold {format_size(held)}, and {device} has {format_size(room)} to give."
            do = "Give some placement, so that they are loaded on demand, or move one, or leave less headroom."
            yield ("devices", device), what, do


def requests_exceed_device(config: Config) -> Findings:
    """permanently loaded models that do not fit with one request each"""
    for device, room, there in _sized_devices(config):
        staying = [tenant for tenant in there if tenant.permanent]
        held, all_at_once = sum(one.footprint for one in staying), sum(one.minimum_bytes for one in staying)
        if held <= room < all_at_once and all(tenant.minimum_bytes <= room for tenant in staying):
            needs = (
                f"with one request each need {format_size(all_at_once)}, and {device} has {format_size(room)} to give"
            )
            what = f"{join_names(staying)} {needs}: their requests wait for each other."
            yield ("devices", device), what, "Move one to another device, or leave less headroom."


def no_room_beside_pinned(config: Config) -> Findings:
    """a model on demand that does not fit beside pinned ones"""
    left = {device: (room, room - _permanent_bytes(there)) for device, room, there in _sized_devices(config)}
    for name, model in config.models.items():
        homes = {replica.device for replica in model.replicas}
        if model.placement is None or model.placement.pinned or not homes or not homes <= left.keys():
            continue
        least = _minimum_bytes(model)
        if all(0 <= beside < least <= room for room, beside in map(left.__getitem__, homes)):
            rest = ", ".join(f"{format_size(left[device][1])} on {device}" for device in sorted(homes))
            what = f"It needs {format_size(least)}, and what is never unloaded leaves {rest}."
            yield ("models", name, "placement"), what, "Pin fewer models, or let it run on another device too."


def models_evict_each_other(config: Config) -> Findings:
    """models on demand on a device that fits only one"""
    homes = {name: {replica.device for replica in model.replicas} for name, model in config.models.items()}
    for device, room, there in _sized_devices(config):
        stays = _permanent_bytes(there)
        moving = [tenant for tenant in there if not tenant.permanent and homes[tenant.model] == {device}]
        sizes = {tenant.model: tenant.footprint for tenant in moving if stays + tenant.minimum_bytes <= room}
        if len(sizes) > 1 and stays + sum(sorted(sizes.values())[:2]) > room:
            what = f"Of {join_names(moving)} only one fits on {device} at a time: each change waits for a load."
            do = "Use a larger device or a second one, unless they are seldom needed together."
            yield ("devices", device), what, do


def unknown_capacity(config: Config) -> Findings:
    """a device with neither `memory` nor `gpu` nor `cgroup`"""
    for name, device in config.devices.items():
        if device.memory is None and not device.gpu and not device.cgroup:
            what = "Nothing says how much memory it has, so nothing is counted unless its replicas say it."
            yield ("devices", name), what, "Add memory, or gpu or cgroup if it is of this machine."


def low_headroom(config: Config) -> Findings:
    """less than 2 % of headroom"""
    for name, device in config.devices.items():
        if device.headroom < MIN_HEADROOM:
            free = f"{100 * device.headroom:.3g} %"
            what = f"Only {free} of the memory is left free, and uncounted use needs some too."
            do = "Leave 5% or more, for contexts of drivers, fragments, and requests that need more than any before."
            yield ("devices", name, "headroom"), what, do


def unknown_request_memory(config: Config) -> Findings:
    """a model on a shared device whose requests are neither declared nor measured"""
    shared = {device for device, there in resident_models(config).items() if len(there) > 1}
    for name, model in config.models.items():
        device = next((replica.device for replica in model.replicas if replica.device in shared), None)
        if device is not None and not model.memory.tells_requests and not _may_be_measured(model):
            what = f"It shares {device}, and what its requests need is unknown: soon they count as nothing."
            do = "Declare memory.per_request and per_unit, or use steelyard.replica and load_metrics: {orca: true}."
            yield ("models", name), what, do


def memory_without_device(config: Config) -> Findings:
    """`memory` without a `device`"""
    for name, model in config.models.items():
        if model.runtime is not None and model.runtime.devices:
            continue
        known = model.replicas or model.discovery or model.runtime is not None
        may_come = any(source.names_devices for source in model.discovery) or not known
        if model.memory != MemoryConfig() and not may_come and not any(replica.device for replica in model.replicas):
            what = "None of its replicas names a device, so its memory is not counted."
            do = "Name the device of each replica, or runtime.devices, and list it under devices."
            yield ("models", name, "memory"), what, do


def unknown_model_size(config: Config) -> Findings:
    """a model on demand without a declared size"""
    for name, model in config.models.items():
        if model.placement is not None and not model.memory.footprint:
            what = "Its size is unknown before its first load, so that load may not fit."
            do = "Declare memory.weights: the size of its file is a good beginning."
            yield ("models", name, "placement"), what, do


def _sized_devices(config: Config) -> Iterator[tuple[str, int, list[ResidentModel]]]:
    """Devices of known size, what they have to give, and the models there."""
    for name, there in resident_models(config).items():
        room = usable_memory(config.devices[name])
        if room is not None:
            yield name, room, there


def _permanent_bytes(there: list[ResidentModel]) -> int:
    return sum(tenant.footprint for tenant in there if tenant.permanent)


def _minimum_bytes(model: ModelConfig) -> int:
    return model.memory.footprint + model.memory.per_request + model.memory.per_unit


def _may_be_measured(model: ModelConfig) -> bool:
    """Load reports in answers say what a request needed; engines that allocate once need nothing for one."""
    if model.load_metrics.orca is not None:
        return model.load_metrics.orca
    return bool(model.dialect) and (model.dialect in PREALLOCATING_DIALECTS or find_dialect(model.dialect).sends_orca)


# The models on each device, as far as the configuration says.


class ResidentModel(NamedTuple):
    """A model on a server of a device; loaded on demand, on any server of the device."""

    model: str
    key: Key  # of the replica
    footprint: int
    minimum_bytes: int  # to answer one request, as far as declared
    permanent: bool  # never unloaded to make room


def resident_models(config: Config) -> dict[str, list[ResidentModel]]:
    """By device. A model on two servers of a device is there twice, unless it is loaded on demand."""
    found: dict[str, dict[tuple[str, str], ResidentModel]] = defaultdict(dict)
    for name, model in config.models.items():
        for place, replica in enumerate(model.replicas):
            if replica.device in config.devices:
                made = _resident_model(name, model, ("models", name, "replicas", place))
                server = str(replica_address(replica.url)) if model.placement is None else ""
                found[replica.device].setdefault((server, name), made)
    return {device: list(there.values()) for device, there in found.items()}


def _resident_model(name: str, model: ModelConfig, key: Key) -> ResidentModel:
    placement = model.placement
    one_home = len({replica.device for replica in model.replicas}) == 1  # else it may be pinned elsewhere
    stays = placement is None or (placement.pinned and one_home)
    return ResidentModel(name, key, model.memory.footprint, _minimum_bytes(model), stays)


def usable_memory(device: DeviceConfig) -> int | None:
    """None: not known before it is measured."""
    return None if device.memory is None else int(device.memory * (1.0 - device.headroom))


def join_names(them: Iterable[ResidentModel]) -> str:
    """`a, b and c`, each once."""
    names = list(dict.fromkeys(tenant.model for tenant in them))
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)

"""Warnings about devices, and about models that share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..config import Config, MemoryConfig, ModelConfig
from ..protocols import find_dialect
from ..units import format_size
from .models import Findings
from .residents import ResidentModel, join_names, resident_models, usable_memory

MIN_HEADROOM = 0.02  # headroom: less is used up by what nobody counts (contexts, fragments)
PREALLOCATING_DIALECTS = ("vllm", "sglang", "tgi")  # take all they need when they start: a request takes nothing more


def never_fits(config: Config) -> Findings:
    """a model that does not fit on its device with one request, even alone"""
    do = "Put it on a larger device, leave less headroom, or correct its memory."
    for device, room, there in _sized_devices(config):
        for tenant in there:
            if tenant.minimum_bytes > room:
                needs, has = format_size(tenant.minimum_bytes), format_size(room)
                what = f"{tenant.model} needs {needs}, and {device} has {has} to give."
                yield (*tenant.key, "device"), what, do
    for name, model in config.models.items():
        for place, device in enumerate(model.runtime.devices if model.runtime is not None else ()):
            gives = usable_memory(config.devices[device])
            if gives is not None and _minimum_bytes(model) > gives:
                what = (
                    f"{name} needs {format_size(_minimum_bytes(model))}, and {device} has {format_size(gives)} to give."
                )
                yield ("models", name, "runtime", "devices", place), what, do


def device_overcommitted(config: Config) -> Findings:
    """permanently loaded models that do not fit on their device together"""
    for device, room, there in _sized_devices(config):
        staying = [
            tenant for tenant in there if tenant.permanent and tenant.minimum_bytes <= room
        ]  # others are told already
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
            what = f"Only {free} of the memory is left free, and what nobody counts needs some too."
            do = "Leave 5% or more, for contexts of drivers, fragments, and requests that need more than any before."
            yield ("devices", name, "headroom"), what, do


def unknown_request_memory(config: Config) -> Findings:
    """a model on a shared device whose requests are neither declared nor measured"""
    shared = {device for device, there in resident_models(config).items() if len(there) > 1}
    for name, model in config.models.items():
        device = next((replica.device for replica in model.replicas if replica.device in shared), None)
        if device is not None and not model.memory.tells_requests and not _may_be_measured(model):
            what = f"It shares {device}, and nobody says what its requests need: soon they count as nothing."
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
            what = "Before its first load nobody knows how large it is, so that load may not fit."
            yield (
                ("models", name, "placement"),
                what,
                "Declare memory.weights: the size of its file is a good beginning.",
            )


def _sized_devices(config: Config) -> Iterator[tuple[str, int, list[ResidentModel]]]:
    """Devices of known size, what they have to give, and who is there."""
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


MEMORY_CHECKS: dict[str, Callable[[Config], Findings]] = {
    "never-fits": never_fits,
    "device-overcommitted": device_overcommitted,
    "requests-exceed-device": requests_exceed_device,
    "no-room-beside-pinned": no_room_beside_pinned,
    "models-evict-each-other": models_evict_each_other,
    "unknown-capacity": unknown_capacity,
    "low-headroom": low_headroom,
    "unknown-request-memory": unknown_request_memory,
    "memory-without-device": memory_without_device,
    "unknown-model-size": unknown_model_size,
}

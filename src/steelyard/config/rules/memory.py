"""The rules of devices, and of models that are loaded on demand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...addresses import replica_address
from ...core.errors import OptionError
from ...documents import Key, Problem, format_key
from ...protocols import find_dialect
from ...protocols.dialects.oip import OpenInference
from ..formats import name_problems, zero_problems
from ..sections.memory import DeviceConfig
from ..sections.root import ANY_MODEL, Config, ModelConfig

MAX_DEVICES = 512  # half of the shared ledger's: at a reload, old and new ones are there
_GPU = re.compile(r"[0-9]{1,4}|(GPU|MIG)-[0-9A-Za-z/-]{1,128}")
_DEVICE_EXAMPLE = "node1/gpu0: {memory: 80GiB}"


def device_problems(config: Config) -> Iterator[Problem]:
    if len(config.devices) > MAX_DEVICES:
        yield Problem(("devices",), f"there are {len(config.devices)}, and no more than {MAX_DEVICES} can be counted")
    for name, device in config.devices.items():
        key: Key = ("devices", name)
        yield from name_problems(key, "a device's name")
        yield from _device(key, device)
    yield from _duplicate_devices(config)


def _device(key: Key, device: DeviceConfig) -> Iterator[Problem]:
    if device.memory == 0:
        yield Problem((*key, "memory"), "must be more than 0; leave it out where it can be measured")
    if device.headroom >= 1:
        yield Problem((*key, "headroom"), "must be less than 100%, or nothing is left to use")
    if device.gpu and device.cgroup:
        yield Problem((*key, "cgroup"), "a device is a gpu or a cgroup: leave one of the two out")
    if device.gpu and not _GPU.fullmatch(device.gpu):
        what = 'is neither the number of a GPU nor its UUID: write for example "0", as nvidia-smi -L does'
        yield Problem((*key, "gpu"), f"{device.gpu!r} {what}")
    if device.cgroup and (what := _cgroup_path_error(device.cgroup)):
        yield Problem((*key, "cgroup"), what)


def _cgroup_path_error(path: str) -> str:
    if not path.startswith("/"):
        return f"{path!r}: write the whole path, for example /sys/fs/cgroup/models.slice"
    if "\0" in path or ".." in path.split("/"):
        return f"{path!r}: write it without .., and without NUL"
    return ""


def _duplicate_devices(config: Config) -> Iterator[Problem]:
    """Under two names, the memory of one device would be given out twice."""
    seen: dict[tuple[str, str], str] = {}
    for name, device in config.devices.items():
        for kind, what in (("gpu", device.gpu), ("cgroup", device.cgroup.rstrip("/"))):
            first = seen.setdefault((kind, what), name) if what else name
            if first != name:
                twice = f"is that of {format_key(('devices', first))} too: one device has one name"
                yield Problem(("devices", name, kind), twice)


def server_problems(config: Config) -> Iterator[Problem]:
    """One address is one process, on one device."""
    first: dict[str, tuple[Key, str]] = {}
    for name, model in config.models.items() if config.devices else ():
        for place, replica in enumerate(model.replicas):
            here: Key = ("models", name, "replicas", place)
            try:
                address = str(replica_address(replica.url))
            except ValueError:
                continue  # reported elsewhere
            there, device = first.setdefault(address, (here, replica.device))
            if device != replica.device:
                says = f"on {device}" if device else "on no device"
                key = format_key((*there, "device"))
                what = f"{key} says that the server at {address} is {says}: say the same in both"
                yield Problem((*here, "device"), what)


def placement_problems(key: Key, model: ModelConfig, config: Config) -> Iterator[Problem]:
    placement = model.placement
    if placement is None:
        return
    here: Key = (*key, "placement")
    if what := _load_api_error(model):
        yield Problem((*here, "load_api"), what)
    if key[-1:] == (ANY_MODEL,):
        yield Problem(here, f"{ANY_MODEL} stands for every name, and no server can load that: give the model its name")
    yield from zero_problems(here, placement, "load_timeout")
    if not model.health.enabled:
        what = "must not be false with placement: a probe sees that a load is done"
        yield Problem((*key, "health", "enabled"), what)
    yield from _replicas_without_device(key, model, config)


def _replicas_without_device(key: Key, model: ModelConfig, config: Config) -> Iterator[Problem]:
    for place, replica in enumerate(model.replicas):
        if not replica.device or not config.devices:
            what = f"the model has placement, so name one of {', '.join(config.devices)}"
            if not config.devices:
                what = f"the model has placement, so list its device under devices, for example {_DEVICE_EXAMPLE}"
            yield Problem((*key, "replicas", place, "device"), what)
    for place, source in enumerate(model.discovery):
        if not source.names_devices:
            what = f"the model has placement, and {source.describe()} names no devices"
            yield Problem((*key, "discovery", place), f"{what}: list its replicas here, or in a file")


def _load_api_error(model: ModelConfig) -> str:
    """Empty: there is a way to load it."""
    load_api, dialect = model.placement.load_api if model.placement else "", model.dialect
    if load_api == "agent" or _has_repository(dialect):
        return ""
    if load_api:
        known = f"the dialect {dialect} has none" if dialect else "the dialect is not given"
        return f"repository is of Triton and MLServer, and {known}: write dialect: triton or oip, or load_api: agent"
    known = f"a server that speaks {dialect} cannot be told to load a model" if dialect else "the dialect is not given"
    return f"{known}: write load_api: agent (steelyard.replica), or dialect: triton or oip"


def _has_repository(dialect: str) -> bool:
    if not dialect:
        return False
    try:
        return issubclass(find_dialect(dialect), OpenInference)
    except OptionError:
        return True  # reported elsewhere

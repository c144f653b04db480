"""Options of the demo, and the configuration of its gateway."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..config import AdminConfig, Config, ModelConfig, ReplicaConfig, with_overrides
from ..config.sections.base import OutlierDetectionConfig
from ..config.sections.observability import HistoryConfig, SloConfig
from ..config.sections.scaling import AutoscaleConfig
from ..control.listeners.tcp import BindAddress, is_in_use
from ..core.errors import OptionError
from ..documents import Seconds
from ..runtimes.process.config import ProcessRuntimeConfig
from .corpus import MODEL_NAME
from .die_with_parent import tied_command
from .replica_processes import HOST, SINGLE_THREAD_ENV, SLOWDOWNS, replica_arguments

DEFAULT_PORT, DEFAULT_ADMIN_PORT = 8080, 9080  # if free
MAX_REPLICAS = 5
EJECT_SLOW_NEVER = 1000.0  # with an ejection the policies would have different fleets
EXTRA_LOAD_SECONDS = 2.0  # that a started replica pretends to load longer


class DemoOptions(msgspec.Struct, frozen=True):
    seconds: int | None = None  # None: until Ctrl-C
    policy: str | None = None
    workers: int | None = None
    port: int | None = None  # None: 8080 if it is free
    guided: bool = True


class Ports(msgspec.Struct, frozen=True):
    """0: the kernel chooses."""

    gateway: int
    admin: int


@contextmanager
def claim_default_ports() -> Iterator[bool]:
    """True for one demo at a time: two that start at once do not both try the usual ports.

    An abstract socket is the lock: it is gone with its process.
    """
    with socket.socket(socket.AF_UNIX) as name:
        try:
            name.bind(f"\0steelyard-demo-{DEFAULT_PORT}")
            claimed = True
        except OSError:
            claimed = False
        yield claimed


def choose_ports(wanted: int | None, *, usual: bool) -> Ports:
    if wanted is not None and not _free(wanted):
        raise OptionError(f"--port: {wanted} is in use; name another, or none, and a free one is found")
    gateway = wanted or (DEFAULT_PORT if usual and _free(DEFAULT_PORT) else 0)
    return Ports(gateway, DEFAULT_ADMIN_PORT if usual and _free(DEFAULT_ADMIN_PORT) else 0)


def _free(port: int) -> bool:
    return not is_in_use(BindAddress(socket.AF_INET, HOST, port))


def configuration(
    urls: Mapping[str, str], options: DemoOptions, at: Ports, folder: Path, latency: float | None = None
) -> Config:
    """`urls`: by the replica's name. OptionError names what cannot be."""
    fleet = tuple(ReplicaConfig(id=name, url=url) for name, url in urls.items())
    slo = SloConfig(latency=None if latency is None else Seconds(latency), availability=99.9, period=Seconds(3600))
    model = ModelConfig(
        replicas=fleet,
        dialect="openai",
        policy="least_work",
        idempotent=True,
        slow_start=Seconds(3),
        slo=slo if latency else None,
        outlier_detection=OutlierDetectionConfig(slow_factor=EJECT_SLOW_NEVER),
    )
    config = Config(
        models={MODEL_NAME: model},
        listen=f"{HOST}:{at.gateway}",
        admin=AdminConfig(listen=f"{HOST}:{at.admin}"),
        history=HistoryConfig(path=str(folder / "history.sqlite")),
    )
    return with_overrides(config, policy=options.policy, workers=options.workers)


def with_autoscaling(config: Config, folder: Path) -> Config:
    """The same, and more replicas, as fast as `half`, are started under load."""
    runtime = ProcessRuntimeConfig(
        command=(
            *tied_command("steelyard.demo.replica"),
            *replica_arguments("{port}", SLOWDOWNS["half"], EXTRA_LOAD_SECONDS),
        ),
        environment=SINGLE_THREAD_ENV,
        working_directory=str(folder),
        log_directory=str(folder),
        drain_timeout=Seconds(5),
        stop_timeout=Seconds(1),
    )
    autoscale = AutoscaleConfig(
        min=len(SLOWDOWNS),
        max=MAX_REPLICAS,
        cold_start=Seconds(EXTRA_LOAD_SECONDS + 1),
        scaler_options={"stabilization_window": 20},
    )
    model = msgspec.structs.replace(config.models[MODEL_NAME], runtime=runtime, autoscale=autoscale, concurrency=1)
    return msgspec.structs.replace(config, models={MODEL_NAME: model})

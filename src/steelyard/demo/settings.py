"""What can be chosen about the demo, and the configuration of its gateway."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..config import Admin, Config, ModelConfig, ReplicaConfig, overridden
from ..config.observing import History, Slo
from ..config.parts import Ejection
from ..config.scaling import Autoscale, Runtime
from ..control.tcp_socket import Place, in_use
from ..core.errors import OptionError
from ..documents import Seconds
from .corpus import MODEL
from .fleet import HOST, ONE_THREAD, PACES, arguments
from .tied import command

PORT, ADMIN = 8080, 9080  # if nobody has them
MOST = 5  # replicas
NEVER = 1000.0  # times as slow as others: a slow one that was taken out would make the comparison one of two fleets
LOADING = 2.0  # seconds that one which is started pretends to load longer than it does


class Options(msgspec.Struct, frozen=True):
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
def usual_ports() -> Iterator[bool]:
    """Has this demo the right to the usual ports? One demo has, so that two that start at once do not both try.

    The name of a socket that is no file: nobody else can have it, and with us it is gone.
    """
    with socket.socket(socket.AF_UNIX) as name:
        try:
            name.bind(f"\0steelyard-demo-{PORT}")
        except OSError:
            yield False
        else:
            yield True


def ports(wanted: int | None, *, usual: bool) -> Ports:
    """OptionError: the port that was asked for is in use."""
    if wanted is not None and not _free(wanted):
        raise OptionError(f"--port: {wanted} is in use; name another, or none, and a free one is found")
    gateway = wanted or (PORT if usual and _free(PORT) else 0)
    return Ports(gateway, ADMIN if usual and _free(ADMIN) else 0)


def _free(port: int) -> bool:
    return not in_use(Place(socket.AF_INET, HOST, port))


def configuration(
    urls: Mapping[str, str], options: Options, at: Ports, folder: Path, promised: float | None = None
) -> Config:
    """The gateway in front of these replicas, by name. OptionError names what cannot be."""
    fleet = tuple(ReplicaConfig(id=name, url=url) for name, url in urls.items())
    slo = Slo(latency=None if promised is None else Seconds(promised), availability=99.9, period=Seconds(3600))
    model = ModelConfig(
        replicas=fleet,
        dialect="openai",
        idempotent=True,
        slow_start=Seconds(3),
        slo=slo if promised else None,
        ejection=Ejection(slow=NEVER),
    )
    config = Config(
        models={MODEL: model},
        listen=f"{HOST}:{at.gateway}",
        admin=Admin(listen=f"{HOST}:{at.admin}"),
        history=History(path=str(folder / "history.sqlite")),
    )
    return overridden(config, policy=options.policy, workers=options.workers)


def scaled(config: Config, folder: Path) -> Config:
    """The same, but more replicas are started when these have too much to do. Of the speed of `half`."""
    runtime = Runtime(
        command=(*command("steelyard.demo.replica"), *arguments("{port}", PACES["half"], LOADING)),
        environment=ONE_THREAD,
        folder=str(folder),
        log=str(folder),
        drain=Seconds(5),
        stop_timeout=Seconds(1),
    )
    autoscale = Autoscale(min=len(PACES), max=MOST, cold_start=Seconds(LOADING + 1), scaler_options={"down_after": 20})
    model = msgspec.structs.replace(config.models[MODEL], runtime=runtime, autoscale=autoscale, concurrency=1)
    return msgspec.structs.replace(config, models={MODEL: model})

"""What can be chosen about the demo, and the configuration of its gateway."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import msgspec

from ..config import Admin, Config, ModelConfig, ReplicaConfig, overridden
from ..control.tcp_socket import Place, in_use
from ..core.errors import OptionError
from .corpus import MODEL

HOST = "127.0.0.1"
PORT, ADMIN = 8080, 9080  # if nobody has them


class Options(msgspec.Struct, frozen=True):
    seconds: int | None = None  # None: until Ctrl-C
    policy: str | None = None
    workers: int | None = None
    port: int | None = None  # None: 8080 if it is free


def configuration(urls: Mapping[str, str], options: Options) -> Config:
    """The gateway in front of these replicas, by name, with all its defaults. OptionError names what cannot be."""
    fleet = tuple(ReplicaConfig(id=name, url=url) for name, url in urls.items())
    model = ModelConfig(replicas=fleet, dialect="openai")
    admin = Admin(listen=f"{HOST}:{_port(None, ADMIN)}")
    config = Config(models={MODEL: model}, listen=f"{HOST}:{_port(options.port, PORT)}", admin=admin)
    return overridden(config, policy=options.policy, workers=options.workers)


def _port(wanted: int | None, usual: int) -> int:
    """0: the kernel chooses."""
    place = Place(socket.AF_INET, HOST, wanted or usual)
    if not in_use(place):
        return place.port
    if wanted is not None:
        raise OptionError(f"--port: {wanted} is in use; name another, or none, and a free one is found")
    return 0

"""The proxies that the benchmarks compare. A new one: a class with `find` and `start`, and a line in this table."""

from __future__ import annotations

from .base import Peer, Setting, Start
from .envoy import Envoy
from .haproxy import HAProxy
from .nginx import Nginx
from .routers import Router
from .steelyard import Steelyard

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        HAProxy("haproxy"),
        HAProxy("haproxy-plain", headers=False),
        HAProxy("haproxy-queue", queue=1),
        Nginx(),
        Envoy(),
        Router("smg", ("launch",)),
        Router("sglang-router", ("launch",)),
        Router("vllm-router"),
        Router("smg", ("launch",), policy="cache_aware"),
        Router("vllm-router", policy="cache_aware"),
        Steelyard("steelyard"),
        Steelyard("steelyard-pure", pure=True),
        Steelyard("steelyard-queue", "least_work", "1"),
        Steelyard("steelyard-connections", "least_connections", "1"),
        Steelyard("steelyard-vllm", dialect="vllm"),
    )
}

__all__ = ["PEERS", "Peer", "Setting", "Start"]
